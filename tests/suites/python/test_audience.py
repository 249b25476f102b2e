"""Audiences in memory: the answers of `rtad-loader query`, deltas, tombstones and values."""

import json
import subprocess
import threading

import pyarrow
import pytest

from suites.testkit.programs import LOADER, loader, synth

ANSWERS = {"member": True, "not_member": False, "blank": None, "malformed": None}


def queried(store, ids, *flags):
    """Answers and values of `rtad-loader query`."""
    words = ("query", "--store", store, "--audience", "users", "--json", *flags, "-")
    lines = map(json.loads, loader(*words, given="\n".join(ids)).splitlines())
    return [(ANSWERS[line["answer"]], line.get("value")) for line in lines]


def test_100_000_ids_have_the_answers_of_the_loader(rtad, members):
    ids = synth(100_000, "--offset", len(members.ids) // 2) + ["null", "0", "not an id"]
    audience = rtad.Audience.open(members.store, "users")
    found = audience.contains(pyarrow.array(ids))
    assert found.to_pylist() == [answer for answer, _ in queried(members.store, ids)]
    assert (found.blank, found.malformed) == (2, 1)
    digests = pyarrow.array([bytes.fromhex(one) for one in ids[:-3]], pyarrow.binary(16))
    assert audience.contains(digests).to_pylist() == found.to_pylist()[:-3]


def test_deltas_and_tombstones_decide(rtad, members):
    audience = rtad.Audience.open(members.store, "users")
    assert all(audience.contains(members.added).to_pylist())
    assert not any(audience.contains(members.removed).to_pylist())
    info = audience.info
    assert (info["deltas"] > 0, info["added"], info["tombstones"]) == (True, 100, 50)
    assert (info["audience"], info["generation"], info["build"]["keys"]) == ("users", 1, 20_000)
    # A generation alone has neither.
    alone = rtad.Audience.open(members.store, "users", generation=1)
    assert all(alone.contains(members.removed).to_pylist())


def test_values_are_those_of_the_build_and_of_appends(rtad, tmp_path):
    ids, store = synth(200), tmp_path / "store"
    rows = [f"{one},{index % 16}" for index, one in enumerate(ids)]
    target = ("--store", store, "--audience", "users", "--quiet", "--format", "csv")
    columns = ("--column", "id", "--value", "score")
    text = "\n".join(["id,score", *rows])
    loader("build", *target, *columns, "--filter", "ribbon", "-", given=text)
    loader("append", *target, *columns, "-", given=f"id,score\n{ids[0]},9\n")
    audience = rtad.Audience.open(str(store), "users")
    asked = [*ids, *synth(1000, "--offset", 200), "null"]
    expected = [value for _, value in queried(store, asked)]
    assert audience.values(asked).to_pylist() == expected
    assert expected[:3] == [9, 1, 2]
    assert pyarrow.array(audience.values(asked)).type == pyarrow.uint8()
    assert audience.info["has_values"]


def test_ids_of_several_kinds_are_read_by_their_form(rtad, tmp_path):
    # Ids of the same number have the same key as an IDFA and as an md5.
    ids = {kind: synth(5, "--id-kind", kind) for kind in ("imei", "idfa")}
    ids["md5"] = synth(5, "--offset", 5)
    mixed = [one for of_kind in ids.values() for one in of_kind]
    table = pyarrow.table({"id": mixed, "score": [index % 16 for index in range(15)]})
    store, kinds = str(tmp_path / "store"), "idfa,imei,md5"
    rtad.build(store, "a", table, columns={"id": kinds}, value="score", filter="ribbon")
    audience = rtad.Audience.open(store, "a")
    found = audience.contains([*mixed, "0", "not an id"], kinds)
    assert found.to_pylist() == [True] * 15 + [None] * 2
    assert found.usable_by_kind == {"md5": 5, "idfa": 5, "imei": 5}
    assert audience.values(mixed, kinds).to_pylist() == list(range(15))
    # A UUID that may be of two kinds is a member by either key.
    rtad.build(store, "b", ids["idfa"], kind="idfa")
    lower = [one.lower() for one in ids["idfa"]]
    assert rtad.Audience.open(store, "b").contains(lower, "oaid,idfa").to_pylist() == [True] * 5


@pytest.mark.parametrize("answer", ["contains", "values"])
def test_wrong_kind_is_warned_of_at_the_line_of_the_caller(rtad, tmp_path, answer):
    store, imeis = str(tmp_path / "store"), synth(5, "--id-kind", "imei")
    table = pyarrow.table({"id": imeis, "score": [1] * 5})
    rtad.build(store, "a", table, columns={"id": "imei"}, value="score", filter="ribbon")
    ask = getattr(rtad.Audience.open(store, "a"), answer)
    expected = "expected ids of kind md5; most look like ids of kind imei: use kind imei$"
    with pytest.warns(UserWarning, match=expected) as warned:
        assert ask(imeis).null_count == 5
    assert warned[0].filename == __file__
    with pytest.warns(UserWarning, match="6 of 7 ids are malformed: expected ids of kind mac,imei"):
        ask([imeis[0], *["not an id"] * 6], "imei,mac")
    with pytest.warns(UserWarning, match="ids of kind oaid look like ids of kind imei"):
        ask(imeis, "oaid")


def test_diff_is_that_of_the_loader(rtad, tmp_path):
    store = str(tmp_path / "store")
    for count in (1000, 1500):
        rtad.build(store, "users", synth(count))
    found = rtad.Audience.open(store, "users").diff(1, 2)
    words = ("diff", "--store", store, "--audience", "users", "--json", 1, 2)
    assert found == json.loads(loader(*words))
    assert found["keys_difference"] == 500


def test_lookups_release_the_lock_of_the_interpreter(rtad, members):
    audience = rtad.Audience.open(members.store, "users")
    ids = pyarrow.array(members.ids * 20)
    counted, is_running = 0, True
    results = []

    def look_up():
        nonlocal is_running
        for _ in range(5):
            results.append(audience.contains(ids).null_count)
        is_running = False

    thread = threading.Thread(target=look_up)
    thread.start()
    while is_running:
        counted += 1
    thread.join()
    # With the lock held, this thread would run between two lookups alone: six times.
    assert counted > 1000
    assert results == [0] * 5


@pytest.mark.parametrize(
    ("url", "name", "flags"),
    [
        ("{store}", "missing", {}),
        ("{store}", "No Name", {}),
        ("{store}", "users", {"generation": 7}),
        ("{store}", "users", {"public_key": "no key"}),
        ("/dev/null/nothing", "users", {}),
        ("ftp://host/store", "users", {}),
    ],
)
def test_failures_have_the_texts_and_codes_of_the_loader(rtad, members, url, name, flags):
    url = url.format(store=members.store)
    program = "verify" if "public_key" in flags else "inspect"
    words = [program, "--store", url, "--audience", name]
    words += [f"--{flag.replace('_', '-')}={value}" for flag, value in flags.items()]
    done = subprocess.run([LOADER, *words, "--json"], capture_output=True, text=True)
    expected = json.loads(done.stdout)
    with pytest.raises(rtad.Error) as failure:
        rtad.Audience.open(url, name, **flags)
    message = ": ".join([expected["message"], *expected["causes"]])
    for flag, argument in [
        ("--public-key", "public_key"),
        ("--audience <NAME>", "name"),
        ("--audience", "name"),
        ("--generation", "generation"),
    ]:
        message = message.replace(flag, argument)
    assert (str(failure.value), failure.value.exit_code) == (message, done.returncode)
