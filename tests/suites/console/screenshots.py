"""Screenshots of the console. `make pictures` takes them.

    python3 -m suites.console.screenshots DOCS [EVERY]

Those of docs/ go to DOCS. EVERY gets each page at each width and in both themes, to look at: well,
and with a lost store and a refused config. A cap is reached in all.
"""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile

from playwright.sync_api import sync_playwright

from suites.console.browsing import chromium
from suites.console.pod import MEMBERS, Pod, traffic

CHARTS_SECONDS = 300
WIDTHS = {390: 844, 1280: 900, 1920: 1080}
# A cap that the traffic reaches.
CAPPED = """
[[strategy]]
name = "winter-sale"
exclude = ["old_users"]
cap = "winter"

[[cap]]
name = "winter"
limit = 40
period = "day"
time_zone = "Asia/Shanghai"
"""


def take_docs(browser, pod, folder):
    wide = browser.new_page(locale="en-GB", viewport={"width": 1280, "height": 800})
    wide.goto(f"http://{pod.admin}/")
    pod.change()
    seconds = int(os.environ.get("SCREENSHOT_SECONDS", CHARTS_SECONDS))
    wide.wait_for_timeout(1000 * seconds)
    wide.screenshot(path=folder / "console.png")
    wide.fill("#pasted", MEMBERS[7])
    wide.select_option("#what", "imei")
    wide.click("form .main")
    wide.locator("#answer article").wait_for()
    wide.locator("#lookup").screenshot(path=folder / "console-lookup.png")
    # The sticky header would cover elements taller than the window.
    wide.evaluate("document.querySelector('.bar').style.position = 'static'")
    with pod.broken_store():
        wide.locator("#audience-old_users .notice").wait_for()
        wide.wait_for_timeout(3000)
        wide.locator("#audience-old_users").screenshot(path=folder / "console-audience.png")
    wide.close()


def take_every(browser, pages, folder):
    """Whole pages by name, in all widths and both themes."""
    for scheme in ("light", "dark"):
        for width, height in WIDTHS.items():
            size = {"width": width, "height": height}
            context = browser.new_context(locale="en-GB", color_scheme=scheme, viewport=size)
            for name, address in pages.items():
                page = context.new_page()
                page.goto(f"http://{address}/")
                # Rates need two polls.
                page.wait_for_timeout(6000)
                path = folder / f"{name}-{width}-{scheme}.png"
                page.screenshot(path=path, full_page=True)
                page.close()
            context.close()


@contextlib.contextmanager
def running():
    """A pod under traffic."""
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pod = stack.enter_context(Pod(folder, 3_000_000, CAPPED))
        stack.enter_context(traffic(pod.decisions, 0.004, in_waves=True))
        yield pod


def main():
    folder, *every = (pathlib.Path(name) for name in sys.argv[1:])
    for each in (folder, *every):
        each.mkdir(parents=True, exist_ok=True)
    with running() as pod, sync_playwright() as playwright:
        browser = playwright.chromium.launch(**chromium())
        take_docs(browser, pod, folder)
        for each in every:
            take_every(browser, {"pod": pod.admin}, each)
            with pod.lost_store(), pod.broken_config():
                take_every(browser, {"pod-with-problems": pod.admin}, each)
        browser.close()
    pictures = sorted(folder.glob("console*.png"))
    subprocess.run(["pngquant", "--force", "--ext", ".png", *pictures], check=True)


if __name__ == "__main__":
    main()
