#!/usr/bin/env python3
"""Counts the events of files in an event window, with Spark Structured Streaming.

    pip install pyspark
    spark-submit spark_job.py --source clicks/ --to counted/ --checkpoint checkpoint/ \\
        --url http://rtad-writer.rtad.svc --window clicks --kind oaid --token-file token

`--source` is a folder of JSON lines; `--field` is the device id. The result is Parquet: the events
with the columns `new` and `count`. Without `--every` the job counts the new files and ends.

Delivery is at least once, and the writer answers a repeated request as the first time. Spark
repeats a task, or after a crash the whole micro-batch, with the same rows in the same order: its
checkpoint has the files of each micro-batch. So the Idempotency-Key is the checkpoint with the
number of the micro-batch, of the partition, and of the request. The result of a micro-batch has a
folder of its own, which a repetition overwrites. Together each event is counted once and in the
result once.
"""

import argparse
import http.client
import itertools
import json
import random
import time
import urllib.parse
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

MAX_BATCH = 10_000
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


def counter(args, token, batch):
    """The function that counts the rows of a partition, in requests of `--batch` rows."""
    settings = args.url, args.window, args.kind, args.field, args.batch
    job = urllib.parse.quote(args.checkpoint, safe="/:")

    def count(partition, rows):
        url, name, kind, field, size = settings
        window = Window(url, name, token)
        for request in itertools.count():
            chunk = list(itertools.islice(rows, size))
            if not chunk:
                return
            key = f"{job}/{batch}/{partition}/{request}"
            answer = window.count([row[field] or "" for row in chunk], kind, key)
            for row, new, times in zip(chunk, answer["new"], answer["counts"], strict=True):
                yield (*row, new, times)

    return count


def counted(args, token):
    """The function that counts a micro-batch and writes its result."""

    def write(events, batch):
        schema = StructType(
            [
                *events.schema.fields,
                StructField("new", BooleanType()),
                StructField("count", LongType()),
            ]
        )
        # No shuffle: its order of rows would differ in a repetition.
        rows = events.rdd.mapPartitionsWithIndex(counter(args, token, batch))
        result = events.sparkSession.createDataFrame(rows, schema, verifySchema=False)
        result.write.mode("overwrite").parquet(f"{args.to}/batch={batch}")

    return write


def arguments():
    parser = argparse.ArgumentParser(description="Counts events of files in a window.")
    parser.add_argument("--source", required=True, help="folder or URL of JSON lines")
    parser.add_argument("--schema", default="id STRING", help="columns, as in SQL")
    parser.add_argument("--to", required=True, help="folder or URL of the result")
    parser.add_argument("--checkpoint", required=True, help="folder or URL, one per job")
    parser.add_argument("--url", required=True, help="address of the writer")
    parser.add_argument("--window", required=True)
    parser.add_argument("--kind", default="md5", help="kind of the ids")
    parser.add_argument("--field", default="id", help="column with the id")
    parser.add_argument("--token-file", required=True, type=Path)
    parser.add_argument("--batch", type=int, default=MAX_BATCH, help="most rows of a request")
    parser.add_argument("--files", type=int, default=1000, help="most files of a micro-batch")
    parser.add_argument("--every", help='interval of micro-batches, as in "10 seconds"')
    args = parser.parse_args()
    if not 0 < args.batch <= MAX_BATCH:
        parser.error(f"--batch: expected 1 to {MAX_BATCH}, found {args.batch}")
    return args


def main():
    args = arguments()
    token = args.token_file.read_text().split()[0]
    spark = SparkSession.builder.appName("rtad-events").getOrCreate()
    events = (
        spark.readStream.schema(args.schema)
        .option("maxFilesPerTrigger", args.files)
        .json(args.source)
    )
    trigger = {"processingTime": args.every} if args.every else {"availableNow": True}
    query = (
        events.writeStream.foreachBatch(counted(args, token))
        .option("checkpointLocation", args.checkpoint)
        .trigger(**trigger)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
