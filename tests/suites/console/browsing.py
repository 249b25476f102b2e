"""Browser fixture, reverse proxy and cross-origin site for the console tests."""

import contextlib
import http.client
import http.server
import os
import re
import shutil
import threading

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from suites.testkit.waiting import WAIT_SECONDS, wait_until

# A pod polls its store at the lowest priority: on busy cores a poll may take 20 s.
WAIT_MILLISECONDS = 1000 * WAIT_SECONDS
# The pages poll every 2 s. In tests they poll every 200 ms.
FASTER = """{
    const later = window.setTimeout;
    window.setTimeout = (action, wait) => later(action, wait === 2000 ? 200 : wait);
}"""


def chromium():
    """Launch options: the browser at $CHROMIUM, by default `chromium-headless-shell` on PATH, which
    takes two thirds of the CPU time of `chromium`."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium-headless-shell")
    return {"executable_path": path, "args": ["--no-sandbox"]}


class Pages:
    """Opens a page for each test; browser warnings and errors fail the test."""

    @contextlib.contextmanager
    def pages(self, browser, url):
        self.browser, self.url = browser, url
        self.page_errors = []
        self.requests = []
        with contextlib.ExitStack() as self.closing:
            self.page = self.open()
            yield
            assert self.page_errors == []

    def expect_figures(self, page):
        """Waits until the page shows figures."""
        raise NotImplementedError

    def open(self, url=None, **options):
        context = self.browser.new_context(
            **{"locale": "en-GB", "viewport": {"width": 1280, "height": 900}, **options}
        )
        self.closing.callback(context.close)
        context.add_init_script(FASTER)
        page = context.new_page()
        # A handler of a route may still wait for an answer of the pod when its test has ended.
        self.closing.callback(page.unroute_all, behavior="ignoreErrors")
        page.set_default_timeout(WAIT_MILLISECONDS)
        page.on(
            "console",
            lambda message: (
                message.type in ("error", "warning") and self.page_errors.append(message.text)
            ),
        )
        page.on("pageerror", lambda error: self.page_errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request))
        page.goto(url or self.url)
        self.expect_figures(page)
        return page

    def wait_for(self, condition):
        """Waits for a condition. Playwright's `wait_for_function` needs eval, which the CSP blocks."""

        def probe():
            self.page.wait_for_timeout(50)
            return condition()

        return wait_until("condition on the page", probe)

    def check_accessibility(self, page, where):
        rules = Axe().run(page).response["violations"]
        violations = [
            f"{rule['id']}: {rule['help']}: {[node['html'][:150] for node in rule['nodes'][:3]]}"
            for rule in rules
        ]
        assert violations == [], (where, violations)

    def serve(self, handler):
        site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=site.serve_forever, daemon=True).start()
        self.closing.callback(site.server_close)
        self.closing.callback(site.shutdown)
        return site

    def check_texts(self, composed, equal):
        """Both languages have the texts that the page uses, and no others. `composed` are
        beginnings of keys with a word of an answer, which Rust tests check; `equal` are beginnings
        of keys whose texts do not differ."""
        found = self.page.evaluate(
            """async () => {
                const { LANGUAGES } = await import("/console/words.js");
                const parts = performance.getEntriesByType("resource").map(({ name }) => name)
                    .filter((name) => /(?<!en|zh)\\.js$/.test(name));
                const texts = parts.map((url) => fetch(url).then((answer) => answer.text()));
                const marked = [...document.querySelectorAll("[data-t], [data-t-label]")];
                return { ...LANGUAGES, code: (await Promise.all(texts)).join("\\n"),
                    marked: marked.map(({ dataset }) => dataset.t ?? dataset.tLabel) };
            }"""
        )
        en, zh, code = found["en"], found["zh"], found["code"]
        used = re.findall(r'\bt\("([^"]+)"', code)
        assert len(used) > 20
        wanted = {*used, *found["marked"]}
        assert wanted - en.keys() == set(), "missing"
        named = (key for key in en if key not in wanted and f'"{key}"' not in code)
        idle = [key for key in named if not key.startswith(composed)]
        assert idle == []
        assert list(en) == list(zh)
        for key, text in en.items():
            holes = [sorted(re.findall(r"\{(\w+)\}", each)) for each in (text, zh[key])]
            assert holes[0] == holes[1], key
            assert text != zh[key] or key.startswith(equal), key


class Console(Pages):
    """The console of a pod."""

    @pytest.fixture(autouse=True)
    def open_console(self, pod, traffic, browser):
        self.pod, self.traffic = pod, traffic
        with self.pages(browser, f"http://{pod.admin}/"):
            yield

    def expect_figures(self, page):
        expect(page.locator("#state")).to_contain_text(re.compile("ready|就绪"))
        # The page computes rates, which need two polls of the metrics.
        expect(page.locator("#tables tbody tr").first).to_be_visible()

    def table(self, title):
        """A table of the traffic section."""
        return self.page.locator("#tables article", has_text=title).locator("table")

    def look_up(self, text, kind=None, page=None):
        """Submits the lookup form; `kind` is an option of its select box."""
        page = page or self.page
        page.fill("#pasted", text)
        if kind:
            page.select_option("#what", kind)
        page.click("form .main")
        expect(page.locator("#answer article").first).to_be_visible()
        return page.locator("#answer")


def proxy_handler(address):
    """Reverse proxy handler: serves the admin port under `/pods/7` and replaces the Host header."""

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            admin = http.client.HTTPConnection(address, timeout=20)
            with contextlib.closing(admin):
                headers = {
                    name: value for name, value in self.headers.items() if name.lower() != "host"
                }
                admin.request(self.command, self.path.removeprefix("/pods/7"), body, headers)
                answer = admin.getresponse()
                content = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, *_):
            pass

    return Proxy


class OtherSite(http.server.BaseHTTPRequestHandler):
    """Another site open in the same browser."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>other site</title>")

    def log_message(self, *_):
        pass
