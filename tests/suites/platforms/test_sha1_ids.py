"""Audiences of SHA-1 ids, from the loader to the answers of platforms and the writer."""

import hashlib
import json
import subprocess

import pytest
from suites.platforms.conftest import md5
from suites.testkit import programs
from suites.testkit.client import ask, metric
from suites.testkit.process import Rtad, Writer
from suites.testkit.programs import loader

# An old user by each kind of id, and one who is added later.
IDFA, GAID = "FE699F7E-9D6D-445D-8486-7F19C69C37BC", "0af3b8a5-2e5c-4c6f-9f6d-0d6c1f6b8a11"
IMEI, ANDROID_ID = "868049039501257", "fe699f7e9d6d445d"
LATER, NOBODY = "11111111-2222-4333-8444-555555555555", "99999999-2222-4333-8444-555555555555"


def sha1(text):
    return hashlib.sha1(text.encode()).hexdigest()


def refused(*words, given):
    """The message and the exit code of a command that fails."""
    command = [str(word) for word in (programs.LOADER, *words)]
    done = subprocess.run(command, input=given, capture_output=True, text=True)
    assert done.returncode != 0, done.stdout
    return done.returncode, done.stderr


@pytest.fixture
def target(tmp_path):
    ids = [sha1(IDFA), sha1(GAID).upper(), sha1(IMEI), sha1(ANDROID_ID), sha1(""), "no id"]
    target = ["--store", tmp_path / "store", "--audience", "old_users"]
    report = loader(
        *("build", *target, "--id-kind", "sha1", "--max-reject-ratio", "0.5", "--json", "-"),
        given="\n".join(ids),
    )
    report = json.loads(report)
    assert (report["keys"], report["blank"]) == (4, 1), report
    return target


OPENRTB = """
[[platform]]
kind = "custom"
name = "openrtb"
path = "/rta/openrtb"
strategies = { "501" = "new-users" }
body = "json"
[platform.request]
request_id = "id"
ids = { idfa = "device.ifa", gaid = "device.ifa", imei_md5 = "device.didmd5", imei_sha1 = "device.didsha1", android_id_sha1 = "device.dpidsha1", mac_sha1 = "device.macsha1" }
[platform.response]
request_id = "id"
accepted = "accepted"
"""


@pytest.fixture
def served(target, tmp_path):
    """rtad with a mapping of OpenRTB and a strategy that excludes the audience."""
    config = tmp_path / "rtad.toml"
    rules = """
[server.api]
public = true
[store]
poll_interval = "100ms"
[[audience]]
name = "old_users"
[[strategy]]
name = "new-users"
exclude = ["old_users"]
unavailable = "no_bid"
"""
    config.write_text(rules + OPENRTB)
    with Rtad("--config", config, "--store", target[1], log=tmp_path / "rtad.log") as rtad:
        # Available after the first load.
        assert rtad.decisions
        yield rtad


def accepts(served, device):
    body = {"id": "r1", "device": device, "app": {"bundle": "a.b"}}
    return ask(served.decisions, "/rta/openrtb", json.dumps(body)).json().get("accepted") == ["501"]


def reason(served, device):
    answer = ask(served.decisions, "/v1/decide", json.dumps({"device": device})).json()
    return answer["decisions"][0]["reason"]


def test_bid_requests_with_raw_and_hashed_ids_are_decided(served):
    for device in [
        {"os": "iOS", "ifa": IDFA},
        {"os": "iOS", "ifa": IDFA.lower()},
        {"os": "Android", "ifa": GAID.upper()},
        {"didsha1": sha1(IMEI)},
        {"dpidsha1": sha1(ANDROID_ID).upper()},
        {"dpidsha1": sha1(IDFA), "didmd5": md5("another")},
        # Only an md5: whether it is an old user's is unknown.
        {"didmd5": md5(IMEI)},
        # The SHA-1 of an empty id.
        {"didsha1": sha1("")},
    ]:
        assert not accepts(served, device), device
    for device in [{"ifa": NOBODY}, {"didsha1": sha1(NOBODY)}]:
        assert accepts(served, device), device
    assert metric(served.admin, "rtad_ids_total", kind="imei_sha1", result="blank") == 1

    assert reason(served, {"imei": IMEI}) == "member"
    assert reason(served, {"imei_sha1": sha1(IMEI)}) == "member"
    assert reason(served, {"sha1": sha1(NOBODY)}) == "not_member"
    assert reason(served, {"imei_md5": md5(IMEI)}) == "unavailable"
    assert reason(served, {"imei_md5": md5(IMEI), "gaid": NOBODY}) == "not_member"
    # The raw id has the md5 of the one before it.
    assert reason(served, {"imei_md5": md5(IMEI), "imei": IMEI}) == "member"
    assert reason(served, {"gaid": NOBODY, "imei_md5": md5(IMEI), "imei": IMEI}) == "member"
    assert reason(served, {"sha1": sha1("")}) == "no_device"


def test_lookups_take_ids_of_the_same_hash(served):
    def member(id, query=""):
        answer = ask(served.decisions, f"/v1/check/old_users/{id}{query}")
        return answer.status, answer.json().get("member", answer.json().get("code"))

    assert member(sha1(IDFA)) == (200, True)
    assert member(IDFA, "?kind=idfa") == (200, True)
    assert member(sha1(NOBODY), "?kind=sha1") == (200, False)
    assert member(md5(IDFA), "?kind=md5") == (400, "other_digest")
    batch = json.dumps({"ids": [sha1(IDFA), sha1(NOBODY), None, "x"]})
    members = ask(served.decisions, "/v1/check/old_users", batch).json()["members"]
    assert members == [True, False, None, None]
    keys = bytes.fromhex(sha1(IDFA))[:16] + bytes.fromhex(sha1(NOBODY))[:16]
    kind = {"Content-Type": "application/octet-stream"}
    assert ask(served.decisions, "/v1/check/old_users", keys, headers=kind).body == b"\1"


def test_explanations_name_the_digest(served):
    body = json.dumps({"id": "r1", "device": {"didmd5": md5(IMEI), "dpidsha1": sha1(IMEI)}})
    explained = ask(served.admin, "/v1/explain/openrtb", body).json()
    answers = {one["kind"]: one["audiences"][0]["answer"] for one in explained["ids"]}
    assert answers == {"imei_md5": "unavailable", "android_id_sha1": "member"}
    assert explained["strategies"][0]["reason"] == "member"
    body = json.dumps({"id": "r1", "device": {"didmd5": md5(IMEI)}})
    [audience] = ask(served.admin, "/v1/explain/openrtb", body).json()["audiences"]
    assert audience["unavailable"] == {"reason": "other_digest", "digest": "sha1"}
    assert audience["available"] and audience["answer"] == "unavailable"


def test_changes_keep_to_the_digest(served, target, tmp_path):
    code, said = refused("append", *target, "-", given=md5(LATER))
    assert code == 3 and "has keys of sha1, and the ids are of md5" in said, said
    assert refused("build", *target, "-", given=md5(LATER))[0] == 3
    assert refused("remove", *target, "--id-kind", "idfa", "-", given=IDFA)[0] == 3
    code, said = refused("build", *target, "--id-kind", "sha1,idfa", "-", given=IDFA)
    assert code == 2 and "stands alone" in said, said

    loader("append", *target, "--id-kind", "sha1", "-", given=sha1(LATER))
    loader("remove", *target, "--id-kind", "sha1", "-", given=sha1(IDFA))
    served.until("the changes", lambda: not accepts(served, {"ifa": LATER}))
    served.until("the removal", lambda: accepts(served, {"ifa": IDFA}))
    found = loader("query", *target, sha1(LATER), sha1(IDFA))
    assert found == "1\tmember\n2\tnot_member\n"
    found = loader("query", *target, "--id-kind", "idfa,gaid", LATER, GAID)
    assert found == "1\tmember\n2\tmember\n"
    assert refused("query", *target, "--id-kind", "md5", md5(IDFA), given="")[0] == 3
    # The next build keeps the digest.
    loader("build", *target, "--id-kind", "sha1", "--max-shrink", "1", "-", given=sha1(GAID))
    served.until("the build", lambda: accepts(served, {"didsha1": sha1(IMEI)}))
    assert not accepts(served, {"ifa": GAID})


def test_writer_keeps_to_the_digest(target, tmp_path):
    with Writer(tmp_path, "") as writer:

        def write(**body):
            return writer.post("/v1/audiences/old_users/devices", body)

        answer = write(op="add_if_absent", kind="sha1", ids=[sha1(IDFA), sha1(LATER)])
        assert answer.status == 200 and answer.json()["new"] == [False, True], answer
        for kind, id in [("md5", md5(LATER)), ("idfa", LATER)]:
            answer = write(op="add", kind=kind, ids=[id])
            assert (answer.status, answer.json()["code"]) == (409, "other_digest"), answer
        assert loader("query", *target, sha1(LATER)) == "1\tmember\n"
