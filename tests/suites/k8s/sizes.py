"""Size rules: an overlay compared with its effective config and with `rtad-loader plan`."""

import json

from suites.k8s.rendered import name_of, quantity, seconds
from suites.testkit.programs import loader

# Memory besides snapshots, and per connection: docs/guides/size-a-fleet.md.
BESIDE = {"whole": 50e6, "rolling": 100e6}
CONNECTION = 19e3
# Time to close the remaining connections after the drain, and to exit.
AFTER_DRAIN = 5


def plan(keys):
    [block512, _] = json.loads(loader("plan", "--keys", keys, "--json"))["filters"]
    return block512


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
        yield f"is killed after {spec['terminationGracePeriodSeconds']} s, but needs up to {needed:g}"

    planned, swap = plan(sized_for(document)), store["swap"]
    snapshots = planned["swap_memory_bytes"] if swap == "whole" else planned["memory_bytes"]
    buffered = 3 * quantity(server["max_buffered"].removesuffix("B"))
    needed = snapshots + BESIDE[swap] + server["max_connections"] * CONNECTION + buffered
    if quantity(limits["memory"]) < needed:
        yield f"has {limits['memory']} of memory, but needs {needed / (1 << 30):.2f}Gi with swap {swap}"
    if planned["disk_bytes"] > quantity(store["max_snapshot_size"].removesuffix("B")):
        yield f"refuses a snapshot of {sized_for(document)} keys, for store.max_snapshot_size"
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    paths = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    cache = paths.get(store.get("cache_dir"), {}).get("emptyDir")
    if cache is None:
        yield f"the cache {store.get('cache_dir')} is no emptyDir"
    elif quantity(cache["sizeLimit"]) < 2 * planned["disk_bytes"]:
        yield f"the cache has {cache['sizeLimit']}, but two snapshots need {2 * planned['disk_bytes'] / (1 << 30):.2f}Gi"


def building(overlay):
    """Builds: memory up to 10 % above `--memory`, and 16 to 32 bytes of disk per id."""
    for document, _, template in overlay.pods():
        [container] = template["spec"]["containers"]
        words, name = overlay.command(container), name_of(document)
        memory = quantity(container["resources"]["limits"]["memory"])
        if words[:2] == ["rtad-loader", "build"]:
            flags = dict(
                word.split("=", 1) for word in words if word.startswith("--") and "=" in word
            )
            if memory < 1.1 * quantity(flags["--memory"].removesuffix("B")):
                yield f"{name}: has {container['resources']['limits']['memory']} of memory for --memory {flags['--memory']}"
            folder = overlay.environment(container)["TMPDIR"]
            [mount] = [one for one in container["volumeMounts"] if one["mountPath"] == folder]
            [volume] = [one for one in template["spec"]["volumes"] if one["name"] == mount["name"]]
            if quantity(volume["emptyDir"]["sizeLimit"]) < 32 * sized_for(document):
                yield f"{name}: {volume['emptyDir']['sizeLimit']} of scratch for {sized_for(document)} keys"
