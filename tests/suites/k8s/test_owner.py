"""The writer with command line, environment, config and probes of components/writer."""

import json

import pytest

from suites.k8s.rendered import render_with_windows
from suites.k8s.sandbox import SECRET
from suites.testkit.client import ask

EVENTS = "/v1/windows/clicks/events"
ID = "77c1e0d2-5b3f-4f6a-9b1d-2e4f6a8b0c1d"


class TestOwner:
    @pytest.fixture
    def sandbox(self, sandbox_of):
        return sandbox_of(render_with_windows())

    def count(self, address, token=SECRET):
        body = json.dumps({"ids": [ID], "kind": "oaid"})
        return ask(address, EVENTS, body, headers={"Authorization": f"Bearer {token}"})

    def test_container_starts_and_keeps_its_windows_over_a_restart(self, sandbox):
        with sandbox.owner() as (process, container, address, admin):
            process.wait_for("all windows are owned by this process")
            for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert container[kind]["httpGet"]["port"] == "admin"
                assert ask(admin, container[kind]["httpGet"]["path"]).status == 200, kind
            assert self.count(address, "another-token-of-this-test").status == 401
            assert self.count(address).json()["new"] == [True]
            assert self.count(address).json()["new"] == [False]
            metrics = ask(admin, "/metrics").text()
            assert 'rtad_window_owner{window="clicks"} 1' in metrics
            assert process.end() == 0, process.text()
        with sandbox.owner() as (process, _, address, _):
            process.wait_for("all windows are owned by this process")
            assert self.count(address).json()["new"] == [False]
