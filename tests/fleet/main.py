"""Starts the fleet, asks it without a pause, does everything in `scenarios` to it, and prints what became of the requests."""

import contextlib
import os
import pathlib
import signal
import sys
import time

import scenarios
from asking import Load
from balancer import Balancer
from pods import HOST, Pod, free_ports
from questions import SHARES, Devices, Questions
from store import Store
from waiting import Failed, check


@contextlib.contextmanager
def fleet(rtad: str, loader: str, peers: str, work: pathlib.Path, rate: int):
    devices = Devices(loader)
    Questions(devices).write(work / "requests")
    store = Store(loader, os.environ["RTAD_TEST_S3"], devices)
    store.build(after=False)
    *ports, front, cut = free_ports(8)
    front, cut = f"{HOST}:{front}", f"{HOST}:{cut}"
    # By way of the balancer.
    reads = {"RTAD_STORE": store.url, "AWS_ENDPOINT_URL": f"http://{cut}"}
    pods = [Pod(rtad, f"pod{number + 1}", work, ports[2 * number : 2 * number + 2], reads) for number in range(3)]
    with contextlib.ExitStack() as stack:
        s3 = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")
        balancer = Balancer(work, pods, front, cut, s3)
        stack.callback(balancer.stop)
        for pod in pods:
            stack.callback(pod.stop)
            pod.start()
        for pod in pods:
            pod.until_ready()
            balancer.until("UP", pod)
        load = Load(peers, balancer, work / "requests", rate)
        stack.callback(load.stop)
        yield scenarios.Fleet(pods, balancer, load, store)


def busy_share() -> float:
    """How busy all cores are for a second before there is a fleet: with what is no part of it."""

    def times() -> tuple[int, int]:
        fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return fields[3] + fields[4], sum(fields)

    (idle, all_of_it), _ = times(), time.sleep(1)
    later_idle, later_all = times()
    return 1 - (later_idle - idle) / (later_all - all_of_it)


def about(rate: int, others: float) -> str:
    cores = len(os.sched_getaffinity(0))
    return (
        f"{rate:,} requests a second: {', '.join(f'{share} % {kind}' for kind, share in SHARES.items())}. HAProxy with one thread, three rtad "
        f"with one worker each, the S3 server and who asks, all on the same {cores} cores, of which other work kept {others:.0%} busy before. Milliseconds since a request was due."
    )


def put(page: pathlib.Path, table: str) -> None:
    """Replaces what stands between the marks of a page."""
    begin, end = "<!-- fleet: begin -->", "<!-- fleet: end -->"
    before, _, rest = page.read_text().partition(begin)
    _, found, after = rest.partition(end)
    check(found, f"{page} has no {begin} with {end} after it")
    page.write_text(f"{before}{begin}\n{table}\n{end}{after}")


def main() -> None:
    rtad, loader, peers, work, rate = sys.argv[1:]
    work = pathlib.Path(work)
    # So that what was started is stopped then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    others = busy_share()
    try:
        with fleet(rtad, loader, peers, work, int(rate)) as running:
            for scenario in scenarios.ALL:
                scenario(running)
            running.load.end()
            for pod in running.pods:
                check("panicked" not in pod.log.read_text(), f"{pod.name} has panicked")
        table = about(int(rate), others) + "\n\n" + running.load.table()
        print("", table, sep="\n")
        if page := os.environ.get("TABLE"):
            put(pathlib.Path(page), table)
    except Failed as failed:
        for log in sorted(work.glob("*/log")) + [work / "haproxy.log"]:
            lines = [line for line in log.read_text().splitlines() if '"level":"INFO"' not in line] if log.exists() else []
            print(f"== {log.relative_to(work)} ==", *lines[-20:], sep="\n", file=sys.stderr)
        sys.exit(f"fleet: FAILED: {failed}")


if __name__ == "__main__":
    main()
