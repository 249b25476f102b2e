"""Fixture: sandboxes."""

import contextlib

import pytest

from suites.k8s.sandbox import Sandbox


@pytest.fixture
def sandbox_of():
    """Creates sandboxes of overlays and removes them after the test."""
    with contextlib.ExitStack() as opened:

        def make(overlay):
            sandbox = Sandbox(overlay)
            opened.callback(sandbox.close)
            return sandbox

        yield make
