"""Waiting: for a condition, with a deadline and a message."""

import time

# Long enough for the slowest machine, as crates/testkit/src/wait.rs has it.
WAIT_SECONDS = 300


def wait_until(what, probe, seconds=WAIT_SECONDS):
    """The first true value of `probe`."""
    deadline = time.monotonic() + seconds
    while not (found := probe()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.05)
    return found
