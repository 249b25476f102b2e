"""Waiting: for a condition, with a deadline and a message."""

import time

# Far longer than anything takes: no machine is too slow for it.
WAIT_SECONDS = 60


def wait_until(what, probe, seconds=WAIT_SECONDS):
    """The first true value that `probe` returns."""
    deadline = time.monotonic() + seconds
    while not (found := probe()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.05)
    return found
