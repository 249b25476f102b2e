"""Sandboxes of the tests."""

import contextlib

import pytest

from suites.k8s.sandbox import Sandbox


@pytest.fixture
def sandbox_of():
    """Makes sandboxes of overlays, which are removed after the test."""
    with contextlib.ExitStack() as opened:

        def make(overlay):
            sandbox = Sandbox(overlay)
            opened.callback(sandbox.close)
            return sandbox

        yield make
