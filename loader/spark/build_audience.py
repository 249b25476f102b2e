#!/usr/bin/env python3
"""Distributed build on Spark: publishes the same chunks as `rtad-loader build`, byte for byte.

    spark-submit --files /path/to/rtad-loader loader/spark/build_audience.py \
        --store s3://ads/rtad --audience old_users --format parquet \
        --column idfa=idfa --column oaid=oaid s3a://dumps/2026-11-21

In the executors, rtad-loader parses ids, deduplicates keys and builds filters. Spark only shuffles
frames: batches of several hundred keys that share a bucket, a prefix of the key. Tasks may fail, be
retried or run twice: only the last step, in the driver, changes the live generation.

Requirements and failures: docs/guides/distributed-build.md. Exit codes: as in rtad-loader.
"""

import argparse
import functools
import itertools
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

from pyspark import SparkFiles, StorageLevel
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

HEADER = "<HHI"  # bucket, content, count
HEADER_BYTES = 8
KEY_BYTES = 16
BUCKETS = 4096  # 16 shards each; a chunk consists of consecutive whole buckets
REPORT = -1  # in place of a bucket number: marks the report of a step
PART_KEYS = 4 << 20  # keys per `distinct` step: about 130 MB
LINES_PER_WRITE = 4096
FRAMES_PER_BATCH = 256
MALFORMED_ROWS = "_rtad_malformed"  # Spark's column of malformed rows
MALFORMED = "malformed row"  # an id of no kind, as it has a space
PATH = re.compile(r"`([^`]+)`|([^.`]+)")  # names of a column's path
STRICT = ("ignoreCorruptFiles", "ignoreMissingFiles")  # off: Spark would skip the rest of files
FILES_AT_ONCE = 16  # files whose headers or footers are read at once
STEP_ERROR = re.compile(r"rtad-loader (\w+) ended with (-?\d+): ([^\n]*)")
PUBLISH_FLAGS = (
    "max_reject_ratio",
    "max_shrink",
    "max_growth",
    "min_overlap",
    "max_carried_loss",
    "sign_key",
    "expires",
)


class Loader:
    """A running step of rtad-loader. A separate thread writes `feed` to its stdin: one thread for
    reading and writing could deadlock on full pipes."""

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
            pass  # the step has exited; `finish` checks its exit code
        except BaseException as error:  # noqa: B902
            # Kill the step: on a normal end of stdin it would accept the incomplete input.
            self.feed_error = error
            self.process.kill()

    def _read_stderr(self):
        for line in self.process.stderr:
            # Keep the last line, a report, or the first line of an error.
            if not self.message.startswith(b"error:"):
                self.message = line

    def finish(self):
        """Waits for the step to exit; returns its report."""
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


def find_loader(loader):
    """Path of a file shipped with the job; without such a file, the name is looked up on PATH."""
    if os.sep in loader:
        return loader
    shipped = SparkFiles.get(loader)
    return shipped if os.path.exists(shipped) else loader


def frames(stream):
    """Frames of a stream, each with its bucket."""
    while len(header := stream.read(HEADER_BYTES)) == HEADER_BYTES:
        bucket, _, count = struct.unpack(HEADER, header)
        yield bucket, header + stream.read(count * KEY_BYTES)


def as_lines(rows):
    batch = []
    for row in rows:
        batch.append(row)
        if len(batch) == LINES_PER_WRITE:
            yield b"\n".join(batch) + b"\n"
            batch.clear()
    if batch:
        yield b"\n".join(batch) + b"\n"


def as_csv(batches, columns):
    """Record batches as CSV with a header."""
    import pyarrow
    import pyarrow.compute
    import pyarrow.csv

    yield ",".join(columns).encode() + b"\n"
    for batch in batches:
        # The row of a null alone would be an empty line, which is no row.
        cells = [pyarrow.compute.fill_null(column, "") for column in batch.columns]
        batch = pyarrow.record_batch(cells, columns)
        block = pyarrow.BufferOutputStream()
        pyarrow.csv.write_csv(batch, block, pyarrow.csv.WriteOptions(include_header=False))
        yield block.getvalue()


def make_keys(feed, loader, flags):
    """Keys of a partition as frames, and its report."""
    with Loader([find_loader(loader), "keys", "--frames", *flags, "-"], feed) as step:
        yield from frames(step.stdout)
        yield REPORT, step.finish().encode()


def make_keys_of_lines(rows, loader, flags):
    return make_keys(as_lines(rows), loader, flags)


def make_keys_of_batches(batches, loader, flags, columns):
    """The same of record batches, as record batches: in these, Spark gives Python blocks of
    columns in place of single rows."""
    import pyarrow

    records = make_keys(as_csv(batches, columns), loader, flags)
    while some := list(itertools.islice(records, FRAMES_PER_BATCH)):
        buckets, blocks = zip(*some)
        arrays = [pyarrow.array(buckets, pyarrow.int32()), pyarrow.array(blocks, pyarrow.binary())]
        yield pyarrow.record_batch(arrays, ["bucket", "frame"])


def make_distinct(part, records, loader, parts):
    """Distinct keys of a run of buckets as frames, and their report."""
    with Loader(
        [find_loader(loader), "distinct", "--part", f"{part}/{parts}"],
        (frame for _, frame in records),
    ) as step:
        yield from frames(step.stdout)
        yield REPORT, step.finish().encode()


def make_chunk(records, loader, flags):
    """Writes one chunk to the store; yields its manifest line."""
    first = next(iter(records), None)
    if first is None:
        return  # without keys there is no chunk

    def keys():
        yield first[1][HEADER_BYTES:]
        for _, frame in records:
            yield frame[HEADER_BYTES:]

    with Loader([find_loader(loader), "chunk", *flags], keys()) as step:
        line = step.stdout.read().decode()
        step.finish()
        yield line


def reports(records):
    found = records.filter(lambda record: record[0] == REPORT).values().collect()
    return [report.decode() for report in found]


def frames_of(records):
    return records.filter(lambda record: record[0] != REPORT)


def refuse(message):
    """Ends the job as the loader refuses an input."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(3)


def of_files(table, read):
    """Files of a table, each with the result of `read`."""
    files = table.inputFiles()
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        return list(zip(files, pool.map(read, files)))


def first_line_reader(spark):
    """A function that reads a file's first line that is not blank; None of an empty file."""
    java, hadoop = spark._jvm.java, spark._jvm.org.apache.hadoop
    new_path, new_uri, new_reader = hadoop.fs.Path, java.net.URI, java.io.InputStreamReader
    buffered, conf = java.io.BufferedReader, spark._jsc.hadoopConfiguration()
    codecs = hadoop.io.compress.CompressionCodecFactory(conf)

    def first_line(file):
        path = new_path(new_uri(file))
        stream = path.getFileSystem(conf).open(path)
        codec = codecs.getCodec(path)
        lines = buffered(new_reader(codec.createInputStream(stream) if codec else stream, "UTF-8"))
        try:
            texts = (line.removeprefix("\ufeff") for line in iter(lines.readLine, None))
            return next((text for text in texts if text.strip()), None)
        finally:
            lines.close()

    return first_line


def paths_reader(spark):
    """A function that reads the paths of a Parquet file's columns, as the text `[[a, b], [c]]`."""
    java, apache = spark._jvm.java, spark._jvm.org.apache
    new_path, new_uri, as_text = apache.hadoop.fs.Path, java.net.URI, java.util.Arrays.deepToString
    input_of = apache.parquet.hadoop.util.HadoopInputFile.fromPath
    open_file = apache.parquet.hadoop.ParquetFileReader.open
    conf = spark._jsc.hadoopConfiguration()

    def paths(file):
        opened = open_file(input_of(new_path(new_uri(file)), conf))
        try:
            return as_text(opened.getFooter().getFileMetaData().getSchema().getPaths().toArray())
        finally:
            opened.close()

    return paths


def comparable_name(spark):
    """A function that changes a column's name as Spark does to compare it."""
    return str if spark.conf.get("spark.sql.caseSensitive").lower() == "true" else str.lower


def check_headers(spark, table, args):
    """Refuses files with another header than the first: Spark would read their cells by position.
    Spark's own errors quote headers, and the first line of a file without one has ids."""
    headers = [(file, line) for file, line in of_files(table, first_line_reader(spark)) if line]
    for file, line in headers:
        if line != headers[0][1]:
            refuse(f"input {file}: has another header than {headers[0][0]}: expected the same")
    comparable = comparable_name(spark)
    found = [comparable(name) for name in table.columns]
    for column in args.column:
        name, _ = column_and_kind(args, column)
        if comparable(name.strip("`")) not in found:
            refuse(f"no input has a column {json.dumps(name)}: expected a header row with it")


def check_paths(spark, table, args):
    """Refuses Parquet files without one of the columns: Spark would read nulls, which are blank."""
    names = [column_and_kind(args, column)[0] for column in args.column]
    comparable = comparable_name(spark)
    for file, found in of_files(table, paths_reader(spark)):
        for name in names:
            path = ", ".join(quoted or part for quoted, part in PATH.findall(name))
            if comparable(f"[{path}]") not in comparable(found):
                refuse(f"input {file}: has no column {json.dumps(name)} of ids")


def column_and_kind(args, column):
    name, equals, kind = column.rpartition("=")
    return (name, kind) if equals else (column, args.id_kind)


def read_keys(spark, args):
    """The keys of all inputs as frames, and a report of each partition."""
    flags = ["--id-kind", args.id_kind, "--threads", str(args.threads)]
    if args.case:
        flags += ["--case", args.case]
    for blank in args.blank:
        flags += ["--blank", blank]
    if args.format == "lines":
        lines = spark.sparkContext.textFile(",".join(args.inputs), use_unicode=False)
        return lines.mapPartitions(
            functools.partial(make_keys_of_lines, loader=args.loader, flags=flags)
        )
    reader = spark.read.options(recursiveFileLookup=True)
    if args.format == "csv":
        reader = reader.options(header=True, escape='"', sep=args.delimiter, enforceSchema=False)
        table = reader.csv(args.inputs)
        check_headers(spark, table, args)
    elif args.format == "json":
        # Spark gives a malformed row nulls, which would be blank ids.
        table = reader.json(args.inputs, columnNameOfCorruptRecord=MALFORMED_ROWS)
    elif args.format == "parquet":
        table = reader.parquet(*args.inputs)
        check_paths(spark, table, args)
    else:
        table = functools.reduce(lambda a, b: a.unionByName(b), map(spark.table, args.inputs))
    columns, names = [], []
    for number, column in enumerate(args.column):
        name, kind = column_and_kind(args, column)
        cell = F.col(name)
        if kind == "md5" and dict(table.select(cell.alias("c")).dtypes)["c"] == "binary":
            # 16 bytes are a digest; other values are text.
            cell = F.when(F.length(cell) == 16, F.lower(F.hex(cell))).otherwise(cell.cast("string"))
        cell = cell.cast("string")
        # Spark has this column only if there is a malformed row.
        if number == 0 and args.format == "json" and MALFORMED_ROWS in table.columns:
            cell = F.when(F.col(MALFORMED_ROWS).isNull(), cell).otherwise(MALFORMED)
        names.append(f"c{number}")
        columns.append(cell.alias(names[-1]))
        flags += ["--column", f"{names[-1]}={kind}"]
    flags += ["--format", "csv"]
    step = functools.partial(make_keys_of_batches, loader=args.loader, flags=flags, columns=names)
    return table.select(*columns).mapInArrow(step, "bucket int, frame binary").rdd.map(tuple)


def run_in_driver(command, text=None):
    """Runs a step in the driver; its stderr is the driver's."""
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def next_power_of_two(number):
    return 1 << max(0, number - 1).bit_length()


def build(spark, args, changes):
    context, loader = spark.sparkContext, args.loader
    local_loader = find_loader(loader)
    trust = [word for key in args.public_key for word in ("--public-key", key)]
    target = ["--store", args.store, "--audience", args.audience, *trust]
    sizing = ["--fpr", str(args.fpr), "--filter", args.filter]
    begin = [local_loader, "begin", *target, *sizing, "--changes", changes]
    begin += ["--keep-carried"] * args.keep_carried + ["--require-live"] * args.require_live
    job = run_in_driver(begin).strip()

    keys = read_keys(spark, args)
    keys.persist(StorageLevel.DISK_ONLY)
    key_reports = reports(keys)
    key_count = sum(json.loads(line)["keys"] for line in key_reports)

    with open(changes, "rb") as file:
        changed = context.parallelize(list(frames(file)))
    parts = next_power_of_two(max(-(-key_count // PART_KEYS), context.defaultParallelism))
    parts = min(args.parts or parts, BUCKETS)
    shuffled = (
        frames_of(keys).union(changed).partitionBy(parts, lambda bucket: bucket * parts // BUCKETS)
    )
    distinct = shuffled.mapPartitionsWithIndex(
        functools.partial(make_distinct, loader=loader, parts=parts)
    )
    distinct.persist(StorageLevel.DISK_ONLY)
    distinct_reports = reports(distinct)
    keys.unpersist()
    total = sum(json.loads(line)["keys"] for line in distinct_reports)

    layout = json.loads(
        run_in_driver([local_loader, "chunk", "--job", job, "--keys", str(total), "--cut"])
    )
    buckets = layout["shards_per_chunk"] * BUCKETS // 65536
    flags = ["--store", args.store, "--job", job, "--keys", str(total)]
    shuffled = frames_of(distinct).partitionBy(layout["chunks"], lambda bucket: bucket // buckets)
    chunks = shuffled.mapPartitions(
        functools.partial(make_chunk, loader=loader, flags=flags)
    ).collect()
    distinct.unpersist()

    publish = [local_loader, "publish", "--store", args.store, "--job", job, *trust]
    for name in PUBLISH_FLAGS:
        if (value := getattr(args, name)) is not None:
            publish += ["--" + name.replace("_", "-"), value]
    publish += [word for label in args.label for word in ("--label", label)]
    publish += [
        flag
        for flag, given in (
            ("--allow-empty", args.allow_empty),
            ("--allow-lookalikes", args.allow_lookalikes),
            ("--allow-unsigned", args.allow_unsigned),
            ("--json", args.json),
        )
        if given
    ]
    print(run_in_driver([*publish, "-"], "\n".join([*key_reports, *distinct_reports, *chunks])), end="")


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
        help="path on every machine, or the bare name of a file in --files or on PATH",
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
    for name in PUBLISH_FLAGS:
        parser.add_argument("--" + name.replace("_", "-"), help="as in rtad-loader build")
    parser.add_argument(
        "--public-key",
        action="append",
        default=[],
        metavar="KEY|FILE",
        help="as in rtad-loader build",
    )
    parser.add_argument("--allow-empty", action="store_true")
    parser.add_argument("--allow-lookalikes", action="store_true")
    parser.add_argument(
        "--allow-unsigned", action="store_true", help="as in rtad-loader build"
    )
    parser.add_argument(
        "--keep-carried", action="store_true", help="as in rtad-loader build"
    )
    parser.add_argument(
        "--require-live", action="store_true", help="as in rtad-loader build"
    )
    parser.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="as in rtad-loader build",
    )
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


def start_session(args):
    builder = SparkSession.builder.appName(f"rtad {args.audience}")
    for name in STRICT:
        builder.config(f"spark.files.{name}", "false").config(f"spark.sql.files.{name}", "false")
    spark = builder.getOrCreate()
    # The context of a session that ran before keeps its settings.
    for name in STRICT:
        if spark.sparkContext.getConf().get(f"spark.files.{name}", "false") != "false":
            refuse(f"spark.files.{name}: expected false in the session")
    return spark


def main():
    args = parse()
    spark = start_session(args)
    # Private folder for the keys of deltas, removed at the end.
    try:
        with tempfile.TemporaryDirectory() as folder:
            build(spark, args, os.path.join(folder, "changes"))
    except Exception as error:
        match = STEP_ERROR.search(str(error))
        if not match:
            raise
        step, code, message = match.groups()
        print(f"{message} (rtad-loader {step}, in an executor)", file=sys.stderr)
        sys.exit(int(code) if 0 < int(code) < 7 else 1)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
