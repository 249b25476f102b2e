"""The commands of docs/guides/read-an-export.md, each on files as the program writes them."""

import datetime
import decimal
import gzip
import json
import re
import subprocess

import pyarrow
import pyarrow.parquet
import pytest

from suites.testkit.pages import blocks, with_programs
from suites.testkit.programs import loader, synth

PAGE = "docs/guides/read-an-export.md"
COMMANDS = [line for block in blocks(PAGE) for line in block.splitlines()]
ROWS = 40


def ids(kind, offset=0):
    return synth(ROWS, "--id-kind", kind, "--offset", offset)


def write(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    content = content.encode() if isinstance(content, str) else content
    if name.endswith(".gz"):
        content = gzip.compress(content)
    path.write_bytes(content)


def write_parquet(folder, name, **columns):
    """A file of Spark, with times in INT96 and decimals beside the ids."""
    table = pyarrow.table(
        columns
        | {
            "seen": [datetime.datetime(2026, 11, 24)] * ROWS,
            "price": pyarrow.array([decimal.Decimal("1.50")] * ROWS, pyarrow.decimal128(20, 2)),
            "tags": [["a"]] * ROWS,
        }
    )
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink, use_deprecated_int96_timestamps=True)
    write(folder, name, sink.getvalue().to_pybytes())


def spark_parquet(folder):
    imeis = [*ids("imei")[1:], None]
    write_parquet(folder, "spark/day=24/part-0.snappy.parquet", idfa=ids("idfa"), imei=imeis)
    write(folder, "spark/_SUCCESS", "")
    write(folder, "spark/_temporary/0/part-1.snappy.parquet", "a file that is being written")
    write(folder, "spark/day=24/.part-0.snappy.parquet.crc", "crc")
    return 2 * ROWS - 1


def spark_csv(folder):
    rows = "".join(f'{imei},"a \\"b\\", c\\\\"\n,\n' for imei in ids("imei"))
    write(folder, "spark/part-0.csv.gz", f"imei,note\n{rows}")
    write(folder, "spark/part-1.csv.gz", "imei,note\n")
    return ROWS


def hive(folder):
    rows = "".join(f'"Bo\1{imei}\1a\2b\3c\nAl\1\\N\1\\N\n' for imei in ids("imei"))
    write(folder, "hive/dt=2026-11-24/000000_0", rows)
    write(folder, "hive/dt=2026-11-24/000001_0", "")
    write(folder, "hive/_tmp.1/000000_0", "x")
    write(folder, "hive/dt=2026-11-24/.hive-staging_1", "x")
    return ROWS


def hive_escaped(folder):
    macs = [mac.replace(":", "\\:") for mac in ids("mac")]
    write(folder, "hive/000000_0", "".join(f"{mac}\1a\\nb\\\1\n\\N\1c\n" for mac in macs))
    return ROWS


def bigquery_csv(folder):
    for part in range(2):
        rows = "".join(f'"a ""b""",{oaid}\n,\n' for oaid in ids("oaid")[part::2])
        write(folder, f"bigquery/users-00000000000{part}.csv.gz", f"note,oaid\n{rows}")
    return ROWS


def bigquery_json(folder):
    rows = [json.dumps({"n": "1", "device": {"idfa": idfa}}) for idfa in ids("idfa")]
    rows += ['{"n":"2","device":{}}', '{"n":"3"}']
    write(folder, "bigquery/users-000000000000.json.gz", "\n".join(rows) + "\n")
    return ROWS


def clickhouse_csv(folder):
    rows = "".join(f'1,"{gaid}"\n2,\\N\n' for gaid in ids("gaid"))
    write(folder, "clickhouse.csv.gz", f'"n","gaid"\n{rows}')
    return ROWS


def clickhouse_tsv(folder):
    rows = "".join(f"a\\tb\\n\\'\\\\\t{gaid}\t5\" c\nd\t\\N\t\\N\n" for gaid in ids("gaid"))
    write(folder, "clickhouse.tsv", rows)
    return ROWS


def redshift(folder):
    rows = "".join(f"a\\|b\\\nc|{imei}|x\\\\\nd|\\\\N|\n" for imei in ids("imei"))
    write(folder, "redshift/users_0000_part_00.gz", rows)
    write(folder, "redshift/users_0001_part_00.gz", "")
    return ROWS


def maxcompute(folder):
    rows = zip(ids("oaid"), ids("imei"))
    write(folder, "maxcompute.txt", "".join(f"a,{oaid},\nb,,{imei}\n" for oaid, imei in rows))
    return 2 * ROWS


def excel_csv(folder):
    rows = "".join(f'{imei};"a; b"\r\n;\r\n' for imei in ids("imei"))
    write(folder, "excel.csv", f"\ufeffIMEI;Note\r\n{rows}")
    return ROWS


def excel_text(folder):
    rows = "".join(f'{imei}\t"a ""b"""\r\n' for imei in ids("imei"))
    write(folder, "excel.txt", b"\xff\xfe" + f"IMEI\t\u5907\u6ce8\r\n{rows}".encode("utf-16-le"))
    return ROWS


def appsflyer(folder):
    header = "Attributed Touch Type,Install Time,Advertising ID,IDFA,OAID"
    # At the same offset, they would have the same keys.
    pairs = zip(ids("gaid"), ids("oaid", 1000))
    android = [f"click,2026-11-24 01:02:03,{gaid},,{oaid}" for gaid, oaid in pairs]
    ios = [f",2026-11-24 01:02:03,,{idfa}," for idfa in ids("idfa")]
    write(folder, "appsflyer/android.csv", "\n".join([header, *android]))
    write(folder, "appsflyer/ios.csv", "\n".join([header, *ios]))
    return 3 * ROWS


def adjust(folder):
    header = '"My app",{gps_adid},{idfa},[user_id]'
    rows = [f"My app,{gaid},,1\nMy app,,{idfa},2" for gaid, idfa in zip(ids("gaid"), ids("idfa"))]
    write(folder, "adjust/abc_2026-11-24T010000_1_2.csv.gz", "\n".join([header, *rows]) + "\n")
    return 2 * ROWS


def from_delta(folder):
    write_parquet(folder, "users.parquet", idfa=ids("idfa"))
    return ROWS


EXPORTS = [
    spark_parquet,
    spark_csv,
    hive,
    hive_escaped,
    bigquery_csv,
    bigquery_json,
    clickhouse_csv,
    clickhouse_tsv,
    redshift,
    maxcompute,
    excel_csv,
    excel_text,
    appsflyer,
    adjust,
    from_delta,
]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return with_programs(tmp_path_factory.mktemp("programs"), "rtad-loader")


def run(command, folder, environment):
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_every_command_has_an_export():
    assert len(COMMANDS) == len(EXPORTS)


@pytest.mark.parametrize("export", EXPORTS, ids=lambda export: export.__name__)
def test_command_reads_the_export(export, tmp_path, environment):
    command = COMMANDS[EXPORTS.index(export)]
    expected = export(tmp_path)
    done = run(command, tmp_path, environment)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    assert re.search("^  rejected +0$", done.stdout, re.M), f"{command}: {done.stdout}"
    store = ("--store", tmp_path / "store", "--audience", "users", "--json")
    assert json.loads(loader("inspect", *store))["keys"] == expected, command


def test_utf_16_is_refused(tmp_path, environment):
    excel_text(tmp_path)
    direct = COMMANDS[EXPORTS.index(excel_csv)].replace("excel.csv", "excel.txt")
    done = run(direct, tmp_path, environment)
    assert done.returncode == 3 and "text in UTF-16" in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["lake/users/*.parquet", "lake/users/part-0.parquet", "lake/**"])
def test_files_of_a_delta_table_are_refused(name, tmp_path, environment):
    write_parquet(tmp_path, "lake/users/part-0.parquet", idfa=ids("idfa"))
    write(tmp_path, "lake/users/_delta_log/00000000000000000000.json", "{}")
    command = COMMANDS[EXPORTS.index(from_delta)].replace("users.parquet", f"'{name}'")
    done = run(command, tmp_path, environment)
    assert done.returncode == 3 and "belongs to the Delta table" in done.stderr, done.stderr
