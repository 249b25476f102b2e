#!/usr/bin/env python3
"""Counts the events of a Kafka topic in an event window, and forwards the new ones.

    pip install confluent-kafka
    kafka_consumer.py --brokers HOST:9092 --topic clicks --to new-clicks --group rtad \\
        --url http://rtad-writer.rtad.svc --window clicks --kind oaid --token-file token

The value of a message is a JSON object; `--field` has the device id. Run as many processes of one
group as there are partitions.

Delivery is at least once, and the writer answers a repeated batch as the first time. A
repetition must therefore be the same batch with the same Idempotency-Key, also after this process
was killed. So the end of a batch is committed, as metadata of its beginning, before the batch is
sent; the next owner of the partition reads it and cuts the same batch.
"""

import argparse
import hashlib
import http.client
import json
import logging
import random
import signal
import time
import urllib.parse
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

MAX_BATCH = 10_000
# Bytes.
MAX_ID = 1024
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

    def count(self, ids, kind, key):
        """The answer for these ids: `new` and `counts`. Repeats the request until it is answered."""
        body = json.dumps({"ids": ids, "kind": kind})
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


def id_of(message, field):
    """The device id, or an empty one, which is answered with null. An id that the writer refuses
    must not end the consumer: it would cut the same batch again."""
    try:
        value = json.loads(message.value() or b"")
        found = value.get(field) if isinstance(value, dict) else None
        # A surrogate without its pair is a ValueError.
        is_id = isinstance(found, str) and len(found.encode()) <= MAX_ID
    except (ValueError, RecursionError):
        is_id = False
    return found if is_id else ""


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
        self.source = [cluster, args.group, args.kind, args.field]
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

    def send(self, partition, batch):
        """Counts a batch; returns false if its partition is assigned anew: its next owner, perhaps
        this process, repeats the batch."""
        begin, end = batch[0].offset(), batch[-1].offset() + 1
        at = f"{batch[0].topic()}/{batch[0].partition()}"
        if partition.end is None:
            if not self.commit(batch, begin, f"{end} {time.time():.0f}"):
                return False
        elif time.time() - partition.sent > KNOWN:
            log.warning("%s/%d-%d: repeated too late: new may be false", at, begin, end)
        ids = [id_of(message, self.args.field) for message in batch]
        parts = json.dumps([*self.source, batch[0].topic(), batch[0].partition(), begin, end])
        key = hashlib.sha256(parts.encode()).hexdigest()
        answer = self.window.count(ids, self.args.kind, key)
        new = [message for message, is_new in zip(batch, answer["new"], strict=True) if is_new]
        if self.args.to:
            forward(self.producer, self.args.to, new)
        if not self.commit(batch, end):
            return False
        partition.done(batch)
        log.info("%s/%d-%d: %d events, %d new", at, begin, end, len(batch), len(new))
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
    parser.add_argument("--field", default="id", help="field of the message with the id")
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
