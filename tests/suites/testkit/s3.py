"""S3 server for tests: SeaweedFS on free ports, in a temporary folder.

    PYTHONPATH=tests .venv/bin/python3 -m suites.testkit.s3 COMMAND...

runs a command with the server's environment, as benchmarks do.
"""

import contextlib
import glob
import json
import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

from .ports import HOST, accepts, free_ports
from .process import Process
from .programs import ROOT

WEED = ROOT / ".venv/bin/weed"
BUCKET = "rtad-test"


@contextlib.contextmanager
def server(folder, anonymous=False):
    """Yields the environment of its clients: RTAD_TEST_BUCKET with the bucket, AWS_… with the keys.
    `anonymous` clients need no keys."""
    folder = Path(folder)
    ports = free_ports(8)
    master, master_grpc, volume, volume_grpc, filer, filer_grpc, s3, s3_grpc = ports
    env = {
        "AWS_ACCESS_KEY_ID": "rtad-test",
        "AWS_SECRET_ACCESS_KEY": f"not-a-secret-{secrets.token_hex(8)}",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{HOST}:{s3}",
        "AWS_ALLOW_HTTP": "true",
        "RTAD_TEST_BUCKET": f"s3://{BUCKET}/{os.getpid()}",
    }
    keys = {"accessKey": env["AWS_ACCESS_KEY_ID"], "secretKey": env["AWS_SECRET_ACCESS_KEY"]}
    actions = ["Admin", "Read", "Write", "List"]
    identities = [{"name": "test", "actions": actions, "credentials": [keys]}]
    if anonymous:
        identities.append({"name": "anonymous", "actions": actions})
    config, data = folder / "s3.json", folder / "data"
    config.write_text(json.dumps({"identities": identities}))
    data.mkdir()
    command = [WEED, "server", f"-dir={data}", f"-ip={HOST}", f"-ip.bind={HOST}"]
    command += [f"-master.port={master}", f"-master.port.grpc={master_grpc}"]
    command += ["-master.telemetry=false", "-master.volumeSizeLimitMB=64"]
    command += [f"-volume.port={volume}", f"-volume.port.grpc={volume_grpc}", "-volume.max=200"]
    command += ["-filer", f"-filer.port={filer}", f"-filer.port.grpc={filer_grpc}"]
    command += ["-s3", f"-s3.port={s3}", f"-s3.port.grpc={s3_grpc}", f"-s3.config={config}"]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0"]
    weed = Process(*command, log=folder / "weed.log", cwd=folder)

    def bucket_made():
        # The server listens before it has a volume to write to.
        shell = [str(WEED), "shell", f"-master={HOST}:{master}.{master_grpc}"]
        try:
            made = subprocess.run(
                shell,
                input=f"s3.bucket.create -name {BUCKET}\n",
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=10,
            )
        except subprocess.TimeoutExpired:
            return False
        done = made.returncode == 0 and "create bucket under" in made.stdout
        return done or "already exists" in made.stdout

    try:
        weed.until("bucket", bucket_made)
        weed.until("S3 port", lambda: accepts(s3))
        yield env
    finally:
        # SIGTERM would wait for its clients.
        weed.kill()
        for port in ports:
            for path in glob.glob(f"/tmp/seaweedfs-*-{port}.sock"):
                Path(path).unlink(missing_ok=True)


def main():
    with tempfile.TemporaryDirectory() as folder, server(folder) as env:
        return subprocess.run(sys.argv[1:], env=os.environ | env).returncode


if __name__ == "__main__":
    sys.exit(main())
