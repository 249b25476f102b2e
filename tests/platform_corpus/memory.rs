//! Memory bounds of answers, and the bodies with the highest memory use.
//!
//! An empty message in a list takes two bytes of the body and a struct in memory. Lists grow by
//! doubling. Request and answer are in memory together.

use bytes::Bytes;

use crate::properties::Protocol;

/// Bound for the smallest request: a list starts with a capacity of four, and errors have a text.
const BASE: usize = 1024;

/// Default of `server.max_body`.
const BODY: usize = 64 << 10;

/// Runs `work`; returns its result and the peak of allocated bytes.
pub fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let mut result = None;
    let counted = allocation_counter::measure(|| result = Some(work()));
    (
        result.expect("work has run"),
        usize::try_from(counted.bytes_max).expect("fits usize"),
    )
}

/// Highest number of bytes in memory per byte of a body: the measured value with a margin. The
/// allocator counts a growing list together with its old copy.
const fn factor(protocol: Protocol) -> usize {
    match protocol {
        // An empty CAID is 2 bytes and a struct of 64. At 2^14 + 1 of them, a list of 2^14 is
        // copied to one of 2^15: 96 bytes per byte. Up to 1,024 empty ads take more: 72 with the
        // growth of their list, 64 as requested strategies at just over a power of two, and 16 of
        // the answer.
        Protocol::Tencent => 160,
        // Up to 1,024 ids of one byte take 24 with the growth of their list, 128 as requested
        // strategies at just over a power of two, and 20 of the answer. Longer lists are refused.
        Protocol::Ocean => 176,
        // An empty strategy name is 3 bytes and a string of 24, until the limit is checked: 24 per
        // byte.
        Protocol::Api => 26,
        // Up to 1,024 strategies of one byte take 192 with the growth of their list, and 80 of the
        // answer: 1 per byte of the largest body.
        Protocol::CustomProtobuf | Protocol::CustomJson => 288,
    }
}

pub fn assert_bounded(protocol: Protocol, what: &str, body: usize, peak: usize) {
    let bound = BASE + factor(protocol) * body;
    assert!(
        peak <= bound,
        "{protocol:?} {what}: {body} bytes took {peak}, expected at most {bound}"
    );
}

/// Bodies of the highest size.
pub fn costly(protocol: Protocol) -> Vec<(&'static str, Bytes)> {
    let full = |head: &[u8], each: &[u8], tail: &[u8]| -> Bytes {
        let count = (BODY - head.len() - tail.len()) / each.len();
        [head, &each.repeat(count), tail].concat().into()
    };
    // A device or a packed list as the whole body: its key and a length of three bytes.
    let within = |key: &[u8], each: &[u8]| -> Bytes {
        let inside = each.repeat((BODY - 8) / each.len());
        let mut body = key.to_vec();
        prost::encoding::encode_varint(inside.len() as u64, &mut body);
        body.extend(inside);
        body.into()
    };
    let second = b"\x42\x02\x08\x02";
    match protocol {
        Protocol::Tencent => vec![
            ("second request, empty ads", full(second, b"\x5a\x00", b"")),
            // Lists double: just past a power of two, nearly half of the capacity is unused.
            (
                "second request, 2^14 + 1 ads",
                [&second[..], &b"\x5a\x00".repeat((1 << 14) + 1)]
                    .concat()
                    .into(),
            ),
            (
                "second request, ads of a number",
                full(second, b"\x5a\x02\x08\x00", b""),
            ),
            (
                "second request, ads to keep",
                full(second, b"\x5a\x04\x2a\x02T1", b""),
            ),
            ("ads without strategies", full(b"", b"\x5a\x00", b"")),
            ("empty qaids", within(b"\x2a", b"\x6a\x00")),
            ("2^14 + 1 empty qaids", {
                let inside = b"\x6a\x00".repeat((1 << 14) + 1);
                [&b"\x2a\x82\x80\x02"[..], &inside].concat().into()
            }),
            (
                "qaids of empty ids",
                within(b"\x2a", b"\x6a\x04\x12\x00\x22\x00"),
            ),
            ("empty openids", within(b"\x2a", b"\x72\x00")),
            ("doubts, unpacked", within(b"\x2a", b"\x48\x01")),
            ("doubts, packed", {
                let inside = [&b"\x4a\xf0\xff\x03"[..], &[7; 65520]].concat();
                [&b"\x2a\xf4\xff\x03"[..], &inside].concat().into()
            }),
            ("doubts and qaids", {
                let half = BODY / 2 - 16;
                let mut inside = b"\x4a".to_vec();
                prost::encoding::encode_varint(half as u64, &mut inside);
                inside.extend(std::iter::repeat_n(7, half));
                inside.extend(b"\x6a\x04\x12\x00\x22\x00".repeat(half / 6));
                let mut body = b"\x2a".to_vec();
                prost::encoding::encode_varint(inside.len() as u64, &mut body);
                body.extend(inside);
                body.into()
            }),
            ("devices", full(b"", b"\x2a\x00", b"")),
            ("a long id", within(b"\x0a", b"x")),
            ("unread messages", full(b"", b"\x4a\x00", b"")),
            ("groups", full(b"", b"\xb3\x04\xb4\x04", b"")),
        ],
        Protocol::Ocean | Protocol::CustomProtobuf => vec![
            ("ids, packed", within(b"\x72", b"\x01")),
            ("ids, unpacked", full(b"", b"\x70\x01", b"")),
            (
                "ids of ten bytes",
                within(b"\x72", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
            ),
            ("ids of a strategy", within(b"\x72", b"\x93\x4e")),
            ("2^15 + 1 ids", {
                let inside = b"\x01".repeat((1 << 15) + 1);
                [&b"\x72\x81\x80\x02"[..], &inside].concat().into()
            }),
            ("devices", full(b"", b"\x8a\x01\x00", b"")),
            ("unread numbers", full(b"", b"\xc2\x01\x00", b"")),
            ("a long id", within(b"\x62", b"x")),
        ],
        Protocol::Api | Protocol::CustomJson => vec![
            (
                "empty strategies",
                full(b"{\"strategies\":[\"\"", b",\"\"", b"]}"),
            ),
            ("2^14 + 1 empty strategies", {
                [
                    &b"{\"strategies\":[\"\""[..],
                    &b",\"\"".repeat(1 << 14),
                    b"]}",
                ]
                .concat()
                .into()
            }),
            (
                "escaped strategies",
                full(b"{\"strategies\":[\"\"", b",\"\\n\"", b"]}"),
            ),
            (
                "nulls",
                full(b"{\"device\":{\"openid\":[null", b",null", b"]}}"),
            ),
            (
                "ids",
                full(b"{\"device\":{\"openid\":[\"a\"", b",\"b\"", b"]}}"),
            ),
            (
                "empty ids",
                full(b"{\"device\":{\"openid\":[\"\"", b",\"\"", b"]}}"),
            ),
            (
                "escaped ids",
                full(b"{\"device\":{\"openid\":[\"\"", b",\"\\n\"", b"]}}"),
            ),
            ("devices", full(b"{\"device\":{}", b",\"device\":{}", b"}")),
            ("depth", full(b"{\"device\":{\"imei\":{\"a\":", b"[", b"")),
            ("a long id", full(b"{\"request_id\":\"\\n", b"x", b"\"}")),
            ("an unknown field", full(b"{\"", b"x", b"\":1}")),
        ],
    }
}
