//! Published vectors of canonical forms, blank ids, and ids of invalid shape.

use super::blank::{BRACKETS, MACROS};
use super::*;

mod properties;

fn hex(key: DeviceKey) -> String {
    const_hex::encode(key.as_bytes())
}

#[test]
fn canonical_forms_match_the_published_vectors() {
    let keys = KeyMaker::default();
    for (kind, raw, md5) in [
        (
            IdKind::Idfa,
            "3E0046F7-8BD4-4F3E-9F91-358B137D2BF0",
            "77d06cb28c1771e8019be4f4fb6e1938",
        ),
        (
            IdKind::Idfa,
            "3e0046f7-8bd4-4f3e-9f91-358b137d2bf0",
            "77d06cb28c1771e8019be4f4fb6e1938",
        ),
        (
            IdKind::Imei,
            "868049039501257",
            "8d3ebd3654fb46a2832296669cf1b536",
        ),
        (
            IdKind::Imei,
            " 868049039501257\t",
            "8d3ebd3654fb46a2832296669cf1b536",
        ),
        (
            IdKind::Oaid,
            "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5",
            "83e9158a4fb54c0e1ef0b238639a23ae",
        ),
        (
            IdKind::AndroidId,
            "d0d4845ae4495a83",
            "1ebf70337adb6df4b70300edc27c24c8",
        ),
        (
            IdKind::Mac,
            "10:2A:B3:D1:52:F4",
            "d53e994cce18ab87fdd25d155544532f",
        ),
        (
            IdKind::Gaid,
            "7268ceb0-5411-4004-b7cb-bd1fee4b6277",
            "7c687d7812ae6ca319aecea51d0d7750",
        ),
        (
            IdKind::Gaid,
            "7268CEB0-5411-4004-B7CB-BD1FEE4B6277",
            "7c687d7812ae6ca319aecea51d0d7750",
        ),
        (
            IdKind::Md5,
            "8d3ebd3654fb46a2832296669cf1b536",
            "8d3ebd3654fb46a2832296669cf1b536",
        ),
        (
            IdKind::Md5,
            "8D3EBD3654FB46A2832296669CF1B536",
            "8d3ebd3654fb46a2832296669cf1b536",
        ),
    ] {
        assert_eq!(
            keys.key(kind, raw.as_bytes()).map(hex),
            Ok(md5.to_owned()),
            "{kind} {raw}"
        );
    }
}

#[test]
fn oaid_keeps_its_case() {
    let keys = KeyMaker::default();
    let mixed = keys.key(IdKind::Oaid, b"AbCdEf0123456789").unwrap();
    let lower = keys.key(IdKind::Oaid, b"abcdef0123456789").unwrap();
    assert_ne!(mixed, lower);
}

#[test]
fn meid_is_lowercased() {
    let keys = KeyMaker::default();
    assert_eq!(
        keys.key(IdKind::Imei, b"A0000049F1B23C"),
        keys.key(IdKind::Imei, b"a0000049f1b23c")
    );
}

#[test]
fn published_blank_md5s_are_blank() {
    let keys = KeyMaker::default();
    for md5 in [
        // md5sum of an empty line, and of lines "null" and "0".
        "68b329da9893e34099c7d8ad5cb9c940",
        "81051bcc2cf1bedf378224b0a93e2877",
        "674441960ca1ba2de08ad4e50c9fde98",
        "897316929176464ebc9ad085f31e7284",
        "d41d8cd98f00b204e9800998ecf8427e",
        "9f89c84a559f573636a47ff8daed0d33",
        "5284047f4ffb4e04824a2fd1d1f0cd62",
        "74be16979710d4c4e7c6647856088456",
        "06a9e146cb8cc0853ded03bb15f2260e",
        "68428b8a9b0bbd6069b6b78f1c257cff",
        "c74ff0db2bdeafffb9a70ea25da443d6",
        "00000000000000000000000000000000",
        "ffffffffffffffffffffffffffffffff",
        "FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF",
    ] {
        assert_eq!(
            keys.key(IdKind::Md5, md5.as_bytes()),
            Err(Unusable::Blank),
            "{md5}"
        );
        assert_eq!(
            keys.key(IdKind::Md5, md5.to_uppercase().as_bytes()),
            Err(Unusable::Blank),
            "{md5}"
        );
    }
}

#[test]
fn blank_raw_ids_are_blank_in_every_kind_and_case() {
    let keys = KeyMaker::default();
    for raw in [
        "",
        "  ",
        "0",
        "-",
        "-1",
        "null",
        "NULL",
        "(null)",
        "Unknown",
        "unknow",
        "UNDEFINED",
        "n/a",
        "NaN",
        "test",
        "000000000000000",
        "00000000-0000-0000-0000-000000000000",
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
        "ffffffffffffffff",
        "123456789012345",
        "358673013795895",
        "9774D56D682E549C",
        "02:00:00:00:00:00",
        "02-00-00-00-00-00",
        "ff:ff:ff:ff:ff:ff",
        "000000000000",
        "__IMEI__",
        "__idfa_md5__",
        "__CAID2__",
        "zzzzzzzzzzz",
        "----",
        r"\N",
        "None",
        "nil",
        "7777777",
        "0:0-00",
        "81684c2e68ade2cd4bf9f2e8a67dd4fe",
        "DA4C50B4BAB2FA1A3520E4482AB8E788",
        "{}",
        "[]",
        "?!",
        "__ANY_NAME__",
        "{idfa}",
        "{{ device.idfa }}",
        "%%ADVERTISING_IDFA%%",
        "$oaid$",
        "${GAID}",
        "[IMEI-MD5]",
        "${__OAID__}",
        "{0}",
        // A header in the middle of joined files, and a row of types.
        "OAID",
        "android_id",
        "Openid",
        "string",
        r"\\N",
        "<NA>",
        "<null>",
        "<nil>",
        "#N/A",
        "NaT",
        "[IMEI1_SHA256]",
        "__HASH_ANDROID_ID__",
        "{androidIdMd5}",
        "{google_advertising_id}",
    ] {
        for kind in IdKind::ALL {
            assert_eq!(
                keys.key(kind, raw.as_bytes()),
                Err(Unusable::Blank),
                "{kind} {raw:?}"
            );
        }
    }
}

#[test]
fn md5_of_one_repeated_digit_is_blank() {
    let keys = KeyMaker::default();
    for digit in "0123456789abcdefABCDEF".chars() {
        let mut run = digit.to_string().repeat(32);
        assert_eq!(
            keys.key(IdKind::Md5, run.as_bytes()),
            Err(Unusable::Blank),
            "{run}"
        );
        run.replace_range(..1, &digit.to_ascii_uppercase().to_string());
        assert_eq!(
            keys.key(IdKind::Md5, run.as_bytes()),
            Err(Unusable::Blank),
            "{run}"
        );
    }
}

#[test]
fn md5s_of_lines_of_junk_are_blank() {
    let keys = KeyMaker::default();
    for junk in [
        "",
        "NULL",
        "None",
        "nan",
        "UNKNOWN",
        "000000000000000",
        "00000000-0000-0000-0000-000000000000",
        "02:00:00:00:00:00",
    ] {
        for end in ["\n", "\r\n"] {
            let md5 = hex(DeviceKey::of_canonical(format!("{junk}{end}").as_bytes()));
            let key = keys.key(IdKind::Md5, md5.as_bytes());
            assert_eq!(key, Err(Unusable::Blank), "md5 of {junk}{end:?}");
        }
    }
}

#[test]
fn digests_of_macros_and_of_runs_are_blank() {
    let keys = KeyMaker::default();
    let macros = MACROS.iter().flat_map(|name| {
        BRACKETS
            .iter()
            .map(move |(open, close)| format!("{open}{name}{close}"))
    });
    let runs =
        (1..=40).flat_map(|length| (0..10).map(move |digit| digit.to_string().repeat(length)));
    for raw in macros.chain(runs).chain([r"\N".to_owned()]) {
        for raw in [raw.to_lowercase(), raw.to_uppercase()] {
            let md5 = hex(DeviceKey::of_canonical(raw.as_bytes()));
            for md5 in [md5.to_uppercase(), md5] {
                let key = keys.key(IdKind::Md5, md5.as_bytes());
                assert_eq!(key, Err(Unusable::Blank), "md5 of {raw}");
            }
        }
    }
}

#[test]
fn ids_with_marks_are_usable_and_in_brackets_malformed() {
    let keys = KeyMaker::default();
    for openid in [
        "o6_bmjrPTlm6_2sgVt7hMZOPfL2M",
        "_o6-bm_",
        "-1a",
        "__imei",
        "o6/bm+JrPT",
        "name.surname@example.com",
    ] {
        assert!(
            keys.key(IdKind::Openid, openid.as_bytes()).is_ok(),
            "{openid}"
        );
    }
    for idfa in [
        "{3E0046F7-8BD4-4F3E-9F91-358B137D2BF0}",
        "[3E0046F78BD44F3E9F91358B137D2BF0]",
    ] {
        let key = keys.key(IdKind::Idfa, idfa.as_bytes());
        assert_eq!(key, Err(Unusable::Malformed), "{idfa}");
    }
    for wrapped in [
        "[o6_bmjrPTlm6_2sgVt7hMZOPfL2M]",
        "[jT69NlT7RqKDIpZmnPG1Ng]",
        "%o6_bmjrPTlm6_2sgVt7hMZOPfL2M%",
        "[868049039501257 868049039501265]",
        "[ 868049039501257 ]",
        "[868049039501257.0]",
        "[imei:868049039501257]",
        "{imei: 868049039501257}",
        "{7268ceb0-5411-4004-b7cb-bd1fee4b6277 }",
        "[A4:5E:60:AA:BB:CC A4:5E:60:AA:BB:CD]",
        "[abcdefabcdef abcdefabcdef]",
        "[20230330_8d3ebd3654fb46a2832296669cf1b536]",
    ] {
        for kind in IdKind::ALL {
            let key = keys.key(kind, wrapped.as_bytes());
            assert_eq!(key, Err(Unusable::Malformed), "{kind} {wrapped}");
        }
    }
    assert_eq!(
        keys.key(IdKind::Imei, b"caf\xc3\xa9"),
        Err(Unusable::Malformed)
    );
}

#[test]
fn white_space_of_any_script_is_trimmed() {
    let keys = KeyMaker::default();
    let id = "8d3ebd3654fb46a2832296669cf1b536";
    let key = keys.key(IdKind::Md5, id.as_bytes());
    for (before, after) in [
        (" ", "\t"),
        ("\u{a0}", "\u{3000} "),
        ("\u{feff}", ""),
        ("", "\u{200b}"),
        (" \u{2060} ", ""),
    ] {
        let padded = format!("{before}{id}{after}");
        assert_eq!(keys.key(IdKind::Md5, padded.as_bytes()), key, "{padded:?}");
        let caid = keys.key(IdKind::Caid, id.as_bytes());
        assert_eq!(
            keys.key(IdKind::Caid, padded.as_bytes()),
            caid,
            "{padded:?}"
        );
    }
    assert_eq!(
        keys.key(IdKind::Openid, "\u{3000}".as_bytes()),
        Err(Unusable::Blank)
    );
}

#[test]
fn ids_of_invalid_shape_are_malformed() {
    let keys = KeyMaker::default();
    for (kind, raw) in [
        (IdKind::Md5, "8d3ebd3654fb46a2832296669cf1b53"),
        (IdKind::Md5, "8d3ebd3654fb46a2832296669cf1b5360"),
        (IdKind::Md5, "0x3ebd3654fb46a2832296669cf1b536"),
        (IdKind::Md5, "8d3ebd3654fb46a2832296669cf1b53g"),
        (IdKind::Idfa, "3E0046F78BD44F3E9F91358B137D2BF0"),
        (IdKind::Idfa, "3E0046F7-8BD4-4F3E-9F91-358B137D2BFG"),
        (IdKind::Imei, "8680490395012"),
        (IdKind::Imei, "86804903950125700"),
        (IdKind::AndroidId, "d0d4845ae4495a830"),
        (IdKind::Mac, "10:2A:B3:D1:52"),
        (IdKind::Oaid, "two words"),
        (IdKind::Oaid, "1fe9a970-efbb-29e0,1fe9a970-efbb-29e1"),
        (
            IdKind::Caid,
            r#"[{"caid":"8d3ebd3654fb46a2832296669cf1b536"}]"#,
        ),
        (IdKind::Caid, "%5B8d3ebd3654fb46a2832296669cf1b536%5D"),
        (IdKind::Openid, "caf\u{e9}"),
    ] {
        let expected = if raw.len() == 17 && kind == IdKind::Imei {
            Ok(())
        } else {
            Err(Unusable::Malformed)
        };
        assert_eq!(
            keys.key(kind, raw.as_bytes()).map(|_| ()),
            expected,
            "{kind} {raw:?}"
        );
    }
    assert_eq!(
        keys.key(IdKind::Openid, &[b'a', b'b'].repeat(65)),
        Err(Unusable::Malformed)
    );
}

#[test]
fn operator_can_add_blank_ids() {
    let keys = KeyMaker::with_extra_blanks(["Acme-Test-Phone"]);
    assert_eq!(
        keys.key(IdKind::Oaid, b"acme-test-phone"),
        Err(Unusable::Blank)
    );
    let hashed = const_hex::encode(DeviceKey::of_canonical(b"ACME-TEST-PHONE").as_bytes());
    assert_eq!(
        keys.key(IdKind::Md5, hashed.as_bytes()),
        Err(Unusable::Blank)
    );
    assert!(
        KeyMaker::default()
            .key(IdKind::Oaid, b"acme-test-phone")
            .is_ok()
    );
}

#[test]
fn case_all_makes_one_key_per_distinct_spelling() {
    let keys = KeyMaker::default();
    let mut made = Vec::new();
    keys.keys(IdKind::Mac, Case::All, b"10:2A:b3:D1:52:F4", &mut made)
        .unwrap();
    assert_eq!(made.len(), 3);
    made.clear();
    keys.keys(IdKind::Mac, Case::All, b"10:2a:b3:d1:52:f4", &mut made)
        .unwrap();
    assert_eq!(made.len(), 2, "as-is equals lower");
    made.clear();
    keys.keys(
        IdKind::Md5,
        Case::All,
        b"8D3EBD3654FB46A2832296669CF1B536",
        &mut made,
    )
    .unwrap();
    assert_eq!(made.len(), 1, "an md5 has no case");
}

#[test]
fn id_that_is_blank_in_one_case_has_no_key() {
    let keys = KeyMaker::default();
    let mut made = Vec::new();
    let result = keys.keys(IdKind::Openid, Case::All, b"UnKnown", &mut made);
    assert_eq!((result, made.len()), (Err(Unusable::Blank), 0));
}

#[test]
fn debug_of_a_key_hides_its_value() {
    let key = DeviceKey::of_canonical(b"868049039501257");
    assert_eq!(format!("{key:?}"), "DeviceKey(hidden)");
}

#[test]
fn kinds_parse_from_their_names() {
    for kind in IdKind::ALL {
        assert_eq!(kind.as_str().parse(), Ok(kind));
    }
    assert_eq!("IDFA".parse::<IdKind>(), Err(ParseKindError));
    assert_eq!("ALL".parse::<Case>(), Err(ParseCaseError));
}
