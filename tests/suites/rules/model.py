"""A model of strategies, written from docs/guides and docs/reference alone.

It reads a config as its author wrote it: the tables of the TOML file. Conditions are True, False,
or None for unknown.
"""

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

# Keys of an entry of values that are no numbers.
CONDITIONS = ("audience", "tier", "bucket")
UNIT = ["oaid", "idfa", "gaid", "imei", "caid", "android_id", "openid", "md5"]


@dataclass
class Request:
    """The usable ids of a device, as kind and md5, and what else a request carries."""

    ids: dict
    attributes: dict = field(default_factory=dict)
    # The kind of id by which the platform caches answers.
    cached_kind: str | None = None


class Decision(NamedTuple):
    bid: bool
    reason: str
    # Numbers of the bid, part of each experiment, and the deciding bucket's tag and number.
    value: dict
    buckets: dict
    tag: tuple


def slot_of(salt, unit):
    return int(hashlib.md5(f"{salt}-{unit}".encode()).hexdigest()[:8], 16) % 10_000


def slots(experiment, unit):
    """Slot of the layer and slot of the buckets."""
    layer = experiment.get("layer", f"{experiment['name']}-layer")
    return slot_of(layer, unit), slot_of(experiment["name"], unit)


def in_ranges(slot, ranges):
    bounds = [one.split("..") for one in ([ranges] if isinstance(ranges, str) else ranges)]
    return any(int(first) <= slot < int(end) for first, end in bounds)


def is_in_tier(value, tier):
    """Whether a value from 0 to 15, or none, is in a tier."""
    if value is None or tier == "none":
        return value is None and tier == "none"
    if ".." not in tier:
        return value == int(tier)
    first, last = tier.split("..")
    return int(first or 0) <= value <= int(last.removeprefix("=") or 15)


def as_list(value):
    return value if isinstance(value, list) else [value]


def any_of(truths):
    found = False
    for truth in truths:
        if truth:
            return True
        found = None if truth is None else found
    return found


def negation(truth):
    return None if truth is None else not truth


def all_of(truths):
    return negation(any_of(negation(one) for one in truths))


class Model:
    def __init__(self, config, members, values):
        """`members` has the md5s of each audience in the store, `values` those with a value."""
        self.members, self.values = members, values
        self.experiments = {one["name"]: one for one in config.get("experiment", [])}
        self.strategies = {one["name"]: one for one in config["strategy"]}

    def is_shadow(self, name):
        return self.strategies[name].get("shadow", False)

    def is_member(self, audience, request):
        if audience not in self.members:
            return None
        return any(md5 in self.members[audience] for md5 in request.ids.values())

    def fits(self, entry, request):
        """Whether each condition of an entry of values holds; an entry without any fits all."""
        truths = []
        if "audience" in entry:
            truths.append(self.is_in(entry, request))
        if "bucket" in entry:
            experiment, part = entry["bucket"].split(":")
            truths.append(self.part(self.experiments[experiment], request) == part)
        return all_of(truths)

    def is_in(self, entry, request):
        """Whether the device is in the entry's audience, with a value in its tier."""
        is_member = self.is_member(entry["audience"], request)
        if not is_member or "tier" not in entry:
            return is_member
        values = self.values.get(entry["audience"], {})
        greatest = max((values[md5] for md5 in request.ids.values() if md5 in values), default=None)
        return is_in_tier(greatest, entry["tier"])

    def part(self, experiment, request):
        """The bucket, or `none`."""
        kinds = [request.cached_kind, *experiment.get("unit", UNIT)]
        unit = next((request.ids[kind] for kind in kinds if kind in request.ids), None)
        if unit is None:
            return "none"
        layer, slot = slots(experiment, unit)
        if "traffic" in experiment and not in_ranges(layer, experiment["traffic"]):
            return "none"
        found = [one["name"] for one in experiment["buckets"] if in_ranges(slot, one["slots"])]
        return found[0] if found else "none"

    def holds(self, when, request, parts):
        """Whether a condition holds for a device with these parts of experiments."""

        def each(conditions):
            return (self.holds(one, request, parts) for one in conditions)

        def key_holds(key, value):
            match key:
                case "any":
                    return any_of(each(value))
                case "all":
                    return all_of(each(value))
                case "none":
                    return negation(any_of(each(value)))
                case "audience":
                    return self.is_member(value, request)
                case "absent":
                    return value not in request.attributes
                case "bucket":
                    if parts is None:
                        return None
                    pairs = [one.split(":") for one in as_list(value)]
                    return any(parts[experiment] == part for experiment, part in pairs)
            found = request.attributes.get(key)
            return None if found is None else found in as_list(value)

        if isinstance(when, str):
            return self.is_member(when, request)
        return all_of(key_holds(key, value) for key, value in when.items())

    def bucket_decides(self, when, request):
        """Whether the condition would be unknown without the device's buckets."""
        return self.holds(when, request, None) is None

    def verdict(self, strategy, request, parts):
        """Whether it bids, and the reason."""
        now = datetime.now(UTC)
        begin, end = (strategy.get(key) for key in ("valid_from", "valid_until"))
        if begin and now < datetime.fromisoformat(begin):
            return False, "not_scheduled"
        if end and now >= datetime.fromisoformat(end):
            return False, "not_scheduled"
        if not request.ids:
            return strategy.get("no_device") == "bid", "no_device"
        exclude = strategy.get("exclude", [])
        is_excluded = any_of(self.is_member(one, request) for one in exclude)
        # The first refusal for certain gives the reason.
        if is_excluded:
            return False, "member"
        truth, rule = True, "rule"
        if "when" in strategy:
            truth = self.holds(strategy["when"], request, parts)
            decides = truth is not None and self.bucket_decides(strategy["when"], request)
            rule = "bucket" if decides else "rule"
        if truth is False:
            return False, rule
        if None in (is_excluded, truth):
            return strategy.get("unavailable") == "bid", "unavailable"
        return True, "not_member" if exclude else rule

    def value(self, strategy, request):
        """Numbers of a bid."""
        entries = strategy.get("value", [])
        default = [one for one in entries if "audience" not in one and "bucket" not in one]
        chosen = default
        if request.ids:
            for entry in entries:
                fits = self.fits(entry, request)
                if fits is not False:
                    chosen = [entry] if fits else default
                    break
        numbers = (chosen or [{}])[0].items()
        return {key: number for key, number in numbers if key not in CONDITIONS}

    def decide(self, name, request):
        strategy = self.strategies[name]
        named = experiments_of(strategy.get("when", {}))
        values = strategy.get("value", [])
        named |= {one["bucket"].split(":")[0] for one in values if "bucket" in one}
        order = [one for one in self.experiments if one in named]
        parts = {one: self.part(self.experiments[one], request) for one in order}
        bid, reason = self.verdict(strategy, request, parts)
        value = self.value(strategy, request) if bid else {}
        return Decision(bid, reason, value, parts, self.tag(parts))

    def tag(self, parts):
        """Text and number of the first experiment's bucket that has a tag."""
        for name, part in parts.items():
            for bucket in self.experiments[name]["buckets"]:
                has_tag = "tag" in bucket or "tag_number" in bucket
                if bucket["name"] == part and has_tag:
                    return bucket.get("tag", ""), bucket.get("tag_number", 0)
        return "", 0


def experiments_of(when):
    """Experiments that a condition names."""
    if isinstance(when, str):
        return set()
    nested = [one for key in ("any", "all", "none") for one in when.get(key, [])]
    own = {one.split(":")[0] for one in as_list(when.get("bucket", []))}
    return own.union(*map(experiments_of, nested))
