"""A stand-alone Spark master with two workers, and a table to build an audience from."""

import contextlib
import csv
import os
import subprocess
import sys
from pathlib import Path

from suites.testkit.ports import HOST, free_port
from suites.testkit.process import Process
from suites.testkit.programs import LOADER, ROOT, loader, synth

# rtad-loader for executors: the first `chunk` fails after writing.
FLAKY = """#!/usr/bin/env bash
if [ "$1" = chunk ]; then
    if mkdir "@work/failed-chunk" 2>/dev/null; then
        "@loader" "$@" >/dev/null
        echo "error: the first chunk fails, for a test" >&2
        exit 5
    fi
    if [ -e "@work/slow" ]; then touch "@work/slowed"; sleep 3; fi
fi
exec "@loader" "$@"
"""


class Cluster:
    def __init__(self, work, package):
        import pyspark

        self.work = work
        self.home = Path(pyspark.__file__).parent
        for name in ("conf", "local", "workers"):
            (work / name).mkdir()
        self.environment = os.environ | {
            "SPARK_HOME": str(self.home),
            "PYTHONPATH": os.pathsep.join([str(package), *sys.path]),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": HOST,
            "SPARK_CONF_DIR": str(work / "conf"),
            "SPARK_LOCAL_DIRS": str(work / "local"),
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
        }
        port = free_port()
        self.url = f"spark://{HOST}:{port}"
        self.flaky = work / "flaky"
        self.flaky.write_text(FLAKY.replace("@work", str(work)).replace("@loader", str(LOADER)))
        self.flaky.chmod(0o755)
        self.workers = []
        on_free_ports = ["--host", HOST, "--webui-port", "0"]
        self.master = self.start("master", "master.Master", *on_free_ports, "--port", port)
        try:
            for number in (1, 2):
                own = ["--port", "0", "--cores", "1", "--memory", "1g"]
                own += ["--work-dir", work / "workers" / str(number), self.url]
                worker = self.start(f"worker{number}", "worker.Worker", *on_free_ports, *own)
                self.workers.append(worker)
            for worker in self.workers:
                worker.wait_for("Successfully registered")
        except BaseException:
            self.stop()
            raise

    def start(self, name, kind, *flags):
        command = [self.home / "bin/spark-class", f"org.apache.spark.deploy.{kind}", *flags]
        return Process(*command, log=self.work / f"{name}.log", env=self.environment)

    def stop(self):
        # Executors end after their worker.
        for process in (*self.workers, self.master):
            process.kill()

    def submitting(self, *more):
        limits = ["--driver-memory", "512m", "--executor-memory", "768m", "--executor-cores", "1"]
        settings = ["spark.ui.enabled=false", "spark.speculation=true"]
        settings += ["spark.speculation.multiplier=1.5", *more]
        settings += [f"spark.driver.host={HOST}", f"spark.driver.bindAddress={HOST}"]
        flags = [word for setting in settings for word in ("--conf", setting)]
        return [self.home / "bin/spark-submit", "--master", self.url, *limits, *flags]

    def start_job(self, *flags, conf=()):
        """Starts the job with stdout and stderr in one pipe."""
        script = ROOT / "loader/spark/build_audience.py"
        to = ["--loader", self.flaky, "--store", self.work / "built", "--audience", "old_users"]
        # One chunk a part, so that its boundaries are those of `rtad-loader build`.
        to += ["--parts", "16"]
        command = [str(word) for word in (*self.submitting(*conf), script, *to, *flags)]
        with open(self.work / "submit.log", "a") as log:
            return subprocess.Popen(
                command, env=self.environment, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def job(self, *flags, conf=()):
        """Runs the job; returns its exit code and output."""
        with self.start_job(*flags, conf=conf) as job:
            output = job.communicate()[0]
        return job.returncode, output

    def make_tables(self, *words, conf):
        script = Path(__file__).with_name("make_tables.py")
        command = [str(word) for word in (*self.submitting(*conf), script, *words)]
        with open(self.work / "submit.log", "a") as log:
            subprocess.run(command, env=self.environment, stdout=log, stderr=log, check=True)

    def last_warnings(self):
        return (self.work / "submit.log").read_text()[-6000:]


class Rows:
    """A table with two id columns in four files, with duplicate rows, blank and malformed cells;
    and a file of lines."""

    def __init__(self, work, count):
        self.table, self.lines = work / "table", work / "lines"
        self.table.mkdir()
        self.lines.mkdir()
        half = count // 2
        devices = zip(synth(half, "--id-kind", "idfa"), synth(half, "--id-kind", "imei"))
        with contextlib.ExitStack() as opened:
            files = [opened.enter_context(open(self.table / f"{n}.csv", "w")) for n in range(4)]
            writers = [csv.writer(file, lineterminator="\n") for file in files]
            for writer in writers:
                writer.writerow(["idfa", "note", "imei"])
            for number, (idfa, imei) in enumerate(devices, 1):
                if number % 11 == 0:
                    idfa = ""
                if number % 13 == 0:
                    idfa = "00000000-0000-0000-0000-000000000000"
                if number % 997 == 0:
                    imei = "not, an imei"
                row = [idfa, 'a "note", with commas', imei]
                writers[number % 4].writerow(row)
                if number % 5 == 0:
                    writers[number % 3].writerow(row)
        some = synth(count // 4, "--seed", 5)
        self.a, self.b = self.lines / "a", self.lines / "b"
        self.a.write_text("\n".join(some) + "\n")
        more = [*some[-1000:], "nonsense", "", *synth(50_000, "--seed", 6)]
        self.b.write_text("\n".join(more) + "\n")
        self.some = some

    def publish_past(self, store):
        """Publishes a generation, then adds, removes and erases devices."""
        to = ["--store", store, "--audience", "old_users", "--quiet"]

        def load(command, ids, *flags):
            loader(command, *to, *flags, "-", given="\n".join(ids) + "\n")

        load("build", self.some[:1000])
        load("append", synth(3000, "--id-kind", "oaid"), "--id-kind", "oaid")
        removed = synth(2000, "--id-kind", "idfa", "--offset", 100)
        load("remove", removed, "--id-kind", "idfa")
        erased = synth(500, "--id-kind", "imei", "--offset", 7000)
        load("remove", erased, "--id-kind", "imei", "--tombstone")
