"""Requests whose answers a release records with them, over the golden store."""

import json

from suites.testkit.stubs import ocean_pb2, tencent_pb2

# The first line of tests/golden/v1/keys.txt, and an id that is not in it.
MEMBER, OTHER = "100300abcc24827e82f21409a30143dd", "8d3ebd3654fb46a2832296669cf1b536"
CONFIG = """
[server.api]
public = true

[[audience]]
name = "golden"

[[strategy]]
name = "new-users"
exclude = ["golden"]

[[strategy.value]]
weight = 2.0
quality = 0.5

[[strategy]]
name = "known-users"
include = ["golden"]

[[platform]]
kind = "tencent"
name = "tencent"
path = "/rta/tencent"
strategies = { T1 = "new-users", T2 = "known-users" }
bid_cache = "1h"
no_bid_cache = "24h"

[[platform]]
kind = "ocean"
name = "ocean"
path = "/rta/ocean"
strategies = { 1 = "new-users", 2 = "known-users" }

[[platform]]
kind = "custom"
name = "mapped"
path = "/rta/mapped"
strategies = { "1" = "new-users", "2" = "known-users" }
body = "json"

[platform.request]
request_id = "id"
strategies = "ask"
ids = { imei_md5 = "device.imei" }

[platform.response]
request_id = "id"
verdicts = { list = "answers", strategy = "ask", accepted = "bid", weight = "factor" }
"""

# Beside the config of the pod whose log a release keeps.
LOG = """
[log]
to = "{}"
key_secret = "0123456789abcdef"
sample = 1
"""
# Instead of the store, which is out of reach.
CACHE = """
[store]
cache_dir = "{}"
"""
# Of a writer that is killed after a checkpoint and another request.
WINDOWS = """
state_dir = "state"
lease = "3s"

[[window]]
name = "clicks"
length = "28d"
capacity = 1000
count = 9
durability = "fsync"
checkpoint_interval = "10s"
"""
COUNTED = [[MEMBER, MEMBER, OTHER], [OTHER, "0f" * 16]]


def tencent(imei):
    device = tencent_pb2.Device(imei_md5sum=imei)
    return tencent_pb2.RtaRequest(id="r1", device=device).SerializeToString()


def ocean(imei):
    device = ocean_pb2.Device(imei_md5=imei)
    return ocean_pb2.Req(req_id="r1", rta_ids=[1, 2], device=device).SerializeToString()


def mapped(imei):
    return json.dumps({"id": "r1", "ask": ["1", "2"], "device": {"imei": imei}}).encode()


def decide(imei):
    device = {"imei_md5": imei}
    strategies = ["new-users", "known-users"]
    asked = {"request_id": "r1", "strategies": strategies, "device": device}
    return json.dumps(asked).encode()


def batch(*ids):
    return json.dumps({"kind": "md5", "ids": ids}).encode()


ALL = {
    "tencent-member": ("/rta/tencent", tencent(MEMBER)),
    "tencent-other": ("/rta/tencent", tencent(OTHER)),
    "tencent-broken": ("/rta/tencent", b"\xff"),
    "ocean-member": ("/rta/ocean", ocean(MEMBER)),
    "ocean-other": ("/rta/ocean", ocean(OTHER)),
    "mapped-member": ("/rta/mapped", mapped(MEMBER)),
    "mapped-other": ("/rta/mapped", mapped(OTHER)),
    "decide-member": ("/v1/decide", decide(MEMBER)),
    "decide-other": ("/v1/decide", decide(OTHER)),
    "check-member": (f"/v1/check/golden/{MEMBER}", None),
    "check-other": (f"/v1/check/golden/{OTHER}", None),
    "batch": ("/v1/check/golden", batch(MEMBER, OTHER, "no id")),
    "unknown-audience": (f"/v1/check/missing/{MEMBER}", None),
}
