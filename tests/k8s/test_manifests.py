"""Every overlay by itself; and that what is wrong with one is found."""

import copy
import unittest

import rules
from rendered import OVERLAYS, ROOT, render

RENDERED = {name: render(ROOT / "k8s/overlays" / name) for name in OVERLAYS}


class Overlays(unittest.TestCase):
    def test_nothing_is_wrong_with_them(self):
        for name, overlay in RENDERED.items():
            for rule in rules.RULES:
                with self.subTest(overlay=name, rule=rule.__name__):
                    self.assertEqual(rules.problems(overlay, [rule]), [])

    def test_they_have_what_they_should(self):
        kinds = {name: {document["kind"] for document in overlay.documents} for name, overlay in RENDERED.items()}
        common = {"Namespace", "ServiceAccount", "Deployment", "Service", "NetworkPolicy", "ConfigMap"}
        self.assertLessEqual(common | {"Job", "PersistentVolumeClaim"}, kinds["dev"])
        self.assertLessEqual(common | {"CronJob", "HorizontalPodAutoscaler", "PodDisruptionBudget", "ServiceMonitor"}, kinds["prod"])
        for name, overlay in RENDERED.items():
            self.assertNotIn("Secret", kinds[name], "a secret is in the repository")
            # With a hash the config's name would change with it: pods would be replaced, not reload.
            self.assertEqual(overlay.config_map("rtad-config")["metadata"]["name"], "rtad-config")

    def test_the_admin_port_is_not_beside_the_decisions(self):
        for overlay in RENDERED.values():
            ports = {one["metadata"]["name"]: [port["targetPort"] for port in one["spec"]["ports"]] for one in overlay.of_kind("Service")}
            self.assertEqual(ports, {"rtad": ["decisions"], "rtad-admin": ["admin"]})
            [policy] = [one for one in overlay.of_kind("NetworkPolicy") if one["metadata"]["name"] == "rtad"]
            sources = {port["port"]: rule["from"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
            self.assertEqual(set(sources), {"decisions", "admin"})
            self.assertNotEqual(sources["decisions"], sources["admin"])
            self.assertTrue(all(source for source in sources.values()))


def deployment(overlay):
    return overlay.one("Deployment", "rtad")["spec"]


def container(overlay):
    return deployment(overlay)["template"]["spec"]["containers"][0]


def cron(overlay, name):
    return overlay.one("CronJob", name)["spec"]


def job(overlay, name):
    return cron(overlay, name)["jobTemplate"]["spec"]


# What is done to the production overlay, the rule that must see it, and what it must say.
MUTATIONS = {
    "a misspelt field": (rules.schema, lambda o: container(o).update(readinesProbe={}), "readinesProbe"),
    "a probe without seconds": (rules.schema, lambda o: container(o)["livenessProbe"].update(periodSeconds="10s"), "periodSeconds"),
    "a lifecycle that is none": (rules.schema, lambda o: container(o)["lifecycle"].update(preStop={"sleeps": 3}), "preStop"),
    "a schedule's field in the job": (rules.schema, lambda o: job(o, "rtad-build").update(concurrencyPolicy="Forbid"), "concurrencyPolicy"),
    "a monitor's field": (rules.monitors, lambda o: o.one("ServiceMonitor", "rtad")["spec"]["endpoints"][0].update(pathh="/"), "pathh"),
    "a monitor of nothing": (rules.monitors, lambda o: o.one("Service", "rtad-admin")["metadata"].pop("labels"), "does not select one Service"),
    "a pod with other labels": (rules.selectors, lambda o: deployment(o)["template"]["metadata"]["labels"].update({"app.kubernetes.io/name": "x"}), "its selector"),
    "a service of nobody": (rules.selectors, lambda o: o.one("Service", "rtad")["spec"]["selector"].update(app="x"), "selects no pod"),
    "a port that is not there": (rules.selectors, lambda o: container(o)["ports"][0].update(name="http"), "have no ports ['decisions']"),
    "a budget of nobody": (rules.selectors, lambda o: o.one("PodDisruptionBudget", "rtad")["spec"]["selector"]["matchLabels"].update(a="b"), "selects no pod"),
    "a ConfigMap that is gone": (rules.references, lambda o: o.documents.remove(o.config_map("rtad-config")), "no ConfigMap/rtad-config"),
    "an account that is gone": (rules.references, lambda o: o.documents.remove(o.one("ServiceAccount", "rtad-loader")), "no ServiceAccount/rtad-loader"),
    "a config file alone": (rules.references, lambda o: container(o)["volumeMounts"][0].update(subPath="rtad.toml"), "subPath"),
    "a failure policy of nothing": (rules.references, lambda o: job(o, "rtad-build")["template"]["spec"]["containers"][0].update(name="x"), "podFailurePolicy"),
    "root": (rules.restricted, lambda o: deployment(o)["template"]["spec"]["securityContext"].update(runAsUser=0), "may run as root"),
    "a capability": (rules.restricted, lambda o: container(o)["securityContext"]["capabilities"].update(add=["NET_RAW"]), "keeps capabilities"),
    "a root that can be written": (rules.restricted, lambda o: container(o)["securityContext"].pop("readOnlyRootFilesystem"), "write to its root"),
    "a token": (rules.restricted, lambda o: deployment(o)["template"]["spec"].pop("automountServiceAccountToken"), "has a token"),
    "a host's folder": (rules.restricted, lambda o: deployment(o)["template"]["spec"]["volumes"].append({"name": "h", "hostPath": {}}), "its host"),
    "half a CPU": (rules.resources, lambda o: [container(o)["resources"][kind].update(cpu="500m") for kind in ("requests", "limits")], "whole number"),
    "requests below limits": (rules.resources, lambda o: container(o)["resources"].update(requests={"cpu": "1"}), "requests are not limits"),
    "a cache in memory": (rules.resources, lambda o: deployment(o)["template"]["spec"]["volumes"][2]["emptyDir"].update(medium="Memory"), "is memory"),
    "a cache beyond the disk": (rules.resources, lambda o: deployment(o)["template"]["spec"]["volumes"][2]["emptyDir"].update(sizeLimit="20Gi"), "larger than its disk"),
    "replicas": (rules.scaling, lambda o: deployment(o).update(replicas=3), "undoes"),
    "a busy fleet": (rules.scaling, lambda o: o.one("HorizontalPodAutoscaler", "rtad")["spec"]["metrics"][0]["resource"]["target"].update(averageUtilization=60), "busy"),
    "a budget for all": (rules.scaling, lambda o: o.one("PodDisruptionBudget", "rtad")["spec"].update(maxUnavailable=3), "no budget"),
    "two builds": (rules.jobs, lambda o: cron(o, "rtad-build").update(concurrencyPolicy="Allow"), "two of it"),
    "a log that is lost": (rules.jobs, lambda o: job(o, "rtad-build")["template"]["spec"].update(restartPolicy="OnFailure"), "takes its log along"),
    "a worker too few": (rules.jobs, lambda o: job(o, "rtad-build-many").update(parallelism=4), "at once"),
    "a number of workers": (rules.jobs, lambda o: job(o, "rtad-build-many").update(completions=8, parallelism=8) or job(o, "rtad-build-many")["template"]["spec"]["containers"][0]["env"][0].update(value="7"), "at once"),
    "a build that gc outruns": (rules.jobs, lambda o: job(o, "rtad-build").update(activeDeadlineSeconds=6 * 3600), "removes what it has made"),
    "no tag": (rules.images, lambda o: container(o).update(image="registry.example.com:5000/rtad"), "images"),
    "another namespace": (rules.namespaces, lambda o: o.one("Service", "rtad")["metadata"].update(namespace="default"), "namespace"),
}


class Mutations(unittest.TestCase):
    def test_each_is_found(self):
        for name, (rule, mutate, expected) in MUTATIONS.items():
            with self.subTest(name):
                overlay = copy.deepcopy(RENDERED["prod"])
                mutate(overlay)
                found = rules.problems(overlay, [rule])
                self.assertTrue(any(expected in problem for problem in found), found)

    def test_each_rule_has_one(self):
        self.assertEqual({rule for rule, _, _ in MUTATIONS.values()}, set(rules.RULES))
