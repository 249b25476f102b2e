"""What is done to the fleet while it is asked. Each ends with the fleet whole, and says what became of the requests meanwhile."""

import dataclasses
import json
import shutil
import signal
import time

from asking import Load
from balancer import Balancer
from pods import Pod
from questions import AUDIENCE, STRATEGY
from store import Store
from waiting import check, until

RELOADED, REFUSED = "config reloaded", "config not reloaded; the old one goes on"
# A change of the config that can be seen, and a mistake; a push of both must not bring the one without the other.
MORE_RULES = f'\n[[strategy]]\nname = "returning"\ninclude = ["{AUDIENCE}"]\n'
MISTAKE = '\n[[strategy]]\nname = "mistaken"\nexclude = ["nobody"]\n'


@dataclasses.dataclass
class Fleet:
    pods: list[Pod]
    balancer: Balancer
    load: Load
    store: Store

    def converges(self, wanted: tuple[int, ...] = ()) -> tuple[int, int]:
        """Waits until all pods serve the same generation and sequence: those that are given, if they are."""

        def agreed() -> tuple[int, int] | None:
            served = {pod.serves() for pod in self.pods}
            return served.pop() if len(served) == 1 and all(one[: len(wanted)] == wanted for one in served) else None

        return until(f"all pods serve the same, {wanted}", agreed)

    def all_are_asked(self) -> None:
        """Every pod is given requests at this moment."""
        before = {pod.name: pod.metric("rtad_requests_total") for pod in self.pods}
        for pod in self.pods:
            until(f"{pod.name} is asked", lambda pod=pod: pod.metric("rtad_requests_total") > before[pod.name])


def replace(fleet: Fleet, pod: Pod) -> None:
    """What a rolling restart does to one pod. The next one's turn comes when the balancer has this one back."""
    pod.signal(signal.SIGTERM)
    # Its readiness has fallen; until the balancer has seen it, and a little longer, the pod still answers.
    fleet.balancer.until("DOWN", pod)
    check(pod.ends() == 0, f"{pod.name} ended with {pod.process.returncode}")
    comes_back(fleet, pod)


def comes_back(fleet: Fleet, pod: Pod) -> None:
    pod.start()
    pod.until_ready()
    fleet.balancer.until("UP", pod)


def nothing(fleet: Fleet) -> None:
    time.sleep(3)
    fleet.all_are_asked()
    fleet.load.unharmed("nothing")


def rolling_restart(fleet: Fleet) -> None:
    for pod in fleet.pods:
        replace(fleet, pod)
    fleet.all_are_asked()
    fleet.load.unharmed("rolling restart")


def killed_pod(fleet: Fleet) -> None:
    pod, before = fleet.pods[1], len(fleet.balancer.failures())
    # It answers within a millisecond: stopped first, so that there is something that the kill can hit.
    pod.signal(signal.SIGSTOP)
    held = until("it has requests in hand", lambda: fleet.balancer.in_hand(pod))
    pod.signal(signal.SIGKILL)
    check(pod.ends() == -signal.SIGKILL, f"{pod.name} ended with {pod.process.returncode}")
    killed = time.time()
    fleet.balancer.until("DOWN", pod)
    tally = fleet.load.tally(f"a pod is killed, with {held} in hand")
    later = [failure for failure in tally["failures"] if failure["sent_unix"] > killed]
    check(not later, f"requests that were sent after the kill have failed: {later}")
    # By the balancer's own account: that pod had them, and no other.
    others = [line for line in fleet.balancer.failures()[before:] if not line.startswith(f"pods/{pod.name} ")]
    check(not others, f"requests that the killed pod did not have: {others}")
    comes_back(fleet, pod)
    fleet.all_are_asked()
    fleet.load.unharmed("it comes back")


def standing_pod(fleet: Fleet) -> None:
    pod = fleet.pods[2]
    pod.signal(signal.SIGSTOP)
    fleet.balancer.until("DOWN", pod)
    until("what it had in hand is asked of another", lambda: fleet.balancer.in_hand(pod) == 0)
    pod.signal(signal.SIGCONT)
    fleet.balancer.until("UP", pod)
    fleet.all_are_asked()
    fleet.load.unharmed("a pod stands still")


def new_generation(fleet: Fleet) -> None:
    fleet.load.expect("either")
    generation = fleet.store.build(after=True)
    fleet.converges((generation,))
    fleet.load.expect("after")
    fleet.load.unharmed("a new generation")
    fleet.load.expect("either")
    fleet.converges(fleet.store.change(after=False))
    fleet.load.expect("before")
    fleet.load.unharmed("deltas take it back")


def dead_store(fleet: Fleet) -> None:
    started_with, with_cache, without = fleet.converges(), *fleet.pods[:2]
    failed = {pod.name: pod.metric("rtad_sync_total", result="store") for pod in fleet.pods}
    fleet.balancer.cut_store()
    for pod in fleet.pods:
        told = f"{pod.name} says that its store fails"
        until(told, lambda pod=pod: pod.metric("rtad_sync_total", result="store") > failed[pod.name])
        check(pod.is_ready(), f"{pod.name} is not ready, as its store fails")
    # Published, but not to be seen.
    generation, sequence = fleet.store.change(after=True)
    replace(fleet, with_cache)
    check(with_cache.metric("rtad_cache_starts_total") == 1, "it has not started from its cache")
    check(with_cache.serves() == started_with, f"it serves {with_cache.serves()} from its cache")
    # One that has neither is not asked, and keeps nobody from it.
    without.signal(signal.SIGTERM)
    check(without.ends() == 0, f"{without.name} ended with {without.process.returncode}")
    shutil.rmtree(without.cache)
    without.start()
    until(f"{without.name} is there", lambda: without.answers("/livez"))
    until("it has looked at the store", lambda: without.metric("rtad_sync_total", result="store") > 0)
    check(not without.is_ready(), "it is ready with nothing to serve")
    fleet.balancer.until("DOWN", without)
    fleet.load.unharmed("the store is dead")
    fleet.load.expect("either")
    fleet.balancer.mend_store()
    fleet.converges((generation, sequence))
    fleet.load.expect("after")
    fleet.balancer.until("UP", without)
    fleet.all_are_asked()
    fleet.load.unharmed("the store is back")


def reload(pod: Pod, by_signal: bool, expected: str) -> str:
    """Has a pod read its config again; returns what it says."""
    if not by_signal:
        status, body = pod.asked("POST", "/v1/reload")
        check(status == (200 if expected == RELOADED else 422), f"{pod.name}: {status} {body}")
        return body.decode()
    level = "INFO" if expected == RELOADED else "WARN"

    def said() -> list[dict]:
        return [event for event in pod.events(level) if event["message"] == expected]

    before = len(said())
    pod.signal(signal.SIGHUP)
    return json.dumps(until(f"{pod.name}: {expected}", lambda: said()[before:])[0])


def push(fleet: Fleet, config: str, expected: str) -> list[str]:
    """A config comes to all pods, as a ConfigMap does; returns what they say."""
    for pod in fleet.pods:
        pod.config.write_text(config)
    return [reload(pod, number == 0, expected) for number, pod in enumerate(fleet.pods)]


def bad_config(fleet: Fleet) -> None:
    good = fleet.pods[0].config.read_text() + MORE_RULES
    for said in push(fleet, good + MISTAKE, REFUSED):
        check("nobody" in said, f"the mistake is not named: {said}")
    check(all(pod.strategies() == [STRATEGY] for pod in fleet.pods), "part of a bad config is served")
    # A rollout of it ends with the first pod, which does not start.
    first = fleet.pods[0]
    first.signal(signal.SIGTERM)
    check(first.ends() == 0, f"{first.name} ended with {first.process.returncode}")
    first.start()
    check(first.ends() == 2, f"with a bad config {first.name} ended with {first.process.returncode}")
    first.config.write_text(good)
    comes_back(fleet, first)
    fleet.load.unharmed("a bad config")

    push(fleet, good, RELOADED)
    member = fleet.store.devices.staying[0].md5
    question = json.dumps({"strategies": ["returning"], "device": {"imei_md5": member}}).encode()
    for pod in fleet.pods:
        status, body = pod.asked("POST", "/v1/decide", question, pod.port)
        check(status == 200 and json.loads(body)["decisions"][0]["bid"], f"{pod.name}: {status} {body}")
    fleet.load.unharmed("a good config")


ALL = [nothing, rolling_restart, killed_pod, standing_pod, new_generation, dead_store, bad_config]
