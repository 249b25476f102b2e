"""Random requests of /v1/check, /v1/decide, Tencent Ads and Ocean Engine, and what their answers
say.

A protocol has `make`, which makes a request of random choices, with the facts in it for the model;
and `expected` and `found`, the same answer in the same form, of the model and of the bytes.
"""

import json
import re
import struct
from dataclasses import dataclass, field
from urllib.parse import quote

from suites.rules.configs import AUDIENCES, VALUES
from suites.rules.ids import KINDS, Id, many_ids, md5, random_id, random_ids, usable, usable_of
from suites.rules.model import Request
from suites.testkit.stubs import ocean_pb2, tencent_pb2


@dataclass
class Sent:
    """A request: its line, body and further headers, and its facts."""

    line: str
    body: bytes
    request_id: str
    # One device, or each of a batch.
    devices: list
    # The platform's ids of the strategies, or the names of /v1/decide; None without any.
    asked: list | None = None
    headers: str = ""
    # Why it is not decided by its ids.
    failure: str | None = None
    more: dict = field(default_factory=dict)


class Answered(list):
    """The decisions about each device of a request, by strategy, and the answer's cache time."""

    cache = None


def random_attributes(random, names):
    return {name: random.choice(VALUES[name]) for name in names if random.random() < 0.6}


def worded(random, text):
    """Another spelling of an attribute."""
    return random.choice([text, text, text.upper(), f" {text} "])


def single(number):
    """A number in single precision."""
    return struct.unpack("f", struct.pack("f", number))[0]


def first_tag(decisions):
    return next((one.tag for one in decisions if any(one.tag)), ("", 0))


def once(names):
    return list(dict.fromkeys(names))


class Protocol:
    """A protocol of a `[[platform]]`. `NAME` is the platform's name."""

    NAME = None
    UNREADABLE = b"\xff{"

    def __init__(self, config, model):
        self.now = model.now
        [self.platform] = [one for one in config["platform"] if one["name"] == self.NAME]
        self.path = self.platform["path"]
        # In the order in which they are decided without a request for some.
        self.strategies = dict(sorted(self.platform["strategies"].items()))

    def make(self, random, request_id):
        sent = self.request(random, request_id)
        if random.random() < 0.01:
            # The first bytes of no message.
            unread = Request([], is_unread=True)
            line, body = sent.line.partition("?")[0], self.UNREADABLE
            return Sent(line, body, None, [unread], headers=sent.headers, failure="bad_body")
        return sent

    def names(self, asked):
        """Names of the strategies that are decided, in order."""
        ids = self.strategies if asked is None else asked
        return once(self.strategies[one] for one in ids if one in self.strategies)

    def random_asked(self, random, unknown):
        """Some of the platform's ids, at times with an unknown one."""
        if random.random() < 0.2:
            return None
        ids = list(self.strategies)
        asked = random.sample(ids, random.randrange(1, len(ids) + 1))
        if random.random() < 0.2:
            asked.insert(random.randrange(len(asked) + 1), unknown)
        return asked


class Check:
    """One id in the path, or a batch of ids or keys."""

    NAME = "check"

    def __init__(self, config, model):
        self.unavailable = model.unavailable

    def make(self, random, request_id):
        audience, kind = random.choice(AUDIENCES), random.choice([*KINDS, "md5"])
        form = random.choice(["path", "json", "binary"])
        line, body, headers = f"POST /v1/check/{audience}", b"", ""
        count = 1 if form == "path" else random.randrange(1, 20)
        ids = [random_id(random, "id", kind, form == "binary") for _ in range(count)]
        if form == "path":
            if not ids[0].text.strip():
                # A path ends with an id.
                ids = [Id("id", kind, "null", None)]
            line = f"GET /v1/check/{audience}/{quote(ids[0].text, safe='')}?kind={kind}"
        elif form == "json":
            body = json.dumps({"kind": kind, "ids": [one.text for one in ids]}).encode()
            headers = "Content-Type: application/json\r\n"
        else:
            ids = [one for one in ids if re.fullmatch("[0-9a-fA-F]{32}", one.text)]
            ids.append(Id("id", "md5", md5(""), None))
            body = bytes.fromhex("".join(one.text for one in ids))
            headers = "Content-Type: application/octet-stream\r\n"
        devices = [Request(usable_of([one])) for one in ids]
        more = {"audience": audience, "form": form}
        return Sent(line, body, None, devices, headers=headers, more=more)

    def expected(self, sent, facts):
        audience, form = sent.more["audience"], sent.more["form"]
        if audience in self.unavailable:
            return 503, None
        members = [
            one.members[audience] if device.ids else None
            for one, device in zip(facts, sent.devices, strict=True)
        ]
        if form == "binary":
            return 200, [bool(one) for one in members]
        if form == "json":
            return 200, {"members": members}
        return (400, "bad_id") if members[0] is None else (200, {"member": members[0]})

    def found(self, status, answer, sent):
        if status == 503:
            return status, None
        if status != 200:
            return status, json.loads(answer)["code"]
        if sent.more["form"] != "binary":
            return status, json.loads(answer)
        assert len(answer) == (len(sent.devices) + 7) // 8
        return status, [bool(answer[at // 8] >> at % 8 & 1) for at in range(len(sent.devices))]


class Decide:
    NAME = "api"
    FIELDS = {kind: (kind, False) for kind in [*KINDS, "md5"]}
    FIELDS |= {f"{kind}_md5": (kind, True) for kind in KINDS}

    def __init__(self, config, model):
        self.every = [one["name"] for one in config["strategy"]]
        self.platform = {}

    def names(self, asked):
        return once(asked or self.every)

    def make(self, random, request_id):
        ids = random_ids(random, self.FIELDS, repeated=self.FIELDS)
        has_too_many = random.random() < 0.005
        if has_too_many:
            ids = many_ids(random, "oaid", "oaid")
        device = {}
        for one in ids:
            device.setdefault(one.field, []).append(one.text)
        for kind, texts in device.items():
            if len(texts) == 1 and random.random() < 0.8:
                device[kind] = texts[0]
        attributes = random_attributes(random, list(VALUES))
        spelled = {name: worded(random, text) for name, text in attributes.items()}
        body = {"request_id": request_id, "device": device, "attributes": spelled}
        asked = None
        if random.random() < 0.3:
            asked = body["strategies"] = random.choices(self.every, k=random.randrange(1, 12))
        request, text = Request(usable_of(ids), attributes), json.dumps(body).encode()
        failure = "bad_body" if has_too_many else None
        return Sent("POST /v1/decide", text, request_id, [request], asked, failure=failure)

    def expected(self, sent, answered):
        if sent.failure:
            return 400
        [decisions] = answered
        answers = []
        for name in sent.asked or self.every:
            made = decisions[name]
            if made.is_shadow:
                continue
            one = {"strategy": name, "bid": made.bid, "reason": made.reason}
            one |= {"value": made.value} if made.value else {}
            answers.append(one | ({"buckets": made.buckets} if made.buckets else {}))
        return {"request_id": sent.request_id, "decisions": answers}

    def found(self, status, answer, sent):
        return json.loads(answer) if status == 200 else status


class Tencent(Protocol):
    NAME = "tencent"
    OS = {"ios": "OS_IOS", "android": "OS_ANDROID", "harmony": "OS_HARMONY"}
    TYPES = {"normal": "NORMAL", "click": "CLICK", "ads": "AD_LIST"}
    FIELDS = {
        "idfa_md5sum": ("idfa", True),
        "imei_md5sum": ("imei", True),
        "android_id_md5sum": ("android_id", True),
        "mac_md5sum": ("mac", True),
        "oaid_md5sum": ("oaid", True),
        "oaid": ("oaid", False),
        "qaid": ("caid", False),
        "qaid_md5sum": ("caid", True),
        "openid": ("openid", False),
    }
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
        "DOUBTFUL_IDFA_MD5": ["idfa_md5sum"],
        "DOUBTFUL_IMEI_MD5": ["imei_md5sum"],
        "DOUBTFUL_ANDROIDID_MD5": ["android_id_md5sum"],
        "DOUBTFUL_MAC_MD5": ["mac_md5sum"],
        "DOUBTFUL_OAID_MD5": ["oaid_md5sum"],
        "DOUBTFUL_OAID": ["oaid"],
        "DOUBTFUL_QAID": ["qaid", "qaid_md5sum"],
    }

    def request(self, random, request_id):
        ids = random_ids(random, self.FIELDS, repeated=["qaid", "qaid_md5sum", "openid"])
        if random.random() < 0.005:
            ids = many_ids(random, "qaid", "caid")
        attributes = random_attributes(random, ["os", "request_type"])
        body = tencent_pb2.RtaRequest(id=request_id)
        device, doubtful = body.device, []
        for one in ids:
            if one.field.startswith("qaid"):
                device.qaid_infos.add(version=20230330, **{one.field: one.text})
            elif one.field == "openid":
                device.wx_openid.add(appid="wx1", openid=one.text)
            else:
                setattr(device, one.field, one.text)
        for name, fields in self.DOUBTFUL.items():
            if random.random() < 0.05:
                device.doubtful_ids_list.append(tencent_pb2.Device.DoubtfulId.Value(name))
                doubtful += fields
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
            ids_of_ads = [*self.strategies, "unknown"]
            ads = [random.choice(ids_of_ads) for _ in range(random.randrange(1, 6))]
            for number, name in enumerate(ads):
                body.ad_infos.add(adgroup_id=number + 1, out_target_id=name)
        attributes.setdefault("request_type", "normal")
        read = [one for one in ids if one.field not in doubtful]
        request = Request(usable_of(read), attributes, cached)
        line, text = f"POST {self.path}", body.SerializeToString()
        more = {"is_second": attributes["request_type"] == "ads"}
        # A second request asks for the strategies of its ads alone.
        asked = ads if more["is_second"] else None
        return Sent(line, text, request_id, [request], asked, more=more)

    def expected(self, sent, answered):
        [decisions] = answered
        bids = {}
        for name, strategy in self.strategies.items():
            if (
                strategy in decisions
                and decisions[strategy].bid
                and not decisions[strategy].is_shadow
            ):
                bids[name] = decisions[strategy]
        is_second = sent.more.get("is_second", False)
        echo = {"id": sent.request_id or "", "cache": None if is_second else answered.cache}
        if not is_second:
            infos = {name: self.info(one.value, one.tag) for name, one in bids.items()}
            return echo | {"code": int(not bids), "infos": infos}
        kept = [name for name in sent.asked or [] if name in bids]
        if not kept:
            return echo | {"code": 1, "infos": {}}
        prices = [self.prices(bids[name].value) if name in bids else None for name in sent.asked]
        tag = first_tag(bids[name] for name in kept)
        return echo | {"code": 0, "infos": {}, "ads": prices, "tag": tag}

    def info(self, value, tag):
        factors = [single(value.get(key, 0)) for key in ("weight", "cpc_factor")]
        return [*factors, *self.prices(value), *tag]

    def prices(self, value):
        return [value.get("cpa_price", 0), value.get("cpc_price", 0)]

    def found(self, status, answer, sent):
        read = tencent_pb2.RtaResponse.FromString(answer)
        assert status == 200 and read.HasField("code"), read
        infos = {}
        for name in read.out_target_id:
            infos[name] = self.info({}, ("", 0))
        for one in read.target_infos:
            assert one.out_target_id in infos, read
            numbers = [one.user_weight_factor, one.cpc_factor, one.cpa_price, one.cpc_price]
            infos[one.out_target_id] = [*numbers, one.dsp_tag_str, one.dsp_tag]
        found = {"code": read.code, "infos": infos, "id": read.request_id}
        found["cache"] = read.response_cache_time or None
        if read.ad_results:
            ads = read.ad_results
            assert [one.adgroup_id for one in ads] == [*range(1, len(ads) + 1)], read
            found["ads"] = [None if one.ignore else [one.cpa_price, one.cpc_price] for one in ads]
            found["tag"] = (read.dsp_tag_str, read.dsp_tag)
        return found


class Ocean(Protocol):
    NAME = "ocean"
    OS = {"ios": "PLATFORM_IOS", "android": "PLATFORM_ANDROID"}
    FIELDS = {
        "imei_md5": ("imei", True),
        "android_id_md5": ("android_id", True),
        "oaid": ("oaid", False),
        "idfa": ("idfa", False),
        "caid1": ("caid", False),
        "caid2": ("caid", False),
        "caid": ("caid", False),
        "gaid": ("gaid", False),
    }
    DID_TYPES = {
        "IMEI_MD5": ("imei", True),
        "ANDROID_ID": ("android_id", False),
        "ANDROID_ID_MD5": ("android_id", True),
        "IDFA": ("idfa", False),
        "IDFA_MD5": ("idfa", True),
        "OAID": ("oaid", False),
        "OAID_MD5": ("oaid", True),
    }

    def request(self, random, request_id):
        ids = random_ids(random, self.FIELDS)
        attributes = random_attributes(random, ["os", "app", "slot", "region"])
        body = ocean_pb2.Req(req_id=request_id)
        for one in ids:
            setattr(body.device, one.field, one.text)
        ids += self.add_did(random, body, ids, attributes)
        if attributes.get("os") in self.OS:
            body.platform = self.OS[attributes["os"]]
        else:
            attributes.pop("os", None)
        body.app_id = int(attributes.get("app", 0))
        body.slot_id = int(attributes.get("slot", 0))
        if "region" in attributes:
            body.geo.city = int(attributes["region"])
        asked = self.random_asked(random, "888")
        body.rta_ids.extend(map(int, asked or []))
        request = Request(usable_of(ids), attributes)
        return Sent(f"POST {self.path}", body.SerializeToString(), request_id, [request], asked)

    def add_did(self, random, body, ids, attributes):
        """Adds the main id at times: it repeats one of the device, or stands alone."""
        if random.random() < 0.6:
            return []
        if random.random() < 0.3:
            # The shape decides.
            kind, is_hashed = random.choice([("md5", True), ("imei", False), ("idfa", False)])
            did = usable(random, "did", kind, is_hashed)
            body.did = did.text
            if kind == "idfa" and attributes.get("os") != "ios":
                return [did, did._replace(kind="oaid", md5=md5(did.text.strip()))]
            return [did]
        body.did_type = random.choice(list(self.DID_TYPES))
        kind, is_hashed = self.DID_TYPES[ocean_pb2.DidType.Name(body.did_type)]
        did = random_id(random, "did", kind, is_hashed)
        same = [one for one in ids if one.kind == kind and one.md5]
        if same and random.random() < 0.6 and (is_hashed or same[0].field == kind):
            text = same[0].md5 if is_hashed else same[0].text
            did = did._replace(text=text, md5=same[0].md5)
        body.did = did.text
        return [did]

    def expected(self, sent, answered):
        [decisions] = answered
        shown = {name: one for name, one in decisions.items() if not one.is_shadow}
        infos = []
        asked = self.strategies if sent.failure else sent.asked or []
        for name in asked:
            made = shown.get(self.strategies.get(name))
            bids = made is not None and made.bid
            infos.append([int(name), bids, self.score(made.value) if bids else None])
        in_order = [shown[name] for name in self.names(sent.asked) if name in shown]
        tag = first_tag(sorted(in_order, key=lambda one: not one.bid))
        bid_type = int(not any(one.bid for one in shown.values()))
        found = {"bid_type": bid_type, "infos": infos, "tag": tag, "id": sent.request_id or ""}
        return found | {"status": int(sent.failure is not None), "cache": answered.cache}

    def score(self, value):
        if "quality" in value:
            return ["DEFAULT", value["quality"]]
        return ["PRICE_COEFFICIENT", value["weight"]] if "weight" in value else None

    def found(self, status, answer, sent):
        read = ocean_pb2.Rsp.FromString(answer)
        assert status == 200 and read.HasField("bid_type"), read
        infos = []
        for one in read.user_infos:
            score = None
            if one.HasField("user_scores"):
                name = ocean_pb2.Rsp.UserType.Name(one.user_scores.user_type)
                score = [name, one.user_scores.quality]
            infos.append([one.rta_id, one.is_interested, score])
        found = {"bid_type": read.bid_type.value, "infos": infos, "id": read.req_id}
        found |= {"tag": (read.rta_vid, read.cus_vid), "status": read.status_code}
        return found | {"cache": read.cache_time_secs or None}
