"""Random requests to a pod: their answers, explanations, rows of the decision log and replays are
compared with the model."""

import json
import subprocess
from collections import Counter
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import NamedTuple

import pyarrow.parquet
from pyarrow.compute import field

from suites.rules import mapped, protocols, rows
from suites.rules.client import Client
from suites.rules.configs import (
    START,
    changed_config,
    config_id,
    random_config,
    random_moments,
    utc_now,
    write,
)
from suites.rules.ids import MD5S
from suites.rules.model import Model, Request
from suites.rules.pod import Pod
from suites.testkit.client import ask
from suites.testkit.programs import RTAD

PROTOCOLS = [protocols.Check, protocols.Decide, protocols.Tencent, protocols.Ocean]
PROTOCOLS += [mapped.Kuaishou, mapped.Alibaba, mapped.Json, mapped.Alipay, mapped.Huawei]
# Requests in a batch on one connection, of which one is explained too.
BATCH = 50
# The clock of schedules goes on between its steps.
MOST_SECONDS = 10
EXAMPLES = 3
# Counts of a replay, by platform and strategy.
COUNTED = ["decisions", "bids_before", "bids_after", "gained", "lost"]
COUNTED += ["values_changed", "reasons_changed"]


class Store(NamedTuple):
    """The folder of a store, the md5s of each of its audiences, their values, and the time of the
    builds."""

    folder: Path
    members: dict
    values: dict
    built: object


class Decided(NamedTuple):
    """A device's facts and decisions at a time."""

    platform: str
    device: Request
    facts: object
    decisions: dict
    model: Model
    now: object


class Differences:
    """What differs from the model, by place."""

    def __init__(self):
        self.counts, self.examples = Counter(), {}

    def compare(self, place, found, expected, *context):
        if found != expected:
            self.counts[place] += 1
            if self.counts[place] <= EXAMPLES:
                self.examples.setdefault(place, []).append((found, expected, *context))

    def text(self):
        lines = []
        for place, count in self.counts.items():
            for found, expected, *context in self.examples[place]:
                lines += [f"{place}, {count} times:", f"  found    {found}"]
                lines += [f"  expected {expected}", *(f"  {one}" for one in context)]
        return "\n".join(lines)


def forget_passed_seconds(found, expected):
    """Makes a cache time that is less by the seconds since a step of the clock the expected one."""
    for key in ("cache", "ttl"):
        has_both = isinstance(expected, dict) and expected.get(key) and found.get(key)
        if has_both and 0 < expected[key] - found[key] <= MOST_SECONDS:
            found[key] = expected[key]


def in_order(row):
    """Tells the rows of a batch apart, and those without an id of the request, as far as they
    differ."""
    facts = [row["platform"], row["config"], row["time"], row["audiences"], row["experiments"]]
    return str(sorted(row["decisions"].items())), str(facts)


class Run:
    """A pod, the configs and requests that it got, and their differences."""

    def __init__(self, store, folder, seed):
        self.store, self.folder, self.random = store, folder, Random(seed)
        self.differences, self.counts = Differences(), Counter()
        # Expected rows by request, and the configs' files by the names of configs in rows.
        self.rows, self.files = {}, {}
        self.config_id = self.model = None
        # What was decided in each config.
        self.decided = {}
        (folder / "store").symlink_to(store.folder)

    def compare(self, place, found, expected, *context):
        """Notes a difference, with the config in use."""
        self.differences.compare(place, found, expected, *context, self.files[self.config_id])

    def execute(self, numbers, moments, requests):
        """Sends this many requests of each protocol in each config, at some moments each."""
        instants = random_moments(self.random, utc_now(), len(numbers) * moments)
        write(START, self.folder / "rtad.toml")
        with Pod(self.folder, instants[0]) as pod:
            pod.wait_for("decision port listens")
            for index, number in enumerate(numbers):
                some = instants[index * moments : (index + 1) * moments]
                self.ask_in_config(pod, number, some, requests // moments)
        # The log has all rows after a stop.
        self.compare_rows()
        for config in self.decided:
            self.replay(config)

    def ask_in_config(self, pod, number, instants, requests):
        path = self.folder / "rtad.toml"
        config = random_config(self.random, number, instants[0], path)
        self.config_id = config_id(path)
        self.files[self.config_id] = self.folder / f"{number}.toml"
        self.files[self.config_id].write_bytes(path.read_bytes())
        self.model = Model(config, self.store)
        self.decided[self.config_id] = []
        for now in instants:
            self.model.set_clock(now)
            pod.set_clock(self.model)
            self.check_schedules(pod)
            self.ask_at_moment(pod, config, requests)

    def check_schedules(self, pod):
        """The next change of each schedule, and what is explained for other times."""
        model = self.model
        for rule in pod.status()["rules"]:
            if change := model.changes[rule["strategy"]]:
                found = rule["schedule"]["next_change_unix_seconds"]
                self.compare("next change of a schedule", found, change.timestamp(), rule)
        for _ in range(10):
            self.explain_at(
                pod, model.now + timedelta(minutes=self.random.randrange(-5_000, 500_000))
            )

    def explain_at(self, pod, at):
        """Compares the explanation of an id by the schedules of a time."""
        model, md5 = self.model.with_schedules_of(at), self.random.choice(MD5S)
        request = Request([("md5", md5)])
        made = model.decide(model.strategies, request, model.facts(request), counts=False)
        asked = {"id": md5, "kind": "md5", "at": at.isoformat()}
        explained = ask(pod.admin, "/v1/explain", json.dumps(asked).encode()).json()
        for one in explained["readings"][0]["strategies"]:
            found = [one["bid"], one["reason"], self.explained_value(one)]
            wanted = made.pop(one["strategy"])
            wanted = [wanted.bid, wanted.reason, wanted.value]
            self.compare("explanation of an id", found, wanted, asked, one)
        self.compare("explanation of an id, strategies", made, {}, asked)

    def ask_at_moment(self, pod, config, requests):
        made = [protocol(config, self.model) for protocol in PROTOCOLS]
        with Client(pod.decisions) as client:
            for start in range(0, requests, BATCH):
                for protocol in made:
                    self.ask_batch(pod, client, protocol, min(BATCH, requests - start))

    def ask_batch(self, pod, client, protocol, count):
        sent = []
        for _ in range(count):
            self.counts[protocol.NAME] += 1
            sent.append(protocol.make(self.random, f"{protocol.NAME}-{self.counts[protocol.NAME]}"))
        client.write([(one.line, one.body, one.headers) for one in sent])
        # The model decides while the pod does.
        expected = [self.expected(protocol, one) for one in sent]
        answers = client.read(count)
        for one, (status, answer), wanted in zip(sent, answers, expected, strict=True):
            found = protocol.found(status, answer, one)
            forget_passed_seconds(found, wanted)
            self.compare(f"{protocol.NAME}: {one.failure or 'answer'}", found, wanted, one)
        if protocol.NAME != "check":
            self.explain(pod, protocol, sent[-1])

    def expected(self, protocol, sent):
        """The model's answer; the rows are kept for the comparison with the log."""
        facts = [self.model.facts(device) for device in sent.devices]
        if protocol.NAME == "check":
            return protocol.expected(sent, facts)
        if protocol.NAME == "api" and sent.failure:
            return protocol.expected(sent, None)
        answered = self.decide(protocol, sent, facts, counts=True)
        if not answered:
            self.keep_row(rows.without_decision(protocol, sent))
        for device, fact, decisions in zip(sent.devices, facts, answered, strict=True):
            self.keep_row(rows.expected(self.model, protocol, sent, device, fact, decisions))
            made = Decided(protocol.NAME, device, fact, decisions, self.model, self.model.now)
            self.decided[self.config_id].append(made)
        return protocol.expected(sent, answered)

    def decide(self, protocol, sent, facts, counts):
        names = protocol.names(sent.asked)
        answered = protocols.Answered()
        for device, fact in zip(sent.devices, facts, strict=True):
            answered.append(self.model.decide(names, device, fact, counts))
        shown = [one for decisions in answered for one in decisions.values() if not one.is_shadow]
        answered.cache = self.model.cache_time(protocol.platform, shown)
        return answered

    def keep_row(self, row):
        row |= {"config": self.config_id, "time": self.model.now}
        self.counts["rows"] += 1
        self.rows.setdefault(row["request_id"], []).append(row)

    def explain(self, pod, protocol, sent):
        """Compares the explanation of a request just answered: it is not counted again."""
        if sent.failure == "bad_timestamp":
            # A late time is reported only.
            return
        _, _, query = sent.line.partition("?")
        path = f"/v1/explain/{protocol.NAME}" + (f"?{query}" if query else "")
        explained = ask(pod.admin, path, sent.body)
        assert explained.status == 200, (explained, sent)
        explained = explained.json()
        self.counts["explained"] += 1
        facts = [self.model.facts(device) for device in sent.devices]
        answered = self.decide(protocol, sent, facts, counts=False)
        answer = explained["answer"]
        found = protocol.found(answer["status"], bytes.fromhex(answer["hex"]), sent)
        wanted = protocol.expected(sent, answered)
        forget_passed_seconds(found, wanted)
        place = f"{protocol.NAME}: explain"
        self.compare(f"{place}, answer", found, wanted, sent)
        if len(answered) != 1 or found == 400:
            return
        for one in explained["strategies"]:
            made = answered[0].get(one.get("strategy"))
            found = [made and one["bid"], made and one["reason"], self.explained_value(one)]
            wanted = [made and made.bid, made and made.reason, made.value if made else {}]
            self.compare(place, found, wanted, one, sent)

    @staticmethod
    def explained_value(strategy):
        chosen = [one["value"] for one in strategy.get("values", []) if one["chosen"]]
        return chosen[0] if strategy.get("bid") and chosen else {}

    def compare_rows(self):
        found = {}
        for batch in rows.dataset(self.folder / "log").to_batches():
            for row in batch.to_pylist():
                one = rows.found(row) | {"config": row["config"], "time": row["time"]}
                found.setdefault(one["request_id"], []).append(one)
        for request, some in self.rows.items():
            some, others = sorted(some, key=in_order), sorted(found.pop(request, []), key=in_order)
            self.compare("rows of a request", len(others), len(some), request)
            for expected, one in zip(some, others, strict=False):
                place = f"row of {expected['platform']}"
                names = expected.pop("device")
                self.compare(f"{place}, device", one["device"] in names, True, one, names)
                for key, value in expected.items():
                    self.compare(f"{place}, {key}", one[key], value, one)
        self.compare("rows of no request", found, {})

    def replay(self, config_id):
        """Replays the rows of a config, in a file of their own, under it and under other rules."""
        self.config_id = config_id
        logged = rows.dataset(self.folder / "log").to_table(filter=field("config") == config_id)
        self.counts["replayed"] += logged.num_rows
        folder = self.folder / "logs" / config_id
        folder.mkdir(parents=True)
        pyarrow.parquet.write_table(logged, folder / "rows.parquet")

        same = self.run_replay(self.files[config_id], folder, "--max-change", "0%")
        self.compare("replay", same.returncode, 0, same.stderr, same.stdout)

        decided = self.decided[config_id]
        path = self.folder / f"{config_id}-changed.toml"
        changed = changed_config(self.random, decided[0].model.config, decided[0].now, path)
        changed = Model(changed, self.store)
        done = self.run_replay(path, folder)
        assert done.returncode == 0, done.stderr
        found = {
            (one["platform"], one["strategy"]): one for one in json.loads(done.stdout)["strategies"]
        }
        for key, wanted in self.expected_replay(changed, decided).items():
            one = found.get(key)
            counts = one and {name: one[name] for name in wanted}
            self.compare("replay of a change", counts, wanted, key, path)

    def run_replay(self, path, folder, *flags):
        command = [RTAD, "replay", "--config", path, "--json", *flags, folder]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True)

    @staticmethod
    def expected_replay(changed, decided):
        """Numbers of decisions that other rules change, by platform and strategy."""
        found = {}
        for one in decided:
            if changed.now != one.now:
                changed.set_clock(one.now)
            strategies = one.model.strategies
            changed.logged_caps = {
                strategies[name].get("cap"): made.cap for name, made in one.decisions.items()
            }
            after = changed.decide(one.decisions, one.device, one.facts, counts=False)
            for name, before in one.decisions.items():
                now = after[name]
                counts = found.setdefault((one.platform, name), dict.fromkeys(COUNTED, 0))
                counts["decisions"] += 1
                counts["bids_before"] += before.bid
                counts["bids_after"] += now.bid
                counts["gained"] += now.bid and not before.bid
                counts["lost"] += before.bid and not now.bid
                counts["values_changed"] += before.bid and now.bid and now.value != before.value
                is_same = now.bid == before.bid and now.value == before.value
                counts["reasons_changed"] += is_same and now.reason != before.reason
        return found
