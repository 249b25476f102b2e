"""Operations on a fleet under load. Each test restores the fleet."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import time

import pytest

from suites.fleet.load import Load
from suites.fleet.balancer import Balancer
from suites.fleet.pods import Pod
from suites.fleet.questions import AUDIENCE, SHARES, STRATEGY, Devices, Questions
from suites.fleet.store import Store
from suites.testkit.client import ask
from suites.testkit.ports import HOST, free_ports
from suites.testkit.waiting import wait_until

RELOADED, REFUSED = "config reloaded", "config not reloaded; the old one stays"
# A visible change of the config, and a mistake. Pushing both must apply neither.
MORE_RULES = f'\n[[strategy]]\nname = "returning"\nwhen = "{AUDIENCE}"\n'
MISTAKE = '\n[[strategy]]\nname = "mistaken"\nexclude = ["nobody"]\n'


# Requests per second.
RATES = [1_000, pytest.param(20_000, marks=pytest.mark.long)]


@dataclasses.dataclass
class Fleet:
    pods: list[Pod]
    balancer: Balancer
    load: Load
    store: Store
    # CPU share of other work before the fleet started.
    others: float

    def converges(self, wanted: tuple[int, ...] = ()) -> tuple[int, int]:
        """Waits until all pods serve the same generation and sequence, or the given ones."""

        def agreed() -> tuple[int, int] | None:
            served = {pod.serves() for pod in self.pods}
            return (
                served.pop()
                if len(served) == 1 and all(one[: len(wanted)] == wanted for one in served)
                else None
            )

        return wait_until(f"all pods serve the same, {wanted}", agreed)

    def all_are_asked(self) -> None:
        """Waits until every pod has requests in flight."""
        before = {pod.name: pod.metric("rtad_requests_total") for pod in self.pods}
        for pod in self.pods:
            wait_until(
                f"{pod.name} has requests in flight",
                lambda pod=pod: pod.metric("rtad_requests_total") > before[pod.name],
            )


@pytest.fixture(scope="module", params=RATES)
def fleet(request, s3_server, tmp_path_factory):
    work = tmp_path_factory.mktemp("fleet")
    others = busy_share()
    devices = Devices()
    Questions(devices).write(work / "requests")
    store = Store(s3_server, devices)
    store.build(after=False)
    *ports, platforms, front, cut = free_ports(9)
    platforms, front, cut = (f"{HOST}:{port}" for port in (platforms, front, cut))
    # Through HAProxy.
    reads = s3_server | {"RTAD_STORE": store.url, "AWS_ENDPOINT_URL": f"http://{cut}"}
    of_pods = [ports[2 * number : 2 * number + 2] for number in range(3)]
    with contextlib.ExitStack() as stack:
        s3 = s3_server["AWS_ENDPOINT_URL"].removeprefix("http://")
        balancer = Balancer(work, of_pods, platforms, front, cut, s3)
        stack.callback(balancer.stop)
        pods = []
        for number, both in enumerate(of_pods, 1):
            pods.append(Pod(f"pod{number}", work, both, reads))
            stack.callback(pods[-1].kill)
        for pod in pods:
            pod.until_ready()
            balancer.until("UP", pod)
        load = Load(balancer, work / "requests", request.param)
        stack.callback(load.stop)
        running = Fleet(pods, balancer, load, store, others)
        yield running
        for pod in pods:
            print(f"== {pod.name} ==", pod.last_warnings(), sep="\n")
        print("== HAProxy ==", balancer.process.text()[-2000:], sep="\n")


def busy_share() -> float:
    """CPU share of other work: busy share of all cores for a second."""

    def times() -> tuple[int, int]:
        stat = pathlib.Path("/proc/stat").read_text().splitlines()[0]
        fields = [int(field) for field in stat.split()[1:9]]
        return fields[3] + fields[4], sum(fields)

    (idle, all_of_it), _ = times(), time.sleep(1)
    later_idle, later_all = times()
    return 1 - (later_idle - idle) / (later_all - all_of_it)


def about(rate: int, others: float) -> str:
    shares = ", ".join(f"{share} % {kind}" for kind, share in SHARES.items())
    return (
        f"{rate:,} requests a second: {shares}. HAProxy with one thread, three rtad with one worker "
        f"each, the S3 server and the client, all on the same {len(os.sched_getaffinity(0))} cores. "
        f"Other processes used {others:.0%} of them before. Milliseconds since a request was due."
    )


def replace(fleet: Fleet, pod: Pod) -> None:
    """Restarts one pod, and waits until HAProxy reports it up."""
    pod.signal(signal.SIGTERM)
    # It is not ready, but keeps answering until HAProxy has noticed.
    fleet.balancer.until("DOWN", pod)
    assert pod.wait() == 0, f"{pod.name} ended with {pod.process.returncode}"
    comes_back(fleet, pod)


def comes_back(fleet: Fleet, pod: Pod) -> None:
    pod.start()
    pod.until_ready()
    fleet.balancer.until("UP", pod)


def test_undisturbed_fleet_answers_everything(fleet):
    time.sleep(3)
    fleet.all_are_asked()
    fleet.load.assert_no_failure("undisturbed")


def test_platforms_reach_their_paths_only(fleet):
    status, _ = ask(fleet.balancer.platforms, "/v1/decide", b"{}")
    assert status == 404
    status, _ = ask(fleet.balancer.platforms, "/rta/tencent", b"")
    assert status == 200


def test_rolling_restart_loses_no_request(fleet):
    for pod in fleet.pods:
        replace(fleet, pod)
    fleet.all_are_asked()
    fleet.load.assert_no_failure("rolling restart")


def test_killed_pod_loses_only_its_requests_in_flight(fleet):
    pod, before = fleet.pods[1], len(fleet.balancer.failures())
    # Stopped first, so that it has requests in flight: it answers within a millisecond.
    pod.signal(signal.SIGSTOP)
    in_flight = wait_until("it has requests in flight", lambda: fleet.balancer.in_flight(pod))
    pod.signal(signal.SIGKILL)
    assert pod.wait() == -signal.SIGKILL, f"{pod.name} ended with {pod.process.returncode}"
    killed = time.time()
    fleet.balancer.until("DOWN", pod)
    stats = fleet.load.report(f"a pod is killed, with {in_flight} in flight")
    later = [failure for failure in stats["failures"] if failure["sent_unix"] > killed]
    assert not later, f"requests sent after the kill failed: {later}"
    # The log of HAProxy: only requests of that pod failed.
    others = [
        line
        for line in fleet.balancer.failures()[before:]
        if not line.startswith(f"pods/{pod.name} ")
    ]
    assert not others, f"requests failed on other pods: {others}"
    comes_back(fleet, pod)
    fleet.all_are_asked()
    fleet.load.assert_no_failure("the pod restarts")


def test_stopped_pod_loses_no_request(fleet):
    pod = fleet.pods[2]
    pod.signal(signal.SIGSTOP)
    fleet.balancer.until("DOWN", pod)
    wait_until("its requests are retried elsewhere", lambda: fleet.balancer.in_flight(pod) == 0)
    pod.signal(signal.SIGCONT)
    fleet.balancer.until("UP", pod)
    fleet.all_are_asked()
    fleet.load.assert_no_failure("a pod is stopped (SIGSTOP)")


def test_generation_and_deltas_change_all_answers(fleet):
    fleet.load.expect("either")
    generation = fleet.store.build(after=True)
    fleet.converges((generation,))
    fleet.load.expect("after")
    fleet.load.assert_no_failure("a new generation")
    fleet.load.expect("either")
    fleet.converges(fleet.store.change(after=False))
    fleet.load.expect("before")
    fleet.load.assert_no_failure("deltas revert it")


def test_pods_serve_without_the_store(fleet):
    started_with, with_cache, without = fleet.converges(), *fleet.pods[:2]
    failed = {pod.name: pod.metric("rtad_sync_total", result="store") for pod in fleet.pods}
    fleet.balancer.cut_store()
    for pod in fleet.pods:
        condition = f"{pod.name} reports store failures"
        wait_until(
            condition,
            lambda pod=pod: pod.metric("rtad_sync_total", result="store") > failed[pod.name],
        )
        assert pod.is_ready(), f"{pod.name} is not ready after a store failure"
    # Published, but out of reach.
    generation, sequence = fleet.store.change(after=True)
    replace(fleet, with_cache)
    assert with_cache.metric("rtad_cache_starts_total") == 1, "it did not start from its cache"
    assert with_cache.serves() == started_with, f"it serves {with_cache.serves()} from its cache"
    # A pod without store and cache gets no requests, and does not affect the others.
    without.signal(signal.SIGTERM)
    assert without.wait() == 0, f"{without.name} ended with {without.process.returncode}"
    shutil.rmtree(without.cache)
    without.start()
    wait_until(f"{without.name} is there", without.is_live)
    wait_until(
        "it has polled the store", lambda: without.metric("rtad_sync_total", result="store") > 0
    )
    assert not without.is_ready(), "it is ready without a snapshot"
    fleet.balancer.until("DOWN", without)
    fleet.load.assert_no_failure("the store is unreachable")
    fleet.load.expect("either")
    fleet.balancer.restore_store()
    fleet.converges((generation, sequence))
    fleet.load.expect("after")
    fleet.balancer.until("UP", without)
    fleet.all_are_asked()
    fleet.load.assert_no_failure("the store is back")


def reload(pod: Pod, by_signal: bool, expected: str) -> str:
    """Reloads a pod's config; returns the log event."""
    if not by_signal:
        status, body = ask(pod.admin, "/v1/reload", b"")
        assert status == (200 if expected == RELOADED else 422), f"{pod.name}: {status} {body}"
        return body.decode()
    level = "INFO" if expected == RELOADED else "WARN"

    def matching() -> list[dict]:
        return [
            event
            for event in pod.events()
            if (event["level"], event["message"]) == (level, expected)
        ]

    before = len(matching())
    pod.signal(signal.SIGHUP)
    return json.dumps(wait_until(f"{pod.name}: {expected}", lambda: matching()[before:])[0])


def push(fleet: Fleet, config: str, expected: str) -> list[str]:
    """Pushes a config to all pods, like a ConfigMap; returns their log events."""
    for pod in fleet.pods:
        pod.config.write_text(config)
    return [reload(pod, number == 0, expected) for number, pod in enumerate(fleet.pods)]


def test_bad_config_is_refused_completely(fleet):
    good = fleet.pods[0].config.read_text() + MORE_RULES
    for event in push(fleet, good + MISTAKE, REFUSED):
        assert "nobody" in event, f"the mistake is not named: {event}"
    assert all(pod.status()["strategies"] == [STRATEGY] for pod in fleet.pods), (
        "part of a bad config is in effect"
    )
    # A rollout stops at the first pod, which does not start.
    first = fleet.pods[0]
    first.signal(signal.SIGTERM)
    assert first.wait() == 0, f"{first.name} ended with {first.process.returncode}"
    first.start()
    assert first.wait() == 2, (
        f"with a bad config {first.name} ended with {first.process.returncode}"
    )
    first.config.write_text(good)
    comes_back(fleet, first)
    fleet.load.assert_no_failure("a bad config")

    push(fleet, good, RELOADED)
    member = fleet.store.devices.staying[0].md5
    question = json.dumps({"strategies": ["returning"], "device": {"imei_md5": member}}).encode()
    for pod in fleet.pods:
        status, body = ask(pod.address, "/v1/decide", question)
        assert status == 200 and json.loads(body)["decisions"][0]["bid"], (
            f"{pod.name}: {status} {body}"
        )
    fleet.load.assert_no_failure("a good config")


def test_every_request_has_a_result(fleet):
    """Runs last: ends the load."""
    fleet.load.end()
    for pod in fleet.pods:
        pod.check_log()
    print(about(fleet.load.rate, fleet.others), fleet.load.table(), sep="\n\n")
