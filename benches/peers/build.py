"""Build benchmark: the same md5 ids in a snapshot, and in Redis and Python filters; see build.sh.

CPU time covers all working processes. Preparation by clients of Redis is excluded, in their favor:
commands with bit offsets are written to a file first, which `redis-cli --pipe` sends.
"""

import contextlib
import json
import math
import os
import pathlib
import resource
import subprocess
import sys
import time

import pybloom_live
import rbloom

from suites.testkit.ports import accepts, free_port
from suites.testkit.process import Process

FPR = 1e-4
# Classic Bloom filter for that rate: -ln(p) / ln(2)^2 bits per id, ln(2) times as many hashes.
BITS_PER_ID = -math.log(FPR) / math.log(2) ** 2
HASHES = round(BITS_PER_ID * math.log(2))


def cpu_seconds(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def cpu_seconds_of(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def row(name: str, count: int, cpu: float, wall: float, size_bytes: float) -> None:
    print(
        f"| {name} | {count / cpu / 1e6:.2f} | {count / wall / 1e6:.2f} | {size_bytes / count:.1f} |",
        flush=True,
    )


def snapshot(loader: str, ids: pathlib.Path, count: int, work: pathlib.Path) -> None:
    command = [
        loader,
        "build",
        "--store",
        str(work / "store"),
        "--audience",
        "ids",
        "--json",
        str(ids),
    ]
    begun, cpu = time.monotonic(), cpu_seconds(resource.RUSAGE_CHILDREN)
    built = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    wall, cpu = time.monotonic() - begun, cpu_seconds(resource.RUSAGE_CHILDREN) - cpu
    assert built["keys"] == count, built
    size_bytes = sum(
        chunk.stat().st_size for chunk in (work / "store" / "ids" / "chunks").iterdir()
    )
    row("rtad-loader build, 1e-4", count, cpu, wall, size_bytes)


def in_process(name: str, ids: pathlib.Path, count: int, filter, size_bytes) -> None:
    begun, cpu = time.monotonic(), cpu_seconds(resource.RUSAGE_SELF)
    with ids.open() as lines:
        for line in lines:
            filter.add(line.rstrip("\n"))
    row(
        name,
        count,
        cpu_seconds(resource.RUSAGE_SELF) - cpu,
        time.monotonic() - begun,
        size_bytes(filter),
    )


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(
        b"$%d\r\n%b\r\n" % (len(word), word) for word in words
    )


def add_to_set(line: bytes, _: int) -> bytes:
    return command(b"SADD", b"ids", line)


def set_bits(line: bytes, bits: int) -> bytes:
    # One command for all bits of an id, by double hashing of its md5.
    digest = bytes.fromhex(line.decode())
    first, step = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little") | 1
    offsets = ((first + index * step) % 2**64 % bits for index in range(HASHES))
    return command(
        b"BITFIELD",
        b"bits",
        *(word for offset in offsets for word in (b"SET", b"u1", b"%d" % offset, b"1")),
    )


@contextlib.contextmanager
def redis():
    port = str(free_port())
    arguments = ["--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]

    def ask(*words: str, **more) -> str:
        command = ["redis-cli", "-p", port, *words]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **more).stdout

    with Process("redis-server", *arguments, log=os.devnull) as server:
        server.until("its port", lambda: accepts(int(port)))
        yield server.pid, ask


def into_redis(
    name: str, ids: pathlib.Path, count: int, work: pathlib.Path, write, key: str
) -> None:
    commands, bits = work / "commands", math.ceil(count * BITS_PER_ID)
    with ids.open("rb") as lines, commands.open("wb") as file:
        file.writelines(write(line.rstrip(b"\n"), bits) for line in lines)
    with redis() as (pid, ask):
        begun, cpu = time.monotonic(), cpu_seconds_of(pid) + cpu_seconds(resource.RUSAGE_CHILDREN)
        with commands.open("rb") as file:
            sent = ask("--pipe", stdin=file)
        wall = time.monotonic() - begun
        cpu = cpu_seconds_of(pid) + cpu_seconds(resource.RUSAGE_CHILDREN) - cpu
        assert f"errors: 0, replies: {count}" in sent, sent
        size_bytes = int(ask("memory", "usage", key, "samples", "0"))
        row(name, count, cpu, wall, size_bytes)
    commands.unlink()


def main() -> None:
    loader, work, count = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
    ids = work / "ids"
    with ids.open("wb") as file:
        subprocess.run([loader, "synth", "--count", str(count)], check=True, stdout=file)
    version = subprocess.run(
        ["redis-server", "--version"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    print(
        f"{count} md5 ids; Redis {version.split('v=')[1].split()[0]}, Python {sys.version.split()[0]}\n"
    )
    print("| into | million ids per second of CPU | per second | bytes an id |\n|---|---|---|---|")
    snapshot(loader, ids, count, work)
    into_redis("a Redis set", ids, count, work, add_to_set, "ids")
    into_redis(
        f"a Bloom filter in a Redis bitmap, 1e-4, {HASHES} bits an id",
        ids,
        count,
        work,
        set_bits,
        "bits",
    )
    in_process(
        "rbloom, 1e-4", ids, count, rbloom.Bloom(count, FPR), lambda made: made.size_in_bits / 8
    )
    in_process(
        "pybloom-live, 1e-4",
        ids,
        count,
        pybloom_live.BloomFilter(count, FPR),
        lambda made: made.num_bits / 8,
    )


if __name__ == "__main__":
    main()
