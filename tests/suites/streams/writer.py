"""The write service with an event window, and a proxy in front that loses answers."""

import contextlib
import http.client
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from suites.testkit.client import ask
from suites.testkit.ports import HOST, free_ports
from suites.testkit.process import Process
from suites.testkit.programs import LOADER
from suites.testkit.waiting import WAIT_SECONDS

TOKEN = "a-token-of-24-characters"
CONFIG = """
state_dir = "@state"

[[window]]
name = "clicks"
length = "24h"
capacity = 1_000_000
# The tests need exact answers of some thousand devices.
fpr = 1e-9
count = 100
when_full = "error"
durability = "fsync"
"""


class Writer(Process):
    """`rtad-loader serve --config` with the window `clicks`."""

    def __init__(self, folder):
        self.token = folder / "token"
        self.token.write_text(TOKEN)
        config = folder / "rtad-loader.toml"
        config.write_text(CONFIG.replace("@state", str(folder / "state")))
        (folder / "store").mkdir()
        self.address, self.admin = (f"{HOST}:{port}" for port in free_ports(2))
        flags = ["--config", config, "--store", folder / "store", "--token-file", self.token]
        flags += ["--listen", self.address, "--admin-listen", self.admin]
        self.command, self.folder, self.starts = (LOADER, "serve", *flags), folder, 0
        self.start()

    def start(self):
        self.starts += 1
        super().__init__(*self.command, log=self.folder / f"writer-{self.starts}.log")
        self.wait_for("listening for writes")

    def crash(self):
        """Kills it, and starts it again with its state directory, on the same ports."""
        self.kill()
        self.start()

    def events(self):
        """Events of the window by result, from the metrics."""
        found = re.findall(
            r'^rtad_window_events_total\{(?=.*window="clicks").*result="(\w+)".*\} (\d+)$',
            ask(self.admin, "/metrics").text(),
            re.MULTILINE,
        )
        return {result: int(count) for result, count in found if int(count)}


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
