"""Azure Blob Storage for tests: Azurite on a free port, in memory.

Installed by tests/setup.sh from the npm registry. An account of its own makes clients sign as they
do for Azure.
"""

import base64
import contextlib
import email.utils
import hashlib
import hmac
import http.client
import os
import secrets
from pathlib import Path

from .ports import HOST, accepts, free_port
from .process import Process
from .programs import ROOT

AZURITE = ROOT / "target/tools/azurite/node_modules/.bin/azurite-blob"
ACCOUNT, CONTAINER = "rtadtest", "rtad-test"
VERSION = "2025-11-05"


@contextlib.contextmanager
def server(folder):
    """Yields the environment of its clients: RTAD_TEST_BUCKET, and AZURE_… with address and key."""
    assert AZURITE.exists(), f"{AZURITE}: not installed: `bash tests/setup.sh` installs it with npm"
    port, key = free_port(), base64.b64encode(secrets.token_bytes(64)).decode()
    command = [AZURITE, "--blobHost", HOST, "--blobPort", port, "--inMemoryPersistence"]
    # Of the tests' clients some send later API versions than Azurite knows.
    command += ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    accounts = os.environ | {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{key}"}
    with Process(*command, log=Path(folder) / "azurite.log", cwd=folder, env=accounts) as azurite:
        azurite.until("port", lambda: accepts(port))
        create_container(port, key)
        yield {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": key,
            "AZURE_STORAGE_ENDPOINT": f"http://{HOST}:{port}/{ACCOUNT}",
            "AZURE_ALLOW_HTTP": "true",
            "RTAD_TEST_BUCKET": f"az://{CONTAINER}/{os.getpid()}",
        }


def create_container(port, key):
    """A Put Container request, signed with the account's key."""
    path = f"/{ACCOUNT}/{CONTAINER}"
    signed = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": VERSION}
    lines = ["PUT", *[""] * 11, *(f"{name}:{value}" for name, value in signed.items())]
    lines += [f"/{ACCOUNT}{path}", "restype:container"]
    digest = hmac.digest(base64.b64decode(key), "\n".join(lines).encode(), hashlib.sha256)
    signature = base64.b64encode(digest).decode()
    headers = signed | {"Authorization": f"SharedKey {ACCOUNT}:{signature}", "Content-Length": "0"}
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    with contextlib.closing(connection):
        connection.request("PUT", f"{path}?restype=container", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 201, f"container: {answer.status} {answer.read(400)}"
