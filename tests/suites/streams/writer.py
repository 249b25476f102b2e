"""The writer with an event window, and a proxy in front that loses answers."""

import contextlib
import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from suites.testkit.client import metrics
from suites.testkit.ports import HOST
from suites.testkit.process import Writer
from suites.testkit.waiting import WAIT_SECONDS

CONFIG = """
state_dir = "state"

[[window]]
name = "clicks"
length = "24h"
capacity = 1_000_000
count = 100
durability = "disk"
"""


class ClickWriter(Writer):
    """The writer with the window `clicks`."""

    def __init__(self, folder):
        self.starts = 0
        super().__init__(folder, CONFIG)

    def start(self):
        self.starts += 1
        super().start()

    def crash(self):
        """Kills it, and starts it again with its state directory, on the same ports."""
        self.kill()
        self.start()

    def events(self):
        """Events of the window by result, from the metrics."""
        name = "rtad_window_events_total"
        found = [(dict(labels), value) for one, labels, value in metrics(self.admin) if one == name]
        return {labels["result"]: int(value) for labels, value in found if value}


class Proxy:
    """Forwards requests. `lose` answers are lost, after a call of `on_loss`: the connection closes
    without one. Without `keys`, requests lose their Idempotency-Key."""

    def __init__(self, upstream, lose=0, keys=True, on_loss=None):
        self.upstream, self.lose, self.keys, self.on_loss = upstream, lose, keys, on_loss
        self.lock = threading.Lock()
        # Key and body of each request.
        self.seen = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_POST(self):
                proxy.forward(self)

        self.server = ThreadingHTTPServer((HOST, 0), Handler)
        self.url = f"http://{HOST}:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def forward(self, request):
        body = request.rfile.read(int(request.headers["Content-Length"]))
        headers = dict(request.headers)
        key = headers.get("Idempotency-Key")
        if not self.keys:
            headers.pop("Idempotency-Key", None)
        connection = http.client.HTTPConnection(self.upstream, timeout=WAIT_SECONDS)
        with contextlib.closing(connection):
            connection.request("POST", request.path, body, headers)
            answer = connection.getresponse()
            text = answer.read()
        with self.lock:
            self.seen.append((key, body))
            lost = self.lose > 0
            self.lose -= lost
        if lost:
            if self.on_loss:
                self.on_loss()
            request.close_connection = True
            return
        request.send_response(answer.status)
        request.send_header("Content-Length", str(len(text)))
        request.end_headers()
        request.wfile.write(text)

    def repeated(self):
        """Number of requests whose key was seen before, with the same body."""
        first, count = {}, 0
        for key, body in self.seen:
            if key in first:
                assert first[key] == body, "a key has two bodies"
                count += 1
            first.setdefault(key, body)
        return count
