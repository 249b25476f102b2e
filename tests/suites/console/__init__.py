"""Console in headless Chromium with Playwright: a running rtad under traffic, with store changes
and failures."""
