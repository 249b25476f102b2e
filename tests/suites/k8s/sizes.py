"""What must hold between an overlay, the config that is in effect in it, and what `rtad-loader
plan` computes."""

import json

from suites.k8s.rendered import name_of, quantity, seconds
from suites.testkit.programs import loader

# docs/guides/size-a-fleet.md and docs/explanation/performance.md: beside snapshots, and for each connection
# that was busy.
BESIDE = {"whole": 100e6, "rolling": 150e6}
CONNECTION = 16e3
# What closes connections that outlived the drain, and ends.
AFTER_DRAIN = 5


def plan(keys):
    return json.loads(loader("plan", "--keys", keys, "--filter", "block512", "--json"))["filters"][
        0
    ]


def sized_for(document):
    return int(document["metadata"]["annotations"]["rtad-sized-for-keys"])


def serving(overlay, config):
    document = overlay.one("Deployment", "rtad")
    spec = document["spec"]["template"]["spec"]
    [container] = spec["containers"]
    server, store, limits = config["server"], config["store"], container["resources"]["limits"]

    listens = {"decisions": server["listen"], "admin": server["admin_listen"]}
    for port in container["ports"]:
        if listens.get(port["name"]) not in (
            f"0.0.0.0:{port['containerPort']}",
            f"[::]:{port['containerPort']}",
        ):
            yield f"port {port['name']} is {port['containerPort']}, and rtad listens on {listens.get(port['name'])}"
    if server["workers"] > quantity(limits["cpu"]):
        yield f"{server['workers']} workers on {limits['cpu']} CPUs"

    sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    needed = sleep + seconds(server["drain_timeout"]) + AFTER_DRAIN
    if spec["terminationGracePeriodSeconds"] < needed:
        yield f"is killed after {spec['terminationGracePeriodSeconds']} s, and takes up to {needed:g}"

    planned, swap = plan(sized_for(document)), store["swap"]
    snapshots = planned["swap_memory_bytes"] if swap == "whole" else planned["memory_bytes"]
    needed = snapshots + BESIDE[swap] + server["max_connections"] * CONNECTION
    if quantity(limits["memory"]) < needed:
        yield f"has {limits['memory']} of memory, and takes {needed / (1 << 30):.2f}Gi with swap {swap}"
    if planned["disk_bytes"] > quantity(store["max_snapshot_size"].removesuffix("B")):
        yield f"refuses a snapshot of {sized_for(document)} keys, for store.max_snapshot_size"
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    places = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    cache = places.get(store.get("cache_dir"), {}).get("emptyDir")
    if cache is None:
        yield f"the cache {store.get('cache_dir')} is no emptyDir"
    elif quantity(cache["sizeLimit"]) < 2 * planned["disk_bytes"]:
        yield f"the cache has {cache['sizeLimit']}, and two snapshots take {2 * planned['disk_bytes'] / (1 << 30):.2f}Gi"


def building(overlay):
    """A tenth above `--memory` at most, and 16 bytes on disk for each id, twice that at worst; of a
    build over several pods each takes as much memory for its part, and all together as much of the
    disk."""
    for document, job, template in overlay.pods():
        [container] = template["spec"]["containers"]
        words, place = overlay.command(container), name_of(document)
        memory = quantity(container["resources"]["limits"]["memory"])
        if words[:2] == ["rtad-loader", "build"]:
            flags = dict(
                word.split("=", 1) for word in words if word.startswith("--") and "=" in word
            )
            if memory < 1.1 * quantity(flags["--memory"].removesuffix("B")):
                yield f"{place}: has {container['resources']['limits']['memory']} of memory for --memory {flags['--memory']}"
            [mount] = [
                one
                for one in container["volumeMounts"]
                if flags["--spill-dir"].startswith(one["mountPath"] + "/")
            ]
            [volume] = [one for one in template["spec"]["volumes"] if one["name"] == mount["name"]]
            if quantity(volume["emptyDir"]["sizeLimit"]) < 32 * sized_for(document):
                yield f"{place}: {volume['emptyDir']['sizeLimit']} of scratch for {sized_for(document)} keys"
        if job and job.get("completionMode") == "Indexed":
            keys = sized_for(document)
            if memory < 32 * keys / job["completions"] + 500e6:
                yield f"{place}: {memory / (1 << 30):g}Gi of memory for {keys} keys on {job['completions']} workers"
            shared = overlay.one("PersistentVolumeClaim", "rtad-build-shared")["spec"]["resources"][
                "requests"
            ]["storage"]
            if quantity(shared) < 32 * keys:
                yield f"{place}: its volume is too small for {keys} keys"
