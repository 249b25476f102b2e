"""Manifests: every overlay follows all rules."""

import os
import pathlib
import shutil
import tempfile

import pytest

from suites.k8s import rules
from suites.k8s.rendered import (
    OVERLAYS,
    kustomized_with_windows,
    quantity,
    render,
    render_with_windows,
)
from suites.testkit.programs import ROOT

RENDERED = {name: render(ROOT / "k8s/overlays" / name) for name in OVERLAYS}


class TestOverlays:
    @pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
    @pytest.mark.parametrize("name", OVERLAYS)
    def test_overlay_follows_the_rule(self, name, rule):
        assert rules.problems(RENDERED[name], [rule]) == []

    def test_overlays_have_the_expected_documents(self):
        kinds = {
            name: {document["kind"] for document in overlay.documents}
            for name, overlay in RENDERED.items()
        }
        common = {
            "Namespace",
            "ServiceAccount",
            "Deployment",
            "Service",
            "NetworkPolicy",
            "ConfigMap",
        }
        assert common | {"Job", "PersistentVolumeClaim"} <= kinds["dev"]
        assert (
            common
            | {
                "CronJob",
                "HorizontalPodAutoscaler",
                "PodDisruptionBudget",
                "ServiceMonitor",
                "PrometheusRule",
            }
            <= kinds["prod"]
        )
        for name, overlay in RENDERED.items():
            assert "Secret" not in kinds[name], "a secret is in the repository"

    def test_another_config_is_a_rollout(self, tmp_path):
        """The pods name the ConfigMap by its content, so that a wrong one reaches one pod first, and
        `rollout undo` brings the former one back."""
        shutil.copytree(ROOT / "k8s", tmp_path / "k8s")
        for name in OVERLAYS:
            config = tmp_path / "k8s/overlays" / name / "rtad.toml"
            config.write_text(config.read_text() + "# Another.\n")
            names = set()
            for overlay in (RENDERED[name], render(config.parent)):
                pods = overlay.one("Deployment", "rtad")["spec"]["template"]["spec"]
                [volume] = [one for one in pods["volumes"] if one["name"] == "config"]
                assert overlay.has("ConfigMap", volume["configMap"]["name"])
                names.add(volume["configMap"]["name"])
            assert len(names) == 2, name

    def test_admin_port_is_separate_from_the_decision_port(self):
        for overlay in RENDERED.values():
            services = {
                one["metadata"]["name"]: one["spec"]["ports"] for one in overlay.of_kind("Service")
            }
            ports = {
                name: [port["targetPort"] for port in ports] for name, ports in services.items()
            }
            assert ports == {"rtad": ["decisions"], "rtad-admin": ["admin"]}
            [policy] = [
                one for one in overlay.of_kind("NetworkPolicy") if one["metadata"]["name"] == "rtad"
            ]
            sources = {
                port["port"]: rule["from"]
                for rule in policy["spec"]["ingress"]
                for port in rule["ports"]
            }
            assert set(sources) == {"decisions", "admin"}
            assert sources["decisions"] != sources["admin"]
            assert all(source for source in sources.values())

    def test_both_kinds_of_dns_are_allowed(self):
        """CoreDNS by selector, and NodeLocal DNSCache by address, as it is in the node's
        network."""
        for overlay in RENDERED.values():
            for policy in overlay.of_kind("NetworkPolicy"):
                [targets] = [
                    rule["to"]
                    for rule in policy["spec"]["egress"]
                    if {port["port"] for port in rule["ports"]} == {53}
                ]
                assert {"ipBlock": {"cidr": "169.254.20.10/32"}} in targets
                assert {"matchLabels": {"k8s-app": "kube-dns"}} in [
                    one.get("podSelector") for one in targets
                ]

    def test_dev_overlay_fits_a_node_of_two_cpus(self):
        """Kubernetes needs one CPU; the memory is documented in docs/guides/kubernetes.md."""
        requests = [one["resources"]["requests"] for _, _, one in RENDERED["dev"].containers()]
        assert sum(quantity(one["cpu"]) for one in requests) < 0.5
        memory = sum(quantity(one["memory"]) for one in requests) / (1 << 30)
        assert f"{memory:g} GiB of memory" in (ROOT / "docs/guides/kubernetes.md").read_text()


class TestEventWindows:
    def test_overlay_with_windows_follows_all_rules(self):
        overlay = render_with_windows()
        assert rules.problems(overlay) == []
        # A changed config replaces the pod, as it is read at the start only.
        config = overlay.config_map("rtad-writer-config")["metadata"]["name"]
        assert config != "rtad-writer-config"

    def test_admin_port_is_for_prometheus_only(self):
        [policy] = [
            one
            for one in render_with_windows().of_kind("NetworkPolicy")
            if one["metadata"]["name"] == "rtad-writer"
        ]
        sources = {
            port["port"]: rule["from"][0]["namespaceSelector"]["matchLabels"]
            for rule in policy["spec"]["ingress"]
            for port in rule["ports"]
        }
        assert set(sources) == {"writes", "admin"}
        assert sources["admin"] == {"kubernetes.io/metadata.name": "monitoring"}
        assert sources["writes"] != sources["admin"]


class TestComponents:
    def test_store_keys_reach_all_containers_with_a_store(self):
        with tempfile.TemporaryDirectory() as folder:
            up = os.path.relpath(ROOT / "k8s", folder)
            pathlib.Path(folder, "prod.yaml").write_text(kustomized_with_windows())
            text = f"resources: [prod.yaml]\ncomponents: [{up}/components/store-keys]\n"
            pathlib.Path(folder, "kustomization.yaml").write_text(text)
            overlay = render(folder)
        assert rules.problems(overlay) == []
        for document, _, one in overlay.containers():
            assert {"secretRef": {"name": "rtad-store-keys"}} in one["envFrom"], document[
                "metadata"
            ]["name"]
