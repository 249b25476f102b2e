"""Cost of monitoring: bytes and CPU time of a scrape, and memory over millions of requests without
scrapes. Prints tables of docs/explanation/performance.md.

    python3 benches/scrape.py target/release/rtad target/release/rtad-loader [MILLIONS_OF_REQUESTS]

Needs wrk from Debian. Uses free ports of 127.0.0.1.
"""

import contextlib
import http.client
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from suites.testkit.process import Process  # noqa: E402

SCRAPES = 2000
# Tencent request with two hashed ids.
BODY = (
    "0a164a6f383235775f75456532784c6c4a554146777653512a4808021a20386433656264333635346662343661323833323239363636396366316235"
    "33363220383365393135386134666235346330653165663062323338363339613233616550034a0408808002"
)
POST = """
wrk.method, wrk.path = "POST", "/rta/p0"
wrk.body = ("{body}"):gsub("..", function(two) return string.char(tonumber(two, 16)) end)
"""


def config(platforms, strategies_each):
    lines = ['[store]\npoll_interval = "1s"\n[[audience]]\nname = "old_users"']
    lines += [
        f'[[strategy]]\nname = "s{number}"\nexclude = ["old_users"]'
        for number in range(max(platforms, strategies_each))
    ]
    for number in range(platforms):
        named = [number] if strategies_each == 1 else range(strategies_each)
        ids = ", ".join(f'"T{one}" = "s{one}"' for one in named)
        lines.append(
            f'[[platform]]\nkind = "tencent"\nname = "p{number}"\npath = "/rta/p{number}"\nstrategies = {{ {ids} }}'
        )
    return "\n".join(lines)


class Pod:
    """A running rtad."""

    def __init__(self, rtad, folder, text):
        (folder / "rtad.toml").write_text(text)
        self.log = folder / "log"
        self.log.unlink(missing_ok=True)
        ports = [
            "--listen",
            "127.0.0.1:0",
            "--admin-listen",
            "127.0.0.1:0",
            "--store",
            str(folder / "store"),
            "--workers",
            "1",
        ]
        command = [rtad, "serve", "--config", folder / "rtad.toml", *ports]
        self.process = Process(*command, log=self.log)
        self.decisions = self.process.field("decision_address")
        self.admin = self.process.field("admin_address")
        self.proc = Path(f"/proc/{self.process.pid}")

    def stop(self):
        self.process.stop()

    def admin_seconds(self):
        """CPU time of the admin thread."""
        for task in self.proc.glob("task/*"):
            if (task / "comm").read_text() == "admin\n":
                return int((task / "schedstat").read_text().split()[0]) / 1e9
        raise SystemExit("no thread is called admin")

    def memory(self):
        """Anonymous memory in bytes."""
        return int(re.search(r"RssAnon:\s+(\d+)", (self.proc / "status").read_text())[1]) << 10


@contextlib.contextmanager
def running(rtad, folder, text):
    pod = Pod(rtad, folder, text)
    try:
        yield pod
    finally:
        pod.stop()


def scraped(pod):
    connection = http.client.HTTPConnection(pod.admin)

    def scrape():
        connection.request("GET", "/metrics")
        return connection.getresponse().read()

    for _ in range(100):
        text = scrape()
    before = pod.admin_seconds()
    for _ in range(SCRAPES):
        scrape()
    used = (pod.admin_seconds() - before) / SCRAPES
    series = sum(1 for line in text.splitlines() if line and not line.startswith(b"#"))
    return series, len(text), used


def load(pod, folder, seconds, *script):
    """Runs wrk; returns the number of requests, all answered."""
    command = [
        "wrk",
        "-t1",
        "-c16",
        f"-d{seconds}s",
        *script,
        f"http://{pod.decisions}/v1/check/old_users/5f93f983524def3dca464469d2cf9f3e",
    ]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    if "Socket errors" in output or "Non-2xx" in output:
        sys.exit(output)
    return int(re.search(r"(\d+) requests in", output)[1])


def main():
    rtad, loader, *rest = sys.argv[1:]
    millions = float(rest[0]) if rest else 20
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        devices = subprocess.run(
            [loader, "synth", "--count", "10000"], check=True, stdout=subprocess.PIPE
        ).stdout
        build = [
            loader,
            "build",
            "--store",
            str(folder / "store"),
            "--audience",
            "old_users",
            "--quiet",
            "-",
        ]
        subprocess.run(build, input=devices, check=True, stdout=subprocess.DEVNULL)
        (folder / "post.lua").write_text(POST.format(body=BODY))

        print(
            "| platforms | strategies of each | series | bytes | CPU, ms |\n|---|---|---|---|---|"
        )
        for platforms, each in ((1, 1), (20, 1), (20, 20)):
            with running(rtad, folder, config(platforms, each)) as pod:
                series, size, used = scraped(pod)
                print(
                    f"| {platforms} | {each} | {series:,} | {size:,} | {used * 1e3:.2f} |",
                    flush=True,
                )

        print("\n| million requests, no scrape | anonymous memory, MB |\n|---|---|")
        with running(rtad, folder, config(20, 1)) as pod:
            total, shown = load(pod, folder, 2), 0
            print(f"| {total / 1e6:.1f} | {pod.memory() / 1e6:.2f} |", flush=True)
            while total < millions * 1e6:
                total += load(pod, folder, 5) + load(pod, folder, 5, "-s", str(folder / "post.lua"))
                if total - shown > millions * 1e6 / 8 or total >= millions * 1e6:
                    print(f"| {total / 1e6:.1f} | {pod.memory() / 1e6:.2f} |", flush=True)
                    shown = total


if __name__ == "__main__":
    main()
