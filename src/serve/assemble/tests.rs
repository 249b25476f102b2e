//! Assembly of configurations with platforms, and their mistakes.

mod custom;
mod platforms;
mod warnings;

use super::Assembly;
use crate::config::SwapMode;

#[test]
fn plan_names_audiences_by_index() {
    let text = "[store]\nurl = \"/data\"\nswap = \"rolling\"\ncache_dir = \"/cache\"\n\
                [[audience]]\nname = \"vip\"\n[[audience]]\nname = \"old_users\"\n\
                [[strategy]]\nname = \"new-users\"\nexclude = [\"old_users\"]\n";
    let assembly = Assembly::read(Some(("rtad.toml", text)), |_| None, &Vec::new()).unwrap();
    let plan = assembly.plan();
    assert_eq!(plan.swap, SwapMode::Rolling);
    assert_eq!(plan.strategies[0].exclude, [1]);
    assert_eq!(plan.audiences[1].name.as_str(), "old_users");
}

#[test]
fn mistakes_of_meaning_and_of_building_follow_those_of_types() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rtad.toml");
    let path = file.to_str().unwrap();
    let assert_mistakes = |workers: i32, name: &str, starts: &[String]| {
        let text = format!(
            "[server]\nworkers = {workers}\n[store]\nurl = \"/data\"\n\
             [[platform]]\nkind = \"custom\"\npath = \"/p\"\n{name}\n\
             strategies = {{ \"1\" = \"new-users\" }}\n\
             body = \"protobuf\"\nproto = \"none.proto\"\n\
             request_message = \"Q\"\nresponse_message = \"R\"\n\
             request = {{}}\nresponse = {{ accepted = \"hits\" }}\n\
             [[strategy]]\nname = \"new-users\"\nwhen = {{ os = \"ios\" }}\n"
        );
        let error = Assembly::read(Some((path, &text)), |_| None, &Vec::new()).unwrap_err();
        assert_eq!(error.mistakes.len(), starts.len(), "{error}");
        for (mistake, start) in error.mistakes.iter().zip(starts) {
            assert!(mistake.starts_with(start), "{start}\n{mistake}");
        }
    };

    let of_types = [
        format!("{path}:2: server.workers is -1"),
        format!("{path}:5: platform[0].name is missing"),
    ];
    assert_mistakes(-1, "", &of_types);
    let of_meaning = [
        format!("{path}:11: [[platform]] \"p\": proto is \"none.proto\": there is no such file"),
        format!("{path}:14: [[platform]] \"p\": request maps no id"),
    ];
    assert_mistakes(1, "name = \"p\"", &of_meaning);
}

#[test]
fn changed_schema_import_changes_the_fingerprint() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rtad.toml");
    let proto = "syntax = \"proto3\"; import \"q.proto\"; message R { repeated string hits = 1; }";
    std::fs::write(folder.path().join("p.proto"), proto).unwrap();
    let text = "[store]\nurl = \"/data\"\n\
                [[platform]]\nkind = \"custom\"\nname = \"p\"\npath = \"/p\"\n\
                strategies = { \"1\" = \"new-users\" }\nbody = \"protobuf\"\nproto = \"p.proto\"\n\
                request_message = \"Q\"\nresponse_message = \"R\"\n\
                request = { ids = { imei = \"imei\" } }\nresponse = { accepted = \"hits\" }\n\
                [[strategy]]\nname = \"new-users\"\nwhen = { os = \"ios\" }\n";
    let fingerprint = |imported: &str| {
        let imported = format!("syntax = \"proto3\"; message Q {{ {imported} }}");
        std::fs::write(folder.path().join("q.proto"), imported).unwrap();
        let assembly = Assembly::read(Some((file.to_str().unwrap(), text)), |_| None, &Vec::new());
        assembly.unwrap().config.fingerprint
    };
    let first = fingerprint("string imei = 1;");
    assert_eq!(fingerprint("string imei = 1;"), first);
    assert_ne!(fingerprint("string imei = 2;"), first);
}
