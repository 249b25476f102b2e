use rtad_core::device::{Case, KeyMaker, Unusable};

use super::*;

/// Values of every result, as JSON: borrowed, escaped and not strings.
const VALUES: [(&str, &str); 16] = [
    (
        r#""3E0046F7-8BD4-4F3E-9F91-358B137D2BF0""#,
        "3E0046F7-8BD4-4F3E-9F91-358B137D2BF0",
    ),
    (
        r#""3e0046f7-8bd4-4f3e-9f91-358b137d2bf1""#,
        "3e0046f7-8bd4-4f3e-9f91-358b137d2bf1",
    ),
    (r#"" 868049039501257""#, " 868049039501257"),
    ("868049039501258", "868049039501258"),
    (
        r#""8d3ebd3654fb46a2832296669cf1b536""#,
        "8d3ebd3654fb46a2832296669cf1b536",
    ),
    (
        r#""d41d8cd98f00b204e9800998ecf8427e""#,
        "d41d8cd98f00b204e9800998ecf8427e",
    ),
    (
        r#""\u0038d3ebd3654fb46a2832296669cf1b53""#,
        "8d3ebd3654fb46a2832296669cf1b53",
    ),
    (r#""A0000049F1\u004223C""#, "A0000049F1B23C"),
    (r#""9774D56D682E549C""#, "9774D56D682E549C"),
    (r#""null""#, "null"),
    (r#""UnKnown""#, "UnKnown"),
    (r#""__IMEI__""#, "__IMEI__"),
    (r#""two words""#, "two words"),
    (
        r#""o6_bmjrPTlm6_2sgVt7hMZOPfL2M""#,
        "o6_bmjrPTlm6_2sgVt7hMZOPfL2M",
    ),
    ("null", ""),
    ("12", "12"),
];

/// The result of one value at a time.
fn expected(
    (maker, case): (&KeyMaker, Option<Case>),
    kinds: &Kinds,
    text: &str,
    keys: &mut Vec<DeviceKey>,
) -> Result<(), Unusable> {
    let reading = kinds.reading(text.as_bytes());
    let case = case.unwrap_or(reading.case);
    maker.keys(reading.kind, case, text.as_bytes(), keys)
}

/// Rows of two columns: their values, and lines that are no object in between.
fn rows() -> impl Iterator<Item = (u64, Option<[usize; 2]>)> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below
    };
    (1..=3000).map(move |row| {
        let values = [next(VALUES.len()), next(VALUES.len())];
        (row, (next(100) > 0).then_some(values))
    })
}

fn check(kinds: [&str; 2], case: Option<Case>) {
    let names = ["a", "b"];
    let columns = [0, 1].map(|column| Column {
        name: names[column].to_owned(),
        kinds: kinds[column].parse().unwrap(),
    });
    let maker = KeyMaker::default();
    let (mut keys, mut rejected, mut text) = (Vec::new(), Vec::new(), String::new());
    for (row, values) in rows() {
        let mut reject = |column: Option<&str>, reason: Reason, text: &str| {
            if reason == Reason::Blank {
                return;
            }
            let name = rejects::RowName {
                input: "-",
                line: row,
                column,
            };
            rejects::append_row(&mut rejected, name, reason, text.as_bytes());
        };
        let Some(values) = values else {
            text.push_str("[]\n");
            reject(None, Reason::Malformed, "[]");
            continue;
        };
        let [a, b] = values.map(|value| VALUES[value].0);
        text.push_str(&format!("{{\"b\":{b},\"a\":{a}}}\n"));
        for (column, value) in values.into_iter().enumerate() {
            let text = VALUES[value].1;
            if let Err(reason) = expected((&maker, case), &columns[column].kinds, text, &mut keys) {
                reject(Some(names[column]), reason.into(), text);
            }
        }
    }
    let input = Input {
        sources: vec![Source::Stdin],
        layout: Layout::Ndjson {
            columns: columns.to_vec(),
        },
        value: None,
        case,
        keys: maker,
    };
    let folder = tempfile::tempdir().unwrap();
    let file = PrivateFile::create(&folder.path().join("rejects"), &[]).unwrap();
    let mut parser = Parser::new(&input, Some(&file));
    let bytes = text.into_bytes();
    let len = bytes.len();
    parser.parse(&Block {
        source: 0,
        bytes,
        len,
        rows: Rows::Lines { first: 1 },
    });
    assert!(parser.keys == keys, "{kinds:?} {case:?}");
    let lines = |rows: &[u8]| {
        String::from_utf8_lossy(rows)
            .lines()
            .map(str::to_owned)
            .collect()
    };
    let (found, expected): (Vec<_>, Vec<_>) = (lines(&parser.rejected), lines(&rejected));
    let differ = found
        .iter()
        .zip(&expected)
        .find(|(found, expected)| found != expected);
    assert_eq!(
        (differ, found.len()),
        (None, expected.len()),
        "{kinds:?} {case:?}"
    );
    assert!(keys.len() > 300 && parser.counts.rejected[Reason::Blank as usize] > 500);
}

#[test]
fn batches_have_the_keys_and_rejects_of_one_value_at_a_time() {
    for case in [None, Some(Case::All), Some(Case::Lower)] {
        check(["imei,idfa,md5", "openid"], case);
        check(["md5", "idfa"], case);
        check(["openid,md5", "md5,mac"], case);
        check(["idfa,imei,oaid", "oaid,gaid"], case);
    }
}

#[test]
fn lines_of_md5s_have_the_keys_and_rejects_of_one_value_at_a_time() {
    const DIGEST: &str = "8d3ebd3654fb46a2832296669cf1b536";
    let blank = const_hex::encode(DeviceKey::of_canonical(b"null").as_bytes());
    let lines = [
        DIGEST.to_owned(),
        DIGEST.to_uppercase(),
        blank,
        DIGEST[..31].to_owned(),
        String::new(),
        format!(" {DIGEST}\t"),
        format!("{DIGEST}\r"),
        format!("{DIGEST}0"),
        format!("0x{}", &DIGEST[2..]),
        format!("\u{feff}{DIGEST}"),
        format!("{}g", &DIGEST[..31]),
        // The last line has no line end.
        DIGEST.to_owned(),
    ];
    let bytes = lines.join("\n").into_bytes();

    let input = Input {
        sources: vec![Source::Stdin],
        layout: Layout::Lines {
            kinds: IdKind::Md5.into(),
        },
        value: None,
        case: None,
        keys: KeyMaker::default(),
    };
    let mut expected = Counts::default();
    let mut keys = Vec::new();
    for line in &lines {
        let id = without_mark(line.as_bytes());
        match input.keys.key(IdKind::Md5, id) {
            Ok(key) => {
                keys.push(key);
                expected.accept(IdKind::Md5, None, id);
            }
            Err(unusable) => expected.reject(unusable.into(), None, id),
        }
    }
    expected.rows = lines.len() as u64;
    expected.values = expected.rows;

    let mut parser = Parser::new(&input, None);
    let len = bytes.len();
    parser.parse(&Block {
        source: 0,
        bytes,
        len,
        rows: Rows::Lines { first: 1 },
    });
    assert!(parser.keys == keys);
    assert_eq!(keys.len(), 6);
    assert_eq!(parser.counts, expected);
}
