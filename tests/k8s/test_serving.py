"""rtad itself, with what the overlays give it: config, environment, command line, probes, sizes."""

import copy
import time
import unittest

import sizes
from rendered import OVERLAYS, ROOT, render
from sandbox import SECRET, Sandbox, ask, put_as_kubelet

RENDERED = {name: render(ROOT / "k8s/overlays" / name) for name in OVERLAYS}
MEMBER, STRANGER = "8d3ebd3654fb46a2832296669cf1b536", "83e9158a4fb54c0e1ef0b238639a23ae"


def request(md5):
    """Tencent's RtaRequest: an id, and a device with the md5 of its IDFA."""
    return b"\x0a\x02r1\x2a\x22\x12\x20" + md5.encode()


def config_of(overlay):
    return overlay.config_map("rtad-config")["data"]


def replaced(overlay, old, new):
    text = config_of(overlay)["rtad.toml"]
    assert old in text, old
    config_of(overlay)["rtad.toml"] = text.replace(old, new)


class Config(unittest.TestCase):
    def effective(self, overlay):
        sandbox = Sandbox(overlay)
        self.addCleanup(sandbox.close)
        return sandbox.effective_config()

    def test_rtad_takes_it_and_it_fits_the_pod(self):
        for name, overlay in RENDERED.items():
            with self.subTest(name):
                self.assertEqual(list(sizes.serving(overlay, self.effective(overlay))), [])

    def test_a_rolling_swap_needs_the_memory_that_the_overlay_says(self):
        overlay = copy.deepcopy(RENDERED["prod"])
        replaced(overlay, 'cache_dir = ', 'swap = "rolling"\ncache_dir = ')
        limits = overlay.one("Deployment", "rtad")["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
        for memory, count in (("6Gi", 0), ("5Gi", 1)):
            limits["memory"] = memory
            self.assertEqual(len(list(sizes.serving(overlay, self.effective(overlay)))), count, memory)

    def test_what_does_not_fit_is_found(self):
        def spec(overlay):
            return overlay.one("Deployment", "rtad")["spec"]["template"]["spec"]

        def cache(overlay):
            [volume] = [one for one in spec(overlay)["volumes"] if one["name"] == "cache"]
            return volume["emptyDir"]

        def limit(overlay, **limits):
            spec(overlay)["containers"][0]["resources"]["limits"].update(limits)

        for mutate, expected in (
            (lambda o: limit(o, memory="8Gi"), "of memory"),
            (lambda o: limit(o, cpu="2") or replaced(o, "[server]", "[server]\nworkers = 4"), "4 workers"),
            (lambda o: replaced(o, "0.0.0.0:8080", "0.0.0.0:8081"), "port decisions"),
            (lambda o: replaced(o, "0.0.0.0:9090", "127.0.0.1:9090"), "port admin"),
            (lambda o: replaced(o, '"20s"', '"30s"'), "is killed after 40 s"),
            (lambda o: spec(o)["containers"][0]["lifecycle"]["preStop"]["sleep"].update(seconds=30), "is killed after 40 s"),
            (lambda o: cache(o).update(sizeLimit="8Gi"), "two snapshots"),
            (lambda o: replaced(o, "/var/cache/rtad", "/var/cache/other"), "no emptyDir"),
            (lambda o: replaced(o, "cache_dir", 'max_snapshot_size = "4GiB"\ncache_dir'), "max_snapshot_size"),
        ):
            with self.subTest(expected):
                overlay = copy.deepcopy(RENDERED["prod"])
                mutate(overlay)
                found = list(sizes.serving(overlay, self.effective(overlay)))
                self.assertTrue(any(expected in problem for problem in found), found)

    def test_rtad_refuses_a_config_with_a_mistake(self):
        for old, new, expected in (
            ("drain_timeout", "drain_time", "server.drain_time is not known"),
            ('exclude = ["old_users"]', 'exclude = ["old_user"]', "old_user"),
            ("tencent-token", "../secrets/other", "value_file"),
        ):
            overlay = copy.deepcopy(RENDERED["prod"])
            replaced(overlay, old, new)
            with self.subTest(new), self.assertRaisesRegex(AssertionError, expected):
                sandbox = Sandbox(overlay)
                self.addCleanup(sandbox.close)
                if "value_file" in expected:
                    sandbox.secrets = lambda _: []
                sandbox.effective_config()


class Running(unittest.TestCase):
    def test_each_overlay_starts_gets_ready_and_answers(self):
        for name, overlay in RENDERED.items():
            with self.subTest(name):
                self.start(overlay)

    def start(self, overlay):
        sandbox = Sandbox(overlay)
        self.addCleanup(sandbox.close)
        with sandbox.serving() as (url, container):
            admin = url("admin_address")
            probe = lambda kind: ask(admin + container[kind]["httpGet"]["path"])[0]
            for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
                self.assertEqual(container[kind]["httpGet"]["port"], "admin")
            # Nothing is published: it lives, and waits.
            self.assertEqual((probe("startupProbe"), probe("livenessProbe"), probe("readinessProbe")), (200, 200, 503))
            rta = url("decision_address") + "/rta/tencent"
            sandbox.publish(MEMBER)
            self.assertEqual(ask(admin + "/v1/reload", b"")[0], 200)
            self.assertEqual(probe("readinessProbe"), 200)
            for monitor in overlay.of_kind("ServiceMonitor"):
                for endpoint in monitor["spec"]["endpoints"]:
                    status, metrics = ask(admin + endpoint["path"])
                    self.assertEqual(status, 200)
                    self.assertIn(b"rtad_snapshot_generation", metrics)
            secret = {"X-Rta-Token": SECRET} if "X-Rta-Token" in config_of(overlay)["rtad.toml"] else {}
            self.assertIn(b"T1001", ask(rta, request(STRANGER), **secret)[1])
            self.assertNotIn(b"T1001", ask(rta, request(MEMBER), **secret)[1])
            if secret:
                self.assertNotIn(b"T1001", ask(rta, request(STRANGER))[1])
                self.rotate(sandbox, container, admin, rta)

    def rotate(self, sandbox, container, admin, rta):
        """A config and a secret that the kubelet swaps are taken up by themselves."""
        document = sandbox.overlay.one("Deployment", "rtad")
        volumes = {volume["name"]: sandbox.place(document, volume) for volume in document["spec"]["template"]["spec"]["volumes"]}
        config = (volumes["config"] / "rtad.toml").read_text()
        put_as_kubelet(volumes["secrets"], "tencent-token", "another")
        put_as_kubelet(volumes["config"], "rtad.toml", config.replace("T1001", "T2002"))
        sandbox.hand_over()
        # As long as a pod takes to look twice, and some: a time that no machine is too slow for.
        for _ in range(600):
            if b"T2002" in ask(rta, request(STRANGER), **{"X-Rta-Token": "another"})[1]:
                break
            time.sleep(0.1)
        self.assertIn(b"T2002", ask(rta, request(STRANGER), **{"X-Rta-Token": "another"})[1])
        self.assertNotIn(b"T2002", ask(rta, request(STRANGER), **{"X-Rta-Token": SECRET})[1])
        put_as_kubelet(volumes["config"], "rtad.toml", config.replace("exclude", "exlude"))
        sandbox.hand_over()
        status, answer = ask(admin + "/v1/reload", b"")
        self.assertEqual(status, 422)
        self.assertIn(b"exlude", answer)
        self.assertIn(b"T2002", ask(rta, request(STRANGER), **{"X-Rta-Token": "another"})[1])
