"""Ocean Engine: published bytes both ways, echoed strategies, and ids of devices."""

from suites.platforms.client import PlatformTest, field, fields, varint
from suites.platforms.devices import (
    IMEI,
    JUNK,
    MALFORMED,
    OAID,
    OLD_USERS,
    NON_MEMBERS,
    VIPS,
    md5_of,
)
from suites.testkit.stubs import ocean_pb2

Device = ocean_pb2.Device
Req = ocean_pb2.Req
Rsp = ocean_pb2.Rsp

# Published bytes, made with protoc.
EXAMPLE = bytes.fromhex(
    "0801122038643365626433363534666234366132383332323936363639636631623533364801620e323032343036313661626364"
    "65666a056c6f63616c7204934e944e78018a01480a20386433656264333635346662343661323833323239363636396366316235"
    "33361a2431666539613937302d656662622d323965302d306264642d663564626266373531616235"
)
EXAMPLE_ANSWER = bytes.fromhex("320e32303234303631366162636465663a0318934e3a0318944e4a02080150901c")

NEW_USERS, CAREFUL, IDLESS = 10003, 10004, -7
ALL = [NEW_USERS, CAREFUL, IDLESS]


def verdicts(answer):
    return [(info.rta_id, info.is_interested) for info in answer.user_infos]


class TestGolden(PlatformTest):
    def test_published_request_equals_googles_encoding(self):
        request = Req(
            platform="PLATFORM_ANDROID",
            did=IMEI.md5,
            did_type="IMEI_MD5",
            req_id="20240616abcdef",
            source="local",
            rta_ids=[10003, 10004],
            enable_strategy=1,
            device=Device(imei_md5=IMEI.md5, oaid=OAID.raw),
        )
        assert request.SerializeToString() == EXAMPLE

    def test_published_answer_is_returned_byte_for_byte(self):
        assert self.post("/rta/ocean-example", EXAMPLE)[2] == EXAMPLE_ANSWER
        answer = Rsp(req_id="20240616abcdef", cache_time_secs=3600)
        answer.bid_type.value = 1
        answer.user_infos.add(rta_id=10003)
        answer.user_infos.add(rta_id=10004)
        assert answer.SerializeToString() == EXAMPLE_ANSWER


class TestRequests(PlatformTest):
    def ask(self, **parts):
        return self.ocean(Req(**parts))

    def test_requested_ids_are_echoed_in_order_and_unknown_ones_refused(self):
        new = NON_MEMBERS["imei"][0].md5
        requested = [1, CAREFUL, 2**63 - 1, NEW_USERS, 0, -(2**63), IDLESS, NEW_USERS]
        answer = self.ask(device={"imei_md5": new}, rta_ids=requested)
        assert verdicts(answer) == [(id, id in (NEW_USERS, CAREFUL)) for id in requested]
        assert (answer.status_code, answer.bid_type.value) == (0, 0)
        assert answer.cache_time_secs == 0, "it depends on a missing audience"
        answer = self.ask(device={"imei_md5": new}, rta_ids=[1, 2])
        assert (verdicts(answer), answer.bid_type.value) == ([(1, False), (2, False)], 1)
        assert answer.cache_time_secs == 0, "no decision about the device"
        answer = self.ask(device={"imei_md5": new}, rta_ids=[NEW_USERS])
        assert (answer.bid_type.value, answer.cache_time_secs) == (0, 3600)

    def test_bid_type_0_is_written(self):
        request = Req(device={"imei_md5": NON_MEMBERS["imei"][0].md5}, rta_ids=[NEW_USERS])
        came = self.post("/rta/ocean", request.SerializeToString())[2]
        assert came.hex().startswith("3a05080118934e4a00"), came.hex()
        request.device.imei_md5 = OLD_USERS["imei"][0].md5
        assert (9, b"\x08\x01") in fields(self.post("/rta/ocean", request.SerializeToString())[2])

    def test_bid_type_decides_without_requested_ids(self):
        for id, bid_type in [(OLD_USERS, 1), (NON_MEMBERS, 0)]:
            answer = self.ask(device={"oaid": id["oaid"][0].raw})
            assert (verdicts(answer), answer.bid_type.value) == ([], bid_type)

    def test_request_id_is_echoed(self):
        for id in ["", "r", "请求-№1-🦀", "x" * 4096, "nul\0"]:
            assert self.ask(req_id=id, rta_ids=ALL).req_id == id

    def test_requested_ids_may_be_packed_or_not(self):
        ids = [1, NEW_USERS, -7, 2**40]
        packed = field(14, b"".join(varint(id) for id in ids))
        single = b"".join(field(14, id) for id in ids)
        both = (
            field(14, ids[0]) + field(14, b"") + field(14, b"".join(varint(id) for id in ids[1:]))
        )
        assert Req(rta_ids=ids).SerializeToString() == packed
        for body in (packed, single, both):
            assert [id for id, _ in verdicts(self.ocean(body))] == ids

    def test_unknown_fields_are_skipped(self):
        request = Req(device={"oaid": OLD_USERS["oaid"][0].raw}, rta_ids=ALL, req_id="r")
        plain, body = self.ocean(request), request.SerializeToString()
        for number in [4, 5, 6, 7, 11, 16, 19, 20, 21, 22, 23, 25, 29, 500]:
            for value in (3, b"", b"\xff\xfe", field(1, b"x" * 20000)):
                for sent in (field(number, value) + body, body + field(number, value)):
                    assert self.ocean(sent) == plain
        for number in [5, 10, 11, 12, 13, 14, 15, 16, 40]:
            sent = body + field(17, field(number, b"\xff secret") + field(number, 1))
            assert self.ocean(sent) == plain
        for number, value in [(1, 9), (9, 99), (15, 1 << 30), (9, (1 << 64) - 1), (24, 5)]:
            assert self.ocean(body + field(number, value)) == plain

    def test_last_value_wins_and_devices_merge(self):
        old, new = (field(17, field(3, ids["oaid"][0].raw)) for ids in (OLD_USERS, NON_MEMBERS))
        requested = field(14, NEW_USERS)
        assert verdicts(self.ocean(requested + new + old)) == [(NEW_USERS, False)]
        assert verdicts(self.ocean(requested + old + new)) == [(NEW_USERS, True)]
        empty = field(17, b"")
        assert verdicts(self.ocean(requested + old + empty)) == [(NEW_USERS, False)]


class TestIds(PlatformTest):
    """Ids of devices. `new-users` bids for non-members, `idless` without a usable id or for a
    VIP."""

    OLD, NEW, VIP, NONE = (False, False), (True, False), (True, True), (False, True)

    def check(self, expected, **parts):
        answer = self.ocean(Req(rta_ids=[NEW_USERS, IDLESS], **parts))
        assert tuple(info.is_interested for info in answer.user_infos) == expected, parts

    def each(self, kind):
        """Checks one device of each audience."""
        for ids, expected in [(OLD_USERS, self.OLD), (NON_MEMBERS, self.NEW), (VIPS, self.VIP)]:
            for id in ids[kind]:
                yield id, expected

    def test_ids_of_devices(self):
        raw_fields = {
            "oaid": "oaid",
            "idfa": "idfa",
            "caid1": "caid",
            "caid2": "caid",
            "caid": "caid",
            "gaid": "gaid",
        }
        for name, kind in raw_fields.items():
            for id, expected in self.each(kind):
                self.check(expected, device={name: id.raw})
        for name in ("imei_md5", "android_id_md5"):
            for id, expected in self.each(name.removesuffix("_md5")):
                self.check(expected, device={name: id.md5})
                self.check(expected, device={name: id.md5.upper()})
        # Any of the ids decides.
        old, new = OLD_USERS, NON_MEMBERS
        self.check(
            self.OLD, device={"oaid": new["oaid"][0].raw, "caid2": old["caid"][0].raw, "gaid": "0"}
        )
        self.check(
            self.OLD,
            device={"oaid": new["oaid"][0].raw},
            did=old["imei"][0].md5,
            did_type="IMEI_MD5",
        )
        self.check(
            self.OLD,
            device={"oaid": old["oaid"][0].raw},
            did=new["imei"][0].md5,
            did_type="IMEI_MD5",
        )

    def test_case_of_raw_ids(self):
        for id, expected in self.each("idfa"):
            self.check(expected, device={"idfa": id.raw.lower()})
        for id, expected in self.each("gaid"):
            self.check(expected, device={"gaid": id.raw.upper()})
        # OAIDs are case-sensitive.
        self.check(self.NEW, device={"oaid": OLD_USERS["oaid"][0].raw.swapcase()})

    def test_every_did_type(self):
        for name in ("IMEI", "ANDROID_ID", "IDFA", "OAID", "GAID"):
            for id, expected in self.each(name.lower()):
                self.check(expected, did=id.raw, did_type=name)
                self.check(expected, did=id.md5, did_type=f"{name}_MD5")
                self.check(expected, did=id.md5.upper(), did_type=f"{name}_MD5")
        # The form does not match the type: no usable id.
        for name in (
            "IMEI_MD5",
            "IDFA_MD5",
            "OAID_MD5",
            "ANDROID_ID_MD5",
            "GAID_MD5",
            "IDFA",
            "GAID",
        ):
            self.check(self.NONE, did=OLD_USERS["imei"][0].raw, did_type=name)

    def test_unset_did_type_is_derived_from_the_form(self):
        for kind in OLD_USERS:
            for id, expected in self.each(kind):
                self.check(expected, did=id.md5)
        for did_type in (0, 10, 99):
            for id, expected in self.each("imei"):
                self.check(expected, did=id.raw, did_type=did_type)
            for id, expected in self.each("idfa"):
                self.check(expected, did=id.raw.lower(), did_type=did_type)
                self.check(expected, did=id.raw, did_type=did_type, platform="PLATFORM_IOS")
                self.check(expected, did=id.raw, did_type=did_type, platform="PLATFORM_ANDROID")
        self.check(self.NEW, did=OAID.raw, platform="PLATFORM_ANDROID")
        self.check(self.NONE, did="")

    def test_blank_ids_are_ignored(self):
        for junk in JUNK:
            self.check(self.NONE, device={"oaid": junk, "imei_md5": md5_of(junk)}, did=junk)
            self.check(
                self.NONE,
                device={"caid": md5_of(junk)},
                did=md5_of(junk).upper(),
                did_type="OAID_MD5",
            )
        for malformed in MALFORMED:
            device = {
                name: malformed
                for name in ("imei_md5", "android_id_md5", "oaid", "idfa", "caid1", "gaid")
            }
            self.check(self.NONE, device=device, did=malformed)
        self.check(self.OLD, device={"oaid": "0", "caid": OLD_USERS["caid"][0].raw}, did="null")
