"""Rendered manifests: output of `kubectl kustomize`, and access to its documents."""

import functools
import math
import pathlib
import re
import shutil
import subprocess
import tempfile

import yaml

from suites.testkit.programs import ROOT

OVERLAYS = ["dev", "prod"]

UNITS = {
    "": 1,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
}


def quantity(text):
    """Parses a Kubernetes quantity to its base unit."""
    number, unit = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text)).groups()
    return float(number) * UNITS[unit]


def seconds(text):
    """Parses a duration of rtad or rtad-loader."""
    parts = re.findall(r"(\d+)(ms|s|m|h|d)", text)
    return math.fsum(
        int(n) * {"ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400}[unit] for n, unit in parts
    )


@functools.cache
def kustomized(folder):
    rendered = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True)
    if rendered.returncode:
        raise AssertionError(f"kubectl kustomize {folder}: {rendered.stderr}")
    # Warnings announce incompatible changes.
    assert not rendered.stderr, rendered.stderr
    return rendered.stdout


def render(folder):
    return Rendered(list(yaml.safe_load_all(kustomized(folder))))


@functools.cache
def kustomized_with(heading, config):
    """The production overlay with the edits of a section of docs/guides/kubernetes.md: of
    `kustomization.yaml`, and of this configuration."""
    page = (ROOT / "docs/guides/kubernetes.md").read_text()
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    [edits] = re.findall(r"^```yaml\n(.*?)^```$", section, re.M | re.S)
    [lines] = re.findall(r"^```toml\n(.*?)^```$", section, re.M | re.S)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "k8s", pathlib.Path(folder, "k8s"))
        overlay = pathlib.Path(folder, "k8s/overlays/prod")
        with (overlay / config).open("a") as file:
            file.write(lines)
        file = overlay / "kustomization.yaml"
        kustomization = yaml.safe_load(file.read_text())
        for key, added in yaml.safe_load(edits).items():
            kustomization[key] += added
        file.write_text(yaml.safe_dump(kustomization))
        return kustomized(overlay)


def kustomized_with_windows():
    return kustomized_with("Event windows", "rtad-writer.toml")


def render_with_windows():
    return Rendered(list(yaml.safe_load_all(kustomized_with_windows())))


def render_with_decision_log():
    return Rendered(list(yaml.safe_load_all(kustomized_with("Decision log", "rtad.toml"))))


def name_of(document):
    return f"{document['kind']}/{document['metadata']['name']}"


class Rendered:
    def __init__(self, documents):
        self.documents = documents

    def of_kind(self, *kinds):
        return [document for document in self.documents if document["kind"] in kinds]

    def one(self, kind, name):
        found = [
            document for document in self.of_kind(kind) if document["metadata"]["name"] == name
        ]
        assert len(found) == 1, f"{len(found)} of {kind}/{name}"
        return found[0]

    def has(self, kind, name):
        return any(document["metadata"]["name"] == name for document in self.of_kind(kind))

    def config_map(self, prefix):
        """The ConfigMap of this name, with or without a hash."""
        pattern = re.compile(re.escape(prefix) + r"(-[0-9a-z]{10})?")
        found = [
            one for one in self.of_kind("ConfigMap") if pattern.fullmatch(one["metadata"]["name"])
        ]
        assert len(found) == 1, f"{len(found)} of ConfigMap/{prefix}"
        return found[0]

    def pods(self):
        """Every document with pods: document, job spec or None, pod template."""
        for document in self.of_kind("Deployment", "StatefulSet", "Job", "CronJob"):
            spec = document["spec"]
            job = {"CronJob": lambda: spec["jobTemplate"]["spec"], "Job": lambda: spec}.get(
                document["kind"], lambda: None
            )()
            yield document, job, (job or spec)["template"]

    def containers(self):
        for document, _, template in self.pods():
            for container in (
                template["spec"].get("initContainers", []) + template["spec"]["containers"]
            ):
                yield document, template, container

    def environment(self, container):
        """Environment of a container, expanded; without Secrets, which are not in the
        repository."""
        variables = {}
        for source in container.get("envFrom", []):
            if "configMapRef" in source:
                variables |= self.one("ConfigMap", source["configMapRef"]["name"])["data"]
        for variable in container.get("env", []):
            value = variable.get("value", f"<{variable['name']}>")
            variables[variable["name"]] = expanded(value, variables)
        return variables

    def command(self, container):
        """Expanded command line of a container."""
        variables = self.environment(container)
        return [
            expanded(word, variables)
            for word in container.get("command", []) + container.get("args", [])
        ]


def expanded(text, variables):
    """Expands `$(NAME)`; unknown variables stay unchanged."""
    return re.sub(
        r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)", lambda found: variables.get(found[1], found[0]), text
    )


def matches(selector, labels):
    assert set(selector) <= {"matchLabels"}, selector
    wanted = selector.get("matchLabels", {})
    return all(labels.get(key) == value for key, value in wanted.items())
