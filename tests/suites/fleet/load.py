"""Load: testkit's `load`, open-loop traffic at a fixed rate with verified answers."""

import json
import pathlib
import subprocess
import time

from suites.fleet.balancer import Balancer
from suites.testkit.programs import LOAD

CONNECTIONS = 64
# Quiet time after each operation, so that its effects are over.
CALM_SECONDS = 1


class Load:
    def __init__(self, balancer: Balancer, requests: pathlib.Path, rate: int):
        self.rate, self.balancer, self.rows = rate, balancer, []
        command = [LOAD, "--address", balancer.address, "--requests", str(requests)]
        command += ["--connections", str(CONNECTIONS), str(rate)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.since, self.retried = time.monotonic(), 0

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def command(self, line: str) -> str:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the load has ended"
        return answer

    def expect(self, which: str) -> None:
        """Sets the correct answers from now on: `before`, `either` or `after`."""
        assert self.command(which) == "expected\n", which

    def report(self, title: str, calm: float = CALM_SECONDS) -> dict:
        """Results of the requests since the last report, as a row of the table."""
        time.sleep(calm)
        return self.row(title, json.loads(self.command("report")))

    def row(self, title: str, stats: dict) -> dict:
        now, retried = time.monotonic(), self.balancer.retried()
        stats |= {
            "title": title,
            "seconds": now - self.since,
            "retried": retried - self.retried,
        }
        self.since, self.retried = now, retried
        self.rows.append(stats)
        reasons = ", ".join(sorted({failure["reason"] for failure in stats["failures"]}))
        print(f"fleet: {title}: {line(stats)}" + (f" ({reasons})" if reasons else ""), flush=True)
        assert stats["wrong"] == 0, (
            f"{title}: wrong answers to the requests {stats['wrong_requests'][:10]}"
        )
        return stats

    def assert_no_failure(self, title: str) -> None:
        assert self.report(title)["failed"] == 0, f"{title}: requests have failed"

    def end(self) -> None:
        """Ends the load. Every request must have been answered."""
        self.process.stdin.close()
        stats = self.row("end of the load", json.loads(self.process.stdout.readline()))
        assert self.process.wait() == 0, "the load has failed"
        assert stats["failed"] == 0, "the last requests have failed"
        total = {
            name: sum(row[name] for row in self.rows) for name in ("due", "ok", "failed", "wrong")
        }
        assert total["due"] == total["ok"] + total["failed"] + total["wrong"], (
            f"some requests have no result: {total}"
        )

    def table(self) -> str:
        head = [
            "",
            "seconds",
            "requests",
            "requests/s",
            "failed",
            "wrong",
            "retried",
            "over 60 ms",
            "median ms",
            "99 %",
            "highest",
        ]
        rows = [[row["title"], *cells(row)] for row in self.rows[:-1]]
        return "\n".join(
            "| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]
        )


def cells(row: dict) -> list[str]:
    answered = row["ok"] + row["failed"] + row["wrong"]
    counts = [f"{row[name]:,}" for name in ("failed", "wrong", "retried", "late")]
    times = [f"{row[name] / 1000:.1f}" for name in ("p50_us", "p99_us", "max_us")]
    return [
        f"{row['seconds']:.0f}",
        f"{answered:,}",
        f"{answered / row['seconds']:,.0f}",
        *counts,
        *times,
    ]


def line(row: dict) -> str:
    seconds, answered, rate, failed, wrong, again, late, _, p99, highest = cells(row)
    return f"{answered} answers in {seconds} s, {failed} failed, {wrong} wrong, {again} retried, 99 % {p99} ms, highest {highest} ms"
