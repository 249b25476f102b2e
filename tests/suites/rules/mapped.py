"""Random requests of mapped platforms, those of the docs' examples and one in JSON, and what their
answers say."""

import json
from urllib.parse import urlencode

from suites.rules.configs import KUAISHOU_SECRET
from suites.rules.ids import many_ids, md5, random_id, random_ids, usable_of
from suites.rules.model import Request
from suites.rules.protocols import Protocol, Sent, once, random_attributes, worded
from suites.testkit.stubs import kuaishou_pb2


class Mapped(Protocol):
    def bids(self, asked, answered):
        """The platform's ids whose strategies bid, each once."""
        [decisions] = answered
        shown = [name for name, one in decisions.items() if one.bid and not one.is_shadow]
        return [one for one in once(asked or self.strategies) if self.strategies.get(one) in shown]


class Kuaishou(Mapped):
    NAME = "kuaishou"
    FIELDS = {
        "imei": ("imei", False),
        "imei_md5": ("imei", True),
        "oaid": ("oaid", False),
        "idfa": ("idfa", False),
    }

    def request(self, random, request_id):
        ids = random_ids(random, self.FIELDS)
        body = kuaishou_pb2.RtaRequest(request_id=request_id, channel="c")
        for one in ids:
            setattr(body.device, one.field, one.text)
        late = random.choice([0] * 60 + [310, -310])
        body.request_time = int(self.now.timestamp() + late) * 1_000
        asked = self.random_asked(random, "8888")
        body.promotion_type.extend(asked or [])
        secret = KUAISHOU_SECRET if random.random() < 0.98 else "another"
        body.request_sign = md5(f"{request_id}{body.request_time}{secret}")
        failure = None
        if late or secret != KUAISHOU_SECRET:
            failure = "bad_signature" if secret != KUAISHOU_SECRET else "bad_timestamp"
        devices = [] if failure else [Request(usable_of(ids))]
        line, text = f"POST {self.path}", body.SerializeToString()
        return Sent(line, text, request_id, devices, None if failure else asked, failure=failure)

    def expected(self, sent, answered):
        if not answered:
            return {"status": 1, "results": []}
        bids = self.bids(sent.asked, answered)
        asked = sent.asked or self.strategies
        results = [[name, name in bids] for name in asked]
        return {"status": int(sent.failure is not None), "results": results}

    def found(self, status, answer, sent):
        read = kuaishou_pb2.RtaResponse.FromString(answer)
        results = [[one.promotion_type, one.accept] for one in read.promotion_type_result]
        return {"status": read.status if status == 200 else None, "results": results}


class InJson(Mapped):
    def found(self, status, answer, sent):
        return json.loads(answer) if status == 200 else status


class Alibaba(InJson):
    NAME = "alibaba"
    TYPES = {
        "IMEI": ("imei", False),
        "IMEI/MD5": ("imei", True),
        "OAID": ("oaid", False),
        "OAID/MD5": ("oaid", True),
        "IDFA": ("idfa", False),
        "IDFA/MD5": ("idfa", True),
        "CAID": ("caid", False),
        "CAID/MD5": ("caid", True),
    }

    def request(self, random, request_id):
        ids = random_ids(random, self.TYPES, repeated=self.TYPES)
        if random.random() < 0.005:
            ids = many_ids(random, "OAID", "oaid")
        entries = []
        for one in ids:
            kind, _, hashed = one.field.partition("/")
            entry = {"type": kind, "did": one.text}
            if hashed or random.random() < 0.5:
                entry["secure"] = hashed
            entries.append(dict(random.sample(list(entry.items()), len(entry))))
        if random.random() < 0.1:
            entries.insert(0, {"type": "UTDID", "secure": "", "did": "x"})
        attributes = random_attributes(random, ["os"])
        body = {"reqId": request_id, "dids": entries}
        if attributes:
            body["os"] = worded(random, attributes["os"])
        asked = self.random_asked(random, "888")
        if asked:
            body["rtaIds"] = random.choice([",", " , "]).join(asked)
        request = Request(usable_of(ids), attributes)
        text = json.dumps(body).encode()
        return Sent(f"POST {self.path}", text, request_id, [request], asked)

    def expected(self, sent, answered):
        found = {"reqId": sent.request_id} if sent.request_id else {}
        found |= {"code": int(sent.failure is not None), "rtaIds": self.bids(sent.asked, answered)}
        return found | ({"ttl": answered.cache} if answered.cache is not None else {})


def first_field(ids, kind):
    return next(one.field for one in ids if one.kind == kind)


class Json(InJson):
    NAME = "json"
    FIELDS = {
        "imei": ("imei", False),
        "imei_md5": ("imei", True),
        "oaid": ("oaid", False),
        "more": ("oaid", False),
        "caids": ("caid", False),
        "mac": ("mac", False),
        "openid": ("openid", False),
        "gaid_md5": ("gaid", True),
        "android_id": ("android_id", False),
        "any": ("md5", False),
    }
    OS = {"android": [0, "0"], "ios": [1, "1"], "harmony": ["hm"]}

    def request(self, random, request_id):
        ids = random_ids(random, self.FIELDS, repeated=self.FIELDS)
        # Of two fields of a kind the docs do not say which one is the unit of experiments.
        ids = [one for one in ids if one.field == first_field(ids, one.kind)]
        if random.random() < 0.005:
            ids = many_ids(random, "more", "oaid")
        texts = {}
        for one in ids:
            texts.setdefault(one.field, []).append(self.spelled(random, one))
        device = {name: self.value(random, some) for name, some in texts.items()}
        if "more" in device:
            # A list of the field, or a list of objects with it.
            oaids = device.pop("more")
            device["more"] = random.choice([{"oaids": oaids}, [{"oaids": oaids}]])
        attributes = random_attributes(random, ["os", "app", "slot", "region", "request_type"])
        if "os" in attributes:
            device["os"] = random.choice(self.OS[attributes["os"]])
        body = {"id": request_id, "d": device}
        if "region" in attributes:
            device["geo"] = {"city": self.number(random, attributes["region"])}
        if "app" in attributes:
            body["app"] = {"id": self.number(random, attributes["app"])}
        if "slot" in attributes:
            body["slot"] = self.number(random, attributes["slot"])
        if "request_type" in attributes:
            body["type"] = worded(random, attributes["request_type"])
        if random.random() < 0.1:
            # JSON in a string.
            body["d"] = json.dumps(device)
        asked = self.random_asked(random, "unknown")
        if asked:
            body["want"] = asked if len(asked) > 1 or random.random() < 0.5 else asked[0]
        request = Request(usable_of(ids), attributes)
        text = json.dumps(body).encode()
        return Sent(f"POST {self.path}", text, request_id, [request], asked)

    @staticmethod
    def spelled(random, one):
        """The id; a CAID at times with its version; digits at times as a number."""
        if one.kind == "caid" and one.md5 and random.random() < 0.3:
            return random.choice([f"{one.text.strip()}_20230330", f"20230330_{one.text.strip()}"])
        is_number = one.text.isdigit() and str(int(one.text)) == one.text
        return int(one.text) if is_number and random.random() < 0.5 else one.text

    @staticmethod
    def value(random, texts):
        return texts if len(texts) > 1 or random.random() < 0.2 else texts[0]

    @staticmethod
    def number(random, text):
        return random.choice([text, int(text), f" {text} "])

    def expected(self, sent, answered):
        [decisions] = answered
        bids = self.bids(sent.asked, answered)
        results = []
        for name in sent.asked or self.strategies:
            one = {"id": name, "bid": name in bids}
            made = decisions.get(self.strategies.get(name))
            if made and not made.is_shadow:
                one |= made.value if made.bid else {}
                one |= {"tag": made.tag[0]} if made.tag[0] else {}
            results.append(one)
        found = {"id": sent.request_id} if sent.request_id else {}
        found |= {"code": int(not bids), "is_bid": bool(bids), "results": results}
        if sent.failure:
            found["code"] = 9
        found["accepted"] = bids
        found |= {"first": bids[0]} if bids else {}
        return found | ({"ttl": answered.cache} if answered.cache is not None else {})


class Alipay(InJson):
    """JSON in a parameter of a query or of a form."""

    NAME = "alipay"
    UNREADABLE = b"biz_content={"
    TYPES = Alibaba.TYPES | {"OPENID": ("openid", False)}

    def request(self, random, request_id):
        [name] = random.sample(list(self.TYPES), 1)
        one = random_id(random, name, *self.TYPES[name])
        kind, _, hashed = name.partition("/")
        text = one.text
        if kind == "CAID" and not hashed and one.md5 and random.random() < 0.5:
            text = f"{text.strip()}_20230330"
        content = {"id": request_id, "principal": text, "principal_type": kind}
        content["encrypt_type"] = hashed
        asked = self.random_asked(random, "888")
        if asked:
            content["target_crowd_package_key"] = asked if len(asked) > 1 else asked[0]
        form = urlencode({"biz_content": json.dumps(content), "charset": "utf-8"})
        devices = [Request(usable_of([one]))]
        if random.random() < 0.3:
            return Sent(f"GET {self.path}?{form}", b"", request_id, devices, asked)
        return Sent(f"POST {self.path}", form.encode(), request_id, devices, asked)

    def expected(self, sent, answered):
        bids = self.bids(sent.asked, answered)
        bids = [one for one in sent.asked or self.strategies if one in bids]
        infos = [{"account_id": one} for one in bids]
        return {"required_flow": str(int(bool(bids))), "rta_info_list": infos}


class Huawei(InJson):
    """A batch of devices."""

    NAME = "huawei"

    def request(self, random, request_id):
        count = random.choice([1, 2, 3, 5]) if random.random() > 0.01 else 70
        ids = [random_id(random, "oaids", "oaid", False) for _ in range(count)]
        texts = [Json.spelled(random, one) for one in ids]
        asked = self.random_asked(random, "888")
        body = {"req_id": request_id, "oaids": texts}
        if asked:
            body["campaign_id"] = asked if len(asked) > 1 else asked[0]
        devices = [Request(usable_of([one])) for one in ids]
        for device in devices[64:]:
            device.ids, device.is_unread = [], True
        more = {"texts": texts}
        return Sent(
            f"POST {self.path}", json.dumps(body).encode(), request_id, devices, asked, more=more
        )

    def expected(self, sent, answered):
        if sent.failure:
            return {"result_code": "1", "oaids": []}
        accepted = []
        for text, decisions in zip(sent.more["texts"], answered, strict=True):
            if any(one.bid and not one.is_shadow for one in decisions.values()):
                accepted.append(text)
        return {"result_code": "0", "oaids": accepted}
