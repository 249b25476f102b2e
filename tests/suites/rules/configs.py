"""Random configs, and their TOML."""

import json
import re
import subprocess

from suites.testkit.programs import RTAD

PUBLISHED = ["a", "b", "c", "d", "e"]
# Those of them whose members have values.
SCORED = ["a", "b"]
# In no store.
MISSING = ["m", "n"]
AUDIENCES = PUBLISHED + MISSING
# The config before the random ones.
START = {
    "audience": [{"name": one, "required": one in PUBLISHED} for one in AUDIENCES],
    "strategy": [{"name": "start", "exclude": PUBLISHED}],
}
VALUES = {
    "os": ["ios", "android", "harmony"],
    "app": ["11", "12"],
    "slot": ["7", "8", "9"],
    "region": ["31", "32"],
    "request_type": ["normal", "click", "ads"],
}
SLOTS = 10_000
UNITS = [["imei"], ["android_id", "oaid"], ["mac", "md5", "idfa"]]
PAST, FUTURE = "2001-02-03T04:05:06+08:00", "2199-12-31T00:00:00-05:00"
STRATEGIES = 10
PARTS = ["p", "q", "holdout", "none"]


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def write(config, path):
    lines = ["[server.api]", "public = true", "[store]", 'url = "store"']
    for table, entries in config.items():
        for entry in entries:
            lines.append(f"[[{table}]]")
            lines += [f"{key} = {toml(value)}" for key, value in entry.items()]
    path.write_text("\n".join(lines) + "\n")


def cut(random, count):
    """Ascending bounds of `count` ranges of slots."""
    bounds = sorted(random.sample(range(1, SLOTS), 2 * count - 1))
    return [f"{first}..{end}" for first, end in zip([0, *bounds[1::2]], bounds[::2], strict=True)]


def random_experiments(random, number):
    """Three experiments, two of which may share a layer. Their names contain the number of the
    config, as a reload refuses another experiment of the same name."""
    traffic = cut(random, 2)
    is_shared = random.random() < 0.7
    shared_unit = random.choice([None, *UNITS])
    found = []
    for index in range(3):
        one = {"name": f"x{number}-{index}"}
        if index < 2 and is_shared:
            one |= {"layer": "shared", "traffic": traffic[index]}
        elif random.random() < 0.5:
            one["traffic"] = traffic
        unit = shared_unit if "layer" in one else random.choice([None, *UNITS])
        if unit:
            one["unit"] = unit
        one["buckets"] = random_buckets(random, index)
        found.append(one)
    return found


def random_buckets(random, index):
    ranges = cut(random, 4)
    buckets = [{"name": "p", "slots": [ranges[0], ranges[2]]}, {"name": "q", "slots": ranges[1]}]
    buckets.append({"name": "holdout", "slots": ranges[3]})
    for number, bucket in enumerate(buckets):
        if random.random() < 0.6:
            bucket["tag"] = f"t{index}-{bucket['name']}"
        if random.random() < 0.6:
            bucket["tag_number"] = index * 3 + number + 1
    return buckets


def random_leaf(random, experiments):
    key = random.choice(["audience"] * 3 + ["text"] * 3 + ["bucket"] * 4 + ["attribute"] * 2)
    if key == "text":
        return random.choice(AUDIENCES)
    if key == "audience":
        return {"audience": random.choice(AUDIENCES)}
    if key == "bucket":
        named = random.choice(experiments)
        some = random.sample(PARTS, random.choice([1, 1, 2]))
        return {"bucket": [f"{named['name']}:{part}" for part in some]}
    name = random.choice(list(VALUES))
    if random.random() < 0.3:
        return {"absent": name}
    return {name: random.sample(VALUES[name], random.choice([1, 2]))}


def random_condition(random, experiments, depth=0):
    if depth == 3 or random.random() < 0.4 * depth:
        return random_leaf(random, experiments)
    found = {}
    for key in random.sample(["any", "all", "none"], random.choice([1, 1, 2])):
        count = random.choice([1, 2, 2, 3])
        found[key] = [random_condition(random, experiments, depth + 1) for _ in range(count)]
    if random.random() < 0.3:
        leaf = random_leaf(random, experiments)
        found |= leaf if isinstance(leaf, dict) else {"audience": leaf}
    return found


def random_entries(random, audience):
    """The audience alone, or with one or two tiers, which do not overlap."""
    low, high = sorted(random.sample(range(16), 2))
    ranges = [f"{low}..={high}", f"{high}..", f"..={low}", str(low), "none"]
    some = random.choice([[], [], ranges[:1], ranges[1:3], ranges[2:4:2], ranges[3:]])
    last = [{"audience": audience}] if not some or random.random() < 0.5 else []
    return [{"audience": audience, "tier": one} for one in some] + last


def random_part(random, experiments):
    named = random.choice(experiments)
    return f"{named['name']}:{random.choice(PARTS)}"


def covers(one, other):
    """Whether each device that fits an entry of values fits another."""
    return all(other.get(key) == value for key, value in one.items())


def random_values(random, experiments):
    def numbers():
        every = {
            "weight": random.choice([0.2, 0.75, 1.0, 3.3, 5.0]),
            "cpa_price": random.randrange(1, 10_000),
            "cpc_price": random.randrange(10, 500),
            "cpc_factor": random.choice([0.2, 0.4, 2.5, 5.0]),
            "quality": random.choice([0.5, 7.0, 100.0]),
        }
        return {key: every[key] for key in random.sample(list(every), random.choice([1, 2, 3]))}

    named = random.sample(AUDIENCES, random.choice([1, 2, 3]))
    keys = [one for name in named for one in random_entries(random, name)]
    for one in keys:
        if random.random() < 0.4:
            one["bucket"] = random_part(random, experiments)
    keys += [{"bucket": random_part(random, experiments)} for _ in range(random.choice([0, 1, 2]))]
    random.shuffle(keys)
    # An entry comes after those that it covers.
    keys.sort(key=lambda one: -len(one))
    entries = []
    for one in keys:
        if not any(covers(earlier, one) for earlier in entries):
            entries.append(one)
    entries = [one | numbers() for one in entries]
    return entries + ([numbers()] if random.random() < 0.6 else [])


def random_strategy(random, experiments, index):
    found = {"name": f"s{index}"}
    has_when = random.random() < 0.75
    if has_when:
        found["when"] = random_condition(random, experiments)
    if not has_when or random.random() < 0.3:
        found["exclude"] = random.sample(AUDIENCES, random.choice([1, 2]))
    if random.random() < 0.6:
        found["value"] = random_values(random, experiments)
    for key in ("no_device", "unavailable"):
        if random.random() < 0.5:
            found[key] = random.choice(["bid", "no_bid"])
    if random.random() < 0.15:
        found["shadow"] = True
    if random.random() < 0.2:
        found["valid_from"] = random.choice([PAST, PAST, FUTURE])
    elif random.random() < 0.2:
        found["valid_until"] = random.choice([FUTURE, FUTURE, PAST])
    return found


def random_config(random, number, path):
    """Writes a config that rtad accepts, and returns it. The checks refuse strategies with values or
    conditions of excluded audiences; these are left out."""
    experiments = random_experiments(random, number)
    strategies = [random_strategy(random, experiments, index) for index in range(STRATEGIES)]
    while True:
        config = START | {"experiment": experiments, "strategy": strategies}
        names = [one["name"] for one in strategies]
        config["platform"] = [
            platform("tencent", {f"T{name}": name for name in names}),
            platform("ocean", {str(100 + int(name[1:])): name for name in names}),
        ]
        write(config, path)
        done = subprocess.run([RTAD, "check-config", path], capture_output=True, text=True)
        if done.returncode == 0:
            return config
        refused = set(re.findall(r'\[\[strategy\]\] "(\w+)"', done.stdout + done.stderr))
        left = [one for one in strategies if one["name"] not in refused]
        assert refused and len(left) < len(strategies), done.stdout + done.stderr
        strategies = left


def platform(kind, strategies):
    return {"kind": kind, "name": kind, "path": f"/rta/{kind}", "strategies": strategies}
