"""Rows of the decision log, of the model and of the files, in the same form."""

import hashlib
import hmac

import pyarrow.dataset

from suites.rules.configs import LOG_SECRET, VALUES
from suites.rules.model import slots

NUMBERS = ["weight", "cpa_price", "cpc_price", "cpc_factor", "quality"]


def device_name(md5):
    return hmac.new(LOG_SECRET.encode(), bytes.fromhex(md5), hashlib.sha256).digest()[:16]


def expected(model, protocol, sent, device, facts, decisions):
    """The row of one device."""
    row = {"platform": protocol.NAME, "failure": sent.failure, "request_id": sent.request_id}
    row |= {"asked": sent.asked} | {name: device.attributes.get(name) for name in VALUES}
    row["device"] = device_names(protocol, device)
    row["ids"] = "unread" if device.is_unread else "too_many" if device.has_unread else "all"
    if not device.ids and not device.is_unread:
        row["ids"] = "none"
    row["audiences"] = {name: audience(model, facts, name) for name in facts.members if device.ids}
    row["experiments"] = {
        name: experiment(one, facts.parts[name], model.unit(one, device))
        for name, one in model.experiments.items()
    }
    row["decisions"] = {name: decision(model, one) for name, one in decisions.items()}
    return row


def device_names(protocol, device):
    """The names that the row may have. The docs give custom platforms' fields no order."""
    cached = device.first_of([device.cached_kind])
    if protocol.platform.get("kind") == "custom":
        return {device_name(md5) for md5 in device.md5s} or {None}
    named = cached or next(iter(device.md5s), None)
    return {device_name(named) if named else None}


def audience(model, facts, name):
    member = {True: "yes", False: "no", None: "unavailable"}[facts.members[name]]
    if name not in model.unavailable and member == "unavailable":
        # None of the ids that were read is in it.
        member = "no"
    return member, facts.values[name] if member == "yes" else None


def experiment(table, part, unit):
    if part is None:
        return "none", None, None
    return part, *(slots(table, unit) if unit else (None, None))


def decision(model, made):
    cap = model.strategies[made.strategy].get("cap")
    numbers = {name: made.value[name] for name in NUMBERS if name in made.value}
    return made.bid, made.reason, made.is_shadow, made.cap, cap, made.is_scheduled, numbers


def without_decision(protocol, sent):
    """The row of a request that was refused."""
    row = {"platform": protocol.NAME, "failure": sent.failure}
    row |= {name: None for name in ["request_id", "asked", "device", "ids", *VALUES]}
    row["device"] = {None}
    return row | {"audiences": {}, "experiments": {}, "decisions": {}}


def found(row):
    """A row of a file, as a dict of Python's types."""
    one = {name: row[name] for name in ["platform", "failure", "request_id", "asked", "device"]}
    one |= {name: row[name] for name in ["ids", *VALUES]}
    if one["request_type"]:
        one["request_type"] = one["request_type"].lower()
    one["audiences"] = {each["name"]: (each["member"], each["value"]) for each in row["audiences"]}
    one["experiments"] = {
        each["name"]: (each["bucket"], each["layer_slot"], each["bucket_slot"])
        for each in row["experiments"]
    }
    one["decisions"] = {}
    for each in row["decisions"]:
        assert each["strategy"] not in one["decisions"], row
        numbers = {name: each[name] for name in NUMBERS if each[name] is not None}
        fields = ["bid", "reason", "shadow", "cap", "cap_name", "scheduled"]
        one["decisions"][each["strategy"]] = (*(each[name] for name in fields), numbers)
    return one


def dataset(folder):
    """All files of a log, as one."""
    files = sorted(str(path) for path in folder.glob("day=*/*.parquet"))
    return pyarrow.dataset.dataset(files, format="parquet")
