"""A model of strategies, written from docs/guides and docs/reference alone.

It reads a config as its author wrote it: the tables of the TOML file. Conditions are True, False,
or None for unknown.
"""

import copy
import hashlib
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

from suites.rules.schedules import holds_at, next_change, period, seconds

# Keys of an entry of values that are no numbers.
CONDITIONS = ("audience", "tier", "bucket")
UNIT = ["oaid", "idfa", "gaid", "imei", "caid", "android_id", "openid", "md5"]
MOST_IDS = 64
# Attributes that belong to a request and not to its device.
OF_A_SLOT = {"app", "slot", "region", "request_type"}
HOUR = 3_600
MINUTE = 60


@dataclass
class Request:
    """One device, and what else a request carries for its decisions."""

    # The usable ids as kind and md5, in the order of the request.
    ids: list
    attributes: dict = field(default_factory=dict)
    # The kind of id by which the platform caches answers.
    cached_kind: str | None = None
    # Whether no id of it is read, as those of a body that does not parse.
    is_unread: bool = False

    @cached_property
    def md5s(self):
        """The first md5s, each once."""
        return list(dict.fromkeys(md5 for _, md5 in self.ids))[:MOST_IDS]

    @cached_property
    def has_unread(self):
        return len({md5 for _, md5 in self.ids}) > MOST_IDS

    def first_of(self, kinds):
        """The md5 of the first of these kinds that the device has."""
        for kind in kinds:
            for found, md5 in self.ids:
                if found == kind and md5 in self.md5s:
                    return md5
        return None


class Facts(NamedTuple):
    """The device in each audience and in each experiment."""

    members: dict
    values: dict
    parts: dict


class Decision(NamedTuple):
    strategy: str
    bid: bool
    reason: str
    # Numbers of the bid, part of each experiment, and the deciding bucket's tag and number.
    value: dict
    buckets: dict
    tag: tuple
    is_shadow: bool
    # What the strategy's cap says of the device: `admitted`, `capped`, or None without a cap.
    cap: str | None
    is_scheduled: bool | None
    # Whether it depends on an audience or an attribute that is missing.
    lacks_fact: bool


@lru_cache(maxsize=1 << 20)
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


def leaves(when):
    """The audiences, attributes and experiments that a condition names."""
    found = {"audience": set(), "attribute": set(), "experiment": set()}
    if isinstance(when, str):
        return found | {"audience": {when}}
    for key, value in when.items():
        if key in ("any", "all", "none"):
            for one in value:
                for kind, names in leaves(one).items():
                    found[kind] |= names
        elif key == "audience":
            found["audience"].add(value)
        elif key == "bucket":
            found["experiment"] |= {one.split(":")[0] for one in as_list(value)}
        else:
            found["attribute"].add(value if key == "absent" else key)
    return found


class Model:
    def __init__(self, config, store):
        """`store` has the md5s of each audience, those with a value, and the time of the builds."""
        self.config, self.store = config, store
        self.audiences = [one["name"] for one in config["audience"]]
        self.experiments = {one["name"]: one for one in config.get("experiment", [])}
        self.strategies = {one["name"]: one for one in config["strategy"]}
        self.caps = {one["name"]: one for one in config.get("cap", [])}
        self.zone = config.get("time_zone")
        self.named = {name: self.names_of(one) for name, one in self.strategies.items()}
        # Devices counted in each period, by cap; or what a log says of a device, by cap.
        self.counted = {name: {} for name in self.caps}
        self.logged_caps = self.now = None

    def set_clock(self, now):
        """Sets the time, a datetime in UTC."""
        self.now = now
        self.unavailable = set(self.audiences) - self.store.members.keys()
        age = (now - self.store.built).total_seconds()
        for one in self.config["audience"]:
            if "max_age" in one and age >= seconds(one["max_age"]):
                self.unavailable.add(one["name"])
        strategies, caps = self.strategies.items(), self.caps.items()
        self.schedule_holds = {name: holds_at(one, self.zone, now) for name, one in strategies}
        self.changes = {name: next_change(one, self.zone, now) for name, one in strategies}
        self.periods = {name: period(one, self.zone, now) for name, one in caps}

    def with_schedules_of(self, at):
        """A copy of the model that decides by the schedules of another time."""
        found = copy.copy(self)
        strategies = self.strategies.items()
        found.schedule_holds = {name: holds_at(one, self.zone, at) for name, one in strategies}
        return found

    @staticmethod
    def names_of(strategy):
        found = leaves(strategy["when"]) if "when" in strategy else leaves({})
        found["when"] = found["audience"] | set(strategy.get("exclude", []))
        values = strategy.get("value", [])
        found["experiment"] |= {one["bucket"].split(":")[0] for one in values if "bucket" in one}
        return found

    def facts(self, request):
        members = {name: self.is_member(name, request) for name in self.audiences}
        values = {name: self.value_in(name, request) for name in self.audiences}
        parts = {name: self.part(one, request) for name, one in self.experiments.items()}
        return Facts(members, values, parts)

    def is_member(self, audience, request):
        if audience in self.unavailable:
            return None
        if any(md5 in self.store.members[audience] for md5 in request.md5s):
            return True
        return None if request.has_unread else False

    def value_in(self, audience, request):
        """The greatest value of the device's ids."""
        values = self.store.values.get(audience, {})
        return max((values[md5] for md5 in request.md5s if md5 in values), default=None)

    def unit(self, experiment, request):
        return request.first_of([request.cached_kind, *experiment.get("unit", UNIT)])

    def part(self, experiment, request):
        """The bucket, or `none`; None if an unread id may decide."""
        if request.has_unread or request.is_unread:
            return None
        unit = self.unit(experiment, request)
        if unit is None:
            return "none"
        layer, slot = slots(experiment, unit)
        if "traffic" in experiment and not in_ranges(layer, experiment["traffic"]):
            return "none"
        found = [one["name"] for one in experiment["buckets"] if in_ranges(slot, one["slots"])]
        return found[0] if found else "none"

    def fits(self, entry, request, facts):
        """Whether each condition of an entry of values holds; an entry without any fits all."""
        truths = []
        if "audience" in entry:
            truths.append(self.is_in(entry, request, facts))
        if "bucket" in entry:
            experiment, part = entry["bucket"].split(":")
            found = facts.parts[experiment]
            truths.append(None if found is None else found == part)
        return all_of(truths)

    def is_in(self, entry, request, facts):
        """Whether the device is in the entry's audience, with a value in its tier."""
        is_member = facts.members[entry["audience"]]
        if not is_member or "tier" not in entry:
            return is_member
        if request.has_unread:
            # An unread id may have a greater value.
            return None
        return is_in_tier(facts.values[entry["audience"]], entry["tier"])

    def holds(self, when, request, facts, knows_buckets=True):
        """Whether a condition holds for a device."""

        def each(conditions):
            return (self.holds(one, request, facts, knows_buckets) for one in conditions)

        def key_holds(key, value):
            match key:
                case "any":
                    return any_of(each(value))
                case "all":
                    return all_of(each(value))
                case "none":
                    return negation(any_of(each(value)))
                case "audience":
                    return facts.members[value]
                case "absent":
                    return value not in request.attributes
                case "bucket":
                    if not knows_buckets:
                        return None
                    pairs = [one.split(":") for one in as_list(value)]
                    if any(facts.parts[experiment] is None for experiment, _ in pairs):
                        return None
                    return any(facts.parts[experiment] == part for experiment, part in pairs)
            found = request.attributes.get(key)
            return None if found is None else found in as_list(value)

        if isinstance(when, str):
            return facts.members[when]
        return all_of(key_holds(key, value) for key, value in when.items())

    def verdict(self, name, request, facts):
        """Whether the strategy bids, and the reason."""
        strategy = self.strategies[name]
        if self.schedule_holds[name] is False:
            return False, "not_scheduled"
        if request.is_unread:
            return strategy.get("unavailable") == "bid", "unavailable"
        if not request.ids:
            return strategy.get("no_device") == "bid", "no_device"
        exclude = strategy.get("exclude", [])
        is_excluded = any_of(facts.members[one] for one in exclude)
        # The first refusal for certain gives the reason.
        if is_excluded:
            return False, "member"
        truth, rule = True, "rule"
        if "when" in strategy:
            truth = self.holds(strategy["when"], request, facts)
            needs_buckets = self.holds(strategy["when"], request, facts, False) is None
            rule = "bucket" if needs_buckets else "rule"
        if truth is False:
            return False, rule
        if None in (is_excluded, truth):
            return strategy.get("unavailable") == "bid", "unavailable"
        return True, "not_member" if exclude else rule

    def value(self, strategy, request, facts):
        """Numbers of a bid, and whether they are known."""
        entries = strategy.get("value", [])
        default = [one for one in entries if "audience" not in one and "bucket" not in one]
        chosen, is_known = default, True
        if request.ids and not request.is_unread:
            for entry in entries:
                fits = self.fits(entry, request, facts)
                if fits is not False:
                    chosen, is_known = [entry] if fits else default, fits is True
                    break
        numbers = (chosen or [{}])[0].items()
        return {key: number for key, number in numbers if key not in CONDITIONS}, is_known

    def cap_admits(self, cap, request, counts):
        """Whether a bid is within the cap, counting its device if it `counts`."""
        if self.logged_caps is not None:
            return self.logged_caps.get(cap) != "capped"
        counted = self.counted[cap].setdefault(self.periods[cap][0], set())
        device = min(request.md5s, default=None)
        if device in counted:
            return True
        if len(counted) >= self.caps[cap]["limit"]:
            return False
        if counts and device:
            counted.add(device)
        return True

    def decide(self, names, request, facts, counts=True):
        """The decision of each strategy, by name. A device that gets a bid counts in its cap."""
        return {name: self.decide_one(name, request, facts, counts) for name in names}

    def decide_one(self, name, request, facts, counts):
        strategy = self.strategies[name]
        named = self.named[name]["experiment"]
        parts = {one: facts.parts[one] for one in self.experiments if one in named}
        bid, reason = self.verdict(name, request, facts)
        value, cap, is_known = {}, None, True
        if "cap" in strategy:
            is_admitted = self.cap_admits(strategy["cap"], request, counts and bid)
            cap = "admitted" if is_admitted else "capped"
            if bid and not is_admitted:
                bid, reason = False, "capped"
        if bid:
            value, is_known = self.value(strategy, request, facts)
        lacks_fact = reason == "unavailable" or not is_known
        is_shadow = strategy.get("shadow", False)
        scheduled = self.schedule_holds[name]
        return Decision(
            name, bid, reason, value, parts, self.tag(parts), is_shadow, cap, scheduled, lacks_fact
        )

    def tag(self, parts):
        """Text and number of the first experiment's bucket that has a tag."""
        for name, part in parts.items():
            for bucket in self.experiments[name]["buckets"]:
                has_tag = "tag" in bucket or "tag_number" in bucket
                if bucket["name"] == part and has_tag:
                    return bucket.get("tag", ""), bucket.get("tag_number", 0)
        return "", 0

    def cache_time(self, platform, decisions):
        """Seconds for which a platform may keep an answer of these decisions, or None."""
        bids = any(one.bid for one in decisions)
        if not decisions or any(one.lacks_fact for one in decisions):
            return None
        longest = platform.get("bid_cache" if bids else "no_bid_cache")
        longest = seconds(longest) if longest else None
        refused = [one for one in decisions if one.reason in ("capped", "not_scheduled")]
        if longest is None and refused and not bids:
            longest = HOUR
        if longest is None:
            return None
        ends = [longest]
        for one in decisions:
            change = self.changes[one.strategy]
            if change:
                ends.append(int((change - self.now).total_seconds()))
            if one.reason == "not_scheduled":
                continue
            if cap := self.strategies[one.strategy].get("cap"):
                ends.append(int((self.periods[cap][1] - self.now).total_seconds()))
            if one.reason == "capped":
                # All of the cap has been granted for less than two minutes.
                ends.append(MINUTE)
            if self.named[one.strategy]["attribute"] & OF_A_SLOT:
                ends.append(1)
        return max(1, min(ends))
