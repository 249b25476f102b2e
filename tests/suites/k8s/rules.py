"""Rules for one rendered overlay. Each rule yields problems as text; `problems` runs all rules."""

import json
import tomllib

import kubernetes_validate

from suites.k8s.rendered import matches, name_of, quantity, seconds

# Created manually, see docs/guides/kubernetes.md: the repository has no secrets.
SECRETS_BY_HAND = {
    ("Secret", name) for name in ("rtad-secrets", "rtad-store-keys", "rtad-writer-token")
}
# Seconds for the last segments of the writer.
LAST_SEGMENTS = 30
# Half of the least age of the files that a gc removes.
MAX_BUILD_SECONDS = 12 * 3600
# Overlays for small nodes, without dedicated CPUs.
SHARED = {"rtad-dev"}
# Kubernetes versions: the oldest with all used fields, and the newest in the package.
VERSIONS = ["1.30", "1.37"]


def schema(overlay):
    for document in overlay.documents:
        if document["apiVersion"].startswith("monitoring.coreos.com/"):
            continue
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                yield f"{name_of(document)}: {'.'.join(map(str, error.path))}: {error.message} (Kubernetes {version})"


def selectors(overlay):
    """Selectors find pods with the ports that they name."""
    pods = [(one["metadata"]["labels"], one["spec"]) for _, _, one in overlay.pods()]
    selecting = [(one, one["spec"]["selector"], []) for one in overlay.of_kind("PodDisruptionBudget")]
    for one in overlay.of_kind("Service"):
        ports = [port["targetPort"] for port in one["spec"]["ports"]]
        selecting.append((one, {"matchLabels": one["spec"]["selector"]}, ports))
    for one in overlay.of_kind("NetworkPolicy"):
        ports = [port["port"] for rule in one["spec"].get("ingress", []) for port in rule["ports"]]
        selecting.append((one, one["spec"]["podSelector"], ports))
    for document, selector, ports in selecting:
        found = [spec["containers"] for labels, spec in pods if matches(selector, labels)]
        named = [{port["name"] for one in pod for port in one.get("ports", [])} for pod in found]
        if not found:
            yield f"{name_of(document)}: selects no pod"
        elif missing := sorted(set(ports) - set.intersection(*named)):
            yield f"{name_of(document)}: its pods have no ports {missing}"
    for monitor in overlay.of_kind("ServiceMonitor"):
        wanted = {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]}
        ports = [
            {port["name"] for port in service["spec"]["ports"]}
            for service in overlay.of_kind("Service")
            if matches(monitor["spec"]["selector"], service["metadata"].get("labels", {}))
        ]
        if not ports or not all(wanted <= names for names in ports):
            yield f"{name_of(monitor)}: selects no Service, or one without its ports"
    for document in overlay.of_kind("Deployment", "StatefulSet"):
        template = document["spec"]["template"]
        for spread in template["spec"].get("topologySpreadConstraints", []):
            expected = {"whenUnsatisfiable": "ScheduleAnyway", "nodeTaintsPolicy": "Honor"}
            if not matches(spread["labelSelector"], template["metadata"]["labels"]):
                yield f"{name_of(document)}: a topology spread constraint is not of its own pods"
            if not expected.items() <= spread.items():
                yield f"{name_of(document)}: a topology spread constraint blocks scheduling"


def references(overlay):
    """References have targets."""
    for document, _, template in overlay.pods():
        spec, made = template["spec"], []
        if "serviceName" in document["spec"]:
            made.append(("Service", document["spec"]["serviceName"]))
        if "serviceAccountName" in spec:
            made.append(("ServiceAccount", spec["serviceAccountName"]))
        for volume in spec.get("volumes", []):
            made += [("ConfigMap", one["name"]) for one in [volume.get("configMap")] if one]
            claim = volume.get("persistentVolumeClaim")
            made += [("PersistentVolumeClaim", claim["claimName"])] if claim else []
            made += [("Secret", one["secretName"]) for one in [volume.get("secret")] if one]
        for container in spec["containers"]:
            for source in container.get("envFrom", []):
                [(kind, target)] = source.items()
                made.append(({"configMapRef": "ConfigMap"}.get(kind, "Secret"), target["name"]))
            if any("subPath" in mount for mount in container.get("volumeMounts", [])):
                yield f"{name_of(document)}: a file is mounted by subPath and never updated"
        for kind, name in made:
            if not overlay.has(kind, name) and (kind, name) not in SECRETS_BY_HAND:
                yield f"{name_of(document)}: there is no {kind}/{name}"
    for scaler in overlay.of_kind("HorizontalPodAutoscaler"):
        target = scaler["spec"]["scaleTargetRef"]
        if not overlay.has(target["kind"], target["name"]):
            yield f"{name_of(scaler)}: there is no {target['kind']}/{target['name']}"


def restricted(overlay):
    """Beyond the Pod Security Standard `restricted`, which Kubernetes enforces for the namespace: a
    read-only root, and no service account token."""
    enforce = "pod-security.kubernetes.io/enforce"
    for namespace in overlay.of_kind("Namespace"):
        if namespace["metadata"]["labels"].get(enforce) != "restricted":
            yield f"{name_of(namespace)}: does not enforce restricted"
    for document, template, container in overlay.containers():
        if template["spec"].get("automountServiceAccountToken") is not False:
            yield f"{name_of(document)}: mounts a service account token"
        if container.get("securityContext", {}).get("readOnlyRootFilesystem") is not True:
            yield f"{name_of(document)}: has a writable root"


def resources(overlay):
    for document, template, container in overlay.containers():
        name, limits, requests = (
            name_of(document),
            container["resources"]["limits"],
            container["resources"]["requests"],
        )
        if document["metadata"]["namespace"] in SHARED:
            requests = requests | {"cpu": limits["cpu"]}
        if requests != limits or set(limits) != {"cpu", "memory", "ephemeral-storage"}:
            yield f"{name}: requests differ from limits of CPU, memory or disk"
            continue
        if quantity(limits["cpu"]) % 1:
            yield f"{name}: has {limits['cpu']} CPUs, expected a whole number"
        dirs = [
            volume["emptyDir"]
            for volume in template["spec"].get("volumes", [])
            if "emptyDir" in volume
        ]
        if any(one.get("medium") == "Memory" or "sizeLimit" not in one for one in dirs):
            yield f"{name}: an emptyDir is in memory or has no limit"
        elif sum(quantity(one["sizeLimit"]) for one in dirs) > quantity(
            limits["ephemeral-storage"]
        ):
            yield f"{name}: its emptyDirs exceed its disk"


def scaling(overlay):
    for scaler in overlay.of_kind("HorizontalPodAutoscaler"):
        spec, name = scaler["spec"], name_of(scaler)
        target = overlay.one("Deployment", spec["scaleTargetRef"]["name"])
        least = spec["minReplicas"]
        if "replicas" in target["spec"]:
            yield f"{name}: applying {name_of(target)} overrides its replicas"
        if spec["maxReplicas"] < least or least < 2:
            yield f"{name}: has {least} to {spec['maxReplicas']} pods"
        for metric in spec["metrics"]:
            if metric["resource"]["target"]["averageUtilization"] > 60 * (least - 1) / least:
                yield f"{name}: with one of {least} pods missing, the others exceed 60 % CPU"
        budgets = [
            one
            for one in overlay.of_kind("PodDisruptionBudget")
            if one["spec"]["selector"] == target["spec"]["selector"]
        ]
        if len(budgets) != 1 or not 0 < budgets[0]["spec"]["maxUnavailable"] < least:
            yield f"{name}: has no disruption budget that keeps some pods and lets one go"


def owners(overlay):
    """One of two pods owns the windows. The other one is not ready, and must block nothing."""
    for document in overlay.of_kind("StatefulSet"):
        spec, name = document["spec"], name_of(document)
        if spec["replicas"] != 2:
            yield f"{name}: has {spec['replicas']} replicas, expected an owner and a standby"
        if spec["podManagementPolicy"] != "Parallel" or spec["updateStrategy"]["type"] != "OnDelete":
            yield f"{name}: waits for the standby to be ready"
        [container] = spec["template"]["spec"]["containers"]
        config = overlay.config_map("rtad-writer-config")["data"]["rtad-writer.toml"]
        kept = {one.get("durability", "disk") for one in tomllib.loads(config)["window"]}
        if kept != {"store"}:
            yield f"{name}: has no volume for windows with the durability {sorted(kept)}"
        if container["readinessProbe"]["httpGet"]["path"] != "/readyz":
            yield f"{name}: the Service sends events to the standby"
        flags = dict(word.split("=", 1) for word in container["args"])
        grace = spec["template"]["spec"]["terminationGracePeriodSeconds"]
        if grace < seconds(flags["--drain-timeout"]) + LAST_SEGMENTS:
            yield f"{name}: is killed after {grace} s, before its windows are given back"
        for port in container["ports"]:
            variable = {"writes": "RTAD_WRITER_LISTEN", "admin": "RTAD_WRITER_ADMIN_LISTEN"}
            listens = overlay.environment(container)[variable[port["name"]]]
            if listens != f"0.0.0.0:{port['containerPort']}":
                yield f"{name}: port {port['name']} is {port['containerPort']}, and rtad-writer listens on {listens}"
        labels = spec["template"]["metadata"]["labels"]
        for budget in overlay.of_kind("PodDisruptionBudget"):
            if matches(budget["spec"]["selector"], labels):
                yield f"{name}: {name_of(budget)} blocks every drain of its node"
        for scaler in overlay.of_kind("HorizontalPodAutoscaler"):
            if scaler["spec"]["scaleTargetRef"]["kind"] == "StatefulSet":
                yield f"{name}: {name_of(scaler)} adds owners"


def jobs(overlay):
    for document, job, template in overlay.pods():
        if not job:
            continue
        name = name_of(document)
        if document["kind"] == "CronJob" and document["spec"]["concurrencyPolicy"] != "Forbid":
            yield f"{name}: runs may overlap"
        if template["spec"]["restartPolicy"] != "Never" or not job["activeDeadlineSeconds"]:
            yield f"{name}: has no deadline, or its log is removed too early"
        elif job["activeDeadlineSeconds"] > MAX_BUILD_SECONDS:
            yield f"{name}: a gc may remove the files of so long a build"
        container = template["spec"]["containers"][0]
        for word in overlay.command(container):
            if word.startswith("--min-age="):
                yield f"{name}: {word}, but publishes rely on the default of a day"


def images(overlay):
    used = {container["image"] for _, _, container in overlay.containers()}
    if len(used) != 1 or any(
        ":" not in image.rpartition("/")[2] or image.endswith(":latest") for image in used
    ):
        yield f"the images are {sorted(used)}: expected one, with a version tag"


def sizes(overlay):
    """`kubectl apply` stores the manifest in an annotation, whose size is limited."""
    for document in overlay.documents:
        if len(json.dumps(document)) > 250_000:
            yield f"{name_of(document)}: is too large for kubectl apply"


RULES = [
    schema,
    selectors,
    references,
    restricted,
    resources,
    scaling,
    owners,
    jobs,
    images,
    sizes,
]


def problems(overlay, rules=None):
    return [problem for rule in rules or RULES for problem in rule(overlay)]
