"""Rules for one rendered overlay. Each rule yields problems as text; `problems` runs all rules."""

import json
import math
import tomllib

import kubernetes_validate

from suites.k8s.rendered import matches, name_of, quantity, seconds

# From the operator's API, whose schema the package lacks.
SERVICE_MONITOR = {"selector", "endpoints", "namespaceSelector", "jobLabel", "targetLabels"}
ENDPOINT = {
    "port",
    "path",
    "interval",
    "scrapeTimeout",
    "scheme",
    "honorLabels",
    "relabelings",
    "metricRelabelings",
}
GROUP = {"name", "interval", "labels", "rules"}
ALERT = {"alert", "expr", "for", "keep_firing_for", "labels", "annotations"}
RECORD = {"record", "expr", "labels"}
# Created manually, see docs/guides/kubernetes.md: the repository has no secrets.
SECRETS_BY_HAND = {"rtad-secrets", "rtad-store-keys", "rtad-writer-token"}
# Seconds for the last checkpoint of the write service.
CHECKPOINT = 30
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


def monitors(overlay):
    for document in overlay.documents:
        if document["apiVersion"].startswith("monitoring.coreos.com/"):
            unknown = {"ServiceMonitor": service_monitor, "PrometheusRule": prometheus_rule}[
                document["kind"]
            ]
            yield from (
                f"{name_of(document)}: {problem}" for problem in unknown(overlay, document["spec"])
            )


def service_monitor(overlay, spec):
    for field in (set(spec) - SERVICE_MONITOR).union(
        *(set(endpoint) - ENDPOINT for endpoint in spec["endpoints"])
    ):
        yield f"has an unknown field {field}"
    for endpoint in spec["endpoints"]:
        if seconds(endpoint["scrapeTimeout"]) > seconds(endpoint["interval"]):
            yield "a scrape may take longer than the time between two"
    services = [
        one
        for one in overlay.of_kind("Service")
        if matches(spec["selector"], one["metadata"].get("labels", {}))
    ]
    ports = [{port["name"] for port in service["spec"]["ports"]} for service in services]
    wanted = {endpoint["port"] for endpoint in spec["endpoints"]}
    if not services or not all(wanted <= names for names in ports):
        yield "selects no Service, or one without its ports"


def prometheus_rule(_, spec):
    names = [group["name"] for group in spec["groups"]]
    if set(spec) != {"groups"} or len(set(names)) < len(names):
        yield "has two groups of one name, or unknown fields"
    for group in spec["groups"]:
        for field in set(group) - GROUP:
            yield f"group {group['name']}: has an unknown field {field}"
        for rule in group["rules"]:
            known = ALERT if "alert" in rule else RECORD
            if set(rule) - known or not rule.get("expr"):
                yield f"group {group['name']}: a rule without an expression, or with unknown fields {sorted(set(rule) - known)}"


def selectors(overlay):
    templates = [
        (template["metadata"].get("labels", {}), template["spec"])
        for _, _, template in overlay.pods()
    ]

    def ports_of(selector):
        pods = [spec["containers"] for labels, spec in templates if matches(selector, labels)]
        ports = [
            {port["name"] for container in pod for port in container.get("ports", [])}
            for pod in pods
        ]
        return set.intersection(*ports) if ports else None

    for document in overlay.of_kind("Deployment", "StatefulSet"):
        labels = document["spec"]["template"]["metadata"]["labels"]
        if not matches(document["spec"]["selector"], labels):
            yield f"{name_of(document)}: its selector is not of its own pods"
        for constraint in document["spec"]["template"]["spec"].get("topologySpreadConstraints", []):
            if not matches(constraint["labelSelector"], labels):
                yield f"{name_of(document)}: a topology spread constraint is not of its own pods"
            if (constraint["whenUnsatisfiable"], constraint.get("nodeTaintsPolicy")) != (
                "ScheduleAnyway",
                "Honor",
            ):
                yield f"{name_of(document)}: a topology spread constraint blocks scheduling, or counts unusable nodes"
    selecting = [
        (one, one["spec"]["selector"], []) for one in overlay.of_kind("PodDisruptionBudget")
    ]
    for one in overlay.of_kind("Service"):
        selecting.append(
            (
                one,
                {"matchLabels": one["spec"]["selector"]},
                [port["targetPort"] for port in one["spec"]["ports"]],
            )
        )
    for one in overlay.of_kind("NetworkPolicy"):
        ports = [port["port"] for rule in one["spec"].get("ingress", []) for port in rule["ports"]]
        selecting.append((one, one["spec"]["podSelector"], ports))
    for document, selector, ports in selecting:
        found = ports_of(selector)
        if found is None:
            yield f"{name_of(document)}: selects no pod"
        elif not set(ports) <= found:
            yield f"{name_of(document)}: its pods have no ports {sorted(set(ports) - found)}"


def references(overlay):
    """References have targets."""

    def missing(document, kind, name):
        if not overlay.has(kind, name):
            yield f"{name_of(document)}: there is no {kind}/{name}"

    for document, job, template in overlay.pods():
        spec = template["spec"]
        yield from (
            missing(document, "ServiceAccount", spec["serviceAccountName"])
            if "serviceAccountName" in spec
            else ()
        )
        claims = document["spec"].get("volumeClaimTemplates", [])
        volumes = {volume["name"] for volume in spec.get("volumes", [])}
        volumes |= {claim["metadata"]["name"] for claim in claims}
        if "serviceName" in document["spec"]:
            yield from missing(document, "Service", document["spec"]["serviceName"])
        for volume in spec.get("volumes", []):
            if "configMap" in volume:
                yield from missing(document, "ConfigMap", volume["configMap"]["name"])
            if "persistentVolumeClaim" in volume:
                yield from missing(
                    document, "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]
                )
            if "secret" in volume and volume["secret"]["secretName"] not in SECRETS_BY_HAND:
                yield f"{name_of(document)}: nobody makes Secret/{volume['secret']['secretName']}"
        names = {container["name"] for container in spec["containers"]}
        for container in spec["containers"]:
            for source in container.get("envFrom", []):
                if "configMapRef" in source:
                    yield from missing(document, "ConfigMap", source["configMapRef"]["name"])
                elif source["secretRef"]["name"] not in SECRETS_BY_HAND:
                    yield f"{name_of(document)}: nobody makes Secret/{source['secretRef']['name']}"
            for mount in container.get("volumeMounts", []):
                if mount["name"] not in volumes:
                    yield f"{name_of(document)}: there is no volume {mount['name']}"
                if "subPath" in mount or "subPathExpr" in mount:
                    yield f"{name_of(document)}: {mount['mountPath']} is mounted by subPath and never updated"
        for rule in (job or {}).get("podFailurePolicy", {}).get("rules", []):
            if rule.get("onExitCodes", {}).get("containerName", "rtad-loader") not in names:
                yield f"{name_of(document)}: podFailurePolicy names no container of it"
    for scaler in overlay.of_kind("HorizontalPodAutoscaler"):
        target = scaler["spec"]["scaleTargetRef"]
        yield from missing(scaler, target["kind"], target["name"])


def restricted(overlay):
    """Pod Security Standard `restricted`, read-only root, no service account token."""
    volumes = {
        "name",
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
    for document, _, template in overlay.pods():
        spec, name = template["spec"], name_of(document)
        own = spec.get("securityContext", {})
        strange = [one for one in spec.get("volumes", []) if set(one) - volumes]
        if strange or any(spec.get(host) for host in ("hostNetwork", "hostPID", "hostIPC")):
            yield f"{name}: uses a namespace of its host"
        if (
            not own.get("runAsNonRoot")
            or not own.get("runAsUser")
            or own.get("seccompProfile") != {"type": "RuntimeDefault"}
        ):
            yield f"{name}: may run as root, or without a seccomp profile"
        if spec.get("automountServiceAccountToken") is not False:
            yield f"{name}: mounts a service account token"
        for container in spec["containers"]:
            context = container.get("securityContext", {})
            if context.get("allowPrivilegeEscalation") is not False or context.get(
                "capabilities"
            ) != {"drop": ["ALL"]}:
                yield f"{name}: keeps capabilities or may gain privileges"
            if context.get("readOnlyRootFilesystem") is not True:
                yield f"{name}: has a writable root"
            if any("hostPort" in port for port in container.get("ports", [])):
                yield f"{name}: uses a host port"
    for account in overlay.of_kind("ServiceAccount"):
        if account.get("automountServiceAccountToken") is not False:
            yield f"{name_of(account)}: gives a token to its pods"
    for namespace in overlay.of_kind("Namespace"):
        if (
            namespace["metadata"]["labels"].get("pod-security.kubernetes.io/enforce")
            != "restricted"
        ):
            yield f"{name_of(namespace)}: does not enforce restricted"


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
    """A window has one owner: two pods would acknowledge events that the other does not know."""
    for document in overlay.of_kind("StatefulSet"):
        spec, name = document["spec"], name_of(document)
        if spec["replicas"] != 1:
            yield f"{name}: has {spec['replicas']} replicas, expected 1"
        claims = {one["metadata"]["name"]: one["spec"] for one in spec["volumeClaimTemplates"]}
        if any(claim["accessModes"] != ["ReadWriteOncePod"] for claim in claims.values()):
            yield f"{name}: two pods may mount its volume, expected ReadWriteOncePod"
        kept = spec.get("persistentVolumeClaimRetentionPolicy", {})
        if set(kept.values()) != {"Retain"}:
            yield f"{name}: its volume may be removed with it"
        [container] = spec["template"]["spec"]["containers"]
        config = overlay.config_map("rtad-writer-config")["data"]["rtad-loader.toml"]
        state = tomllib.loads(config)["state_dir"]
        if [one["name"] for one in container["volumeMounts"] if one["mountPath"] == state] != [
            *claims
        ]:
            yield f"{name}: state_dir {state} is not on its volume"
        flags = dict(word.split("=", 1) for word in container["args"])
        grace = spec["template"]["spec"]["terminationGracePeriodSeconds"]
        if grace < seconds(flags["--drain-timeout"]) + CHECKPOINT:
            yield f"{name}: is killed after {grace} s, before its last checkpoint"
        for port in container["ports"]:
            variable = {"writes": "RTAD_LOADER_LISTEN", "admin": "RTAD_LOADER_ADMIN_LISTEN"}
            listens = overlay.environment(container)[variable[port["name"]]]
            if listens != f"0.0.0.0:{port['containerPort']}":
                yield f"{name}: port {port['name']} is {port['containerPort']}, and rtad-loader listens on {listens}"
        labels = spec["template"]["metadata"]["labels"]
        for budget in overlay.of_kind("PodDisruptionBudget"):
            if matches(budget["spec"]["selector"], labels):
                yield f"{name}: {name_of(budget)} blocks every drain of its node"
        for scaler in overlay.of_kind("HorizontalPodAutoscaler"):
            if scaler["spec"]["scaleTargetRef"]["kind"] == "StatefulSet":
                yield f"{name}: {name_of(scaler)} adds owners"


def jobs(overlay):
    longest = max((job["activeDeadlineSeconds"] for _, job, _ in overlay.pods() if job), default=0)
    for document, job, template in overlay.pods():
        if not job:
            continue
        name = name_of(document)
        if document["kind"] == "CronJob" and document["spec"]["concurrencyPolicy"] != "Forbid":
            yield f"{name}: runs may overlap"
        if template["spec"]["restartPolicy"] != "Never" or not job["activeDeadlineSeconds"]:
            yield f"{name}: has no deadline, or its log is removed too early"
        container = template["spec"]["containers"][0]
        if job.get("completionMode") == "Indexed":
            count = job["completions"]
            if (
                count != job["parallelism"]
                or str(count) != overlay.environment(container)["WORKERS"]
            ):
                yield f"{name}: not all of its {count} workers run at once"
            if count > 16 or math.log2(count) % 1:
                yield f"{name}: {count} is not a power of two up to 16"
        for word in overlay.command(container):
            if word.startswith("--min-age=") and seconds(word.partition("=")[2]) <= longest:
                yield f"{name}: a build may take {longest} s, but {word} removes its files earlier"


def images(overlay):
    used = {container["image"] for _, _, container in overlay.containers()}
    if len(used) != 1 or any(
        ":" not in image.rpartition("/")[2] or image.endswith(":latest") for image in used
    ):
        yield f"the images are {sorted(used)}: expected one, with a version tag"


def namespaces(overlay):
    [namespace] = [document["metadata"]["name"] for document in overlay.of_kind("Namespace")]
    for document in overlay.documents:
        if document["kind"] != "Namespace" and document["metadata"].get("namespace") != namespace:
            yield f"{name_of(document)}: is not in namespace {namespace}"


def sizes(overlay):
    """`kubectl apply` stores the manifest in an annotation, whose size is limited."""
    for document in overlay.documents:
        if len(json.dumps(document)) > 250_000:
            yield f"{name_of(document)}: is too large for kubectl apply"


RULES = [
    schema,
    monitors,
    selectors,
    references,
    restricted,
    resources,
    scaling,
    owners,
    jobs,
    images,
    namespaces,
    sizes,
]


def problems(overlay, rules=None):
    return [problem for rule in rules or RULES for problem in rule(overlay)]
