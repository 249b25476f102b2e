"""Tencent's device ids: members and non-members of every kind, several at once, doubtful, blank and
malformed ids."""

from suites.platforms.client import PlatformTest, field, varint
from suites.platforms.devices import JUNK, MALFORMED, OLD_USERS, NON_MEMBERS, VIPS, md5_of
from suites.testkit.stubs import tencent_pb2

Device = tencent_pb2.Device
RtaRequest = tencent_pb2.RtaRequest

MD5_FIELDS = {
    "idfa_md5sum": ("idfa", Device.DOUBTFUL_IDFA_MD5),
    "imei_md5sum": ("imei", Device.DOUBTFUL_IMEI_MD5),
    "android_id_md5sum": ("android_id", Device.DOUBTFUL_ANDROIDID_MD5),
    "mac_md5sum": ("mac", Device.DOUBTFUL_MAC_MD5),
    "oaid_md5sum": ("oaid", Device.DOUBTFUL_OAID_MD5),
}
# All fields with ids: kind, name in the list of doubtful ids, and a device with it.
WAYS = {
    **{
        name: (kind, doubt, lambda id, name=name: Device(**{name: id.md5}))
        for name, (kind, doubt) in MD5_FIELDS.items()
    },
    "oaid": ("oaid", Device.DOUBTFUL_OAID, lambda id: Device(oaid=id.raw)),
    "qaid": (
        "caid",
        Device.DOUBTFUL_QAID,
        lambda id: Device(qaid_infos=[{"version": 20230330, "qaid": id.raw}]),
    ),
    "qaid_md5sum": (
        "caid",
        Device.DOUBTFUL_QAID,
        lambda id: Device(qaid_infos=[{"qaid_md5sum": id.md5}]),
    ),
    "wx_openid": (
        "openid",
        None,
        lambda id: Device(wx_openid=[{"appid": "wx1", "openid": id.raw}]),
    ),
}

OLD, NEW, VIP, NONE = set(), {"T1", "T2"}, {"T1", "T2", "T3"}, {"T3"}


class TestIds(PlatformTest):
    def check(self, expected, device):
        hit = set(self.tencent(RtaRequest(device=device)).out_target_id)
        assert hit == expected, str(device)

    def test_every_id_of_every_kind(self):
        for kind, _, saying in WAYS.values():
            for ids, expected in [(OLD_USERS, OLD), (NON_MEMBERS, NEW), (VIPS, VIP)]:
                for id in ids[kind]:
                    self.check(expected, saying(id))

    def test_md5_may_have_either_case_and_spaces(self):
        for name, (kind, _) in MD5_FIELDS.items():
            for spelled in (str.upper, str.title, lambda md5: f" {md5}\t\n"):
                self.check(OLD, Device(**{name: spelled(OLD_USERS[kind][0].md5)}))

    def test_any_one_id_decides(self):
        strange = Device()
        for kind, _, saying in WAYS.values():
            strange.MergeFrom(saying(NON_MEMBERS[kind][0]))
        self.check(NEW, strange)
        for name, (kind, _, saying) in WAYS.items():
            device = Device()
            device.CopyFrom(strange)
            device.MergeFrom(saying(OLD_USERS[kind][1]))
            self.check(OLD, device)

    def test_doubtful_id_is_ignored(self):
        for name, (kind, doubt, saying) in WAYS.items():
            if doubt is None:
                continue
            device = saying(OLD_USERS[kind][0])
            device.doubtful_ids_list.append(doubt)
            self.check(NONE, device)
            # Other ids still decide.
            device.wx_openid.add(openid=NON_MEMBERS["openid"][0].raw)
            self.check(NEW, device)
            device.wx_openid.add(openid=OLD_USERS["openid"][0].raw)
            self.check(OLD, device)
        # Only the named kind is doubtful.
        for name, (kind, doubt, saying) in WAYS.items():
            device = saying(OLD_USERS[kind][0])
            device.doubtful_ids_list.extend(other for other in range(7) if other != doubt)
            self.check(OLD, device)

    def test_doubtful_list_may_be_packed_or_not(self):
        old = OLD_USERS["imei"][0].md5
        id = field(3, old)
        doubts = [3, 1, 99, 4]
        packed = field(9, b"".join(varint(doubt) for doubt in doubts))
        single = b"".join(field(9, doubt) for doubt in doubts)
        assert (
            Device(imei_md5sum=old, doubtful_ids_list=[3, 1, 4]).SerializeToString()
            == id + b"\x48\3\x48\1\x48\4"
        )
        for body in (
            id + packed,
            packed + id,
            id + single,
            single + id,
            single[:2] + id + packed,
            packed + packed + id,
        ):
            assert set(self.tencent(field(5, body)).out_target_id) == NONE
        for body in (id, id + field(9, b""), id + field(9, varint(0) + varint(7))):
            assert set(self.tencent(field(5, body)).out_target_id) == OLD

    def test_caids_of_several_versions(self):
        new = [{"version": 1, "qaid": id.raw} for id in NON_MEMBERS["caid"][:3]]
        new += [
            {"version": 2, "origin_version": "v", "qaid_md5sum": id.md5}
            for id in NON_MEMBERS["caid"][3:6]
        ]
        self.check(NEW, Device(qaid_infos=new))
        for index in range(7):
            for known in (
                {"qaid": OLD_USERS["caid"][0].raw},
                {"qaid_md5sum": OLD_USERS["caid"][1].md5},
            ):
                self.check(OLD, Device(qaid_infos=new[:index] + [known] + new[index:]))
        # Raw and hashed together.
        both = {"qaid": NON_MEMBERS["caid"][0].raw, "qaid_md5sum": OLD_USERS["caid"][0].md5}
        self.check(OLD, Device(qaid_infos=[both]))
        self.check(NONE, Device(qaid_infos=[both], doubtful_ids_list=[Device.DOUBTFUL_QAID]))

    def test_too_many_ids_prove_membership_only(self):
        infos = [{"qaid": f"{index:032x}"} for index in range(1 << 8, (1 << 8) + 65)]
        self.check(NEW, Device(qaid_infos=infos[:64]))
        # T2 bids if unavailable.
        self.check({"T2"}, Device(qaid_infos=infos))
        self.check(
            {"T2"},
            Device(qaid_infos=infos[:64], wx_openid=[{"openid": OLD_USERS["openid"][0].raw}]),
        )
        # A member among the first 64 stays one.
        self.check(OLD, Device(imei_md5sum=OLD_USERS["imei"][0].md5, qaid_infos=infos))
        self.check({"T2", "T3"}, Device(imei_md5sum=VIPS["imei"][0].md5, qaid_infos=infos))
        # Blank, malformed and repeated ids do not count.
        useless = [{"qaid": "0"}, infos[0], {"qaid_md5sum": "x"}] * 100
        self.check(NEW, Device(qaid_infos=infos[:64] + useless))
        self.check({"T2"}, Device(qaid_infos=[{"qaid": "0"}] * 1024 + infos[:1]))

    def test_oaid_is_case_sensitive(self):
        self.check(NEW, Device(oaid=OLD_USERS["oaid"][0].raw.swapcase()))

    def test_blank_ids_are_ignored(self):
        for junk in JUNK:
            for text in (junk, md5_of(junk), md5_of(junk).upper(), f" {junk} "):
                device = Device(
                    oaid=text,
                    qaid_infos=[{"qaid": text, "qaid_md5sum": text}],
                    wx_openid=[{"openid": text}],
                )
                for name in MD5_FIELDS:
                    setattr(device, name, text)
                self.check(NONE, device)
        # Double md5.
        for twice in "74be16979710d4c4e7c6647856088456 06a9e146cb8cc0853ded03bb15f2260e".split():
            self.check(NONE, Device(oaid_md5sum=twice))

    def test_malformed_ids_are_ignored(self):
        for text in MALFORMED:
            device = Device(
                oaid=text,
                qaid_infos=[{"qaid": text, "qaid_md5sum": text}],
                wx_openid=[{"openid": text}],
            )
            for name in MD5_FIELDS:
                setattr(device, name, text)
            self.check(NONE, device)
        old = OLD_USERS["imei"][0].md5
        for text in (
            old[:-1],
            old + "0",
            "0x" + old[2:],
            old[:-1] + "g",
            old[:16] + " " + old[17:],
        ):
            self.check(NONE, Device(imei_md5sum=text))

    def test_request_without_a_device(self):
        assert set(self.tencent(RtaRequest(id="r")).out_target_id) == NONE
        self.check(NONE, Device())
        self.check(
            NONE, Device(os=Device.OS_IOS, ip="1.2.3.4", cached_deviceid_type=Device.CACHED_NIL)
        )
