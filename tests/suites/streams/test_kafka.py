"""docs/examples/streams/kafka_consumer.py: lost answers, killed consumers, rebalances, and events
that lack what is read."""

import json
import os
import random
import re
import runpy
import signal
import sys
import time
import uuid

import pytest

from suites.streams.brokers import Brokers
from suites.streams.writer import Proxy
from suites.testkit.process import Process
from suites.testkit.programs import ROOT, synth
from suites.testkit.waiting import wait_until

EXAMPLES = ROOT / "docs/examples/streams"
DEVICES, REPEATED, UNUSABLE = 1500, 900, 30
# Half of a surrogate pair makes a body that the writer refuses.
UNUSABLE_IDS = ("", "\ud800", "a" * 1025)
# So that the first batch has 100 events.
WHOLE_BATCHES = ("--linger", "30")
# The consumer of the example, killed at a call of `forward`: after the answer, before the commit.
KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv.pop(1))
calls = int(sys.argv.pop(1))
import kafka_consumer
forward = kafka_consumer.forward

def killed(producer, topic, messages):
    global calls
    calls -= 1
    if calls == 0 and messages:
        os.kill(os.getpid(), signal.SIGKILL)
    forward(producer, topic, messages)

kafka_consumer.forward = killed
kafka_consumer.main()
"""


@pytest.fixture(scope="module")
def brokers():
    return Brokers()


@pytest.fixture(scope="module")
def devices():
    return synth(DEVICES, "--id-kind", "oaid")


class Stream:
    """A topic with clicks, each device at least once, and consumers."""

    def __init__(self, brokers, devices, writer, folder):
        self.brokers, self.devices, self.writer, self.folder = brokers, devices, writer, folder
        self.name = f"clicks-{uuid.uuid4()}"
        self.url = f"http://{writer.address}"
        self.started = []
        unusable = UNUSABLE_IDS * (UNUSABLE // len(UNUSABLE_IDS))
        ids = [*devices, *devices[:REPEATED], *unusable]
        random.Random(1).shuffle(ids)
        now = int(time.time())
        # The window has 24 hours.
        times = {"at": now, "two_days_ago": (now - 2 * 86_400) * 1000}
        brokers.publish(self.name, [{"id": one, "device": {"oaid": one}} | times for one in ids])

    def start(self, url, *more, program=(EXAMPLES / "kafka_consumer.py",)):
        """Starts a consumer with more flags: the example, or a program that imports it."""
        flags = ["--brokers", self.brokers.addresses, "--topic", self.name]
        flags += ["--to", f"new-{self.name}", "--group", self.name, "--url", url]
        flags += ["--window", "clicks", "--kind", "oaid", "--token-file", self.writer.token]
        flags += ["--batch", 100, "--set", "session.timeout.ms=3000"]
        flags += ["--set", "heartbeat.interval.ms=300"]
        log = self.folder / f"consumer-{len(self.started)}.log"
        # -B: the example's folder stays clean. Of a repeated flag, the last counts.
        consumer = Process(sys.executable, "-B", *program, *flags, *more, log=log)
        self.started.append(consumer)
        return consumer

    def start_killed(self, url, calls):
        path = self.folder / "killed.py"
        path.write_text(KILLED)
        return self.start(url, program=(path, EXAMPLES, calls))

    def finish(self):
        """Waits for the last commit and ends the consumers."""
        total = DEVICES + REPEATED + UNUSABLE

        def committed():
            return self.brokers.committed(self.name, self.name) == total

        alive = [one for one in self.started if one.process.poll() is None]
        alive[0].until("all events are committed", committed)
        for consumer in alive:
            assert consumer.end() == 0, consumer.text()

    def assert_each_new_once(self):
        # The window: each device is new once. Repeated batches are not counted again.
        expected = {"new": DEVICES, "duplicate": REPEATED, "unusable": UNUSABLE}
        assert self.writer.events() == expected
        self.assert_each_forwarded_from_one_event()

    def assert_each_forwarded_from_one_event(self):
        # The answers: each device is forwarded from one event.
        sources = self.brokers.sources(f"new-{self.name}")
        assert sorted(sources) == sorted(self.devices)
        assert [one for one in sources.values() if len(one) > 1] == []

    def assert_no_id_is_logged(self):
        logs = "".join(one.text() for one in self.started)
        assert [one for one in self.devices if one in logs] == []


@pytest.fixture
def stream(brokers, devices, writer, tmp_path):
    stream = Stream(brokers, devices, writer, tmp_path)
    yield stream
    for consumer in stream.started:
        consumer.kill()


class Message:
    """A message of a topic, with this value."""

    def __init__(self, value):
        self.bytes = value

    def value(self):
        return self.bytes

    def key(self):
        return None

    def headers(self):
        return None

    def topic(self):
        return "clicks"

    def partition(self):
        return 0

    def offset(self):
        return 0


class RefusedProducer:
    """A producer whose brokers refuse each message, which leaves the queue."""

    def __init__(self):
        self.calls = []

    def produce(self, *_, on_delivery, **__):
        self.calls.append(on_delivery)

    def flush(self, _):
        for call in self.calls:
            call("refused", None)
        return 0


def example():
    """The names of the example. No file is compiled into its folder."""
    return runpy.run_path(str(EXAMPLES / "kafka_consumer.py"))


def test_message_without_a_usable_id_has_an_empty_one():
    names = example()

    def id_of(value, field="id"):
        return names["id_of"](names["event_of"](Message(value)), names["path_of"](field))

    deep = b'{"id": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    unusable = [json.dumps({"id": one}).encode() for one in UNUSABLE_IDS]
    for value in (*unusable, deep, b"\xff", b"[]", b"{}", b'{"id": 1}', None):
        assert id_of(value) == ""
    longest = "ü" * 512
    assert id_of(json.dumps({"id": longest}).encode()) == longest

    nested = b'{"device": {"a.b": "1", "c": null}, "a.b": {"c": "2"}, "text": "3"}'
    for field, expected in {
        r"device.a\.b": "1",
        r"a\.b.c": "2",
        "a.b.c": "",
        "device.c": "",
        "text.c": "",
        "device": "",
    }.items():
        assert id_of(nested, field) == expected, field


def test_times_are_of_their_unit_and_of_this_century():
    names = example()
    for found, unit, expected in [
        (1_764_115_200, "s", 1_764_115_200),
        (1_764_115_200.9, "s", 1_764_115_200),
        (1_764_115_200_123, "ms", 1_764_115_200),
        (1_764_115_200, "ms", None),
        (1_764_115_200_123, "s", None),
        ("1764115200", "s", None),
        (True, "s", None),
        (0, "ms", None),
        (10**400, "ms", None),
        (float("nan"), "s", None),
        (None, "s", None),
    ]:
        assert names["time_of"]({"at": found}, ["at"], unit) == expected, (found, unit)


def test_a_request_has_events_of_a_quarter_of_an_hour():
    times = [900, None, 1799, 1800, 901, 899, None]
    groups = example()["groups_of"](times)
    assert [[times[index] for index in group] for group in groups] == [
        [900, 1799, 901],
        [None, None],
        [1800],
        [899],
    ]


def test_names_that_may_be_ids_are_not_said(devices):
    names_of = example()["names_of"]
    event = {"imei_md5": 1, "device": {"oaid": 2, devices[0]: 3}, "868049039501257": 4, "e": {}}
    assert names_of(event) == '"imei_md5", "device.oaid", "e" and 2 more'
    assert names_of({}) == ""


def test_a_share_of_few_events_is_no_reason_to_end():
    """A consumer that ends because of few events would do so again at each start."""
    limit = example()["Limit"](0.5)
    for _ in range(40):
        limit.check("clicks/0/0-99", 99, 49, "")
    limit = example()["Limit"](0.5)
    limit.check("clicks/0/0-99", 99, 99, "")
    with pytest.raises(SystemExit, match="^clicks/0/99-100: 100 of 100 events lack one$"):
        limit.check("clicks/0/99-100", 1, 1, "lack one")


def test_events_that_the_brokers_refuse_end_the_consumer_before_the_commit():
    with pytest.raises(SystemExit, match="2 new events were not forwarded"):
        example()["forward"](RefusedProducer(), "new", [Message(b"{}")] * 2)


def test_lost_answer_is_repeated_with_the_same_key(stream):
    with Proxy(stream.writer.address, lose=5) as proxy:
        stream.start(proxy.url)
        stream.finish()
        assert proxy.repeated() == 5
    stream.assert_each_new_once()
    stream.assert_no_id_is_logged()


def test_answer_lost_in_a_crash_of_the_writer_is_repeated(stream):
    """The events are durable, their answer is lost, and the key outlives the crash."""
    with Proxy(stream.writer.address, lose=1, on_loss=stream.writer.crash) as proxy:
        stream.start(proxy.url)
        stream.finish()
        assert proxy.repeated() == 1
        assert stream.writer.starts == 2
    # The counters began again at the restart.
    stream.assert_each_forwarded_from_one_event()


def test_consumer_killed_between_answer_and_commit_loses_no_new_device(stream):
    with Proxy(stream.writer.address) as proxy:
        killed = stream.start_killed(proxy.url, calls=3)
        assert killed.wait() == -signal.SIGKILL
        stream.start(proxy.url)
        stream.finish()
        assert proxy.repeated() == 1
    stream.assert_each_new_once()


def test_without_keys_the_new_devices_of_a_killed_consumer_are_lost(stream):
    """The test above detects a writer that does not know the key."""
    with Proxy(stream.writer.address, keys=False) as proxy:
        killed = stream.start_killed(proxy.url, calls=3)
        assert killed.wait() == -signal.SIGKILL
        stream.start(proxy.url)
        stream.finish()
    assert stream.writer.events()["duplicate"] > REPEATED
    assert len(stream.brokers.sources(f"new-{stream.name}")) < DEVICES


def test_consumers_of_a_group_share_the_work_of_a_killed_one(stream):
    with Proxy(stream.writer.address) as proxy:
        first = stream.start(proxy.url)
        stream.start(proxy.url)
        wait_until("the first batches", lambda: len(proxy.seen) > 4)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        stream.finish()
    stream.assert_each_new_once()


def test_rebalance_during_a_batch_ends_no_consumer(stream):
    started = []

    def join():
        logging = ("--set", "debug=cgrp")
        started.append(stream.start(proxy.url, *logging))
        # The group waits for the first consumer, whose commit is then refused.
        started[-1].wait_for("wait-join")

    with Proxy(stream.writer.address, lose=1, on_loss=join) as proxy:
        started.append(stream.start(proxy.url))
        wait_until("two consumers", lambda: len(started) == 2)
        stream.finish()
    assert [one.wait() for one in started] == [0, 0]
    stream.assert_each_new_once()


def test_unreachable_writer_is_asked_again(stream):
    with Proxy("127.0.0.1:1") as unreachable:
        consumer = stream.start(unreachable.url)
        consumer.wait_for("repeated in")
        unreachable.upstream = stream.writer.address
        stream.finish()
    stream.assert_each_new_once()


def test_wrong_token_ends_the_consumer_and_commits_nothing(stream):
    token = stream.writer.token
    right = token.read_text()
    token.write_text("another-token-of-24-characters")
    refused = stream.start(stream.url)
    assert refused.wait() == 1
    assert "status 401" in refused.text()
    token.write_text(right)
    stream.start(stream.url)
    stream.finish()
    stream.assert_each_new_once()


@pytest.mark.parametrize(
    "flags, error",
    [
        (["--field", "device.imei"], r'100 of 100 events lack "device\.imei": expected at most '),
        (["--at", "device.time", "--at-unit", "s"], 'lack "device.time" as a time in s: '),
        (["--at", "at", "--at-unit", "ms"], 'lack "at" as a time in ms: expected at most '),
    ],
    ids=["id", "time", "unit"],
)
def test_events_without_the_field_end_the_consumer_and_commit_nothing(stream, flags, error):
    refused = stream.start(stream.url, *flags, *WHOLE_BATCHES)
    assert refused.wait() == 1
    found = ' --max-missing 0.5, found "id", "device.oaid", "at", "two_days_ago"'
    assert re.search(error, refused.text()) and found in refused.text(), refused.text()
    assert stream.brokers.committed(stream.name, stream.name) == 0
    assert stream.writer.events() == {}
    stream.start(stream.url, "--field", "device.oaid", "--at", "at", "--at-unit", "s")
    stream.finish()
    stream.assert_each_new_once()
    stream.assert_no_id_is_logged()


def test_accepted_events_without_the_field_are_said(stream):
    consumer = stream.start(stream.url, "--field", "device.imei", "--max-missing", "1")
    stream.finish()
    assert re.search("[0-9]+ lack an id, 0 unusable, 0 late", consumer.text())
    assert stream.writer.events() == {"unusable": DEVICES + REPEATED + UNUSABLE}


def test_ids_of_another_kind_end_the_consumer(stream):
    refused = stream.start(stream.url, "--kind", "imei", *WHOLE_BATCHES)
    assert refused.wait() == 1
    assert 'events have no usable id of kind imei in "id"' in refused.text()
    assert stream.brokers.committed(stream.name, stream.name) == 0
    stream.assert_no_id_is_logged()


def test_late_events_are_said(stream):
    consumer = stream.start(stream.url, "--at", "two_days_ago", "--at-unit", "ms")
    stream.finish()
    assert re.search("0 lack an id, [0-9]+ unusable, [0-9]+ late", consumer.text())
    assert stream.writer.events() == {"late": DEVICES + REPEATED, "unusable": UNUSABLE}
