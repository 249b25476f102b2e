#!/usr/bin/env python3
"""Builds an audience on Spark, with the filters that `rtad-loader build` makes of the same ids.

    spark-submit --files /path/to/rtad-loader loader/spark/build_audience.py \
        --store s3://ads/rtad --audience old_users --format parquet \
        --column idfa=idfa --column oaid=oaid s3a://dumps/2026-11-21

Tasks make keys by the Python package rtad. Spark shuffles the keys once, into parts that are ranges
of shards, and sorts each part; `rtad-loader chunk` builds and stores its chunks. Tasks may fail, be
retried or run twice: only `rtad-loader publish`, in the driver, changes the live generation.

Requirements and failures: docs/guides/distributed-build.md. Exit codes: as in rtad-loader.
"""

import argparse
import functools
import json
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from py4j.java_collections import JavaMap
from py4j.protocol import Py4JError
from pyspark import SparkFiles
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

KEY_BYTES = 16
MAX_PARTS = 4096  # ranges of 16 shards
MALFORMED_ROWS = "_rtad_malformed"  # Spark's column of malformed rows
NO_WORD = re.compile(r"\W+")
MALFORMED = "malformed row"  # an id of no kind, as it has a space
PATH = re.compile(r"`([^`]+)`|([^.`]+)")  # names of a column's path
STRICT = ("ignoreCorruptFiles", "ignoreMissingFiles")  # off: Spark would skip the rest of files
TABLE_LOGS = {"_delta_log": "Delta", ".hoodie": "Hudi"}  # folders beside a table's files
# Options of a table that skip files or rows.
SKIPPING = {
    "ignorecorruptfiles": ("true",),
    "ignoremissingfiles": ("true",),
    "mode": ("dropmalformed",),
}
FILE = "_rtad_file"  # the column with a number of each row's file
# Types of columns with ids, as `rtad-loader build` reads them, and a decimal without a fraction.
ID_TYPES = re.compile(
    r"string( collate \w+)?|(var)?char\(\d+\)|binary|void|(tiny|small|big)?int|decimal\(\d+,0\)"
)
FILES_AT_ONCE = 16  # files whose headers or footers are read at once
TASK_ERROR = re.compile(r"rtad-loader chunk ended with (-?\d+): ([^\n]*)")
# Flags of `rtad-loader publish`, with and without a value.
VALUES = (
    "fpr",
    "filter",
    "max_reject_ratio",
    "max_change",
    "sign_key",
    "expires",
)
REPEATED = ("public_key", "label")
SWITCHES = ("allow_empty", "keep_carried", "require_live", "json")


class Publisher:
    """`rtad-loader publish`, from before the first task until after the last. It checks the flags
    and writes the job; then it reads the reports of all tasks, and publishes if they add up."""

    def __init__(self, args):
        command = [find_loader(args.loader), "publish"]
        command += ["--store", args.store, "--audience", args.audience]
        for name in VALUES:
            if (value := getattr(args, name)) is not None:
                command += [flag(name), value]
        for name in REPEATED:
            for value in getattr(args, name):
                command += [flag(name), value]
        command += [flag(name) for name in SWITCHES if getattr(args, name)]

        # Its stderr is the driver's.
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.job = self.process.stdout.readline().strip()
        if not self.job:
            end_as(self.process.wait())

    def finish(self, reports):
        """Gives it the reports; returns its own."""
        report, _ = self.process.communicate("\n".join(reports) + "\n")
        if self.process.returncode:
            end_as(self.process.returncode)
        return report

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def flag(name):
    return "--" + name.replace("_", "-")


def find_loader(loader):
    """Path of a file shipped with the job; without such a file, the name is looked up on PATH."""
    if os.sep in loader:
        return loader
    shipped = SparkFiles.get(loader)
    return shipped if os.path.exists(shipped) else loader


def make_keys(batches, columns, blank, parts):
    """The keys of rows, each with its part. The last rows, of a part behind the last, have the
    counts of each file in place of a key: with the keys, they take part in Spark's own handling of
    repeated tasks."""
    import pyarrow
    import rtad

    reports = {}
    for batch in batches:
        for file, rows in by_file(batch):
            report = reports.setdefault(file, new_report(file, columns))
            report["rows"] += rows.num_rows
            for column, counts in zip(rows.columns[1:], report["columns"]):
                found = rtad.keys(counts["kinds"], column, blank=blank)
                counts["blank"] += found.blank
                counts["malformed"] += found.malformed
                keys = pyarrow.array(found).drop_null()
                counts["usable"] += len(keys)
                yield with_parts(parts_of(keys, parts), keys)

    lines = [json.dumps(report).encode() for report in reports.values()]
    yield with_parts([parts] * len(lines), lines)


def by_file(batch):
    """The rows of each file in a batch, whose first column has a number of the file."""
    import numpy

    files = batch.column(0).to_numpy()
    starts = [0, *(numpy.flatnonzero(files[1:] != files[:-1]) + 1)]
    for start, end in zip(starts, [*starts[1:], batch.num_rows]):
        if end > start:
            yield int(files[start]), batch.slice(start, end - start)


def new_report(file, columns):
    counts = {"usable": 0, "blank": 0, "malformed": 0}
    of_columns = [{"name": name, "kinds": kind} | counts for name, kind in columns]
    return {"what": "keys", "input": file, "rows": 0, "columns": of_columns}


def with_names(lines, names):
    """Report lines with the names of files in place of their numbers."""
    for line in lines:
        report = json.loads(line)
        if report["what"] != "keys":
            yield line
            continue
        report["input"] = names.get(report["input"], names[None])
        yield json.dumps(report)


def with_parts(part, keys):
    import pyarrow

    arrays = [pyarrow.array(part, pyarrow.int32()), pyarrow.array(keys).cast(pyarrow.binary())]
    return pyarrow.record_batch(arrays, ["part", "key"])


def parts_of(keys, parts):
    """The part of each key, by its first 16 bits, which are its shard."""
    import numpy

    words = KEY_BYTES // 2
    end = (keys.offset + len(keys)) * words
    values = numpy.frombuffer(keys.buffers()[1], ">u2", end) if len(keys) else numpy.empty(0)
    shards = values[keys.offset * words :: words].astype(numpy.int32)
    return shards * parts >> 16


def make_chunks(batches, loader, flags, parts):
    """Builds the chunks of a part from its sorted keys; yields the report. A part begins with a row
    without a key, which names it. Passes reports of keys on."""
    import pyarrow

    first = next(batches, None)
    if first is None:
        return
    part = first.column("part")[0].as_py()
    if part == parts:
        lines = first.column("key").to_pylist()
        for batch in batches:
            lines += batch.column("key").to_pylist()
        lines = [line.decode() for line in lines]
    else:
        command = [find_loader(loader), "chunk", "--part", f"{part}/{parts}", *flags]
        lines = [run_task(command, map(key_bytes, chain_first(first, batches)))]
    yield pyarrow.record_batch([pyarrow.array(lines, pyarrow.string())], ["line"])


def end_as(code):
    """Ends with the exit code of `rtad-loader publish`; with 1 if a signal ended it."""
    if code < 0:
        print(f"error: rtad-loader publish ended by signal {-code}", file=sys.stderr)
    sys.exit(code if code > 0 else 1)


def chain_first(first, rest):
    yield first
    yield from rest


def key_bytes(batch):
    """The keys of a batch, back to back."""
    import numpy

    # A setting of Spark makes offsets of 64 bits.
    keys = batch.column("key").drop_null().cast("binary")
    if not len(keys):
        return b""
    offsets = numpy.frombuffer(keys.buffers()[1], numpy.int32)
    start, end = offsets[keys.offset], offsets[keys.offset + len(keys)]
    return memoryview(keys.buffers()[2])[start:end]


def run_task(command, blocks):
    """Runs a command with `blocks` on stdin; returns its stdout. A thread reads: writing and
    reading in turn could deadlock on full pipes."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    written = []
    reader = threading.Thread(target=lambda: written.extend(read_all(process)), daemon=True)
    reader.start()
    try:
        for block in blocks:
            process.stdin.write(block)
        process.stdin.close()
    except BrokenPipeError:
        pass  # the command has ended; its exit code follows
    except BaseException:
        # On a normal end of stdin it would accept the incomplete keys.
        process.kill()
        raise
    code = process.wait()
    reader.join()
    if code:
        raise RuntimeError(f"rtad-loader {command[1]} ended with {code}: {first_error(written[1])}")
    return written[0].decode().strip()


def read_all(process):
    """All of stdout and stderr; the latter is short."""
    return [process.stdout.read(), process.stderr.read()]


def first_error(text):
    for line in text.decode("utf-8", "replace").splitlines():
        if line.startswith("error:"):
            return line
    return "no message"


def refuse(message, code=3):
    """Ends the job as the loader refuses an input."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)


def of_files(table, read):
    """Files of a table, each with the result of `read`."""
    files = table.inputFiles()
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        return list(zip(files, pool.map(read, files)))


def table_finder(spark):
    """A function that names the format of a folder's table; None of a folder that is no table's."""
    from py4j.protocol import Py4JJavaError

    new_path = spark._jvm.org.apache.hadoop.fs.Path
    conf = spark._jsc.hadoopConfiguration()

    def table_format(folder):
        try:
            return format_of(folder)
        except Py4JJavaError:
            return None  # a folder above the inputs, to which the job has no access

    def format_of(folder):
        files = new_path(folder).getFileSystem(conf)
        for name, found in TABLE_LOGS.items():
            if files.exists(new_path(folder, name)):
                return found
        metadata = new_path(folder, "metadata")
        if files.exists(metadata):
            names = [status.getPath().getName() for status in files.listStatus(metadata)]
            if any(name.endswith(".metadata.json") for name in names):
                return "Iceberg"
        return None

    return table_format


def check_folders(spark, table):
    """Refuses files of Delta, Hudi and Iceberg tables: some have rows that were removed since."""
    java, new_path = spark._jvm.java, spark._jvm.org.apache.hadoop.fs.Path
    folders = set()
    for file in table.inputFiles():
        folder = new_path(java.net.URI(file)).getParent()
        while folder is not None and folder.toString() not in folders:
            folders.add(folder.toString())
            folder = folder.getParent()

    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        for folder, found in zip(folders, pool.map(table_finder(spark), folders)):
            if found:
                refuse(
                    f"input {folder}: holds a table of {found}, whose files also have rows that it "
                    "has removed: expected plain files, or --format table"
                )


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


def read_table(spark, args):
    """The table of all inputs."""
    reader = spark.read.options(recursiveFileLookup=True)
    if args.format == "lines":
        return reader.text(args.inputs)
    if args.format == "csv":
        reader = reader.options(header=True, escape='"', sep=args.delimiter, enforceSchema=False)
        table = reader.csv(args.inputs)
        check_headers(spark, table, args)
        return table
    if args.format == "json":
        # Spark gives a malformed row nulls, which would be blank ids.
        return reader.json(args.inputs, columnNameOfCorruptRecord=MALFORMED_ROWS)
    if args.format == "parquet":
        table = reader.parquet(*args.inputs)
        check_paths(spark, table, args)
        return table
    return functools.reduce(lambda a, b: a.unionByName(b), map(spark.table, args.inputs))


def check_sources(table, args):
    """Refuses tables of a catalog whose own options skip files or rows: those go before the
    session's."""
    sources = table._jdf.queryExecution().analyzed().collectLeaves()
    for index in range(sources.size()):
        for name, value in options_of(sources.apply(index)):
            if value.lower() in SKIPPING.get(name.lower(), ()):
                inputs = ", ".join(args.inputs)
                found = f"found {value}, which skips rows: expected a table without it"
                refuse(f"input {inputs}: option {name} of a table: {found}")


def options_of(source):
    """The options of a source of rows."""
    try:
        is_v1 = source.getClass().getSimpleName() == "LogicalRelation"
        options = (source.relation() if is_v1 else source).options()
    except Py4JError:
        # Only files, and sources of the second version, have options.
        return []
    if isinstance(options, JavaMap):
        return list(options.items())
    found, entries = [], options.iterator()
    while entries.hasNext():
        entry = entries.next()
        found.append((entry._1(), entry._2()))
    return found


def number_of_file(table):
    """An expression for the number of each row's file, which is smaller than its name."""
    number = F.xxhash64(F.input_file_name())
    try:
        table.select(number)
    except AnalysisException:
        # A view that joins tables.
        number = F.lit(0).cast("long")
    return number


def names_of_files(spark, table, args):
    """The names of a table's files, by the number that rows have of them. `None` has the name of
    those that Spark does not list, as it does none of a view."""
    files = spark.createDataFrame([(file,) for file in table.inputFiles()], "file string")
    numbers = files.select("file", F.xxhash64("file").alias("number")).collect()
    return {row.number: row.file for row in numbers} | {None: ", ".join(args.inputs)}


def read_keys(spark, args):
    """The keys of all inputs with their parts, and the counts of each file in each task; and the
    names of files."""
    table = read_table(spark, args)
    if args.format != "table":
        check_folders(spark, table)
    check_sources(table, args)
    columns, cells = [], [number_of_file(table).alias(FILE)]
    for number, column in enumerate(args.column or ["value"]):
        name, kind = column_and_kind(args, column)
        columns.append((name, kind))
        cell = F.col(name)
        [(_, found)] = table.select(cell).dtypes
        if not ID_TYPES.fullmatch(found):
            expected = "expected text, whole numbers or bytes"
            refuse(f"column {json.dumps(name)}: has type {found}: {expected}")
        # 16 bytes of kind md5 are a digest; other values are text.
        if not (kind == "md5" and found == "binary"):
            cell = cell.cast("string")
        if args.format == "lines":
            cell = F.ltrim(cell, F.lit("\ufeff"))
        # Spark has this column only if there is a malformed row.
        if number == 0 and args.format == "json" and MALFORMED_ROWS in table.columns:
            cell = F.when(F.col(MALFORMED_ROWS).isNull(), cell).otherwise(MALFORMED)
        # For errors of Spark, which takes dots and backticks in a name for a path.
        cells.append(cell.alias(f"{NO_WORD.sub('_', name)}_{number}"))
    make = functools.partial(make_keys, columns=columns, blank=args.blank, parts=args.parts)
    keys = table.select(*cells).mapInArrow(make, "part int, key binary")
    return keys, names_of_files(spark, table, args)


def build_chunks(spark, args, keys, job):
    """Builds and stores the chunks; returns the reports of all tasks."""
    # So that parts without any key exist, too.
    names = spark.range(args.parts).select(
        F.col("id").cast("int").alias("part"), F.lit(None).cast("binary").alias("key")
    )
    parts = keys.union(names).repartitionById(args.parts + 1, "part").sortWithinPartitions("key")
    flags = ["--store", args.store, "--job", job]
    make = functools.partial(make_chunks, loader=args.loader, flags=flags, parts=args.parts)
    return [row.line for row in parts.mapInArrow(make, "line string").collect()]


def check_kinds(args):
    """Refuses unknown kinds before anything is read."""
    import rtad

    for column in args.column or ["value"]:
        _, kind = column_and_kind(args, column)
        try:
            rtad.key(kind, None)
        except ValueError as error:
            refuse(error, 2)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    add = parser.add_argument
    add("--store", required=True, metavar="URL", help="store that every executor reaches")
    add("--audience", required=True, metavar="NAME")
    add(
        "--loader",
        default="rtad-loader",
        metavar="PATH",
        help="path on every machine, or the bare name of a file in --files or on PATH",
    )
    add("--format", default="lines", choices=["lines", "csv", "json", "parquet", "table"])
    add(
        "--column",
        action="append",
        default=[],
        metavar="NAME[=KIND]",
        help="column with ids; repeatable",
    )
    add("--delimiter", default=",", help="csv: cell separator")
    add("--id-kind", default="md5", metavar="KIND")
    add("--blank", action="append", default=[], metavar="ID", help="as in rtad-loader build")
    add(
        "--parts",
        type=int,
        default=256,
        metavar="N",
        help="tasks that build chunks, a power of two up to 4096 [default: 256]",
    )
    for name in VALUES:
        add(flag(name), help="as in rtad-loader publish")
    for name in REPEATED:
        add(flag(name), action="append", default=[], help="as in rtad-loader publish")
    for name in SWITCHES:
        add(flag(name), action="store_true", help="as in rtad-loader publish")
    add(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help="paths for Spark, or table names with --format table",
    )
    args = parser.parse_args()
    if (args.format == "lines") == bool(args.column):
        parser.error("--column NAME[=KIND] is required with every --format except lines")
    if args.parts & (args.parts - 1) or not 0 < args.parts <= MAX_PARTS:
        parser.error(f"--parts: expected a power of two up to {MAX_PARTS}")
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
    check_kinds(args)
    spark = start_session(args)
    try:
        with Publisher(args) as publisher:
            keys, names = read_keys(spark, args)
            lines = build_chunks(spark, args, keys, publisher.job)
            print(publisher.finish(with_names(lines, names)), end="")
    except Exception as error:
        match = TASK_ERROR.search(str(error))
        if not match:
            raise
        code, message = match.groups()
        print(f"{message} (rtad-loader chunk, in an executor)", file=sys.stderr)
        sys.exit(int(code) if 0 < int(code) < 7 else 1)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
