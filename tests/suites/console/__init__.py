"""The console in a real browser: headless Chromium, driven by Playwright, reads the page of a
running rtad that is under traffic, and whose store changes and fails."""
