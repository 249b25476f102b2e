"""The browser that the tests drive, and the servers that stand between it and the pod, or beside it."""

import http.client
import http.server
import os
import re
import threading
import time
import unittest

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

import pod

URL = f"http://{pod.ADMIN}/"
PATIENCE = 20_000


def setUpModule():
    """One browser and one load for all tests of a module."""
    Console.playwright = sync_playwright().start()
    Console.browser = Console.playwright.chromium.launch(executable_path=os.environ["CHROMIUM"], args=["--no-sandbox"])
    expect.set_options(timeout=PATIENCE)
    Console.traffic = pod.Traffic()
    Console.traffic.start()


def tearDownModule():
    Console.traffic.is_stopped.set()
    Console.traffic.join()
    Console.browser.close()
    Console.playwright.stop()


class Console(unittest.TestCase):
    """Opens the page anew for each test; what the browser complains of fails the test."""

    def setUp(self):
        self.complaints = []
        self.sent = []
        self.page = self.open()

    def open(self, url=URL, **options):
        context = self.browser.new_context(**{"locale": "en-GB", "viewport": {"width": 1280, "height": 900}, **options})
        self.addCleanup(context.close)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda said: said.type in ("error", "warning") and self.complaints.append(said.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.sent.append(request))
        page.goto(url)
        expect(page.locator("#state")).to_contain_text(re.compile("ready|就绪"))
        # Figures come with the second answer.
        expect(page.locator("#tables tbody tr").first).to_be_visible()
        return page

    def tearDown(self):
        self.assertEqual(self.complaints, [])

    def ask(self, text, what=None, page=None):
        page = page or self.page
        page.fill("#pasted", text)
        if what:
            page.select_option("#what", what)
        page.click("form .main")
        expect(page.locator("#answer article").first).to_be_visible()
        return page.locator("#answer")

    def until(self, holds):
        """The page's policy forbids what Playwright's own waiting needs: to evaluate text."""
        deadline = time.monotonic() + PATIENCE / 1000
        while not holds():
            self.assertLess(time.monotonic(), deadline, "what was waited for did not come")
            self.page.wait_for_timeout(100)

    def is_sound(self, page, where):
        found = Axe().run(page).response["violations"]
        told = [f"{one['id']}: {one['help']}: {[node['html'][:150] for node in one['nodes'][:3]]}" for one in found]
        self.assertEqual(told, [], where)

    def serve(self, handler):
        site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=site.serve_forever, daemon=True).start()
        self.addCleanup(site.server_close)
        self.addCleanup(site.shutdown)
        return site


class Proxy(http.server.BaseHTTPRequestHandler):
    """The admin port under a path; it is asked by its own name, as most proxies do."""

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        pod_port = http.client.HTTPConnection(pod.ADMIN, timeout=20)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        pod_port.request(self.command, self.path.removeprefix("/pods/7"), body, headers)
        answer = pod_port.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
        pod_port.close()

    do_POST = do_GET

    def log_message(self, *_):
        pass


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """A site that an operator reads beside the console."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title>")

    def log_message(self, *_):
        pass
