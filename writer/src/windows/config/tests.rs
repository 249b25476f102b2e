use super::*;

#[test]
fn valid_file_is_read() {
    let config = Config::parse(EXAMPLE, "writer.toml").unwrap();
    let [views, day] = &config.windows[..] else {
        panic!("two windows")
    };
    assert_eq!(
        (day.length.clock().as_str(), day.spec.lifetime),
        ("day in Asia/Shanghai", 1)
    );
    assert!(day.spec.whole_keys && !views.spec.whole_keys);
    assert_eq!(day.durability, Survival::Store);
    assert_eq!(
        (views.spec.lifetime, views.durability),
        (129, Survival::Disk)
    );
    assert_eq!(config.audiences[0].min_count, 3);
    let empty = Config::parse("# Written later.\n", "writer.toml").unwrap_err();
    assert!(
        empty.mistakes[0].contains("content is missing"),
        "{empty:?}"
    );
}

const SLIDING: &str = "[[window]]\nname = \"a\"\nlength = \"10m\"\ncapacity = 1\n\
                       durability = \"store\"\n";

#[test]
fn each_mistake_has_its_line_and_the_accepted_values() {
    for (before, text, expected) in [
        (
            "",
            "[[window]]\nnmae = \"a\"",
            &[
                "writer.toml:1: window[0].name is missing; accepted: ",
                "writer.toml:1: window[0].length is missing; accepted: a duration from 1s to 28d",
                "writer.toml:2: window[0].nmae is not known; accepted: name, length, time_zone, ca",
            ][..],
        ),
        (
            "",
            "[[window]]\nname = \"a\"",
            &["writer.toml:1: [[window]] \"a\": length is missing; accepted: a duration from 1s"],
        ),
        (
            "",
            "[[window]]\nname = \"a\"\nlength = \"1h\"\ndurability = \"store\"",
            &["writer.toml:1: [[window]] \"a\": capacity is missing; accepted: the number of ke"],
        ),
        (
            "",
            "[[window]]\nname = \"A\"\nlength = \"soon\"\ncapacity = \"1\"\ntime_zone = \"Mars\"\n\
             durability = \"yes\"\ncount = 70_000",
            &[
                "writer.toml:2: [[window]] \"A\": name is \"A\"; accepted: 1 to 64 of a-z",
                "writer.toml:3: [[window]] \"A\": length is \"soon\"; accepted: a duration from 1s",
                "writer.toml:4: [[window]] \"A\": capacity is \"1\"; accepted: a whole number",
                "writer.toml:5: [[window]] \"A\": time_zone is \"Mars\"; accepted: a name of the I",
                "writer.toml:6: [[window]] \"A\": durability is \"yes\"; accepted: disk or store",
                "writer.toml:7: [[window]] \"A\": count is 70000; accepted: a whole number",
            ],
        ),
        (
            SLIDING,
            "time_zone = \"UTC\"",
            &["writer.toml:6: [[window]] \"a\": time_zone is given for a time; accepted: length"],
        ),
        (
            SLIDING,
            "[[window]]\nname = \"a\"\nlength = \"1h\"\ncapacity = 0\n\
             [[window]]\nname = \"b\"\nlength = \"1h\"",
            &[
                "writer.toml: state_dir is missing; accepted: a directory for the windows' files",
                "writer.toml:7: [[window]] \"a\": name is \"a\" as well as that of an earlier [[wi",
                "writer.toml:9: [[window]] \"a\": capacity is 0; accepted: 1 to 20000000000",
                "writer.toml:10: [[window]] \"b\": capacity is missing; accepted: the number of ke",
            ],
        ),
        (
            SLIDING,
            "[[token]]\nfile = \"t\"\nscopes = [\"events:A\", \"root\", \"events:b\"]\n\
             [[token]]\nfile = \"\"\nscopes = []",
            &[
                "writer.toml:8: [[token]] \"t\": scopes[0] is \"events:A\"; accepted: admin, or",
                "writer.toml:8: [[token]] \"t\": scopes[1] is \"root\"; accepted: admin, or eve",
                "writer.toml:10: token[1].file is \"\"; accepted: a string that is not empty",
            ],
        ),
        (
            SLIDING,
            "[[token]]\nfile = \"t\"\nscopes = [\"admin\", \"events:b\"]\n\
             [[token]]\nfile = \"u\"\nscopes = []",
            &[
                "writer.toml:8: [[token]] \"t\": scopes[1] is \"events:b\"; accepted: the name",
                "writer.toml:11: [[token]] \"u\": scopes is a list; accepted: at least one scope",
            ],
        ),
        (
            SLIDING,
            "[window.callback]\nid = [\"muid\", \"=md5\", \"a=sha1\"]\nrequest_id = \"\"",
            &[
                "writer.toml:7: [[window]] \"a\": callback.id[0] is \"muid\"; accepted: PARAMETER=",
                "writer.toml:7: [[window]] \"a\": callback.id[1] is \"=md5\"; accepted: PARAMETER=",
                "writer.toml:7: [[window]] \"a\": callback.id[2] is \"a=sha1\"; accepted: PARAMETE",
                "writer.toml:8: [[window]] \"a\": callback.request_id is \"\"; accepted: a string",
            ],
        ),
        (
            SLIDING,
            "[window.callback]\nid = []",
            &["writer.toml:7: [[window]] \"a\": callback.id is a list; accepted: at least one pa"],
        ),
        (
            SLIDING,
            "[[audience]]\nname = \"x\"\nfrom_window = \"b\"\n[[audience]]\nname = \"x\"\n\
             from_window = \"a\"\nmin_count = 2",
            &[
                "writer.toml:8: [[audience]] \"x\": from_window is \"b\"; accepted: the name of a",
                "writer.toml:10: [[audience]] \"x\": name is \"x\" as well as that of an earlier [",
                "writer.toml:12: [[audience]] \"x\": min_count is 2; accepted: 1 to the window's c",
            ],
        ),
    ] {
        let text = format!("{before}{text}");
        let mistakes = Config::parse(&text, "writer.toml").unwrap_err().mistakes;
        assert_eq!(mistakes.len(), expected.len(), "{text}: {mistakes:#?}");
        for (mistake, expected) in mistakes.iter().zip(expected) {
            assert!(
                mistake.starts_with(expected),
                "{text}: {expected}, found {mistake}"
            );
        }
    }
}
