"""Random requests, encoded by Google's protobuf, compared with a model of the rules.

The model follows docs/reference/platforms.md with Python's sets and hashlib, without filters and
independent of the service's code.
"""

import random

from suites.platforms.client import PlatformTest, field
from suites.platforms.devices import (
    AUDIENCES,
    JUNK,
    MALFORMED,
    OLD_USERS,
    NON_MEMBERS,
    VIPS,
    md5_of,
)
from suites.testkit.stubs import ocean_pb2, tencent_pb2

OceanDevice = ocean_pb2.Device
Req = ocean_pb2.Req
Device = tencent_pb2.Device
RtaRequest = tencent_pb2.RtaRequest
RtaResponse = tencent_pb2.RtaResponse

REQUESTS = 3000
MAX_IDS = 64
MEMBERS = {name: {id.md5 for id in ids} for name, ids in AUDIENCES.items()}

# Case-insensitive raw ids.
SPELLINGS = {
    "idfa": (str.upper, str.lower),
    "gaid": (str.upper, str.lower),
    "imei": (str.upper, str.lower),
}


def decide(strategy, keys, is_available=True):
    """Whether a strategy of rtad.toml bids for a device with these keys, and whether because an
    audience is unavailable."""
    if not keys and is_available:
        return strategy == "idless", False
    is_old, is_vip = keys & MEMBERS["old_users"], keys & MEMBERS["vip"]
    match strategy:
        case "new-users":
            return not is_old and is_available, not (is_old or is_available)
        case "careful":
            return not is_old, not is_old
        case "idless":
            return bool(is_vip), not (is_vip or is_available)


class Values:
    """Random ids and their expected keys."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def id(self, kind):
        pool = self.random.choice((OLD_USERS, NON_MEMBERS, NON_MEMBERS, NON_MEMBERS, VIPS))
        return self.random.choice(pool[kind])

    def useless(self):
        junk = self.random.choice(JUNK)
        return self.random.choice(
            (junk, md5_of(junk), md5_of(junk).upper(), self.random.choice(MALFORMED))
        )

    def hashed(self, kind):
        if self.random.random() < 0.2:
            return self.useless(), None
        id = self.id(kind)
        spelled = self.random.choice((str.lower, str.lower, str.upper, lambda md5: f" {md5} "))
        return spelled(id.md5), id.md5

    def raw(self, kind):
        if self.random.random() < 0.2:
            return self.useless(), None
        id = self.id(kind)
        return self.random.choice(SPELLINGS.get(kind, (str,)))(id.raw), id.md5

    def chance(self, part):
        return self.random.random() < part

    def noise(self):
        """Fields of no schema."""
        number = self.random.randrange(600, 1 << 29)
        value = self.random.choice(
            (self.random.getrandbits(64), self.random.randbytes(self.random.randrange(200)))
        )
        return field(number, value)


class TestTencent(PlatformTest):
    STRATEGIES = {"T1": "new-users", "T2": "careful", "T3": "idless"}
    MD5 = {
        "idfa_md5sum": 0,
        "imei_md5sum": 1,
        "android_id_md5sum": 2,
        "mac_md5sum": 3,
        "oaid_md5sum": 4,
    }

    def device(self, values):
        """A device, the keys that are looked up, and the number of all keys."""
        device, keys, more = Device(), set(), set()
        rare = values.random.random() < 0.05
        device.doubtful_ids_list.extend(number for number in range(7) if values.chance(0.12))
        doubtful = set(device.doubtful_ids_list)

        def take(key, doubt):
            if key and doubt not in doubtful:
                (keys if key in keys or len(keys) < MAX_IDS else more).add(key)

        for name, doubt in self.MD5.items():
            if values.chance(0.3):
                text, key = values.hashed(name.removesuffix("_md5sum"))
                setattr(device, name, text)
                take(key, doubt)
        if values.chance(0.3):
            device.oaid, key = values.raw("oaid")
            take(key, 5)
        for _ in range(values.random.randrange(80) if rare else values.random.choice((0, 0, 1, 3))):
            info = device.qaid_infos.add(version=values.random.getrandbits(32))
            if values.chance(0.7):
                info.qaid, key = values.raw("caid")
                take(key, 6)
            if values.chance(0.4):
                info.qaid_md5sum, key = values.hashed("caid")
                take(key, 6)
        for _ in range(values.random.choice((0, 0, 0, 1, 2))):
            openid, key = values.raw("openid")
            device.wx_openid.add(appid="wx", openid=openid)
            take(key, None)
        if values.chance(0.5):
            device.os = values.random.randrange(8)
        if values.chance(0.5):
            device.cached_deviceid_type = values.random.randrange(8)
        if values.chance(0.3):
            device.ip = "198.51.100.7"
        return device, keys, len(keys | more)

    def request(self, values):
        request = RtaRequest()
        if values.chance(0.9):
            request.id = "".join(
                values.random.choices("abc123-_请求\n", k=values.random.randrange(30))
            )
        if values.chance(0.1):
            request.is_ping = values.chance(0.7)
        if values.chance(0.2):
            request.is_test = values.chance(0.5)
        keys, count = set(), 0
        if values.chance(0.95):
            device, keys, count = self.device(values)
            request.device.CopyFrom(device)
        if values.chance(0.4):
            request.request_info.request_type = values.random.choice((0, 1, 2, 2))
        for _ in range(values.random.choice((0, 0, 1, 2, 20))):
            ad = request.ad_infos.add()
            if values.chance(0.9):
                ad.adgroup_id = values.random.getrandbits(64)
            if values.chance(0.8):
                ad.out_target_id = values.random.choice(("T1", "T2", "T3", "T9", "", "t1"))
            if values.chance(0.3):
                ad.creative_infos.add(creative_id=values.random.getrandbits(64))
        for _ in range(values.random.randrange(3)):
            request.exps.add(exp_id=values.random.getrandbits(32))
        request.crt_template_id.extend(
            values.random.getrandbits(32) for _ in range(values.random.randrange(4))
        )
        request.rta_trace_id_list.extend("trace" for _ in range(values.random.randrange(3)))
        # An empty body is an error.
        if not request.ByteSize():
            request.is_test = False
        return request, keys, count

    def expected(self, request, keys, count):
        answer = RtaResponse()
        if request.HasField("id"):
            answer.request_id = request.id
        if request.is_ping:
            answer.code = 0
            return answer
        bids = {
            id: decide(strategy, keys, count <= MAX_IDS) for id, strategy in self.STRATEGIES.items()
        }
        if request.request_info.request_type == RtaRequest.AD_LIST:
            answer.code = 1
            if not any(bids.get(ad.out_target_id, (False,))[0] for ad in request.ad_infos):
                return answer
            answer.code = 0
            for ad in request.ad_infos:
                result = answer.ad_results.add()
                if ad.HasField("adgroup_id"):
                    result.adgroup_id = ad.adgroup_id
                if not bids.get(ad.out_target_id, (False, False))[0]:
                    result.ignore = True
            return answer
        answer.out_target_id.extend(id for id, (bid, _) in bids.items() if bid)
        answer.code = 0 if answer.out_target_id else 1
        if not any(for_want for _, for_want in bids.values()):
            answer.response_cache_time = 3600 if answer.out_target_id else 86400
        return answer

    def test_answers_equal_the_model(self):
        values = Values(seed=11)
        codes = set()
        for _ in range(REQUESTS):
            request, keys, count = self.request(values)
            body = request.SerializeToString()
            if values.chance(0.3):
                body = values.noise() + body + values.noise()
            answer = self.tencent(body)
            assert answer == self.expected(request, keys, count)
            codes.add((answer.code, len(answer.out_target_id), bool(answer.ad_results)))
        assert len(codes) > 4, "all kinds of answers occurred"


class TestOcean(PlatformTest):
    STRATEGIES = {10003: "new-users", 10004: "careful", -7: "idless"}
    DID = {1: "imei", 3: "android_id", 5: "idfa", 7: "oaid", 9: "gaid"}
    RAW_DID = {2: "android_id", 4: "idfa", 6: "oaid", 8: "gaid"}
    RAW = {
        "oaid": "oaid",
        "idfa": "idfa",
        "caid1": "caid",
        "caid2": "caid",
        "caid": "caid",
        "gaid": "gaid",
    }

    def request(self, values):
        request, keys = Req(), set()
        if values.chance(0.7):
            device = OceanDevice(ip="198.51.100.7", ua="机型", caid1_version="20230330")
            for name in ("imei_md5", "android_id_md5"):
                if values.chance(0.3):
                    text, key = values.hashed(name.removesuffix("_md5"))
                    setattr(device, name, text)
                    keys.add(key)
            for name, kind in self.RAW.items():
                if values.chance(0.15):
                    text, key = values.raw(kind)
                    setattr(device, name, text)
                    keys.add(key)
            request.device.CopyFrom(device)
        if values.chance(0.6):
            request.did_type = values.random.randrange(10)
            if request.did_type in self.DID:
                request.did, key = values.hashed(self.DID[request.did_type])
            elif request.did_type in self.RAW_DID:
                request.did, key = values.raw(self.RAW_DID[request.did_type])
            else:
                id = values.id(values.random.choice(("imei", "idfa")))
                request.did, key = values.random.choice(
                    ((id.raw, id.md5), (id.md5, id.md5), ("0", None))
                )
            keys.add(key)
        request.platform = values.random.randrange(3)
        request.req_id = "".join(
            values.random.choices("abc123-_请求\n", k=values.random.randrange(30))
        )
        choices = [*self.STRATEGIES, 1, -1, 0, 2**63 - 1, -(2**63)]
        request.rta_ids.extend(
            values.random.choices(choices, k=values.random.choice((0, 1, 2, 3, 30)))
        )
        request.slot_id = values.random.getrandbits(63)
        request.enable_strategy = values.random.randrange(11)
        request.vids.extend(
            values.random.getrandbits(31) for _ in range(values.random.randrange(4))
        )
        # An empty body is an error.
        if not request.ByteSize():
            request.req_id = "r"
        return request, keys - {None}

    def check(self, request, keys, answer):
        assert (answer.status_code, answer.req_id) == (0, request.req_id)
        bids = {id: decide(strategy, keys) for id, strategy in self.STRATEGIES.items()}
        verdicts = [(info.rta_id, info.is_interested) for info in answer.user_infos]
        assert verdicts == [(id, bids.get(id, (False,))[0]) for id in request.rta_ids]
        requested = [bids[id] for id in request.rta_ids or bids if id in bids]
        takes_part = any(bid for bid, _ in requested)
        assert answer.bid_type.value == (0 if takes_part else 1)
        cache = 3600 if takes_part else 86400
        unsure = not requested or any(want for _, want in requested)
        assert answer.cache_time_secs == (0 if unsure else cache)

    def test_answers_equal_the_model(self):
        values = Values(seed=12)
        for _ in range(REQUESTS):
            request, keys = self.request(values)
            body = request.SerializeToString()
            if values.chance(0.3):
                body = values.noise() + body + values.noise()
            self.check(request, keys, self.ocean(body))
