"""Random configs, and their TOML."""

import json
import re
import subprocess
import tomllib
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from random import Random

from suites.rules.schedules import DAYS, transitions
from suites.testkit import pages
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
LOG_SECRET, KUAISHOU_SECRET = "0123456789abcdef", "the-secret-of-kuaishou"
SERVER = {"server.api": {"public": True}, "store": {"url": "store"}}
LOG = {"to": "log", "key_secret_file": "log.key", "sample": 1.0, "max_rate": 10_000_000}
LOG |= {"max_age": "1h", "retention": "3660d"}
VALUES = {
    "os": ["ios", "android", "harmony"],
    "app": ["11", "12"],
    "slot": ["7", "8", "9"],
    "region": ["31", "32"],
    "request_type": ["normal", "click", "ads"],
}
SLOTS = 10_000
UNITS = [["imei"], ["android_id", "oaid"], ["mac", "md5", "idfa"]]
ZONES = ["America/New_York", "America/St_Johns", "Asia/Kathmandu", "Asia/Shanghai"]
ZONES += ["Australia/Lord_Howe", "Europe/Berlin", "Pacific/Auckland", "UTC"]
SCHEDULE = ["valid_from", "valid_until", "days", "hours", "time_zone"]
STRATEGIES = 10
PARTS = ["p", "q", "holdout", "none"]


def toml_key(key):
    return key if re.fullmatch(r"\w+", key) else json.dumps(key)


def toml(value):
    if isinstance(value, dict):
        pairs = (f"{toml_key(key)} = {toml(one)}" for key, one in value.items())
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def write(config, path):
    lines = [f'time_zone = "{config["time_zone"]}"'] if "time_zone" in config else []
    for table, keys in {**SERVER, "log": LOG}.items():
        lines += [f"[{table}]", *(f"{key} = {toml(value)}" for key, value in keys.items())]
    for table, entries in config.items():
        for entry in entries if table != "time_zone" else []:
            lines.append(f"[[{table}]]")
            lines += [f"{toml_key(key)} = {toml(value)}" for key, value in entry.items()]
    path.write_text("\n".join(lines) + "\n")


def config_id(path):
    """Its name in the decision log."""
    return sha256(path.read_bytes()).hexdigest()[:16]


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


def random_hours(random):
    """Hours of the clock, of which some are over midnight."""
    begin, end = random.sample(range(0, 24 * 4), 2)
    texts = [f"{one // 4:02}:{one % 4 * 15:02}" for one in (begin, end)]
    return "-".join([texts[0], random.choice([texts[1], texts[1], texts[1], "24:00"])])


def random_schedule(random, now):
    """Times around an instant, so that some hold and some end soon."""
    found = {}
    if random.random() < 0.5:
        # A long interval before or after now, or around it.
        some = [now + timedelta(minutes=random.randrange(-3_000, 3_000)) for _ in range(2)]
        for key, one in zip(("valid_from", "valid_until"), sorted(some), strict=True):
            if random.random() < 0.6:
                offset = timedelta(minutes=random.choice([-210, 0, 330, 480]))
                found[key] = (one + offset).strftime("%Y-%m-%dT%H:%M:%S") + offset_text(offset)
    if random.random() < 0.5:
        found["days"] = random.sample(DAYS, random.choice([3, 5]))
    if random.random() < 0.6:
        found["hours"] = [random_hours(random) for _ in range(random.choice([1, 1, 2]))]
    if ("days" in found or "hours" in found) and random.random() < 0.7:
        found["time_zone"] = random.choice(ZONES)
    return found


def offset_text(offset):
    minutes = int(offset.total_seconds()) // 60
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


def random_moments(random, begin, count):
    """Ascending instants in the year after `begin`: half of them near a change of a clock."""
    end, found = begin + timedelta(days=364), []
    for _ in range(count):
        one = begin + timedelta(seconds=random.randrange(364 * 86_400))
        if random.random() < 0.5:
            changes = transitions(random.choice([*ZONES[:2], *ZONES[4:7]]), begin, end)
            one = random.choice(changes) + timedelta(minutes=random.randrange(-1_500, 1_500))
        found.append(min(max(one, begin), end))
    return sorted(found)


def random_rule(random, experiments):
    """The keys of a strategy that decide by device and request."""
    found = {}
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
    return found


def random_strategy(random, experiments, caps, now, index):
    found = {"name": f"s{index}"} | random_rule(random, experiments)
    if random.random() < 0.15:
        found["shadow"] = True
    if random.random() < 0.3:
        found |= random_schedule(random, now)
    if random.random() < 0.4:
        # A strategy in shadow has a cap of its own.
        found["cap"] = caps[0 if "shadow" in found else random.choice([1, 1, 2])]["name"]
    return found


def random_caps(random, number):
    """The cap of strategies in shadow, and two others. Their names contain the number of the
    config, as a reload keeps counts. A pod is granted the smallest ones at once, and enough of the
    largest one, so that no request waits for a further block."""
    found = []
    for index in range(3):
        one = {"name": f"c{number}-{index}", "limit": random.choice([1, 2, 6_000_000])}
        one["period"] = random.choice(["hour", "day"])
        if random.random() < 0.6:
            one["time_zone"] = random.choice(ZONES)
        found.append(one)
    return found


def random_config(random, number, now, path):
    """Writes a config that rtad accepts, and returns it. The checks refuse strategies with values
    or conditions of excluded audiences; these are left out."""
    experiments, caps = random_experiments(random, number), random_caps(random, number)
    strategies = [
        random_strategy(random, experiments, caps, now, index) for index in range(STRATEGIES)
    ]
    config = START | {"time_zone": random.choice(ZONES), "experiment": experiments}
    config["audience"] = [dict(one) for one in START["audience"]]
    if random.random() < 0.5:
        config["audience"][random.randrange(2, 5)]["max_age"] = random.choice(["30d", "180d"])
    seed = random.random()
    while True:
        config["strategy"] = strategies
        used = {one["cap"] for one in strategies if "cap" in one}
        config["cap"] = [one for one in caps if one["name"] in used]
        names = [one["name"] for one in strategies]
        config["platform"] = random_platforms(Random(seed), names)
        refused = refused_strategies(config, path)
        if not refused:
            return config
        strategies = [one for one in strategies if one["name"] not in refused]


def changed_config(random, config, now, path):
    """Writes the config with other rules, times and caps of some strategies, and returns it."""
    # The first cap is that of strategies in shadow.
    caps = [one["name"] for one in config["cap"] if not one["name"].endswith("-0")]
    changed = {}
    for one in config["strategy"]:
        if random.random() < 0.4:
            continue
        other = one
        if random.random() < 0.8:
            kept = ["name", "cap", "shadow", *SCHEDULE]
            other = random_rule(random, config["experiment"])
            other |= {key: one[key] for key in kept if key in one}
        if random.random() < 0.4:
            other = {key: value for key, value in other.items() if key not in SCHEDULE}
            other |= random_schedule(random, now)
        if random.random() < 0.4 and "shadow" not in one:
            other = {key: value for key, value in other.items() if key != "cap"}
            if cap := random.choice([None, *caps]):
                other["cap"] = cap
        changed[one["name"]] = other
    while True:
        strategies = [changed.get(one["name"], one) for one in config["strategy"]]
        refused = refused_strategies(config | {"strategy": strategies}, path)
        if not refused:
            return config | {"strategy": strategies}
        changed = {name: one for name, one in changed.items() if name not in refused}


def refused_strategies(config, path):
    """Writes a config; returns the names of the strategies that `check-config` refuses."""
    write(config, path)
    done = subprocess.run([RTAD, "check-config", path], capture_output=True, text=True)
    refused = set(re.findall(r'\[\[strategy\]\] "(\w+)"', done.stderr))
    assert done.returncode == 0 or refused, done.stderr + path.read_text()
    return refused if done.returncode else set()


def example(name):
    """The `[[platform]]` of an example of the docs."""
    text = (pages.ROOT / f"docs/examples/platforms/{name}.toml").read_text()
    [found] = tomllib.loads(text)["platform"]
    return found


JSON = {
    "kind": "custom",
    "name": "json",
    "path": "/rta/json",
    "body": "json",
    "request": {
        "request_id": "id",
        "strategies": "want",
        "attributes": {
            "os": "d.os",
            "app": "app.id",
            "slot": "slot",
            "region": "d.geo.city",
            "request_type": "type",
        },
        "os_values": {"0": "android", "1": "ios", "hm": "harmony"},
        "ids": {
            "imei": "d.imei",
            "imei_md5": "d.imei_md5",
            "oaid": ["d.oaid", "d.more.oaids"],
            "caid": "d.caids",
            "mac": "d.mac",
            "openid": "d.openid",
            "gaid_md5": "d.gaid_md5",
            "android_id": "d.android_id",
            "md5": "d.any",
        },
    },
    "response": {
        "request_id": "id",
        "code": [
            {"field": "code", "bid": 0, "no_bid": 1, "error": 9},
            {"field": "is_bid", "bid": True, "no_bid": False},
        ],
        "verdicts": {
            "list": "results",
            "strategy": "id",
            "accepted": "bid",
            **{key: key for key in ("weight", "cpa_price", "cpc_price", "cpc_factor", "quality")},
            "tag": "tag",
        },
        "accepted": "accepted",
        "first_accepted": "first",
        "cache": "ttl",
    },
}


def random_platforms(random, names):
    """Each kind of platform with the strategies, in some order, one of them under two ids."""

    def some(text):
        chosen = random.sample(names, random.randrange(1 + len(names) // 2, len(names) + 1))
        return {text(int(name[1:])): name for name in chosen} | {text(90): random.choice(names)}

    def number(digit):
        return lambda index: str(digit * 100 + index)

    alipay, huawei = example("alipay"), example("huawei")
    alipay["request"]["request_id"] = "biz_content.id"
    kuaishou = example("kuaishou")
    kuaishou["proto"] = str(pages.ROOT / "docs/examples/kuaishou.proto")
    kuaishou["signature"]["secrets"] = [{"value": KUAISHOU_SECRET}]
    alibaba = example("alibaba")
    alibaba["response"]["cache"] = "ttl"
    alibaba["request"]["attributes"] = {"os": "os"}
    found = [
        {"kind": "tencent", "name": "tencent", "path": "/rta/tencent"}
        | {"strategies": some("T{}".format)},
        {"kind": "ocean", "name": "ocean", "path": "/rta/ocean", "strategies": some(number(1))},
        kuaishou | {"strategies": some(number(10))},
        alibaba | {"strategies": some(number(5))},
        JSON | {"strategies": some("j{}".format)},
        alipay | {"strategies": some(number(6))},
        huawei | {"strategies": some(number(7))},
    ]
    for one in found:
        for key in ("bid_cache", "no_bid_cache"):
            if "cache" in one.get("response", {"cache": ""}) and random.random() < 0.6:
                one[key] = random.choice(["1s", "40m", "24h"])
    return found


def utc_now():
    return datetime.now(UTC).replace(microsecond=0)
