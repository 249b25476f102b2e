"""Screenshots for docs/: the console of a pod with traffic for the whole range of its charts.

`make pictures` takes them.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

from playwright.sync_api import sync_playwright

from suites.console.browsing import chromium
from suites.console.pod import MEMBERS, Pod, traffic

CHARTS_SECONDS = 300


def take(pod, folder):
    with sync_playwright() as playwright, traffic(pod.decisions, 0.004, in_waves=True):
        browser = playwright.chromium.launch(**chromium())
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
        browser.close()


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work, Pod(pathlib.Path(work), 3_000_000) as pod:
        take(pod, folder)
    pictures = sorted(folder.glob("console*.png"))
    subprocess.run(["pngquant", "--force", "--ext", ".png", *pictures], check=True)


if __name__ == "__main__":
    main()
