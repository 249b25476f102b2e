"""Keys of ids: those of the loader for every kind, whatever form the column has."""

import json

import duckdb
import numpy
import pandas
import polars
import pyarrow
import pytest

from suites.testkit.programs import loader, synth

KINDS = ["md5", "idfa", "imei", "oaid", "android_id", "mac", "caid", "gaid", "openid"]
# Spellings that are trimmed, blank or malformed for most kinds.
ODD = ["", " ", "0", "null", "NULL", "None", "__IMEI__", "two words", "\u3000", "\u00e9", "-1"]
ODD += ["\t", "868049039501257 ", "\ufeff868049039501257", "9774d56d682e549c", "02:00:00:00:00:00"]
ODD += ["d41d8cd98f00b204e9800998ecf8427e", "00000000-0000-0000-0000-000000000000"]
ODD += ["a" * 200, "0x" + "1" * 30]


def odd(kind):
    ids = synth(500, "--id-kind", kind)
    return ids + [one.upper() for one in ids] + [one.lower() for one in ids] + ODD


@pytest.mark.parametrize("kind", KINDS)
def test_keys_are_those_of_the_loader(rtad, kind, tmp_path):
    """The loader builds an audience by its keys; the package looks up its own."""
    ids = odd(kind)
    flags = ["--store", tmp_path, "--audience", "a", "--id-kind", kind, "--json"]
    limits = ["--max-reject-ratio", "1", "--allow-lookalikes"]
    report = json.loads(loader("build", *flags, *limits, "-", given="\n".join(ids)))

    column = rtad.keys(kind, ids)
    found = column.to_pylist()
    assert len({key for key in found if key is not None}) == report["keys"]
    assert (column.blank, column.malformed) == (report["blank"], report["rejected"]["malformed"])
    members = rtad.Audience.open(tmp_path, "a").contains(ids, kind).to_pylist()
    assert members == [None if key is None else True for key in found]
    assert found == [rtad.key(kind, one) for one in ids]


def forms(ids):
    """The same texts as columns of many libraries."""
    rows = pyarrow.table({"id": ids})
    yield pyarrow.array(ids)
    yield pyarrow.array(ids, pyarrow.large_string())
    yield pyarrow.array(ids, pyarrow.string_view())
    yield pyarrow.array([one and one.encode() for one in ids])
    yield pyarrow.array(ids).dictionary_encode()
    yield pyarrow.chunked_array([ids[:7], [], ids[7:]])
    yield rows
    yield rows.to_reader(max_chunksize=10)
    yield polars.Series(ids)
    yield polars.DataFrame({"id": ids})
    yield pandas.Series(ids)
    yield pandas.Series(ids, dtype="category")
    yield duckdb.sql("select id from rows")
    yield numpy.array(ids, dtype=object)
    yield ids
    yield iter(ids)


@pytest.mark.parametrize("kind", ["md5", "idfa", "imei"])
def test_every_form_of_a_column_has_the_same_keys(rtad, kind):
    ids = [*odd(kind), None]
    expected = rtad.keys(kind, ids)
    for column in forms(ids):
        found = rtad.keys(kind, column)
        name = f"{type(column)}: {getattr(column, 'type', '')}"
        assert found.to_pylist() == expected.to_pylist(), name
        assert (found.blank, found.malformed) == (expected.blank, expected.malformed), name


def test_arrays_of_numpy_are_columns_without_copies_to_objects(rtad):
    ids = synth(1000)
    expected = rtad.keys("md5", ids).to_pylist()
    digests = numpy.frombuffer(b"".join(map(bytes.fromhex, ids)), numpy.uint8).reshape(-1, 16)
    for array in (
        numpy.array(ids),
        numpy.array(ids, "S"),
        numpy.array(ids, "S40"),
        digests,
        digests.view("V16").reshape(-1),
        numpy.repeat(digests, 2, axis=0)[::2],
    ):
        assert rtad.keys("md5", array).to_pylist() == expected, array.dtype
    assert rtad.keys("imei", numpy.array([868049039501257]))[0] == rtad.key(
        "imei", "868049039501257"
    )
    assert rtad.keys("openid", numpy.array(["ü", "u"])).malformed == 1


def test_digests_in_arrays_of_text_are_digests(rtad):
    """NumPy strips the zeros at the end of bytes, but its buffer has them."""
    ids = synth(1000)
    digests = numpy.array([bytes.fromhex(one) for one in ids])
    assert digests.dtype == numpy.dtype("S16")
    assert rtad.keys("md5", digests).to_pylist() == rtad.keys("md5", ids).to_pylist()
    # Half of an md5 is text.
    for halves in numpy.array([one[:16] for one in ids], "S"), [one[:16].encode() for one in ids]:
        with pytest.warns(UserWarning, match="1,000 of 1,000 ids are malformed"):
            assert rtad.keys("md5", halves).malformed == 1000


def test_masked_rows_are_blank(rtad):
    ids = synth(3)
    digests = [bytes.fromhex(one) for one in ids]
    expected = rtad.keys("md5", [ids[0], None, ids[2]]).to_pylist()
    mask = [False, True, False]
    rows = numpy.frombuffer(b"".join(digests), numpy.uint8).reshape(-1, 16)
    for values, masked in (
        (numpy.array(ids), mask),
        (numpy.array(ids, "S"), mask),
        (numpy.array(ids, object), mask),
        (numpy.array(digests), mask),
        (numpy.array(digests, "V16"), mask),
        (rows, [[one] * 16 for one in mask]),
        (rows, [[one] + [False] * 15 for one in mask]),
    ):
        found = rtad.keys("md5", numpy.ma.array(values, mask=masked))
        assert (found.to_pylist(), found.blank) == (expected, 1), values.dtype
    numbers = numpy.ma.array([868049039501257, 868049039501265], mask=[False, True])
    assert rtad.keys("imei", numbers).blank == 1
    assert rtad.keys("imei", numpy.ma.array([868049039501257])).null_count == 0


def test_nulls_of_every_library_are_blank(rtad):
    ids = synth(3, "--id-kind", "imei")
    expected = rtad.keys("imei", [*ids, None, None, None, None]).to_pylist()
    column = [*ids, None, pandas.NA, pandas.NaT, float("nan")]
    for nulls in column, numpy.array(column, object), pandas.Series(column, dtype=object):
        found = rtad.keys("imei", nulls)
        assert (found.to_pylist(), found.blank) == (expected, 4), type(nulls)
    found = rtad.keys("imei", pandas.array([*ids, *[None] * 4], dtype="string"))
    assert (found.to_pylist(), found.blank) == (expected, 4)
    assert rtad.key("imei", pandas.NA) is None


def test_numbers_among_text_are_text(rtad):
    """A column of a spreadsheet, in pandas."""
    ids = synth(4, "--id-kind", "imei")
    expected = rtad.keys("imei", [*ids, None, "1.5"])
    for order in (1, -1):
        mixed = [int(ids[0]), ids[1], numpy.int64(ids[2]), ids[3], None, 1.5][::order]
        found = rtad.keys("imei", pandas.Series(mixed, dtype=object))
        assert found.to_pylist() == expected.to_pylist()[::order]
        assert (found.blank, found.malformed) == (1, 1)


def test_ids_of_several_kinds_are_read_by_their_form(rtad):
    ids = {kind: synth(5, "--id-kind", kind) for kind in ("imei", "md5", "idfa")}
    mixed = [one for of_kind in ids.values() for one in of_kind]
    found = rtad.keys("idfa,imei,md5", mixed)
    expected = [rtad.key(kind, one) for kind, of_kind in ids.items() for one in of_kind]
    assert found.to_pylist() == expected
    assert found.usable_by_kind == {"md5": 5, "idfa": 5, "imei": 5}
    with pytest.raises(ValueError, match="a UUID may have two keys"):
        rtad.keys("idfa,oaid", mixed)


def test_wrong_kind_is_warned_of(rtad):
    with pytest.warns(UserWarning, match="expected ids of kind md5; most look like ids of kind imei"):
        rtad.keys("md5", synth(5, "--id-kind", "imei"))
    with pytest.warns(UserWarning, match="5 of 5 ids of kind oaid look like ids of kind md5"):
        rtad.keys("oaid", synth(5))
    several = [*synth(5), *synth(4, "--id-kind", "imei")]
    with pytest.warns(UserWarning, match="9 of 9 ids of kind oaid look like ids of kind md5 .5., "):
        rtad.keys("oaid", several)
    with pytest.warns(UserWarning, match="10 of 11 values are texts in brackets"):
        rtad.keys("openid", [*["[user_abc]"] * 10, "o6_bmjrPTlm6_2sgVt7hMZOPfL2M", None])


def test_digests_and_uuids_are_read_as_in_parquet_inputs(rtad):
    [digest] = synth(1)
    raw = bytes.fromhex(digest)
    blank = bytes.fromhex("d41d8cd98f00b204e9800998ecf8427e")
    for column in (
        pyarrow.array([raw, None, blank], pyarrow.binary(16)),
        pyarrow.array([raw, None, blank]),
        [raw, None, blank],
    ):
        found = rtad.keys("md5", column)
        assert (found.to_pylist(), found.blank) == ([raw, None, None], 2)
    uuid = "3e0046f7-8bd4-4f3e-9f91-358b137d2bf1"
    column = pyarrow.array([bytes.fromhex(uuid.replace("-", ""))], pyarrow.uuid())
    assert rtad.keys("idfa", column)[0] == rtad.key("idfa", uuid)
    # A text of 16 characters is no digest, nor are its bytes.
    for text in ("0123456789abcde_", b"0123456789abcde_"):
        with pytest.warns(UserWarning, match="1 of 1 ids are malformed"):
            assert rtad.keys("md5", [text]).malformed == 1
    assert rtad.keys("md5,imei", [b"868049039501257\r"])[0] == rtad.key("imei", "868049039501257")


def test_results_are_arrow_columns(rtad):
    column = rtad.keys("md5", [*synth(5), None])
    array = pyarrow.array(column)
    assert (array.type, array.null_count) == (pyarrow.binary(16), 1)
    assert array.to_pylist() == column.to_pylist()
    assert polars.Series(column).to_list() == column.to_pylist()


def test_blank_adds_ids_that_mean_no_id(rtad):
    ids = synth(2, "--id-kind", "openid")
    for blank in [ids[0]], ids[0]:
        column = rtad.keys("openid", ids, blank=blank)
        assert (column[0], column.blank) == (None, 1)


# As wide as a digest.
RECORDS = numpy.array([(b"a", 1)], dtype=[("id", "S8"), ("count", "i8")])


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pyarrow.array([1.5]), "column \"ids\" is of type Float64: expected text, binary"),
        (pyarrow.array([["a"]]), "column \"ids\" is of type List"),
        (pyarrow.table({"a": ["x"], "b": ["y"]}), "ids: a table: expected one column, found 2"),
        ([1.5], "ids: a value of type float: expected str, bytes, int or None"),
        (["a", b"b"], "ids: a list of text and bytes: expected ids of one type"),
        ([numpy.zeros(2)], "ids: a value of type ndarray: expected str, bytes, int or None"),
        ("one id", "ids: one id: expected a column of them"),
        (bytearray(16), "ids: one id: expected a column of them"),
        (memoryview(bytes(16)), "ids: one id: expected a column of them"),
        (None, "ids: an object of type builtins.NoneType: expected a column"),
        ({"id": ["a"]}, "ids: an object of type builtins.dict: expected a column"),
        (polars.LazyFrame({"id": ["a"]}), "ids: an object of type polars.lazyframe"),
        (numpy.zeros((2, 2)), "ids: an array of 2 dimensions"),
        (RECORDS, "ids: an array of records: expected that of a field"),
        (numpy.ma.array(RECORDS), "ids: an array of records: expected that of a field"),
    ],
)
def test_columns_without_ids_are_refused(rtad, column, expected):
    with pytest.raises(TypeError) as failure:
        rtad.keys("md5", column)
    assert str(failure.value).startswith(expected)


def test_arrow_data_that_is_not_taken_is_named(rtad):
    class Foreign:
        def __init__(self, error):
            self.error = error

        def __arrow_c_stream__(self, requested_schema=None):
            raise self.error

    with pytest.raises(TypeError) as failure:
        rtad.keys("md5", Foreign(ValueError("not today")))
    text = "ids: the Arrow data of a suites.python.test_keys.test_arrow_data"
    assert str(failure.value).startswith(text), failure.value
    assert str(failure.value).endswith("could not be read: not today")
    assert isinstance(failure.value.__cause__, ValueError)
    # Errors of a library's own classes stay.
    with pytest.raises(duckdb.BinderException, match="^no such table$"):
        rtad.keys("md5", Foreign(duckdb.BinderException("no such table")))


def test_version_is_that_of_the_wheel(rtad, built):
    assert rtad.__version__ == built.wheel.name.split("-")[1]


def test_unknown_kind_is_refused(rtad):
    with pytest.raises(ValueError, match="^kind \"imsi\": unknown id kind; the kinds are md5, "):
        rtad.keys("imsi", [])
