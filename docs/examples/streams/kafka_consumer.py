#!/usr/bin/env python3
"""Counts the events of a Kafka topic in an event window, and forwards the new ones.

    pip install confluent-kafka
    kafka_consumer.py --brokers HOST:9092 --topic clicks --to new-clicks --group rtad \\
        --url http://rtad-writer.rtad.svc --window clicks --kind oaid --token-file token

The value of a message is a JSON object; `--field` has the device id. Run as many processes of one
group as there are partitions. It ends with an error, and commits nothing, where events lack the
field.

Delivery is at least once, and the writer answers a repeated batch as the first time. A
repetition must therefore be the same batch with the same Idempotency-Key, also after this process
was killed. So the end of a batch is committed, as metadata of its beginning, before the batch is
sent; the next owner of the partition reads it and cuts the same batch.
"""

import argparse
import collections
import hashlib
import http.client
import json
import logging
import random
import re
import signal
import time
import urllib.parse
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

MAX_BATCH = 10_000
# Bytes.
MAX_ID = 1024
# Fewer faulty events may be over a limit by chance, and would end the consumer at each start.
LEAST_FAULTY = 100
# Events after which the count of faulty ones begins again.
COUNTED = 1000
# Units of a time, per second, and the times that are one: 2000 to 2100.
UNITS = {"s": 1, "ms": 1000}
TIMES = range(946_684_800, 4_102_444_800)
# Seconds of the events of a request. No day of any time zone begins within such a span.
SPAN = 900
# The writer knows an Idempotency-Key for 10 minutes.
KNOWN = 600
GIVE_UP = 540
# Statuses below 500 that pass.
BUSY = (408, 409, 425, 429)
# The group assigns all partitions anew: after a start, an end, or a pause of one of its consumers.
REBALANCES = (
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
)
log = logging.getLogger("kafka_consumer")


class Window:
    """Client of one event window, with one connection."""

    def __init__(self, url, window, token, timeout=10):
        parts = urllib.parse.urlsplit(url)
        kind = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        self.connection = kind[parts.scheme](parts.netloc, timeout=timeout)
        self.path = f"{parts.path.rstrip('/')}/v1/windows/{urllib.parse.quote(window)}/events"
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def count(self, ids, kind, at, key):
        """The answer for these ids, of the time `at`: `new` and `counts`. Repeats the request until
        it is answered."""
        time_of_all = {} if at is None else {"at_unix_seconds": at}
        body = json.dumps({"ids": ids, "kind": kind} | time_of_all)
        headers = self.headers | {"Idempotency-Key": key}
        deadline, wait = time.monotonic() + GIVE_UP, 0.1
        while True:
            try:
                self.connection.request("POST", self.path, body, headers)
                answer = self.connection.getresponse()
                text = answer.read()
                if answer.status == 200:
                    return json.loads(text)
                cause = f"status {answer.status}"
                if answer.status < 500 and answer.status not in BUSY:
                    # Not repeated: the request is wrong. The answer contains no id.
                    raise SystemExit(f"{self.path}: {cause}: {text.decode(errors='replace')}")
            except (OSError, http.client.HTTPException) as error:
                cause = repr(error)
            self.connection.close()
            if time.monotonic() + wait > deadline:
                raise SystemExit(f"{self.path}: no answer in {GIVE_UP} s: {cause}")
            log.warning("%s: %s; repeated in %.1f s", self.path, cause, wait)
            time.sleep(wait * random.uniform(0.5, 1))
            wait = min(2 * wait, 5)


class Partition:
    """Messages of one partition that are not counted yet."""

    def __init__(self, end=None, sent=0):
        self.messages = []
        self.since = time.monotonic()
        # Offset after the last message of a batch that was sent before, and when.
        self.end, self.sent = end, sent

    def add(self, message):
        if not self.messages:
            self.since = time.monotonic()
        self.messages.append(message)

    def batch(self, size, linger):
        """The messages to send now, if any."""
        if not self.messages:
            return []
        if self.end is not None:
            known = [one for one in self.messages if one.offset() < self.end]
            # The log may lack offsets, after compaction and after transactions.
            complete = self.messages[-1].offset() >= self.end - 1
            if complete and not known:
                self.end = None
            return known if complete else []
        old = time.monotonic() - self.since >= linger
        return self.messages[:size] if old or len(self.messages) >= size else []

    def done(self, batch):
        del self.messages[: len(batch)]
        self.since, self.end = time.monotonic(), None


class Limit:
    """Limit of the share of faulty events, among some that follow each other."""

    def __init__(self, share):
        self.share = share
        self.events = self.faulty = 0

    def check(self, where, events, faulty, what):
        """Ends the consumer if the limit is exceeded with these events."""
        self.events += events
        self.faulty += faulty
        if self.faulty >= LEAST_FAULTY and self.faulty > self.share * self.events:
            raise SystemExit(f"{where}: {self.faulty} of {self.events} events {what}")

        if self.faulty >= LEAST_FAULTY or self.events >= COUNTED:
            self.events = self.faulty = 0


def path_of(field):
    """`device.imei` is the member `imei` of `device`, `a\\.b` the member `a.b`."""
    return [name.replace("\\.", ".") for name in re.split(r"(?<!\\)\.", field)]


def event_of(message):
    """The JSON object of a message; an empty one if it has none."""
    try:
        event = json.loads(message.value() or b"")
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def member(event, path):
    """The member of an event at this path; None if it is absent or null."""
    for name in path:
        event = event.get(name) if isinstance(event, dict) else None
    return event


def id_of(event, path):
    """The device id, or an empty one, which is answered with null. An id that the writer refuses
    must not end the consumer: it would cut the same batch again."""
    found = member(event, path)
    try:
        # A surrogate without its pair is a ValueError.
        is_id = isinstance(found, str) and len(found.encode()) <= MAX_ID
    except ValueError:
        is_id = False
    return found if is_id else ""


def time_of(event, path, unit):
    """The time in unix seconds, or None."""
    found = member(event, path)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    # Not the quotient: an integer may be too large for it. A NaN is in no range.
    low, high = TIMES.start * UNITS[unit], TIMES.stop * UNITS[unit]
    return int(found // UNITS[unit]) if low <= found < high else None


def groups_of(times):
    """Indexes of the events of each request. Events without a time have a request of their own."""
    groups = collections.defaultdict(list)
    for index, time_of_event in enumerate(times):
        groups[None if time_of_event is None else time_of_event // SPAN].append(index)
    return groups.values()


def names_of(event):
    """The names of an event's members, without those that may be an id."""
    names = []
    for name, value in event.items():
        below = [f"{name}.{inner}" for inner in value] if isinstance(value, dict) else []
        names += below or [name]
    shown = [one for one in names if len(one) <= 40 and len(re.findall(r"\d", one)) < 4]
    others = len(names) - len(shown[:20])
    return ", ".join(json.dumps(one) for one in shown[:20]) + (f" and {others} more" * (others > 0))


def forward(producer, topic, messages):
    """Sends new events on. Their header `source` is unique: a process that is killed here sends
    them again."""
    errors = []

    def delivered(error, _):
        if error:
            errors.append(error)

    for message in messages:
        source = f"{message.topic()}/{message.partition()}/{message.offset()}"
        headers = [*(message.headers() or []), ("source", source.encode())]
        # A full queue waits.
        while True:
            try:
                value, key = message.value(), message.key()
                producer.produce(topic, value, key, headers=headers, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(1)
    if producer.flush(30):
        raise SystemExit(f"{topic}: not all new events were forwarded in 30 s")
    # Refused messages leave the queue.
    if errors:
        raise SystemExit(f"{topic}: {len(errors)} new events were not forwarded: {errors[0]}")


class Job:
    def __init__(self, args):
        self.args = args
        token = args.token_file.read_text().split()[0]
        self.window = Window(args.url, args.window, token)
        common = {"bootstrap.servers": args.brokers} | dict(args.set)
        self.producer = Producer(common | {"enable.idempotence": True})
        self.consumer = Consumer(
            common
            | {
                "group.id": args.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                # Repetitions of a batch must not cost the partition.
                "max.poll.interval.ms": (GIVE_UP + 60) * 1000,
            }
        )
        # Other clusters and other flags make other requests, and need other keys.
        cluster = self.producer.list_topics(timeout=30).cluster_id
        self.source = [cluster, args.group, args.kind, args.field, args.at, args.at_unit]
        self.lacking_id, self.lacking_time = Limit(args.max_missing), Limit(args.max_missing)
        self.unusable = Limit(0.99)
        self.partitions = {}
        self.running = True

    def assigned(self, consumer, partitions):
        for one in consumer.committed(partitions, timeout=30):
            if one.error:
                raise KafkaException(one.error)
            unfinished = map(int, (one.metadata or "").split())
            self.partitions[one.topic, one.partition] = Partition(*unfinished)

    def revoked(self, _, partitions):
        for one in partitions:
            self.partitions.pop((one.topic, one.partition), None)

    def commit(self, batch, offset, metadata=""):
        """Commits an offset; returns false if the group assigns its partitions anew."""
        at = TopicPartition(batch[0].topic(), batch[0].partition(), offset, metadata)
        try:
            done = self.consumer.commit(offsets=[at], asynchronous=False)
            errors = [one.error for one in done if one.error]
        except KafkaException as failed:
            errors = [failed.args[0]]
        if any(error.code() not in REBALANCES for error in errors):
            raise KafkaException(errors[0])
        return not errors

    def check_members(self, where, events):
        """Ends the consumer, before anything is sent and committed, if too many events lack a
        member that is read."""
        path = path_of(self.args.field)
        lacking = [one for one in events if member(one, path) is None]
        self.check(self.lacking_id, where, events, lacking, f"lack {json.dumps(self.args.field)}")

        if self.args.at:
            path, unit = path_of(self.args.at), self.args.at_unit
            lacking = [one for one in events if time_of(one, path, unit) is None]
            what = f"lack {json.dumps(self.args.at)} as a time in {unit}"
            self.check(self.lacking_time, where, events, lacking, what)

    def check(self, limit, where, events, lacking, what):
        if lacking:
            found = names_of(lacking[0]) or "no JSON object, or one without members"
            what = f"{what}: expected at most --max-missing {limit.share}, found {found}"
        limit.check(where, len(events), len(lacking), what)

    def count(self, where, events, offsets):
        """Whether each event is new; None of an unusable id and of a late event."""
        path = path_of(self.args.field)
        ids = [id_of(event, path) for event in events]
        lacking = sum(member(event, path) is None for event in events)
        times = [None] * len(events)
        if self.args.at:
            path = path_of(self.args.at)
            times = [time_of(event, path, self.args.at_unit) for event in events]

        new, late = [None] * len(events), 0
        for group in groups_of(times):
            at = None if times[group[0]] is None else max(times[index] for index in group)
            parts = json.dumps([*self.source, *offsets, at])
            key = hashlib.sha256(parts.encode()).hexdigest()
            answer = self.window.count([ids[index] for index in group], self.args.kind, at, key)
            late += answer.get("late", 0)
            for index, is_new in zip(group, answer["new"], strict=True):
                new[index] = is_new

        unusable = max(new.count(None) - late - lacking, 0)
        what = f"have no usable id of kind {self.args.kind} in {json.dumps(self.args.field)}"
        self.unusable.check(where, len(events) - late - lacking, unusable, what)
        log.info("%s: %d events, %d new", where, len(events), new.count(True))
        if lacking or unusable or late:
            log.info("%s: %d lack an id, %d unusable, %d late", where, lacking, unusable, late)
        return new

    def send(self, partition, batch):
        """Counts a batch; returns false if its partition is assigned anew: its next owner, perhaps
        this process, repeats the batch."""
        begin, end = batch[0].offset(), batch[-1].offset() + 1
        where = f"{batch[0].topic()}/{batch[0].partition()}/{begin}-{end}"
        events = [event_of(message) for message in batch]
        self.check_members(where, events)

        if partition.end is None:
            if not self.commit(batch, begin, f"{end} {time.time():.0f}"):
                return False
        elif time.time() - partition.sent > KNOWN:
            log.warning("%s: repeated too late: new may be false", where)

        offsets = [batch[0].topic(), batch[0].partition(), begin, end]
        is_new = self.count(where, events, offsets)
        if self.args.to:
            new = [message for message, one in zip(batch, is_new, strict=True) if one]
            forward(self.producer, self.args.to, new)

        if not self.commit(batch, end):
            return False
        partition.done(batch)
        return True

    def run(self):
        self.consumer.subscribe([self.args.topic], on_assign=self.assigned, on_revoke=self.revoked)
        try:
            while self.running:
                for message in self.consumer.consume(self.args.batch, timeout=self.args.linger):
                    if message.error():
                        raise KafkaException(message.error())
                    at = message.topic(), message.partition()
                    if at in self.partitions:
                        self.partitions[at].add(message)
                for at, partition in list(self.partitions.items()):
                    while batch := partition.batch(self.args.batch, self.args.linger):
                        if not self.send(partition, batch):
                            self.partitions.pop(at, None)
                            break
        finally:
            self.consumer.close()


def arguments():
    parser = argparse.ArgumentParser(description="Counts events of a Kafka topic in a window.")
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--to", help="topic of the new events")
    parser.add_argument("--group", default="rtad")
    parser.add_argument("--url", required=True, help="address of the writer")
    parser.add_argument("--window", required=True)
    parser.add_argument("--kind", default="md5", help="kind of the ids")
    parser.add_argument(
        "--field",
        default="id",
        help="member with the id, such as device.imei; of a name with a dot, a\\.b [default: id]",
    )
    parser.add_argument("--at", metavar="FIELD", help="member with the time of the event")
    parser.add_argument("--at-unit", choices=UNITS, help="unit of --at, since 1970")
    parser.add_argument(
        "--max-missing",
        type=float,
        default=0.5,
        metavar="RATIO",
        help="end if more events than this lack --field, or --at [default: 0.5]",
    )
    parser.add_argument("--token-file", required=True, type=Path)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=lambda text: text.split("=", 1),
        metavar="KEY=VALUE",
        help="setting of librdkafka, such as security.protocol=SASL_SSL; repeatable",
    )
    parser.add_argument("--batch", type=int, default=1000, help="most events of a request")
    parser.add_argument("--linger", type=float, default=0.2, help="seconds to wait for a batch")
    args = parser.parse_args()
    if not 0 < args.batch <= MAX_BATCH:
        parser.error(f"--batch: expected 1 to {MAX_BATCH}, found {args.batch}")
    if not 0 <= args.max_missing <= 1:
        parser.error(f"--max-missing: expected 0 to 1, found {args.max_missing}")
    if bool(args.at) != bool(args.at_unit):
        parser.error("--at and --at-unit: expected both or neither")
    return args


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    job = Job(arguments())

    def stop(*_):
        job.running = False

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    job.run()


if __name__ == "__main__":
    main()
