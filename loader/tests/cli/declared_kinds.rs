//! Declared kinds of ids, and ids that look like another kind.

use rtad_core::device::IdKind;
use testkit::sandbox::{Sandbox, ids, lines};

const STORE: &str = "--store {}/s --audience a";

/// A column may mix ids and their md5s; as one kind, the md5s would be hashed again.
#[test]
fn md5s_in_a_raw_column_are_refused_or_read_as_md5s() {
    let sandbox = Sandbox::new();
    let (oaids, md5s) = (ids(IdKind::Oaid, 0..10), ids(IdKind::Md5, 0..30));
    let rows = oaids.iter().chain(&md5s).map(|id| format!("{id}\n"));
    sandbox.file("dump.csv", format!("oaid\n{}", rows.collect::<String>()));
    let build = |column: &str| {
        sandbox.run(&format!(
            "build {STORE} --json --max-change any --format csv --column {column} {{}}/dump.csv"
        ))
    };
    let refusal = "30 of 40 ids of kind oaid look like ids of kind md5, and would match no device";
    build("oaid=oaid").fails(3, refusal);
    assert_eq!(build("oaid=oaid --allow-lookalikes").json()["keys"], 40);
    assert_eq!(build("oaid=md5,oaid").json()["keys"], 40);
    for (kind, ids) in [("oaid", &oaids), ("md5", &md5s)] {
        let query = format!("query {STORE} --json --id-kind");
        let asked = sandbox
            .run(&format!("{query} {kind} {}", ids.join(" ")))
            .json();
        let answers = asked["answers"].as_array().unwrap();
        assert!(
            answers.iter().all(|answer| answer == "member"),
            "{kind}: {asked}"
        );
    }
    let refused = build("oaid=md5,");
    assert_eq!(refused.status, Some(2));
    assert!(
        refused.stderr.contains("unknown id kind"),
        "{}",
        refused.stderr
    );
}

/// Every command that reads ids refuses an input of a wrong kind, also beside a good one.
#[test]
fn input_that_looks_like_another_kind_is_refused_by_every_command() {
    let sandbox = Sandbox::new();
    sandbox.file("members", lines(&ids(IdKind::Md5, 0..100)));
    sandbox.build("{}/members");
    for (kind, other) in [
        ("oaid", IdKind::Md5),
        ("openid", IdKind::Md5),
        ("android_id", IdKind::Imei),
        ("imei", IdKind::AndroidId),
        ("caid", IdKind::Idfa),
        ("oaid", IdKind::Imei),
    ] {
        let declared = kind.parse().unwrap();
        sandbox.file("good", lines(&ids(declared, 0..10)));
        sandbox.file("wrong", lines(&ids(other, 10..13)));
        let refusal = format!("3 of 3 ids of kind {kind} look like ids of kind {other}");
        for command in [
            "build",
            "append",
            "remove",
            "remove --tombstone",
            "verify --against",
        ] {
            let run = |flags: &str| {
                let (inputs, last) = match command.split_once(" --against") {
                    Some((command, _)) => (command, "--against"),
                    None => (command, ""),
                };
                sandbox.run(&format!(
                    "{inputs} {STORE} --id-kind {kind} {flags} {last} {{}}/good {{}}/wrong"
                ))
            };
            run("").fails(3, &refusal);
            if !command.starts_with("verify") {
                let shrink = if command == "build" {
                    "--max-change any"
                } else {
                    ""
                };
                run(&format!("--dry-run --allow-lookalikes {shrink}")).succeeds();
            }
        }
        let dedup = |flags: &str| {
            let dedup = sandbox.run(&format!(
                "dedup --json {flags} --id-kind {kind} {{}}/good {{}}/wrong"
            ));
            (dedup.status, dedup.stderr.contains(&refusal))
        };
        assert_eq!(dedup(""), (Some(3), true));
        assert_eq!(dedup("--allow-lookalikes"), (Some(0), false));
    }
}

#[test]
fn few_lookalikes_are_a_warning() {
    let sandbox = Sandbox::new();
    let all = [ids(IdKind::Oaid, 0..90), ids(IdKind::Md5, 0..10)].concat();
    sandbox.file("dump", lines(&all));
    let built = sandbox.run(&format!("build {STORE} --json --id-kind oaid {{}}/dump"));
    assert_eq!(built.status, Some(0), "{}", built.stderr);
    assert!(
        built
            .stderr
            .contains("10 of 100 ids of kind oaid look like ids of kind md5")
    );
}

#[test]
fn few_lookalikes_of_a_small_kind_are_accepted() {
    let sandbox = Sandbox::new();
    let (idfas, md5s) = (ids(IdKind::Idfa, 0..1000), ids(IdKind::Md5, 0..20));
    let build = |inputs: &str| {
        sandbox.run(&format!(
            "build {STORE} --dry-run --id-kind idfa,imei,oaid {inputs}"
        ))
    };
    for (few, warning) in [
        (1, None),
        (9, None),
        (
            10,
            Some("10 of 10 ids of kind oaid look like ids of kind md5"),
        ),
    ] {
        sandbox.file("list", lines(&[&idfas[..], &md5s[..few]].concat()));
        let built = build("{}/list");
        assert_eq!(built.status, Some(0), "{}", built.stderr);
        let has_warning = built.stderr.contains(warning.unwrap_or("look like"));
        assert_eq!(has_warning, warning.is_some(), "{}", built.stderr);
    }
    sandbox.file("list", lines(&[&idfas[..], &md5s].concat()));
    build("{}/list").fails(3, "20 of 20 ids of kind oaid look like ids of kind md5");

    // Few in each input, and many in all.
    for part in 0..10 {
        let idfas = &idfas[part * 10..][..10];
        let list = lines(&[idfas, &md5s[part..part + 1]].concat());
        sandbox.file(&format!("part-{part}"), list);
    }
    build("{}/part-*").fails(3, "all inputs: 10 of 10 ids of kind oaid look like");
}

#[test]
fn lookalikes_of_several_looks_are_counted_together() {
    let sandbox = Sandbox::new();
    let all = [ids(IdKind::Md5, 0..50), ids(IdKind::Imei, 0..40)].concat();
    sandbox.file("list", lines(&all));
    let refusal = "input {}/list: 90 of 90 ids of kind oaid look like ids of kind md5 (50), ids of \
                   kind imei (40), and would match no device; declare them as md5,imei, or a \
                   column that has both as md5,imei,oaid; --allow-lookalikes accepts them as oaid";
    let refusal = refusal.replace("{}", &sandbox.path().display().to_string());
    let build = format!("build {STORE} --dry-run --id-kind oaid {{}}/list");
    sandbox.run(&build).fails(3, &refusal);
    let build = format!("build {STORE} --dry-run --id-kind md5,imei,oaid {{}}/list");
    sandbox.run(&build).succeeds();
}

#[test]
fn column_of_lookalikes_beside_a_good_one_is_refused() {
    let sandbox = Sandbox::new();
    let (oaids, md5s) = (ids(IdKind::Oaid, 0..100), ids(IdKind::Md5, 0..90));
    let mut rows = "oaid,did\n".to_owned();
    for (index, oaid) in oaids.iter().enumerate() {
        let md5 = md5s.get(index).map_or("", String::as_str);
        rows += &format!("{oaid},{md5}\n");
    }
    sandbox.file("dump.csv", rows);
    let build = |column: &str| {
        sandbox.run(&format!(
            "build {STORE} --dry-run --format csv --column oaid=oaid --column did={column} \
             {{}}/dump.csv"
        ))
    };
    build("oaid").fails(
        3,
        "dump.csv: 90 of 90 ids of kind oaid look like ids of kind md5",
    );
    build("md5").succeeds();
}

/// Openids of some platforms are md5s in form, so to hash them may be right.
#[test]
fn refusal_of_openids_names_both_readings() {
    let sandbox = Sandbox::new();
    let md5s = ids(IdKind::Md5, 0..20);
    sandbox.file("lower", lines(&md5s));
    let upper: Vec<_> = md5s.iter().map(|id| id.to_uppercase()).collect();
    sandbox.file("upper", lines(&upper));
    let build = |list: &str| {
        sandbox.run(&format!(
            "build {STORE} --dry-run --id-kind openid {{}}/{list}"
        ))
    };
    let refusal = "20 of 20 ids of kind openid look like ids of kind md5; --allow-lookalikes \
                   accepts them if a platform issued them as openids; else they would match no \
                   device: declare them as md5, or a column that has both as md5,openid";
    build("lower").fails(3, refusal);
    // As QQ issues them.
    build("upper").succeeds();

    sandbox.file("idfas", lines(&ids(IdKind::Idfa, 0..20)).replace('-', ""));
    let build = format!("build {STORE} --dry-run --id-kind idfa {{}}/idfas");
    sandbox.run(&build).fails(
        3,
        "most look like ids of kind md5, or like UUIDs without dashes",
    );
}

#[test]
fn order_of_kinds_changes_no_key() {
    let sandbox = Sandbox::new();
    let meid = "A0000051234567".to_owned();
    sandbox.file(
        "list",
        lines(&[&ids(IdKind::Imei, 0..3)[..], &[meid]].concat()),
    );
    for kinds in [
        "oaid,imei",
        "imei,oaid",
        "openid,imei",
        "caid,android_id,imei",
    ] {
        let built = sandbox.run(&format!("build {STORE} --json --id-kind {kinds} {{}}/list"));
        let by_kind = serde_json::json!({ "imei": 4 });
        assert_eq!(built.json()["usable_by_kind"], by_kind, "{kinds}");
        let query = "query --store {}/s --audience a --json --id-kind imei a0000051234567";
        assert_eq!(sandbox.run(query).json()["answers"][0], "member", "{kinds}");
    }
}

/// One id a line, of several kinds: every command reads each as its own kind.
#[test]
fn list_of_mixed_kinds_is_read_by_every_command() {
    let sandbox = Sandbox::new();
    let kinds = [IdKind::Idfa, IdKind::Imei, IdKind::Oaid];
    let of_kinds: Vec<_> = kinds.iter().map(|kind| ids(*kind, 0..20)).collect();
    let all = of_kinds.concat();
    sandbox.file("mixed", lines(&all));
    let run = |command: &str| {
        sandbox
            .run(&format!(
                "{command} {STORE} --id-kind idfa,imei,oaid --json"
            ))
            .json()
    };
    let built = sandbox.build("--id-kind idfa,imei,oaid {}/mixed");
    // The OAIDs are the IDFAs in lower case: each has the keys of both.
    assert_eq!(
        (&built["keys"], &built["rejected"]["total"]),
        (&60.into(), &0.into())
    );
    for (kind, ids) in kinds.iter().zip(&of_kinds) {
        sandbox.file("one", lines(ids));
        let verified = sandbox.run(&format!(
            "verify {STORE} --probes 10 --json --id-kind {kind} --against {{}}/one"
        ));
        assert_eq!(verified.json()["against"]["checked"], 20);
    }
    let queried = run(&format!("query {}", all.join(" ")));
    assert!(
        queried["answers"]
            .as_array()
            .unwrap()
            .iter()
            .all(|answer| answer == "member")
    );
    assert_eq!(run("remove {}/mixed")["members"]["before"], 60);
    run("append {}/mixed");
    let verify = run("verify --probes 10 --against {}/mixed");
    assert_eq!(verify["against"]["checked"], 80, "keys, two of each OAID");
    let dedup = sandbox.run("dedup --json --id-kind idfa,imei,oaid {}/mixed {}/mixed");
    assert_eq!(dedup.json()["first_seen"], 60);

    let refused = sandbox.run(&format!("build {STORE} --id-kind md5,caid {{}}/mixed"));
    assert_eq!(refused.status, Some(2));
    assert!(
        refused
            .stderr
            .contains("ids of kind caid would be read as md5"),
        "{refused:?}"
    );
}

/// Its answers are data, so a query goes on.
#[test]
fn query_warns_of_ids_of_another_kind() {
    let sandbox = Sandbox::new();
    let md5s = ids(IdKind::Md5, 0..10);
    sandbox.file("members", lines(&md5s));
    sandbox.build("{}/members");
    let query = |kind: &str| {
        sandbox.run_with(
            &format!("query {STORE} --id-kind {kind} -"),
            lines(&md5s).as_bytes(),
        )
    };
    let asked = query("oaid");
    assert_eq!(
        (asked.status, asked.stdout.matches("\tnot_member\n").count()),
        (Some(0), 10)
    );
    let warning = "10 of 10 ids of kind oaid look like ids of kind md5; if they are, their answers \
                   are wrong: use --id-kind md5";
    assert!(asked.stderr.contains(warning), "{asked:?}");
    assert_eq!(query("md5").stderr, "");
}

#[test]
fn uuids_are_told_apart_by_their_case() {
    let sandbox = Sandbox::new();
    for (kind, guess) in [(IdKind::Gaid, "gaid or oaid"), (IdKind::Idfa, "idfa")] {
        sandbox.file("ids", lines(&ids(kind, 0..20)));
        let refused = sandbox.run("build --store {}/s --audience a {}/ids");
        refused.fails(3, &format!("most look like ids of kind {guess} (--id-kind"));
    }
}
