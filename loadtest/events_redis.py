"""Redis as a peer of event windows: a key per device, and a bit per device."""

import random
import subprocess
import time

from events_load import Row, ticks
from suites.testkit.ports import free_port
from suites.testkit.process import Process

# Test-and-set of a device: a key with the length of the window, and a bit of a day's bitmap, which
# has room for numbered devices only.
COMMANDS = {
    "SET NX EX": lambda device: ("SET", f"device:{device:032x}", "1", "NX", "EX", "600"),
    "SETBIT": lambda device: ("SETBIT", "clicks:today", str(device % 1_000_000_000), "1"),
}


class Redis(Process):
    """`redis-server` that keeps an append-only file, synced each second as is its default."""

    def __init__(self, folder, cores=None):
        folder.mkdir()
        self.folder, self.port = folder, free_port()
        pin = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--save", "", "--appendonly", "yes", "--dir", str(folder)]
        super().__init__(*pin, *command, log=folder / "redis.log")
        self.wait_for("Ready to accept connections")

    def run(self, command, events, cores):
        """Empties the server, and sends commands over random devices in one pipeline."""
        client = ["redis-cli", "-p", str(self.port)]
        subprocess.run([*client, "FLUSHALL"], check=True, capture_output=True)
        content = self.folder / "commands"
        with content.open("wb") as file:
            for _ in range(events):
                file.write(encoded(COMMANDS[command](random.getrandbits(128))))

        pin = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
        before, began = ticks(self.pid), time.monotonic()
        with content.open("rb") as file:
            pipe = [*pin, *client, "--pipe"]
            done = subprocess.run(pipe, stdin=file, check=True, capture_output=True, text=True)
        seconds, after = time.monotonic() - began, ticks(self.pid)
        content.unlink()
        if f"errors: 0, replies: {events}" not in done.stdout:
            raise SystemExit(f"events: Redis: {done.stdout}")
        return Row(
            requests=events,
            seconds=seconds,
            p50="–",
            p99="–",
            errors=0,
            failed=0,
            new=events,
            least=0,
            user=after[0] - before[0],
            system=after[1] - before[1],
            events=events,
        )


def encoded(command):
    """A command as the protocol has it."""
    parts = [f"*{len(command)}\r\n"]
    parts += [f"${len(part)}\r\n{part}\r\n" for part in command]
    return "".join(parts).encode()
