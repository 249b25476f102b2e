//! Writes of devices through the writer.

use rtad_core::device::IdKind;
use serde_json::{Value, json};
use testkit::sandbox::{Sandbox, ids, lines};

use crate::process::{DEVICES, Serve, count, current, key, stored};

#[test]
fn operations_change_membership() {
    let sandbox = Sandbox::with_store();
    let serve = Serve::start(&sandbox);
    let mut api = serve.connect();
    api.create();
    let all = ids(IdKind::Md5, 0..100);
    let added = api.write("add", &all[..50]);
    assert_eq!(
        added,
        json!({"sequence": 2, "generation": 1, "accepted": 50, "rejected": [], "entombed": 0})
    );
    assert_eq!(count(&stored(&sandbox), &all), 50);
    // Repeating a request changes nothing.
    assert_eq!(api.write("add", &all[..50])["accepted"], 50);
    api.write("remove", &all[..10]);
    api.write("remove", &all[90..]);
    assert_eq!(
        (
            count(&stored(&sandbox), &all),
            count(&stored(&sandbox), &all[..10])
        ),
        (40, 0)
    );

    let absent = api.write("add_if_absent", &all[5..15]);
    assert_eq!(
        absent["new"],
        json!([
            true, true, true, true, true, false, false, false, false, false
        ])
    );
    assert_eq!(count(&stored(&sandbox), &all), 45);
    let twice = [all[60].clone(), all[60].clone()];
    assert_eq!(
        api.write("add_if_absent", &twice)["new"],
        json!([true, false])
    );
    // Existing members cause no write.
    let before = current(&sandbox).sequence;
    assert_eq!(api.write("add_if_absent", &all[5..15])["sequence"], before);
    assert_eq!(current(&sandbox).sequence, before);

    api.write("tombstone", &all[20..30]);
    assert_eq!(count(&stored(&sandbox), &all[20..30]), 0);
    let added = api.write("add", &all[25..35]);
    assert_eq!(
        (&added["accepted"], &added["entombed"]),
        (&json!(10), &json!(5))
    );
    let absent = api.write("add_if_absent", &all[28..31]);
    assert_eq!(
        (&absent["new"], &absent["entombed"]),
        (&json!([false, false, false]), &json!(2))
    );
    api.write("lift", &all[20..25]);
    // Added before the tombstone, so lifting restores it.
    assert_eq!(count(&stored(&sandbox), &all[20..30]), 5);
    assert_eq!(
        stored(&sandbox)
            .overlay()
            .tombstones()
            .unwrap()
            .entry()
            .removed,
        5
    );
}

#[test]
fn ids_of_every_kind_are_canonicalized() {
    let sandbox = Sandbox::with_store();
    let serve = Serve::start(&sandbox);
    let mut api = serve.connect();
    api.create();
    for kind in IdKind::ALL {
        let all = ids(kind, 0..20);
        let body = json!({"op": "add", "kind": kind.as_str(), "ids": all});
        assert_eq!(api.post(DEVICES, &body).ok()["accepted"], 20, "{kind}");
        let maker = rtad_core::device::KeyMaker::default();
        let snapshot = stored(&sandbox);
        assert!(
            all.iter()
                .all(|id| snapshot.contains(&maker.key(kind, id.as_bytes()).unwrap())),
            "{kind}"
        );
    }
}

#[test]
fn unusable_ids_are_rejected_by_index() {
    let sandbox = Sandbox::with_store();
    let serve = Serve::over(
        &sandbox,
        "{}/s",
        "--every 5ms --blank 1E2DFA89-496A-47FD-9941-DF1FC4E6484A",
    );
    let mut api = serve.connect();
    api.create();
    let body = json!({"op": "add_if_absent", "kind": "idfa", "ids": [
        "6D92078A-8246-4BA4-AE5B-76104861E7DC", "00000000-0000-0000-0000-000000000000", null,
        "not an id",
        "1e2dfa89-496a-47fd-9941-df1fc4e6484a", "6d92078a-8246-4ba4-ae5b-76104861e7dc",
        "77777777-8246-4BA4-AE5B-76104861E7DC",
    ]});
    let answer = api.post(DEVICES, &body).ok();
    let rejected = json!([
        {"index": 1, "reason": "blank"}, {"index": 2, "reason": "blank"},
        {"index": 3, "reason": "malformed"},
        {"index": 4, "reason": "blank"},
    ]);
    assert_eq!(
        (&answer["accepted"], &answer["rejected"]),
        (&json!(3), &rejected)
    );
    assert_eq!(
        answer["new"],
        json!([true, false, false, false, false, false, true])
    );
}

#[test]
fn binary_keys_are_accepted() {
    let sandbox = Sandbox::with_store();
    let serve = Serve::start(&sandbox);
    let mut api = serve.connect();
    api.create();
    let mut keys: Vec<_> = ids(IdKind::Md5, 0..1000).iter().map(|id| key(id)).collect();
    // The md5 of the empty string.
    keys.push(key("d41d8cd98f00b204e9800998ecf8427e"));
    let added = api
        .binary("/v1/audiences/a/devices?op=add_if_absent", &keys)
        .ok();
    assert_eq!(
        (&added["accepted"], &added["rejected"]),
        (&json!(1000), &json!([{"index": 1000, "reason": "blank"}]))
    );
    let new = added["new"].as_array().unwrap();
    assert_eq!((new.len(), &new[1000]), (1001, &Value::Bool(false)));
    assert!(new[..1000].iter().all(|new| *new == true));
    api.binary("/v1/audiences/a/devices?x=1&op=remove", &keys[..999])
        .ok();
    let snapshot = stored(&sandbox);
    assert_eq!(keys.iter().filter(|key| snapshot.contains(key)).count(), 1);
}

/// Includes a new generation while the filters of the old one are loaded.
#[test]
fn add_if_absent_uses_the_filters_of_the_live_generation() {
    let sandbox = Sandbox::with_store();
    let all = ids(IdKind::Md5, 0..6000);
    sandbox.file("ids", lines(&all[..2000]));
    sandbox.build("{}/ids");
    let serve = Serve::start(&sandbox);
    let mut api = serve.connect();
    let mut new = |ids: &[String]| {
        let answer = api.write("add_if_absent", ids);
        answer["new"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|new| **new == true)
            .count()
    };
    assert_eq!(new(&all[..2000]), 0, "a member is never new");
    // The false-positive rate is 1 in 10,000.
    assert!(new(&all[2000..3000]) > 990);
    assert_eq!(new(&all[1000..3000]), 0);
    sandbox.file("ids", lines(&all[..5000]));
    sandbox.build("{}/ids");
    assert_eq!(new(&all[..5000]), 0);
    assert!(new(&all[5000..]) > 990);
    assert_eq!(count(&stored(&sandbox), &all), 6000);
}

#[test]
fn values_are_written_and_their_loss_is_reported() {
    let sandbox = Sandbox::with_store();
    let all = ids(IdKind::Md5, 0..6);
    sandbox.file("ids", lines(&all[..4]));
    sandbox.build("{}/ids");
    let serve = Serve::start(&sandbox);
    let mut api = serve.connect();
    let body =
        |op: &str, ids: &[String], values: Value| json!({"op": op, "ids": ids, "values": values});
    let refused = api.post(DEVICES, &body("add", &all[..1], json!([7])));
    refused.problem(409, "no_values");
    assert_eq!(api.write("add", &all[..2]).get("without_value"), None);

    // The writer has not read the new generation yet.
    let rows: String = all[..4].iter().map(|id| format!("9,{id}\n")).collect();
    sandbox.file("dump.csv", "tier,id\n".to_owned() + &rows);
    sandbox.build("--filter ribbon --format csv --column id --value tier {}/dump.csv");
    let values = || {
        let snapshot = stored(&sandbox);
        all.iter()
            .map(|id| snapshot.value(&[key(id)]))
            .collect::<Vec<_>>()
    };
    let mixed = [&all[..1], &["none".to_owned()], &all[1..2], &all[4..5]].concat();
    let answer = api
        .post(DEVICES, &body("add", &mixed, json!([12, 3, null, 5])))
        .ok();
    assert_eq!(
        (&answer["accepted"], &answer["without_value"]),
        (&json!(3), &json!(1))
    );
    assert_eq!(values(), [Some(12), None, Some(9), Some(9), Some(5), None]);
    let absent = body("add_if_absent", &all[3..], json!([1, null, 2]));
    let answer = api.post(DEVICES, &absent).ok();
    assert_eq!(
        (&answer["new"], answer.get("without_value")),
        (&json!([false, false, true]), None)
    );
    assert_eq!(
        values(),
        [Some(12), None, Some(9), Some(9), Some(5), Some(2)]
    );

    assert_eq!(api.write("add", &all[2..4])["without_value"], 2);
    assert_eq!(values(), [Some(12), None, None, None, Some(5), Some(2)]);
    assert_eq!(api.write("remove", &all[2..3]).get("without_value"), None);
    // Once per generation, with the devices of the first batch.
    let warning = "devices were added without a value";
    let logged = serve.stderr();
    let logged: Vec<&str> = logged
        .lines()
        .filter(|line| line.contains(warning))
        .collect();
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(logged[0].contains("\"devices\":1"), "{logged:?}");
}
