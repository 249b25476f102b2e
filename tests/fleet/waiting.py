"""Waiting for what has to come, and saying what did not."""

import time

PATIENCE_SECONDS = 60


class Failed(Exception):
    """What the fleet, or a request, should not have done."""


def check(condition: object, what: str) -> None:
    if not condition:
        raise Failed(what)


def until(what: str, there, patience: float = PATIENCE_SECONDS):
    """What `there` returns once it is something."""
    deadline = time.monotonic() + patience
    while not (found := there()):
        check(time.monotonic() < deadline, f"{what}: not within {patience} s")
        time.sleep(0.05)
    return found
