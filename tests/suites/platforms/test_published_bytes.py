"""Published requests and answers, against the classes of Google's protobuf compiler. The unit
tests of `src/platform` have every field and every failure."""

from suites.platforms.conftest import IMEI, OAID, md5
from suites.testkit.client import ask
from suites.testkit.stubs import ocean_pb2, tencent_pb2

# Made with protoc.
TENCENT = bytes.fromhex(
    "0a164a6f383235775f75456532784c6c4a554146777653512a4808021a2038643365626433363534666234366132383332323936"
    "363639636631623533363220383365393135386134666235346330653165663062323338363339613233616550034a0408808002"
)
TENCENT_ANSWER = bytes.fromhex("0a164a6f383235775f75456532784c6c4a55414677765351100052036e6577")
OCEAN = bytes.fromhex(
    "0801122038643365626433363534666234366132383332323936363639636631623533364801620e323032343036313661626364"
    "65666a056c6f63616c7204934e944e78018a01480a20386433656264333635346662343661323833323239363636396366316235"
    "33361a2431666539613937302d656662622d323965302d306264642d663564626266373531616235"
)
OCEAN_ANSWER = bytes.fromhex("320e32303234303631366162636465663a0318934e3a0318944e4a02080150901c")


def post(served, path, request):
    """The bytes of an answer, whose status is always 200."""
    answer = ask(served.decisions, path, request)
    assert answer.status == 200, answer
    return answer.body


def test_tencent_requests_equal_googles_encoding_and_are_answered(served):
    device = tencent_pb2.Device(
        os=tencent_pb2.Device.OS_ANDROID,
        imei_md5sum=md5(IMEI),
        oaid_md5sum=md5(OAID),
        cached_deviceid_type=tencent_pb2.Device.CACHED_OAID_MD5,
    )
    experiment = tencent_pb2.RtaRequest.Experiment(exp_id=32768)
    request = tencent_pb2.RtaRequest(
        id="Jo825w_uEe2xLlJUAFwvSQ", device=device, exps=[experiment]
    )
    assert request.SerializeToString() == TENCENT
    answer = post(served, "/rta/tencent", TENCENT)
    assert answer == TENCENT_ANSWER
    decoded = tencent_pb2.RtaResponse.FromString(answer)
    assert decoded.HasField("code") and list(decoded.out_target_id) == ["new"]


def test_ocean_requests_equal_googles_encoding_and_are_answered(served):
    request = ocean_pb2.Req(
        platform="PLATFORM_ANDROID",
        did=md5(IMEI),
        did_type="IMEI_MD5",
        req_id="20240616abcdef",
        source="local",
        rta_ids=[10003, 10004],
        enable_strategy=1,
        device=ocean_pb2.Device(imei_md5=md5(IMEI), oaid=OAID),
    )
    assert request.SerializeToString() == OCEAN
    answer = post(served, "/rta/ocean", OCEAN)
    assert answer == OCEAN_ANSWER
    decoded = ocean_pb2.Rsp.FromString(answer)
    assert decoded.HasField("bid_type")
    assert [info.is_interested for info in decoded.user_infos] == [False, False]


def test_tencent_values_equal_googles_encoding(served):
    answer = post(served, "/rta/tencent-values", TENCENT)
    info = tencent_pb2.RtaResponse.TargetInfo(
        out_target_id="new", user_weight_factor=0.2, cpa_price=3000, cpc_price=10, cpc_factor=5
    )
    expected = tencent_pb2.RtaResponse(
        request_id="Jo825w_uEe2xLlJUAFwvSQ",
        code=0,
        out_target_id=["new", "plain"],
        target_infos=[info],
    )
    assert answer == expected.SerializeToString()
    # The bounds of the platform, in single precision.
    assert 0.2 <= tencent_pb2.RtaResponse.FromString(answer).target_infos[0].user_weight_factor


def test_ocean_values_equal_googles_encoding(served):
    answer = post(served, "/rta/ocean-values", OCEAN)
    score = ocean_pb2.Rsp.UserScore(user_type="PRICE_COEFFICIENT", quality=0.2)
    expected = ocean_pb2.Rsp(
        req_id="20240616abcdef",
        user_infos=[
            ocean_pb2.Rsp.UserInfo(is_interested=True, rta_id=10003, user_scores=score),
            ocean_pb2.Rsp.UserInfo(is_interested=True, rta_id=10004),
        ],
        bid_type={"value": 0},
    )
    assert answer == expected.SerializeToString()
