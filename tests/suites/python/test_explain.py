"""Explanations from Python: those of `rtad explain`."""

import json
import subprocess
from datetime import UTC, datetime

import pytest

from suites.testkit.programs import RTAD

KNOWN = "8d3ebd3654fb46a2832296669cf1b536"
CONFIG = """
[store]
url = "{store}"

[[audience]]
name = "users"

[[strategy]]
name = "new-users"
exclude = ["users"]

[[platform]]
kind = "custom"
name = "example"
path = "/rta/example"
strategies = {{ "501" = "new-users" }}
body = "json"
headers = [{{ name = "X-Token", value = "right" }}]

[platform.request]
request_id = "reqId"
strategies = "rtaIds"
ids = {{ imei_md5 = "device.imeiMd5" }}

[platform.response]
request_id = "reqId"
verdicts = {{ list = "results", strategy = "rtaId", accepted = "bid" }}
"""
BODY = json.dumps({"reqId": "r1", "rtaIds": ["501"], "device": {"imeiMd5": KNOWN}})


@pytest.fixture
def config(rtad, tmp_path):
    rtad.build(str(tmp_path / "store"), "users", [KNOWN])
    file = tmp_path / "rtad.toml"
    file.write_text(CONFIG.format(store=tmp_path / "store"))
    return file


def cli(config, *words, body=BODY):
    command = [RTAD, "explain", "--config", config, *words, "-"]
    return subprocess.run(list(map(str, command)), input=body, capture_output=True, text=True)


def lasting(explanation):
    """The explanation without the age of the snapshot."""
    for audience in explanation["audiences"]:
        audience["snapshot"].pop("age_seconds")
    return explanation


@pytest.mark.parametrize("token", [None, "right", "wrong"])
def test_explanation_is_that_of_the_program(rtad, config, token):
    words = ["--platform", "example", "--json"]
    words += [f"--header=X-Token: {token}"] if token else []
    expected = json.loads(cli(config, *words).stdout)
    headers = {"X-Token": token} if token else None
    found = rtad.explain(config, "example", BODY, headers=headers)
    assert lasting(found) == lasting(expected)
    if token != "wrong":
        assert [(one["bid"], one["reason"]) for one in found["strategies"]] == [(False, "member")]


def test_encoded_body_is_decoded(rtad, config):
    found = rtad.explain(config, "example", BODY.encode().hex())
    assert found["body"]["read_as"] == "hex"
    assert found["strategies"][0]["reason"] == "member"


def test_failures_have_the_texts_and_codes_of_the_program(rtad, config, tmp_path):
    broken = tmp_path / "broken.toml"
    broken.write_text("[store]\nurl = 1\nport = 2\n")
    for file, platform in [(config, "other"), (broken, "example"), (tmp_path / "none", "example")]:
        done = cli(file, "--platform", platform)
        with pytest.raises(rtad.Error) as failure:
            rtad.explain(file, platform, BODY)
        lines = [f"error: {line}" for line in str(failure.value).splitlines()]
        expected = done.stderr.replace("--platform", "platform").splitlines()
        assert (lines, failure.value.exit_code) == (expected, done.returncode)


def test_schedules_of_another_time_decide(rtad, config):
    hours = 'exclude = ["users"]\nhours = ["09:00-18:00"]\ntime_zone = "Asia/Shanghai"'
    config.write_text(config.read_text().replace('exclude = ["users"]', hours))

    def reason(at):
        return rtad.explain(config, "example", BODY, at=at)["strategies"][0]["reason"]

    assert reason("2026-11-28T15:00:00+08:00") == "member"
    assert reason("2026-11-28T03:00:00+08:00") == "not_scheduled"
    assert reason(datetime(2026, 11, 28, 7, tzinfo=UTC)) == "member"
    with pytest.raises(rtad.Error, match="with an offset"):
        reason(datetime(2026, 11, 28, 7))
