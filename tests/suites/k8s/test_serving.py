"""rtad with config, environment, command line, probes and sizes of the overlays."""

import copy

import pytest

from suites.k8s import rules, sizes
from suites.k8s.rendered import OVERLAYS, quantity, render, render_with_decision_log
from suites.k8s.sandbox import SECRET, put_as_kubelet
from suites.testkit.client import ask
from suites.testkit.programs import ROOT
from suites.testkit.waiting import wait_until

RENDERED = {name: render(ROOT / "k8s/overlays" / name) for name in OVERLAYS}
MEMBER, NON_MEMBER = "8d3ebd3654fb46a2832296669cf1b536", "83e9158a4fb54c0e1ef0b238639a23ae"


def request(md5):
    """Tencent request: an id, and a device with the md5 of its IDFA."""
    return b"\x0a\x02r1\x2a\x22\x12\x20" + md5.encode()


def config_of(overlay):
    return overlay.config_map("rtad-config")["data"]


def replaced(overlay, old, new):
    text = config_of(overlay)["rtad.toml"]
    assert old in text, old
    config_of(overlay)["rtad.toml"] = text.replace(old, new)


def spec(overlay):
    return overlay.one("Deployment", "rtad")["spec"]["template"]["spec"]


def cache(overlay):
    [volume] = [one for one in spec(overlay)["volumes"] if one["name"] == "cache"]
    return volume["emptyDir"]


def limit(overlay, **limits):
    spec(overlay)["containers"][0]["resources"]["limits"].update(limits)


def pre_stop(overlay):
    return spec(overlay)["containers"][0]["lifecycle"]["preStop"]


# Mutations of the production overlay, and expected problems.
MISFITS = [
    (lambda o: limit(o, memory="8Gi"), "of memory"),
    (lambda o: limit(o, cpu="2") or replaced(o, "[server]", "[server]\nworkers = 4"), "4 workers"),
    (lambda o: replaced(o, "0.0.0.0:8080", "0.0.0.0:8081"), "port decisions"),
    (lambda o: replaced(o, "0.0.0.0:9090", "127.0.0.1:9090"), "port admin"),
    (lambda o: replaced(o, '"20s"', '"30s"'), "is killed after 40 s"),
    (lambda o: pre_stop(o)["sleep"].update(seconds=30), "is killed after 40 s"),
    (lambda o: cache(o).update(sizeLimit="8Gi"), "two snapshots"),
    (lambda o: replaced(o, "/var/cache/rtad", "/var/cache/other"), "no emptyDir"),
    (
        lambda o: replaced(o, "cache_dir", 'max_snapshot_size = "4GiB"\ncache_dir'),
        "max_snapshot_size",
    ),
]


class TestConfig:
    @pytest.fixture(autouse=True)
    def with_sandboxes(self, sandbox_of):
        self.sandbox_of = sandbox_of

    def problems(self, overlay):
        return list(sizes.serving(overlay, self.sandbox_of(overlay).effective_config()))

    @pytest.mark.parametrize("name", OVERLAYS)
    def test_config_is_valid_and_fits_the_pod(self, name):
        assert self.problems(RENDERED[name]) == []

    @pytest.mark.parametrize("memory, count", [("6Gi", 0), ("5Gi", 1)])
    def test_rolling_swap_needs_the_documented_memory(self, memory, count):
        overlay = copy.deepcopy(RENDERED["prod"])
        replaced(overlay, "cache_dir = ", 'swap = "rolling"\ncache_dir = ')
        limit(overlay, memory=memory)
        assert len(self.problems(overlay)) == count

    @pytest.mark.parametrize(
        "mutate, expected",
        MISFITS,
        ids=[f"{number}: {one[1]}" for number, one in enumerate(MISFITS)],
    )
    def test_misfits_are_found(self, mutate, expected):
        overlay = copy.deepcopy(RENDERED["prod"])
        mutate(overlay)
        found = self.problems(overlay)
        assert any(expected in problem for problem in found), found


class TestRunning:
    @pytest.mark.parametrize("name", OVERLAYS)
    def test_each_overlay_starts_and_answers(self, name, sandbox_of):
        overlay = RENDERED[name]
        sandbox = sandbox_of(overlay)
        with sandbox.serving() as (rtad, container):
            admin = rtad.field("admin_address")

            def probe(kind):
                return ask(admin, container[kind]["httpGet"]["path"]).status

            for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert container[kind]["httpGet"]["port"] == "admin"
            # Nothing is published yet: live, not ready.
            assert (probe("startupProbe"), probe("livenessProbe"), probe("readinessProbe")) == (
                200,
                200,
                503,
            )
            sandbox.publish(MEMBER)
            assert ask(admin, "/v1/reload", b"").status == 200
            # The decision port may open after the reload.
            wait_until("ready", lambda: probe("readinessProbe") == 200)
            for monitor in overlay.of_kind("ServiceMonitor"):
                for endpoint in monitor["spec"]["endpoints"]:
                    status, metrics = ask(admin, endpoint["path"])
                    assert status == 200
                    assert b"rtad_snapshot_generation" in metrics
            decisions = rtad.field("decision_address")

            def bids(md5, **headers):
                return ask(decisions, "/rta/tencent", request(md5), headers=headers).body

            secret = {}
            if "X-Rta-Token" in config_of(overlay)["rtad.toml"]:
                secret = {"X-Rta-Token": SECRET}
            assert b"T1001" in bids(NON_MEMBER, **secret)
            assert b"T1001" not in bids(MEMBER, **secret)
            if secret:
                assert b"T1001" not in bids(NON_MEMBER)
                self.rotate(sandbox, admin, bids)

    def rotate(self, sandbox, admin, bids):
        """Swapped Secrets are reloaded automatically, and so would be a ConfigMap of another
        overlay that keeps its name."""
        document = sandbox.overlay.one("Deployment", "rtad")
        volumes = {
            one["name"]: sandbox.volume_path(document, one)
            for one in spec(sandbox.overlay)["volumes"]
        }
        config = (volumes["config"] / "rtad.toml").read_text()
        put_as_kubelet(volumes["secrets"], "tencent-token", "another")
        put_as_kubelet(volumes["config"], "rtad.toml", config.replace("T1001", "T2002"))
        sandbox.change_owner()
        another = {"X-Rta-Token": "another"}
        wait_until("the new config and secret", lambda: b"T2002" in bids(NON_MEMBER, **another))
        assert b"T2002" not in bids(NON_MEMBER, **{"X-Rta-Token": SECRET})
        put_as_kubelet(volumes["config"], "rtad.toml", config.replace("exclude", "exlude"))
        sandbox.change_owner()
        status, answer = ask(admin, "/v1/reload", b"")
        assert status == 422
        assert b"exlude" in answer
        assert b"T2002" in bids(NON_MEMBER, **another)


class TestDecisionLog:
    def test_volume_holds_the_spool(self, sandbox_of):
        overlay = render_with_decision_log()
        assert rules.problems(overlay) == []
        config = sandbox_of(overlay).effective_config()
        assert list(sizes.serving(overlay, config)) == []
        [mount] = [
            one
            for one in spec(overlay)["containers"][0]["volumeMounts"]
            if one["mountPath"] == config["log"]["spool"]
        ]
        [volume] = [one for one in spec(overlay)["volumes"] if one["name"] == mount["name"]]
        claim = volume["ephemeral"]["volumeClaimTemplate"]["spec"]
        spool = quantity(config["log"]["max_spool"].removesuffix("B"))
        file = quantity("64Mi")
        assert quantity(claim["resources"]["requests"]["storage"]) >= spool + 2 * file

    def test_pod_writes_its_rows(self, sandbox_of):
        sandbox = sandbox_of(render_with_decision_log())
        sandbox.publish(MEMBER)
        with sandbox.serving() as (rtad, _):
            # Without the token: a failure, which is always logged.
            ask(rtad.field("decision_address"), "/rta/tencent", request(MEMBER))
        # The bucket is a directory here.
        assert len(list((sandbox.dumps / "decisions").glob("day=*/*.parquet"))) == 1
