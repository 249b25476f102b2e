"""Google Cloud Storage for tests: the S3 server behind HAProxy, which renames the headers that
differ.

Google's XML API has the requests and answers of S3, except for conditional puts: they name a
generation in a header of their own, and conditions by ETag are ignored. Conditions are judged and
objects kept by the S3 server, with ETags as generations. docs/guides/choose-a-store.md says what
this cannot show.
"""

import contextlib
import os
import secrets
from pathlib import Path

from . import s3
from .ports import HOST, accepts, free_port
from .process import Process

CONFIG = """
global
    nbthread 1

defaults
    mode http
    timeout connect 5s
    timeout client 1m
    timeout server 1m

frontend gcs
    bind "${GCS_LISTEN}"
    default_backend s3

    http-request deny unless { req.hdr(authorization) "Bearer ${GCS_TOKEN}" }
    http-request del-header authorization

    acl conditional req.hdr(x-goog-if-generation-match) -m found
    acl creates req.hdr(x-goog-if-generation-match) 0
    http-request del-header if-match if METH_PUT
    http-request del-header if-none-match if METH_PUT
    http-request set-header if-none-match * if conditional creates
    http-request set-header if-match "\\"%[req.hdr(x-goog-if-generation-match)]\\"" \
        if conditional !creates
    http-request del-header x-goog-if-generation-match
    http-response set-header x-goog-generation "%[res.hdr(etag),regsub('\\"','',g)]" \
        if { res.hdr(etag) -m found }

backend s3
    server s3 "${S3}"
"""


@contextlib.contextmanager
def server(folder):
    """Yields the environment of its clients: RTAD_TEST_BUCKET, and GOOGLE_… with address and
    token."""
    folder = Path(folder)
    config, port, token = folder / "haproxy.cfg", free_port(), secrets.token_hex(8)
    config.write_text(CONFIG)
    with s3.server(folder, anonymous=True) as env:
        settings = {"GCS_LISTEN": f"{HOST}:{port}", "GCS_TOKEN": token}
        settings["S3"] = env["AWS_ENDPOINT_URL"].removeprefix("http://")
        command, log = ["haproxy", "-db", "-f", config], folder / "haproxy.log"
        with Process(*command, log=log, env=os.environ | settings) as haproxy:
            haproxy.until("port", lambda: accepts(port))
            yield {
                "GOOGLE_BASE_URL": f"http://{HOST}:{port}",
                "GOOGLE_BEARER_TOKEN": token,
                "RTAD_TEST_BUCKET": env["RTAD_TEST_BUCKET"].replace("s3://", "gs://"),
            }
