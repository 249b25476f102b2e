"""A Kafka cluster: the mock cluster inside librdkafka, which listens on ports of this machine."""

import collections
import json
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from suites.testkit.waiting import WAIT_SECONDS

PARTITIONS = 4


class Brokers:
    def __init__(self):
        settings = {"test.mock.num.brokers": 3, "log_level": 3}
        self.producer = Producer(settings)
        found = self.producer.list_topics(timeout=WAIT_SECONDS).brokers.values()
        self.addresses = ",".join(f"{one.host}:{one.port}" for one in found)

    def publish(self, topic, events):
        """Publishes JSON objects in all partitions."""
        for number, event in enumerate(events):
            self.producer.produce(topic, json.dumps(event), partition=number % PARTITIONS)
        assert self.producer.flush(WAIT_SECONDS) == 0

    def consumer(self, group):
        settings = {
            "bootstrap.servers": self.addresses,
            "group.id": group,
            "enable.auto.commit": False,
            "log_level": 3,
        }
        return Consumer(settings)

    def committed(self, group, topic):
        """Sum of the committed offsets of all partitions."""
        consumer = self.consumer(group)
        try:
            at = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            found = consumer.committed(at, timeout=WAIT_SECONDS)
            return sum(one.offset for one in found if one.offset > 0)
        finally:
            consumer.close()

    def read(self, topic):
        """All messages of a topic."""
        consumer = self.consumer("reader")
        try:
            parts = consumer.list_topics(topic, timeout=WAIT_SECONDS).topics[topic].partitions
            at = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in parts]
            ends = [consumer.get_watermark_offsets(one, timeout=WAIT_SECONDS)[1] for one in at]
            consumer.assign(at)
            found, deadline = [], time.monotonic() + WAIT_SECONDS
            while len(found) < sum(ends) and time.monotonic() < deadline:
                found += consumer.consume(1000, timeout=0.1)
            assert len(found) == sum(ends)
            return found
        finally:
            consumer.close()

    def sources(self, topic):
        """Of each device in this topic, the events it was forwarded from."""
        sources = collections.defaultdict(set)
        for message in self.read(topic):
            sources[json.loads(message.value())["id"]].add(dict(message.headers())["source"])
        return sources
