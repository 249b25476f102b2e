#!/usr/bin/env python3
"""Distributed build on Spark: publishes the same chunks as `rtad-loader build`, byte for byte.

    spark-submit --files /path/to/rtad-loader loader/spark/build_audience.py \
        --store s3://ads/rtad --audience old_users --format parquet \
        --column idfa=idfa --column oaid=oaid s3a://dumps/2026-11-21

rtad-loader parses ids, deduplicates keys and builds filters in the executors. Spark only shuffles
frames of hundreds of keys by two bytes of each. Tasks may fail, be retried or run twice: only the
last step, in the driver, changes the live generation. Requirements and failures:
docs/guides/distributed-build.md. Exit codes are those of rtad-loader.
"""

import argparse
import csv
import functools
import io
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import threading

from pyspark import SparkFiles, StorageLevel
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

HEADER = "<HHI"  # bucket, content, count
HEADER_BYTES = 8
KEY_BYTES = 16
BUCKETS = 4096  # of 16 shards each; a chunk is a run of whole buckets
REPORT = -1  # instead of a bucket: the report of a step
PART_KEYS = 4 << 20  # per `distinct` step, about 130 MB
LINES_AT_ONCE = 4096
FAILED = re.compile(r"rtad-loader (\w+) ended with (-?\d+): ([^\n]*)")
FOR_PUBLISH = ("max_reject_ratio", "max_shrink", "max_fpr", "max_fill", "sign_key", "expires")


class Loader:
    """A running step of rtad-loader. A thread writes `feed`, so that reading and writing cannot
    block each other."""

    def __init__(self, command, feed):
        self.step = command[1]
        self.feed_error = None
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.stdout = self.process.stdout
        self.message = b""
        self.threads = [
            threading.Thread(target=work, daemon=True)
            for work in (lambda: self._write(feed), self._read_stderr)
        ]
        for thread in self.threads:
            thread.start()

    def _write(self, feed):
        try:
            for block in feed:
                self.process.stdin.write(block)
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # it has ended; see its exit code
        except BaseException as error:  # noqa: B902
            # Kill it: the input is incomplete, and its end must not look like the end of the ids.
            self.feed_error = error
            self.process.kill()

    def _read_stderr(self):
        for line in self.process.stderr:
            # A report, or an error; only usage errors have several lines.
            if not self.message.startswith(b"error:"):
                self.message = line

    def finish(self):
        """Waits for its end; returns its report."""
        code = self.process.wait()
        for thread in self.threads:
            thread.join()
        if self.feed_error:
            raise self.feed_error
        message = self.message.decode("utf-8", "replace").strip()
        if code:
            raise RuntimeError(
                f"rtad-loader {self.step} ended with {code}: {message or 'no message'}"
            )
        return message

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def resolved(loader):
    """Resolves a bare name to a file shipped with the job, otherwise leaves it to PATH."""
    if os.sep in loader:
        return loader
    shipped = SparkFiles.get(loader)
    return shipped if os.path.exists(shipped) else loader


def frames(stream):
    """The frames of a stream, each with its bucket."""
    while len(header := stream.read(HEADER_BYTES)) == HEADER_BYTES:
        bucket, _, count = struct.unpack(HEADER, header)
        yield bucket, header + stream.read(count * KEY_BYTES)


def as_lines(rows):
    batch = []
    for row in rows:
        batch.append(row)
        if len(batch) == LINES_AT_ONCE:
            yield b"\n".join(batch) + b"\n"
            batch.clear()
    if batch:
        yield b"\n".join(batch) + b"\n"


def as_csv(rows, columns):
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for number, row in enumerate(rows, 1):
        writer.writerow(row)
        if number % LINES_AT_ONCE == 0:
            yield text.getvalue().encode("utf-8", "replace")
            text.seek(0)
            text.truncate()
    yield text.getvalue().encode("utf-8", "replace")


def make_keys(rows, loader, flags, columns):
    """Keys of a partition as frames, and its report."""
    feed = as_csv(rows, columns) if columns else as_lines(rows)
    with Loader([resolved(loader), "keys", "--frames", *flags, "-"], feed) as step:
        yield from frames(step.stdout)
        yield REPORT, step.finish()


def make_distinct(part, records, loader, parts):
    """Distinct keys of a run of buckets as frames, and their report."""
    with Loader(
        [resolved(loader), "distinct", "--part", f"{part}/{parts}"], (frame for _, frame in records)
    ) as step:
        yield from frames(step.stdout)
        yield REPORT, step.finish()


def make_chunk(records, loader, flags):
    """Writes one chunk to the store; yields its manifest line."""
    first = next(iter(records), None)
    if first is None:
        return  # no keys, no chunk

    def keys():
        yield first[1][HEADER_BYTES:]
        for _, frame in records:
            yield frame[HEADER_BYTES:]

    with Loader([resolved(loader), "chunk", *flags], keys()) as step:
        line = step.stdout.read().decode()
        step.finish()
        yield line


def reports(records):
    return records.filter(lambda record: record[0] == REPORT).values().collect()


def frames_of(records):
    return records.filter(lambda record: record[0] != REPORT)


def read(spark, args):
    """The ids as an RDD of lines or rows, the flags of `keys`, and the column names."""
    flags = ["--id-kind", args.id_kind, "--threads", str(args.threads)]
    if args.case:
        flags += ["--case", args.case]
    for blank in args.blank:
        flags += ["--blank", blank]
    if args.format == "lines":
        return spark.sparkContext.textFile(",".join(args.inputs), use_unicode=False), flags, None
    if args.format == "csv":
        reader = spark.read.options(header=True, escape='"', sep=args.delimiter)
        table = reader.csv(args.inputs)
    elif args.format == "json":
        table = spark.read.json(args.inputs)
    elif args.format == "parquet":
        table = spark.read.parquet(*args.inputs)
    else:
        table = functools.reduce(lambda a, b: a.unionByName(b), map(spark.table, args.inputs))
    columns, names = [], []
    for number, column in enumerate(args.column):
        name, equals, kind = column.rpartition("=")
        name, kind = (name, kind) if equals else (column, args.id_kind)
        cell = F.col(name)
        if kind == "md5" and dict(table.select(cell.alias("c")).dtypes)["c"] == "binary":
            # 16 bytes are a digest; other values are text.
            cell = F.when(F.length(cell) == 16, F.lower(F.hex(cell))).otherwise(cell.cast("string"))
        names.append(f"c{number}")
        columns.append(cell.cast("string").alias(names[-1]))
        flags += ["--column", f"{names[-1]}={kind}"]
    return table.select(*columns).rdd, ["--format", "csv", *flags], names


def in_driver(command, text=None):
    """Runs a step in the driver, with its stderr."""
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def power_of_two(least):
    return 1 << max(0, least - 1).bit_length()


def build(spark, args, changes):
    context, loader = spark.sparkContext, args.loader
    here = resolved(loader)
    trust = [word for key in args.public_key for word in ("--public-key", key)]
    target = ["--store", args.store, "--audience", args.audience, *trust]
    sizing = ["--fpr", str(args.fpr), "--filter", args.filter]
    job = in_driver([here, "begin", *target, *sizing, "--changes", changes]).strip()

    rows, flags, names = read(spark, args)
    keys = rows.mapPartitions(
        functools.partial(make_keys, loader=loader, flags=flags, columns=names)
    )
    keys.persist(StorageLevel.DISK_ONLY)
    lines = reports(keys)
    found = sum(json.loads(line)["keys"] for line in lines)

    with open(changes, "rb") as file:
        changed = context.parallelize(list(frames(file)))
    parts = power_of_two(max(-(-found // PART_KEYS), context.defaultParallelism))
    parts = min(args.parts or parts, BUCKETS)
    shuffled = (
        frames_of(keys).union(changed).partitionBy(parts, lambda bucket: bucket * parts // BUCKETS)
    )
    distinct = shuffled.mapPartitionsWithIndex(
        functools.partial(make_distinct, loader=loader, parts=parts)
    )
    distinct.persist(StorageLevel.DISK_ONLY)
    counted = reports(distinct)
    keys.unpersist()
    total = sum(json.loads(line)["keys"] for line in counted)

    cut = json.loads(in_driver([here, "chunk", "--job", job, "--keys", str(total), "--cut"]))
    buckets = cut["shards_per_chunk"] * BUCKETS // 65536
    flags = ["--store", args.store, "--job", job, "--keys", str(total)]
    shuffled = frames_of(distinct).partitionBy(cut["chunks"], lambda bucket: bucket // buckets)
    chunks = shuffled.mapPartitions(
        functools.partial(make_chunk, loader=loader, flags=flags)
    ).collect()
    distinct.unpersist()

    publish = [here, "publish", "--store", args.store, "--job", job, *trust]
    for name in FOR_PUBLISH:
        if (value := getattr(args, name)) is not None:
            publish += ["--" + name.replace("_", "-"), value]
    publish += [
        flag
        for flag, given in (("--allow-empty", args.allow_empty), ("--json", args.json))
        if given
    ]
    print(in_driver([*publish, "-"], "\n".join([*lines, *counted, *chunks])), end="")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument(
        "--store", required=True, metavar="URL", help="snapshot store; every executor must reach it"
    )
    parser.add_argument("--audience", required=True, metavar="NAME")
    parser.add_argument(
        "--loader",
        default="rtad-loader",
        metavar="PATH",
        help="path on every machine; a bare name is shipped with --files, or on PATH",
    )
    parser.add_argument(
        "--format", default="lines", choices=["lines", "csv", "json", "parquet", "table"]
    )
    parser.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="NAME[=KIND]",
        help="column with ids; repeatable",
    )
    parser.add_argument("--delimiter", default=",", help="csv: cell separator")
    parser.add_argument("--id-kind", default="md5", metavar="KIND")
    parser.add_argument("--case", metavar="CASE", help="as in rtad-loader build")
    parser.add_argument(
        "--blank", action="append", default=[], metavar="ID", help="as in rtad-loader build"
    )
    parser.add_argument("--fpr", default="0.0001", metavar="P")
    parser.add_argument("--filter", default="block512", metavar="KIND")
    parser.add_argument(
        "--threads",
        type=int,
        default=1,
        metavar="N",
        help="parser threads per task: spark.task.cpus",
    )
    parser.add_argument(
        "--parts",
        type=int,
        metavar="N",
        help="parts for deduplication, a power of two [default: one per 4 million keys, at least one per core]",
    )
    for name in FOR_PUBLISH:
        parser.add_argument("--" + name.replace("_", "-"), help="as in rtad-loader build")
    parser.add_argument(
        "--public-key",
        action="append",
        default=[],
        metavar="KEY|FILE",
        help="as in rtad-loader build",
    )
    parser.add_argument("--allow-empty", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help="paths for Spark, or table names with --format table",
    )
    args = parser.parse_args()
    if (args.format == "lines") == bool(args.column):
        parser.error("--column NAME[=KIND] is required with every --format except lines")
    if args.parts and (args.parts & (args.parts - 1) or not 0 < args.parts <= BUCKETS):
        parser.error("--parts: expected a power of two up to 4096")
    return args


def main():
    args = parse()
    spark = SparkSession.builder.appName(f"rtad {args.audience}").getOrCreate()
    # The keys of deltas: private, removed at the end.
    try:
        with tempfile.TemporaryDirectory() as folder:
            build(spark, args, os.path.join(folder, "changes"))
    except Exception as error:
        failed = FAILED.search(str(error))
        if not failed:
            raise
        step, code, message = failed.groups()
        print(f"{message} (rtad-loader {step}, in an executor)", file=sys.stderr)
        sys.exit(int(code) if 0 < int(code) < 7 else 1)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
