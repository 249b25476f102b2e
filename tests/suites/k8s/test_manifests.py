"""Manifests: every overlay follows all rules, and the rules detect mistakes."""

import copy
import os
import pathlib
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
            # A name hash would replace pods instead of reloading the config.
            assert overlay.config_map("rtad-config")["metadata"]["name"] == "rtad-config"

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


def server(overlay):
    return overlay.one("Deployment", "rtad")["spec"]


def pod(overlay):
    return server(overlay)["template"]["spec"]


def container(overlay):
    return pod(overlay)["containers"][0]


def cache(overlay):
    [volume] = [one for one in pod(overlay)["volumes"] if one["name"] == "cache"]
    return volume["emptyDir"]


def spread(overlay):
    return pod(overlay)["topologySpreadConstraints"][1]


def limits(overlay, **changed):
    for kind in ("requests", "limits"):
        container(overlay)["resources"][kind].update(changed)


def cron(overlay, name):
    return overlay.one("CronJob", name)["spec"]


def job(overlay, name):
    return cron(overlay, name)["jobTemplate"]["spec"]


def spec(overlay, kind, name="rtad"):
    return overlay.one(kind, name)["spec"]


def gone(overlay, kind, name):
    overlay.documents.remove(overlay.one(kind, name))


def target(overlay):
    return spec(overlay, "HorizontalPodAutoscaler")["metrics"][0]["resource"]["target"]


# Mutations of the production overlay: rule, mutation, expected problem.
MUTATIONS = {
    rules.schema: [
        (lambda o: container(o).update(readinesProbe={}), "readinesProbe"),
        (lambda o: container(o)["livenessProbe"].update(periodSeconds="10s"), "periodSeconds"),
    ],
    rules.selectors: [
        (lambda o: spec(o, "Service")["selector"].update(app="x"), "Service/rtad: selects no pod"),
        (lambda o: container(o)["ports"][0].update(name="http"), "have no ports ['decisions']"),
        (lambda o: o.one("Service", "rtad-admin")["metadata"].pop("labels"), "selects no Service"),
        (lambda o: spread(o).update(labelSelector={"matchLabels": {"a": "b"}}), "its own pods"),
        (lambda o: spread(o).pop("nodeTaintsPolicy"), "blocks scheduling"),
    ],
    rules.references: [
        (lambda o: gone(o, "ConfigMap", "rtad-config"), "no ConfigMap/rtad-config"),
        (lambda o: gone(o, "ServiceAccount", "rtad-loader"), "no ServiceAccount/rtad-loader"),
        (lambda o: gone(o, "PersistentVolumeClaim", "rtad-build-shared"), "no PersistentVolume"),
        (lambda o: container(o)["volumeMounts"][0].update(subPath="rtad.toml"), "subPath"),
    ],
    rules.restricted: [
        (lambda o: container(o).pop("securityContext"), "has a writable root"),
        (lambda o: pod(o).pop("automountServiceAccountToken"), "service account token"),
        (lambda o: o.of_kind("Namespace")[0]["metadata"]["labels"].clear(), "does not enforce"),
    ],
    rules.resources: [
        (lambda o: limits(o, cpu="500m"), "expected a whole number"),
        (lambda o: container(o)["resources"]["requests"].pop("cpu"), "requests differ from limits"),
        (lambda o: cache(o).update(sizeLimit="20Gi"), "exceed its disk"),
    ],
    rules.scaling: [
        (lambda o: target(o).update(averageUtilization=60), "exceed 60 % CPU"),
        (lambda o: spec(o, "PodDisruptionBudget").update(maxUnavailable=3), "no disruption budget"),
    ],
    rules.jobs: [
        (lambda o: cron(o, "rtad-build").update(concurrencyPolicy="Allow"), "runs may overlap"),
        (lambda o: job(o, "rtad-build-many").update(parallelism=4), "at once"),
        (lambda o: job(o, "rtad-build").update(activeDeadlineSeconds=6 * 3600), "files earlier"),
    ],
    rules.images: [(lambda o: container(o).update(image="host:5000/rtad"), "the images are")],
    rules.sizes: [
        (lambda o: o.config_map("rtad-config")["data"].update(notes="x" * 262_144), "too large")
    ],
}


def writer(overlay):
    return overlay.one("StatefulSet", "rtad-writer")["spec"]


def claim(overlay):
    return writer(overlay)["volumeClaimTemplates"][0]["spec"]


def targets(overlay, kind, name):
    """Makes an object of this kind apply to the writer."""
    if kind == "PodDisruptionBudget":
        spec(overlay, kind)["selector"] = writer(overlay)["selector"]
    else:
        spec(overlay, kind)["scaleTargetRef"] = {"kind": "StatefulSet", "name": name}


# Mutations of the production overlay with event windows.
OWNER_MUTATIONS = [
    (lambda o: writer(o).update(replicas=2), "has 2 replicas"),
    (lambda o: claim(o).update(accessModes=["ReadWriteOnce"]), "two pods may mount"),
    (lambda o: writer(o).pop("persistentVolumeClaimRetentionPolicy"), "may be removed"),
    (
        lambda o: writer(o)["template"]["spec"].update(terminationGracePeriodSeconds=30),
        "before its last checkpoint",
    ),
    (
        lambda o: writer(o)["template"]["spec"]["containers"][0]["volumeMounts"][2].update(
            mountPath="/var/lib/other"
        ),
        "is not on its volume",
    ),
    (
        lambda o: writer(o)["template"]["spec"]["containers"][0]["ports"][1].update(
            containerPort=9090
        ),
        "port admin is 9090",
    ),
    (lambda o: targets(o, "PodDisruptionBudget", "rtad-writer"), "blocks every drain"),
    (lambda o: targets(o, "HorizontalPodAutoscaler", "rtad-writer"), "adds owners"),
]


class TestMutations:
    def test_each_rule_has_mutations(self):
        assert {*MUTATIONS, rules.owners} == set(rules.RULES)

    @pytest.mark.parametrize(
        "rule, mutate, expected",
        [
            pytest.param(rule, *mutation, id=f"{rule.__name__}: {mutation[1]}")
            for rule, mutations in MUTATIONS.items()
            for mutation in mutations
        ],
    )
    def test_each_mutation_is_found(self, rule, mutate, expected):
        overlay = copy.deepcopy(RENDERED["prod"])
        mutate(overlay)
        found = rules.problems(overlay, [rule])
        assert any(expected in problem for problem in found), found


class TestEventWindows:
    def test_overlay_with_windows_follows_all_rules(self):
        overlay = render_with_windows()
        assert rules.problems(overlay) == []
        # A changed config replaces the pod, as it is read at the start only.
        config = overlay.config_map("rtad-writer-config")["metadata"]["name"]
        assert config != "rtad-writer-config"

    @pytest.mark.parametrize(
        "mutate, expected", OWNER_MUTATIONS, ids=[one[1] for one in OWNER_MUTATIONS]
    )
    def test_each_mutation_is_found(self, mutate, expected):
        overlay = render_with_windows()
        mutate(overlay)
        found = rules.problems(overlay, [rules.owners])
        assert any(expected in problem for problem in found), found

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
