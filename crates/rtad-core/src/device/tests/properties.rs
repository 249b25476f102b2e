//! Properties of keys of any id.

use super::super::*;
use proptest::prelude::*;

/// Ids of every shape, blank ones, and junk, also with a byte changed.
fn any_id() -> impl Strategy<Value = Vec<u8>> {
    let spelled = |pattern: &'static str| proptest::string::string_regex(pattern).unwrap();
    let valid = prop_oneof![
        spelled("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
        spelled("[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}"),
        spelled("[0-9]{14,17}"),
        spelled("[0-9a-fA-F]{1,17}"),
        spelled("[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}"),
        spelled("[0-9a-fA-F]{32}"),
        spelled("[!-~]{1,130}"),
        spelled("[0-9A-Za-z_-]{20,70}"),
        spelled("[0-9eE.+-]{1,20}"),
        spelled("[0-9A-Za-z_@./+-]{1,130}"),
        spelled("[ -~]{0,60}"),
    ];
    let blank = prop::sample::select(vec![
        "",
        "null",
        "NuLL",
        "UnKnown",
        "__IMEI__",
        "{oaid}",
        "000000000000000",
        "02:00:00:00:00:00",
        "9774d56d682e549C",
        "00000000-0000-0000-0000-000000000000",
        "D41D8CD98F00B204e9800998ecf8427e",
        "acme-TEST-phone",
    ]);
    prop_oneof![
        4 => valid.clone().prop_map(String::into_bytes),
        1 => blank.prop_map(|id| id.as_bytes().to_vec()),
        1 => valid.prop_map(|id| format!(" {id}\t").into_bytes()),
        1 => proptest::collection::vec(any::<u8>(), 0..200),
        1 => (spelled("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), 0..36_usize, any::<u8>())
            .prop_map(|(id, at, byte)| {
                let mut id = id.into_bytes();
                id[at] = byte;
                id
            }),
    ]
}

fn any_case() -> impl Strategy<Value = Case> {
    prop::sample::select(vec![Case::AsIs, Case::Lower, Case::Upper, Case::All])
}

proptest! {
    #[test]
    fn batch_has_the_results_of_one_id_at_a_time(
        ids in proptest::collection::vec((0..9_usize, any_case(), any_id()), 0..300),
    ) {
        let maker = KeyMaker::with_extra_blanks(["Acme-Test-Phone"]);
        let (mut batch, mut keys, mut results) = (KeyBatch::default(), Vec::new(), Vec::new());
        let (mut expected, mut expected_results) = (Vec::new(), Vec::new());
        for (kind, case, id) in &ids {
            let kind = IdKind::ALL[*kind];
            batch.push(&maker, kind, *case, id);
            let result = maker.keys(kind, *case, id, &mut expected);
            expected_results.push((result, expected.len()));
            // Batches of any length.
            if expected.len() % 7 == 3 {
                batch.finish(&maker, &mut keys, |result| results.push(result));
                prop_assert_eq!((batch.len(), keys.len()), (0, expected.len()));
            }
        }
        batch.finish(&maker, &mut keys, |result| results.push(result));
        prop_assert_eq!(&keys, &expected);
        let expected_results: Vec<_> = expected_results.iter().map(|(result, _)| *result).collect();
        prop_assert_eq!(results, expected_results);
    }

    #[test]
    fn keys_of_many_are_the_keys_of_each(
        kind in 0..IdKind::ALL.len(),
        ids in proptest::collection::vec(any_id(), 0..300),
    ) {
        let (maker, kind) = (KeyMaker::default(), IdKind::ALL[kind]);
        let (mut keys, mut results) = (Vec::new(), Vec::new());
        let many = ids.iter().map(Vec::as_slice);
        maker.keys_of_many(kind, many, &mut keys, |result| results.push(result));
        let expected: Vec<_> = ids.iter().map(|id| maker.key(kind, id)).collect();
        prop_assert_eq!(results, expected.iter().map(|key| key.map(|_| ())).collect::<Vec<_>>());
        prop_assert_eq!(keys, expected.into_iter().flatten().collect::<Vec<_>>());
    }

    #[test]
    fn shapes_are_those_of_their_patterns(kind in 0..IdKind::ALL.len(), id in any_id()) {
        let is_hex = |id: &[u8]| id.iter().all(u8::is_ascii_hexdigit);
        let groups = |lengths: &[usize], separators: &[u8]| {
            let parts: Vec<_> = id.split(|byte| separators.contains(byte)).collect();
            parts.len() == lengths.len()
                && parts.iter().zip(lengths).all(|(part, len)| part.len() == *len && is_hex(part))
        };
        let kind = IdKind::ALL[kind];
        let expected = match kind {
            IdKind::Md5 => id.len() == 32 && is_hex(&id),
            IdKind::Idfa | IdKind::Gaid => groups(&[8, 4, 4, 4, 12], b"-"),
            IdKind::Imei => (14..=17).contains(&id.len()) && is_hex(&id),
            IdKind::AndroidId => (1..=16).contains(&id.len()) && is_hex(&id),
            IdKind::Mac => groups(&[12], b"") || groups(&[2; 6], b":-"),
            IdKind::Oaid | IdKind::Caid => {
                let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
                (1..=64).contains(&id.len())
                    && ![40, 56].contains(&id.len())
                    && id.iter().all(is_allowed)
            }
            IdKind::Openid => {
                let is_allowed =
                    |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.@+/".contains(byte);
                let is_of_number = |byte: &u8| b"0123456789.+-eE".contains(byte);
                let is_float = id.iter().all(is_of_number)
                    && id.iter().any(|byte| b".+".contains(byte));
                (1..=128).contains(&id.len()) && id.iter().all(is_allowed) && !is_float
            }
        };
        prop_assert_eq!(kind.has_shape(&id), expected);
    }

    #[test]
    fn hex_parses_in_either_case(bytes in any::<[u8; 16]>()) {
        let lower = const_hex::encode(bytes);
        prop_assert_eq!(DeviceKey::from_hex(lower.as_bytes()), Some(DeviceKey::from_bytes(bytes)));
        let upper = lower.to_uppercase();
        prop_assert_eq!(DeviceKey::from_hex(upper.as_bytes()), Some(DeviceKey::from_bytes(bytes)));
    }
}
