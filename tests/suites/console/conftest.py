"""Fixtures: pod, traffic and browser."""

import pytest
from playwright.sync_api import expect, sync_playwright

from suites.console import pod as pods
from suites.console.browsing import WAIT_MILLISECONDS, chromium


@pytest.fixture(scope="package")
def pod(tmp_path_factory):
    with pods.Pod(tmp_path_factory.mktemp("console")) as pod:
        yield pod


@pytest.fixture(scope="module")
def traffic(pod):
    with pods.traffic(pod.decisions) as sent:
        yield sent


@pytest.fixture(scope="package")
def browser():
    expect.set_options(timeout=WAIT_MILLISECONDS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**chromium())
        yield browser
        browser.close()
