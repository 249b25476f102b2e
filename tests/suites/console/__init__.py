"""Consoles in headless Chromium with Playwright: a running rtad under traffic, with store changes
and failures, and a writer under events."""
