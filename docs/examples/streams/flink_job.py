#!/usr/bin/env python3
"""Counts the events of files in an event window, with Flink.

    pip install apache-flink
    python flink_job.py --source clicks/ --batches batches/ --to counted/ \\
        --checkpoint checkpoint/ --url http://rtad-writer.rtad.svc --window clicks --kind oaid \\
        --token-file token

`--source` is a folder of JSON lines; `--field` is the device id. The result is JSON lines too: the
events with the fields `new` and `count`. The job runs until it is stopped. To continue from its
last checkpoint: `--set execution.state-recovery.path=checkpoint/JOB/chk-N`.

Delivery is at least once, and the writer answers a repeated request as the first time. A
repetition must therefore be the same batch with the same Idempotency-Key. So a batch is sent only
after a checkpoint has it. Python functions are not notified of a completed checkpoint, but Flink's
file sink is: it publishes the batches, with their keys, as files in `--batches`. A source reads
them, and they are sent. After a failure this source continues where the last checkpoint is, with
the same batches and keys. The result is of a file sink as well, which publishes the answers of
each checkpoint once. Together each event is counted once and in the result once.
"""

import argparse
import http.client
import json
import random
import time
import urllib.parse
import uuid
from pathlib import Path

from pyflink.common import Configuration, Duration, Types, WatermarkStrategy
from pyflink.common.serialization import Encoder
from pyflink.datastream import FlatMapFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import (
    FileSink,
    FileSource,
    RollingPolicy,
    StreamFormat,
)
from pyflink.java_gateway import get_gateway
from pyflink.table import Schema, StreamTableEnvironment

# Collects the lines of some seconds, in up to 16 subtasks. Not in Python: a checkpoint can
# have the state of a Python function without its timer (seen with PyFlink 2.3).
COLLECT = """
    SELECT ARRAY_AGG(line)
    FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(arrival), INTERVAL '{}' SECOND(4)))
    GROUP BY window_start, window_end, LEFT(MD5(line), 1)
"""
MAX_BATCH = 10_000
# Bytes.
MAX_ID = 1024
# The writer knows an Idempotency-Key for 10 minutes.
GIVE_UP = 540
# Statuses below 500 that pass.
BUSY = (408, 409, 425, 429)


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
                    raise RuntimeError(f"{self.path}: {cause}: {text.decode(errors='replace')}")
            except (OSError, http.client.HTTPException) as error:
                cause = repr(error)
            self.connection.close()
            if time.monotonic() + wait > deadline:
                raise RuntimeError(f"{self.path}: no answer in {GIVE_UP} s: {cause}")
            time.sleep(wait * random.uniform(0.5, 1))
            wait = min(2 * wait, 5)


def cut(size):
    """The function that cuts collected lines into batches. A batch is a line of JSON, with its
    key."""

    def batches(collected):
        (lines,) = collected
        for begin in range(0, len(lines), size):
            yield json.dumps({"key": str(uuid.uuid4()), "lines": lines[begin : begin + size]})

    return batches


def event(line):
    """The event, or an empty one if the line is not a JSON object."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {}


def id_of(one, field):
    """The device id of an event, or an empty one, which is answered with null. An id that the
    writer refuses must not end the job: it would send the same batch again."""
    found = one.get(field)
    try:
        is_id = isinstance(found, str) and len(found.encode()) <= MAX_ID
    except UnicodeEncodeError:
        # A surrogate without its pair.
        is_id = False
    return found if is_id else ""


class Count(FlatMapFunction):
    """Sends a batch; returns its events with the answers."""

    def __init__(self, args, token):
        self.settings = args.url, args.window, token
        self.kind, self.field = args.kind, args.field

    def open(self, context):
        self.window = Window(*self.settings)

    def flat_map(self, batch):
        batch = json.loads(batch)
        events = [event(line) for line in batch["lines"]]
        ids = [id_of(one, self.field) for one in events]
        answer = self.window.count(ids, self.kind, batch["key"])
        for one, new, times in zip(events, answer["new"], answer["counts"], strict=True):
            yield json.dumps(one | {"new": new, "count": times})


def folder(text):
    """The URL of a folder, which is created if it is missing."""
    path = get_gateway().jvm.org.apache.flink.core.fs.Path(text)
    files = path.getFileSystem()
    files.mkdirs(path)
    return path.makeQualified(files).toString()


def new_lines(environment, url, name):
    """The lines of the files of a folder, and of its new files."""
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), url)
    source = source.monitor_continuously(Duration.of_seconds(1)).build()
    return environment.from_source(source, WatermarkStrategy.no_watermarks(), name).uid(name)


def save(lines, url, name):
    """Publishes lines as files, once per checkpoint."""
    sink = FileSink.for_row_format(url, Encoder.simple_string_encoder())
    sink = sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()
    lines.sink_to(sink).uid(name).name(name)


def arguments():
    parser = argparse.ArgumentParser(description="Counts events of files in a window.")
    parser.add_argument("--source", required=True, help="folder or URL of JSON lines")
    parser.add_argument("--batches", required=True, help="folder or URL of the batches to send")
    parser.add_argument("--to", required=True, help="folder or URL of the result")
    parser.add_argument("--checkpoint", required=True, help="folder or URL, one per job")
    parser.add_argument("--url", required=True, help="address of the writer")
    parser.add_argument("--window", required=True)
    parser.add_argument("--kind", default="md5", help="kind of the ids")
    parser.add_argument("--field", default="id", help="field of the event with the id")
    parser.add_argument("--token-file", required=True, type=Path)
    parser.add_argument("--batch", type=int, default=1000, help="most events of a request")
    parser.add_argument("--linger", type=int, default=1, help="seconds to wait for a batch")
    parser.add_argument("--every", default="10 s", help="interval of checkpoints")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=lambda text: text.split("=", 1),
        metavar="KEY=VALUE",
        help="setting of Flink, such as parallelism.default=8; repeatable",
    )
    args = parser.parse_args()
    if not 0 < args.batch <= MAX_BATCH:
        parser.error(f"--batch: expected 1 to {MAX_BATCH}, found {args.batch}")
    return args


def main():
    args = arguments()
    token = args.token_file.read_text().split()[0]
    settings = {
        "execution.checkpointing.dir": folder(args.checkpoint),
        "execution.checkpointing.interval": args.every,
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        # A wrong token ends the job, a lost machine does not.
        "restart-strategy.type": "failure-rate",
        "restart-strategy.failure-rate.max-failures-per-interval": "3",
        "restart-strategy.failure-rate.failure-rate-interval": "10 min",
        # Most batches in the memory of a Python worker. The default is 100,000.
        "python.fn-execution.bundle.size": "1000",
    }
    configuration = Configuration()
    for key, value in (settings | dict(args.set)).items():
        configuration.set_string(key, value)
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    lines = new_lines(environment, folder(args.source), "events")
    tables = StreamTableEnvironment.create(environment)
    schema = Schema.new_builder().column_by_expression("line", "f0")
    schema = schema.column_by_expression("arrival", "PROCTIME()").build()
    tables.create_temporary_view("events", lines, schema)
    collected = tables.to_data_stream(tables.sql_query(COLLECT.format(args.linger)))
    batches = collected.flat_map(cut(args.batch), Types.STRING()).uid("cut")
    save(batches, folder(args.batches), "batches")
    known = new_lines(environment, folder(args.batches), "known batches")
    counted = known.flat_map(Count(args, token), Types.STRING()).uid("count")
    save(counted, folder(args.to), "result")
    environment.execute("rtad-events")


if __name__ == "__main__":
    main()
