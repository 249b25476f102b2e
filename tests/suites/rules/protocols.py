"""Random requests of three protocols, and what their answers say of each strategy.

Each protocol has `body`, which makes a request of random choices, with the facts in it for the
model; and `expected` and `found`, the same answer in the same form, of the model and of the bytes.
"""

import hashlib
import json
import socket
import struct
import uuid

from suites.rules.configs import VALUES
from suites.rules.model import Request
from suites.testkit.stubs import ocean_pb2, tencent_pb2
from suites.testkit.waiting import WAIT_SECONDS

KINDS = ["idfa", "imei", "oaid", "android_id", "mac", "caid", "gaid", "openid"]
POOL = 60
BLANK = {"oaid": "00000000-0000-0000-0000-000000000000", "imei": "__IMEI__", "caid": "null"}


def raw_id(kind, number):
    """An id in its canonical form."""
    digits = hashlib.sha256(f"{kind} {number}".encode()).hexdigest()
    if kind in ("idfa", "oaid", "gaid"):
        found = str(uuid.UUID(digits[:32]))
        return found.upper() if kind == "idfa" else found
    if kind == "imei":
        return str(int(digits, 16))[:15]
    if kind == "mac":
        return ":".join(digits[at : at + 2] for at in range(0, 12, 2))
    return digits[: 16 if kind == "android_id" else 32]


def md5(raw):
    return hashlib.md5(raw.encode()).hexdigest()


RAW = {kind: [raw_id(kind, number) for number in range(POOL)] for kind in KINDS}
NAMELESS = [md5(f"nameless {number}") for number in range(POOL)]
MD5S = NAMELESS + [md5(raw) for raws in RAW.values() for raw in raws]


def random_ids(random, kinds):
    """Raw ids by kind: none to three."""
    some = random.sample(kinds, random.choice([0, 1, 1, 2, 2, 3]))
    return {kind: random.choice(RAW[kind]) for kind in some}


def random_attributes(random, names):
    return {name: random.choice(VALUES[name]) for name in names if random.random() < 0.6}


def spelled(random, kind, raw):
    """Another spelling of the same id."""
    return random.choice([raw, raw.swapcase()]) if kind in ("idfa", "gaid") else raw


def single(number):
    """A number in single precision."""
    return struct.unpack("f", struct.pack("f", number))[0]


def first_tag(decisions):
    return next((one.tag for one in decisions if any(one.tag)), ("", 0))


class Client:
    """A connection on which requests are sent without waiting for answers."""

    def __init__(self, address):
        host, port = address.split(":")
        self.connection = socket.create_connection((host, int(port)), WAIT_SECONDS)
        self.answers = self.connection.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.answers.close()
        self.connection.close()

    def post(self, path, bodies):
        """The answers, in the order of the requests."""
        head = f"POST {path} HTTP/1.1\r\nHost: rtad\r\nContent-Length: "
        sent = [f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies]
        self.connection.sendall(b"".join(sent))
        return [self.answer() for _ in bodies]

    def answer(self):
        status = self.answers.readline()
        size = 0
        while (line := self.answers.readline().lower()) != b"\r\n":
            if line.startswith(b"content-length:"):
                size = int(line.split(b":")[1])
        found = self.answers.read(size)
        assert status.split()[1] == b"200", (status, found)
        return found


class Decide:
    PATH = "/v1/decide"

    def body(self, random, names):
        raws = random_ids(random, KINDS)
        device = dict(BLANK) if random.random() < 0.1 else {}
        for kind, raw in raws.items():
            if random.random() < 0.5:
                device[kind] = spelled(random, kind, raw)
            else:
                device[f"{kind}_md5"] = random.choice([md5(raw), [md5(raw).upper()]])
        ids = {kind: md5(raw) for kind, raw in raws.items()}
        if random.random() < 0.1:
            # An md5 of unknown kind.
            ids["md5"] = device["md5"] = random.choice(NAMELESS)
        attributes = random_attributes(random, list(VALUES))
        body = {"device": device, "attributes": attributes}
        asked = names
        if random.random() < 0.3:
            asked = body["strategies"] = random.sample(names, random.randrange(1, len(names) + 1))
        return json.dumps(body).encode(), Request(ids, attributes), asked

    def expected(self, model, request, asked):
        answers = []
        for name in asked:
            if not model.is_shadow(name):
                made = model.decide(name, request)
                one = {"strategy": name, "bid": made.bid, "reason": made.reason}
                one |= {"value": made.value} if made.value else {}
                answers.append(one | ({"buckets": made.buckets} if made.buckets else {}))
        return answers

    def found(self, answer):
        return json.loads(answer)["decisions"]


class Tencent:
    PATH = "/rta/tencent"
    OS = {"ios": "OS_IOS", "android": "OS_ANDROID", "harmony": "OS_HARMONY"}
    TYPES = {"normal": "NORMAL", "click": "CLICK", "ads": "AD_LIST"}
    HASHED = ["idfa", "imei", "android_id", "mac", "oaid"]
    CACHED = {
        "CACHED_IDFA_MD5": "idfa",
        "CACHED_IMEI_MD5": "imei",
        "CACHED_OAID": "oaid",
        "CACHED_OAID_MD5": "oaid",
        "CACHED_ANDROIDID_MD5": "android_id",
        "CACHED_MAC_MD5": "mac",
        "CACHED_NIL": None,
        "CACHED_QAID": "caid",
    }
    DOUBTFUL = {
        "idfa": "DOUBTFUL_IDFA_MD5",
        "imei": "DOUBTFUL_IMEI_MD5",
        "android_id": "DOUBTFUL_ANDROIDID_MD5",
        "mac": "DOUBTFUL_MAC_MD5",
        "caid": "DOUBTFUL_QAID",
    }

    def body(self, random, names):
        raws = random_ids(random, [*self.HASHED, "caid", "openid"])
        attributes = random_attributes(random, ["os", "request_type"])
        body = tencent_pb2.RtaRequest(id="r")
        device = body.device
        for kind, raw in raws.items():
            if kind == "caid":
                field = random.choice([{"qaid": raw}, {"qaid_md5sum": md5(raw)}])
                device.qaid_infos.add(version=20230330, **field)
            elif kind == "openid":
                device.wx_openid.add(appid="wx1", openid=raw)
            elif kind == "oaid" and random.random() < 0.5:
                device.oaid = raw
            else:
                setattr(device, f"{kind}_md5sum", md5(raw))
        ids = {kind: md5(raw) for kind, raw in raws.items()}
        for kind, name in self.DOUBTFUL.items():
            if random.random() < 0.05:
                device.doubtful_ids_list.append(tencent_pb2.Device.DoubtfulId.Value(name))
                ids.pop(kind, None)
        cached = None
        if random.random() < 0.5:
            chosen = random.choice(list(self.CACHED))
            device.cached_deviceid_type = chosen
            cached = self.CACHED[chosen]
        if "os" in attributes:
            device.os = self.OS[attributes["os"]]
        if "request_type" in attributes:
            body.request_info.request_type = self.TYPES[attributes["request_type"]]
        ads = []
        if attributes.get("request_type") == "ads" and random.random() < 0.8:
            ads = [random.choice([*names, "unknown"]) for _ in range(random.randrange(1, 6))]
            for number, name in enumerate(ads):
                body.ad_infos.add(adgroup_id=number + 1, out_target_id=f"T{name}")
        attributes.setdefault("request_type", "normal")
        return body.SerializeToString(), Request(ids, attributes, cached), (names, ads)

    def expected(self, model, request, asked):
        names, ads = asked
        is_second = request.attributes.get("request_type") == "ads"
        made = {one: model.decide(one, request) for one in names if not model.is_shadow(one)}
        bids = {name: one for name, one in made.items() if one.bid}
        if not is_second:
            infos = {f"T{name}": self.info(one.value, one.tag) for name, one in bids.items()}
            return {"code": int(not bids), "infos": infos}
        kept = [name for name in ads if name in bids]
        if not kept:
            return {"code": 1, "infos": {}}
        prices = [self.prices(bids[name].value) if name in bids else None for name in ads]
        tag = first_tag(bids[name] for name in kept)
        return {"code": 0, "infos": {}, "ads": prices, "tag": tag}

    def info(self, value, tag):
        factors = [single(value.get(key, 0)) for key in ("weight", "cpc_factor")]
        return [*factors, *self.prices(value), *tag]

    def prices(self, value):
        return [value.get("cpa_price", 0), value.get("cpc_price", 0)]

    def found(self, answer):
        read = tencent_pb2.RtaResponse.FromString(answer)
        assert read.HasField("code"), read
        infos = {}
        for name in read.out_target_id:
            infos[name] = self.info({}, ("", 0))
        for one in read.target_infos:
            assert one.out_target_id in infos, read
            numbers = [one.user_weight_factor, one.cpc_factor, one.cpa_price, one.cpc_price]
            infos[one.out_target_id] = [*numbers, one.dsp_tag_str, one.dsp_tag]
        found = {"code": read.code, "infos": infos}
        if read.ad_results:
            ads = read.ad_results
            assert [one.adgroup_id for one in ads] == [*range(1, len(ads) + 1)], read
            prices = [[one.cpa_price, one.cpc_price] for one in ads]
            found["ads"] = [None if one.ignore else price for one, price in zip(ads, prices)]
            found["tag"] = (read.dsp_tag_str, read.dsp_tag)
        return found


class Ocean:
    PATH = "/rta/ocean"
    OS = {"ios": "PLATFORM_IOS", "android": "PLATFORM_ANDROID"}
    # Field of the device, and whether it is an md5.
    FIELDS = {
        "imei": ("imei_md5", True),
        "android_id": ("android_id_md5", True),
        "oaid": ("oaid", False),
        "idfa": ("idfa", False),
        "gaid": ("gaid", False),
        "caid": ("caid1", False),
    }
    DID_TYPES = {
        "imei": ("IMEI_MD5", "IMEI_MD5"),
        "android_id": ("ANDROID_ID", "ANDROID_ID_MD5"),
        "idfa": ("IDFA", "IDFA_MD5"),
        "oaid": ("OAID", "OAID_MD5"),
    }

    def body(self, random, names):
        raws = random_ids(random, list(self.FIELDS))
        attributes = random_attributes(random, ["os", "app", "slot", "region"])
        body = ocean_pb2.Req(req_id="r")
        for kind, raw in raws.items():
            # The main id repeats one of the device, or stands alone.
            has_did = kind in self.DID_TYPES and not body.did and random.random() < 0.4
            if has_did:
                plain, hashed = self.DID_TYPES[kind]
                body.did_type = random.choice([plain, hashed])
                is_hashed = body.did_type == ocean_pb2.DidType.Value(hashed)
                body.did = md5(raw) if is_hashed else raw
            if not has_did or random.random() < 0.5:
                field, is_md5 = self.FIELDS[kind]
                setattr(body.device, field, md5(raw) if is_md5 else spelled(random, kind, raw))
        if attributes.get("os") in self.OS:
            body.platform = self.OS[attributes["os"]]
        else:
            attributes.pop("os", None)
        body.app_id = int(attributes.get("app", 0))
        body.slot_id = int(attributes.get("slot", 0))
        if "region" in attributes:
            body.geo.city = int(attributes["region"])
        asked = []
        if random.random() < 0.9:
            asked = random.sample(names, random.randrange(1, len(names) + 1))
            if random.random() < 0.2:
                asked.insert(random.randrange(len(asked) + 1), "s888")
            body.rta_ids.extend(self.rta_id(name) for name in asked)
        ids = {kind: md5(raw) for kind, raw in raws.items()}
        return body.SerializeToString(), Request(ids, attributes), (names, asked)

    @staticmethod
    def rta_id(name):
        return 100 + int(name[1:])

    def expected(self, model, request, asked):
        names, asked = asked
        made = {
            one: model.decide(one, request)
            for one in asked or names
            if one in names and not model.is_shadow(one)
        }
        infos = []
        for name in asked:
            bids = name in made and made[name].bid
            score = self.score(made[name].value) if bids else None
            infos.append([self.rta_id(name), bids, score])
        bids_first = sorted(made.values(), key=lambda one: not one.bid)
        bid_type = int(not any(one.bid for one in made.values()))
        return {"bid_type": bid_type, "infos": infos, "tag": first_tag(bids_first)}

    def score(self, value):
        if "quality" in value:
            return ["DEFAULT", value["quality"]]
        return ["PRICE_COEFFICIENT", value["weight"]] if "weight" in value else None

    def found(self, answer):
        read = ocean_pb2.Rsp.FromString(answer)
        assert read.status_code == 0 and read.HasField("bid_type"), read
        infos = []
        for one in read.user_infos:
            score = None
            if one.HasField("user_scores"):
                name = ocean_pb2.Rsp.UserType.Name(one.user_scores.user_type)
                score = [name, one.user_scores.quality]
            infos.append([one.rta_id, one.is_interested, score])
        bid_type = read.bid_type.value
        return {"bid_type": bid_type, "infos": infos, "tag": (read.rta_vid, read.cus_vid)}


PROTOCOLS = [Decide(), Tencent(), Ocean()]
