"""The load: `rtad-peers steady` in a process of its own, which asks at a fixed rate and compares
every answer."""

import json
import pathlib
import subprocess
import time

from suites.fleet.balancer import Balancer
from suites.testkit.programs import PEERS

CONNECTIONS = 64
# A moment without anything being done to the fleet, so that what was done before is over.
CALM_SECONDS = 1


class Load:
    def __init__(self, balancer: Balancer, requests: pathlib.Path, rate: int):
        self.rate, self.balancer, self.rows = rate, balancer, []
        command = [PEERS, "steady", "--address", balancer.address, "--requests", str(requests)]
        command += ["--connections", str(CONNECTIONS), str(rate)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.since, self.retried = time.monotonic(), 0

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def say(self, line: str) -> str:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the load has ended"
        return answer

    def expect(self, which: str) -> None:
        """`before`, `either` or `after`: the right answers from now on."""
        assert self.say(which) == "expected\n", which

    def tally(self, title: str, calm: float = CALM_SECONDS) -> dict:
        """What came of the requests since the last tally; a row of the table."""
        time.sleep(calm)
        return self.row(title, json.loads(self.say("tally")))

    def row(self, title: str, tally: dict) -> dict:
        now, retried = time.monotonic(), self.balancer.asked_again()
        tally |= {
            "title": title,
            "seconds": now - self.since,
            "asked_again": retried - self.retried,
        }
        self.since, self.retried = now, retried
        self.rows.append(tally)
        why = ", ".join(sorted({failure["why"] for failure in tally["failures"]}))
        print(f"fleet: {title}: {line(tally)}" + (f" ({why})" if why else ""), flush=True)
        assert tally["wrong"] == 0, (
            f"{title}: wrong answers to the requests {tally['wrong_requests'][:10]}"
        )
        return tally

    def unharmed(self, title: str) -> None:
        assert self.tally(title)["failed"] == 0, f"{title}: requests have failed"

    def end(self) -> None:
        """No more are asked; every one must have been answered in the end."""
        self.process.stdin.close()
        tally = self.row("the last ones", json.loads(self.process.stdout.readline()))
        assert self.process.wait() == 0, "the load has failed"
        assert tally["failed"] == 0, "the last requests have failed"
        total = {
            name: sum(row[name] for row in self.rows) for name in ("due", "ok", "failed", "wrong")
        }
        assert total["due"] == total["ok"] + total["failed"] + total["wrong"], (
            f"not every request has an end: {total}"
        )

    def table(self) -> str:
        head = [
            "",
            "for s",
            "requests",
            "a second",
            "failed",
            "wrong",
            "asked again",
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
    counts = [f"{row[name]:,}" for name in ("failed", "wrong", "asked_again", "late")]
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
    return f"{answered} answers in {seconds} s, {failed} failed, {wrong} wrong, {again} asked again, 99 % {p99} ms, highest {highest} ms"
