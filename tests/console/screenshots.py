"""Takes the pictures of docs/: the console of a pod that has been under traffic for as long as its charts go back.

    screenshots.py FOLDER
"""

import os
import pathlib
import sys

from playwright.sync_api import sync_playwright

import pod

CHARTS_SECONDS = 300
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)

with sync_playwright() as playwright, pod.Traffic(0.004, in_waves=True):
    browser = playwright.chromium.launch(executable_path=os.environ["CHROMIUM"], args=["--no-sandbox"])
    wide = browser.new_page(locale="en-GB", viewport={"width": 1280, "height": 800})
    wide.goto(f"http://{pod.ADMIN}/")
    pod.change()
    wide.wait_for_timeout(1000 * int(os.environ.get("SCREENSHOT_SECONDS", CHARTS_SECONDS)))
    wide.screenshot(path=folder / "console.png")
    wide.fill("#pasted", pod.MEMBERS[7])
    wide.select_option("#what", "imei")
    wide.click("form .main")
    wide.locator("#answer article").wait_for()
    wide.locator("#lookup").screenshot(path=folder / "console-lookup.png")
    # What stays at the top would lie across what is taller than the window.
    wide.evaluate("document.querySelector('.bar').style.position = 'static'")
    with pod.BrokenStore():
        wide.locator("#audience-old_users .notice").wait_for()
        wide.wait_for_timeout(3000)
        wide.locator("#audience-old_users").screenshot(path=folder / "console-audience.png")
    browser.close()
