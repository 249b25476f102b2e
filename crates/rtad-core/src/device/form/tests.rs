use super::*;
use crate::synth::Synth;

#[test]
fn ids_of_a_kind_are_no_lookalikes_of_another() {
    for kind in IdKind::ALL {
        let ids = (0..1000).map(|index| Synth::new(kind, 7).id(index));
        let found = ids.filter(|id| lookalike(kind, id.as_bytes()).is_some());
        assert_eq!(found.count(), 0, "{kind}");
    }
}

#[test]
fn ids_of_the_other_kind_are_found() {
    for (kind, other) in [
        (IdKind::Oaid, IdKind::Md5),
        (IdKind::Openid, IdKind::Md5),
        (IdKind::Imei, IdKind::AndroidId),
        (IdKind::Caid, IdKind::AndroidId),
        (IdKind::AndroidId, IdKind::Imei),
        (IdKind::AndroidId, IdKind::Mac),
        (IdKind::Oaid, IdKind::Imei),
        (IdKind::Oaid, IdKind::Mac),
        (IdKind::Caid, IdKind::Idfa),
        (IdKind::Caid, IdKind::Imei),
    ] {
        let look = Look::Id(other);
        let mut found = 0;
        for index in 0..1000 {
            let mut id = Synth::new(other, 7).id(index);
            match kind {
                IdKind::AndroidId => id = id.replace(':', ""),
                IdKind::Oaid => id = id.replace(':', "-"),
                _ => {}
            }
            assert!(kind.has_shape(id.as_bytes()), "{kind} {other}");
            found += usize::from(lookalike(kind, id.as_bytes()) == Some(look));
        }
        assert!(found > 500, "{kind} {other}");
    }
}

#[test]
fn digests_and_numbers_are_found_among_ids_of_text() {
    const BASE64: &str = "jT69NlT7RqKDIpZmnPG1Ng";
    const SHA_1: &str = "da39a3ee5e6b4b0d3255bfef95601890afd80709";
    let sha_256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    for (kind, id, look) in [
        (IdKind::Oaid, BASE64, Some(Look::Digest)),
        (IdKind::Caid, BASE64, Some(Look::Digest)),
        (IdKind::Openid, BASE64, Some(Look::Digest)),
        (IdKind::Openid, SHA_1, Some(Look::Digest)),
        (IdKind::Caid, sha_256, Some(Look::Digest)),
        (
            IdKind::Caid,
            "20230330_8d3ebd3654fb46a2832296669cf1b536",
            Some(Look::Wrapped),
        ),
        // As long as a UUID.
        (
            IdKind::Caid,
            "8d3ebd3654fb46a2832296669cf1b536_123",
            Some(Look::Wrapped),
        ),
        (IdKind::Oaid, "17312345678901234", Some(Look::Number)),
        // OAIDs of some vendors are 64 hex digits.
        (IdKind::Oaid, sha_256, None),
        (IdKind::Oaid, "20231104", Some(Look::Number)),
        (IdKind::Caid, "17312345678901234", Some(Look::Number)),
        (IdKind::AndroidId, "1731234567", Some(Look::Number)),
        (IdKind::AndroidId, "9774560682055490", None),
        (IdKind::Openid, "10001", None),
        (IdKind::Oaid, "1f1f2f3f4f5f6f7f8f9fa1", None),
        // As issued by QQ.
        (IdKind::Openid, "9B754E88EBEA9E906D6F496FCEBB4F76", None),
        (IdKind::Openid, "7268ceb0-5411-4004-b7cb-bd1fee4b6277", None),
        (IdKind::Openid, "name.surname@example.com", None),
        (IdKind::Openid, sha_256, Some(Look::Digest)),
        (
            IdKind::Openid,
            "openid_o6_bmjrPTlm6_2sgVt7hMZOPfL2M",
            Some(Look::Wrapped),
        ),
        (
            IdKind::Openid,
            "oaid-7268ceb0-5411-4004-b7cb-bd1fee4b6277",
            Some(Look::Wrapped),
        ),
        (
            IdKind::Openid,
            "o6_bmjrPTlm6_2sgVt7hMZOPfL2M/o6_bmkSzTlm6_2sgVt7hMZOPfL2M",
            Some(Look::Wrapped),
        ),
        (
            IdKind::Openid,
            "7268ceb0-5411-4004-b7cb-bd1fee4b6277.9168ceb0-5411-4004-b7cb-bd1fee4b6277",
            Some(Look::Wrapped),
        ),
        // A token whose middle is a mark.
        (IdKind::Openid, "o6_bmjrPTlm6_2-gVt7hMZOPfL2M_", None),
        (
            IdKind::Caid,
            "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU",
            Some(Look::Digest),
        ),
        (IdKind::Caid, "2023-11-04", Some(Look::Number)),
        (
            IdKind::Oaid,
            "868049039501257_d0d4845ae4495a83",
            Some(Look::Wrapped),
        ),
        (IdKind::Oaid, "A0000049F1B23C", Some(Look::Id(IdKind::Imei))),
        // An Android id that lost two zeros.
        (IdKind::AndroidId, "d4845ae4495a83", None),
    ] {
        assert!(kind.has_shape(id.as_bytes()), "{kind} {id}");
        assert_eq!(lookalike(kind, id.as_bytes()), look, "{kind} {id}");
    }
}

#[test]
fn malformed_texts_have_looks() {
    for (text, look) in [
        (
            "8d3ebd3654fb46a2832296669cf1b536",
            Some(Look::Id(IdKind::Md5)),
        ),
        (
            "7268ceb0-5411-4004-b7cb-bd1fee4b6277",
            Some(Look::Id(IdKind::Gaid)),
        ),
        (
            "7268CEB0-5411-4004-B7CB-BD1FEE4B6277",
            Some(Look::Id(IdKind::Idfa)),
        ),
        (
            "da39a3ee5e6b4b0d3255bfef95601890afd80709",
            Some(Look::Digest),
        ),
        ("jT69NlT7RqKDIpZmnPG1Ng==", Some(Look::Digest)),
        ("2jmj7l5rSw0yVb/vlWAYkK/YBwk=", Some(Look::Digest)),
        ("868049039501257.0", Some(Look::Float)),
        ("8.68049E+14", Some(Look::Float)),
        ("12345678901234567890", Some(Look::Number)),
        (
            "'7268ceb0-5411-4004-b7cb-bd1fee4b6277'",
            Some(Look::Wrapped),
        ),
        ("oaid:7268ceb054114004", Some(Look::Wrapped)),
        ("868049039501257;868049039501258", Some(Look::Wrapped)),
        ("two words", None),
        ("", None),
    ] {
        assert_eq!(Look::of(text.as_bytes()), look, "{text}");
    }
}

#[test]
fn sixteen_bytes_of_text_are_no_digest() {
    for text in [
        "8d3ebd3654fb46a2",
        "868049039501257\r",
        "\t86804903950125 ",
        "868049039501257\0",
        "user_00000000_07",
        "8d3ebd3654fb46",
    ] {
        assert!(digest_key(text.as_bytes()).is_none(), "{text:?}");
    }
    for digest in [
        *b"8d3ebd3654fb46\xa2\0",
        *b"8d3ebd36\n4fb46a2",
        *b"8d3ebd36\x004fb46a2",
    ] {
        assert_eq!(digest_key(&digest), Some(DeviceKey::from_bytes(digest)));
    }
}

#[test]
fn uuid_of_a_mixed_list_is_an_idfa_or_a_gaid_in_either_case() {
    use IdKind::{Caid, Gaid, Idfa, Imei, Oaid};

    let lower = "7268ceb0-5411-4004-b7cb-bd1fee4b6277";
    let upper = lower.to_uppercase();
    let mixed = lower.replace("7268c", "7268C");
    for (kinds, id, kind, case) in [
        (&[Idfa, Imei, Oaid][..], upper.as_str(), Idfa, Case::Upper),
        // Perhaps an OAID.
        (&[Idfa, Imei, Oaid], lower, Idfa, Case::All),
        (&[Oaid, Idfa], lower, Idfa, Case::All),
        (&[Idfa, Imei], lower, Idfa, Case::Upper),
        (&[Idfa, Gaid], lower, Gaid, Case::Lower),
        (&[Gaid, Idfa], &upper, Idfa, Case::Upper),
        (&[Gaid, Oaid], lower, Gaid, Case::Lower),
        (&[Gaid, Oaid], &upper, Gaid, Case::All),
        (&[Idfa, Gaid, Oaid], &mixed, Gaid, Case::All),
        (&[Caid, Idfa], lower, Idfa, Case::Upper),
        (&[Imei, Oaid], lower, Oaid, Case::AsIs),
    ] {
        let reading = Reading { kind, case };
        assert_eq!(
            Reading::among(kinds, id.as_bytes()),
            reading,
            "{kinds:?} {id}"
        );
    }
}

#[test]
fn id_of_a_mixed_list_is_of_the_narrowest_kind_that_it_looks_like() {
    use IdKind::{AndroidId, Caid, Idfa, Imei, Mac, Md5, Oaid, Openid};

    for (kinds, id, kind) in [
        (&[Md5, Oaid][..], "8d3ebd3654fb46a2832296669cf1b536", Md5),
        (&[Imei, Oaid], "868049039501257", Imei),
        (&[Imei, AndroidId], "868049039501257", Imei),
        (&[Imei, AndroidId], "d0d4845ae4495a83", AndroidId),
        (&[Imei, Oaid], "D0D4845AE4495A83", Oaid),
        (&[Mac, AndroidId], "102AB3D152F4", Mac),
        (&[Oaid, Caid], "8d3ebd3654fb46a2832296669cf1b536", Caid),
        (&[Openid, Caid], "8d3ebd3654fb46a2832296669cf1b536", Caid),
        // An MEID, in either case.
        (&[Imei, Oaid], "A0000049F1B23C", Imei),
        (&[Imei, Openid], "A0000049F1B23C", Imei),
        // Neither: the first kind refuses it.
        (&[Idfa, Imei, Oaid], "8.68049E+14", Idfa),
    ] {
        let reading = Reading::among(kinds, id.as_bytes());
        assert_eq!(reading.kind, kind, "{kinds:?} {id}");
    }
}
