"""HTTP requests of tests: one connection each, no redirects, no proxies."""

import contextlib
import http.client
import json
import re
from typing import NamedTuple

from .waiting import WAIT_SECONDS


class Answer(NamedTuple):
    status: int
    body: bytes

    def json(self):
        return json.loads(self.body)

    def text(self):
        return self.body.decode()


def ask(address, path, body=None, method=None, headers=None):
    """The answer of `address` (`host:port`). With a body the default method is POST."""
    connection = http.client.HTTPConnection(address, timeout=WAIT_SECONDS)
    with contextlib.closing(connection):
        connection.request(method or ("GET" if body is None else "POST"), path, body, headers or {})
        answer = connection.getresponse()
        return Answer(answer.status, answer.read())


def metrics(address):
    """Values of all series of /metrics, each with its name and its set of labels."""
    series = []
    for line in ask(address, "/metrics").text().splitlines():
        if found := re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line):
            labels = frozenset(re.findall(r'(\w+)="([^"]*)"', found[2] or ""))
            series.append((found[1], labels, float(found[3])))
    return series


def metric(address, name, **labels):
    """Sum of a metric over the series with these labels."""
    found = metrics(address)
    return sum(value for one, has, value in found if one == name and has >= labels.items())


def says_yes(address, path):
    """Whether a GET of this path is answered with 200."""
    try:
        return ask(address, path).status == 200
    except (OSError, http.client.HTTPException):
        return False
