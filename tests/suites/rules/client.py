"""A connection on which requests are sent without waiting for answers."""

import socket

from suites.testkit.waiting import WAIT_SECONDS


class Client:
    def __init__(self, address):
        host, port = address.split(":")
        self.connection = socket.create_connection((host, int(port)), WAIT_SECONDS)
        self.answers = self.connection.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.answers.close()
        self.connection.close()

    def post(self, path, bodies):
        """The answers, in the order of the requests."""
        self.write([(f"POST {path}", body, "") for body in bodies])
        found = self.read(len(bodies))
        assert all(status == 200 for status, _ in found), found
        return [body for _, body in found]

    def write(self, requests):
        """Sends requests: each is its line, its body, and further headers of one line each."""
        for line, body, headers in requests:
            head = f"{line} HTTP/1.1\r\nHost: rtad\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
            self.connection.sendall(head.encode() + body)

    def read(self, count):
        """Statuses and bodies of the next answers."""
        return [self.answer() for _ in range(count)]

    def answer(self):
        status = int(self.answers.readline().split()[1])
        size = 0
        while (line := self.answers.readline().lower()) != b"\r\n":
            if line.startswith(b"content-length:"):
                size = int(line.split(b":")[1])
        return status, self.answers.read(size)
