//! Damaged, stale or missing `CURRENT`, and a missing store.

use super::*;

const NOT_JSON: &str = "old_users/CURRENT: is not valid in version 1 of the format: ";

#[test]
fn truncated_current_is_rejected_until_repaired() {
    let mut bench = Bench::new();
    let candidate = bench.publish();
    let whole = candidate.sound["CURRENT"].clone();
    // The file is complete without its final newline.
    for cut in 0..whole.len() - 1 {
        let damage =
            Damage::new(format!("cut at {cut}"), "format", NOT_JSON).file("CURRENT", &whole[..cut]);
        bench.rejects(&candidate, &damage);
    }
    bench.accepts(&candidate, "cuts");
}

#[test]
fn invalid_current_is_rejected() {
    Bench::new().survives_each(|candidate| {
        let whole = &candidate.sound["CURRENT"];
        let changed = |change: fn(&mut Value)| {
            let mut json = candidate.current_json();
            change(&mut json);
            json.to_string()
        };
        let mut padded = whole.clone();
        padded.resize(4097, b' ');
        let [up, served] = [candidate.generation(), candidate.generation() - 1];
        let stale = format!(
            "CURRENT is stale: it names generation {}, generation {served} is served and \
             no rollback is recorded",
            served - 1
        );
        let named = |change: fn(&mut Value), result, words: String| {
            Damage::new(words.clone(), result, words).file("CURRENT", changed(change))
        };
        let too_large = "old_users/CURRENT: CURRENT is 4097 bytes, the limit is 4096";
        let missing = "audience old_users is not in the store: publish it with ";
        let wrong_format = "format is \"rtad-snapshot\", expected \"rtad-current\"";
        let mut damages = vec![
            Damage::new("garbage", "format", NOT_JSON).file("CURRENT", [0xff, 0x00, 0x9f, 0x92]),
            Damage::new("4097 bytes", "too_large", too_large).file("CURRENT", padded),
            Damage::new("HTML", "format", NOT_JSON)
                .file("CURRENT", "<html><body>502 Bad Gateway</body></html>"),
            Damage::new("a byte too many", "format", NOT_JSON)
                .file("CURRENT", [&whole[..], b"}"].concat()),
            Damage::new("a list", "format", NOT_JSON)
                .file("CURRENT", "[\"rtad-current\",1,2,2,1,\"\"]"),
            Damage::new("deleted", "not_found", missing).deleted("CURRENT"),
            Damage::new("a manifest", "format", wrong_format)
                .file("CURRENT", &candidate.sound[&candidate.manifest_path()][..]),
            named(
                |c| c["version"] = 2.into(),
                "format",
                "version is 2, this rtad reads version 1: upgrade rtad".into(),
            ),
            named(
                |c| c["sequence"] = 0.into(),
                "format",
                "sequence is 0, expected at least 1".into(),
            ),
            named(
                |c| c["generation"] = 0.into(),
                "format",
                "generation is 0, expected at least 1".into(),
            ),
            named(
                |c| c["rolled_back_from"] = 1.into(),
                "format",
                "rolled_back_from is 1, expected more than".into(),
            ),
            named(
                |c| c["manifest_sha256"] = "../../x".into(),
                "format",
                "expected 64 lower-case hex".into(),
            ),
            named(
                |c| c["manifest_size_bytes"] = u64::MAX.into(),
                "too_large",
                "the manifest is 18446744073709551615 bytes, the limit is 4194304".into(),
            ),
            named(
                |c| c["manifest_size_bytes"] = 1.into(),
                "truncated",
                format!("manifests/{up}.json: has {} bytes, expected 1", candidate.manifest_size()),
            ),
            named(
                |c| c["manifest_sha256"] = "0".repeat(64).into(),
                "digest",
                format!("manifests/{up}.json: digest is "),
            ),
            named(
                |c| c["generation"] = 1_000_000.into(),
                "not_found",
                "old_users/manifests/1000000.json does not exist".into(),
            ),
        ];
        if served > 1 {
            let before = &candidate.sound[&format!("manifests/{}.json", served - 1)];
            let of = |sequence, from| Current::new(sequence, served - 1, before, from).to_bytes();
            damages.push(
                Damage::new("an old copy", "stale", &*stale).file("CURRENT", of(served - 1, None)),
            );
            damages.push(Damage::new("back", "stale", &*stale).file("CURRENT", of(up + 5, None)));
        }
        damages
    });
}

#[test]
fn missing_store_directory_is_an_error_until_it_is_back() {
    let mut bench = Bench::new();
    let candidate = bench.publish();
    let (root, gone) = (bench.depot.root.clone(), bench.depot.root.with_extension("gone"));
    std::fs::rename(&root, &gone).unwrap();
    bench.server.poll();
    let (result, error) = bench.server.last_sync(AUDIENCE);
    assert_eq!(result, "store", "{error}");
    assert!(error.contains("directory") && error.contains("does not exist"), "{error}");
    bench.assert_serves(1, "removed");

    std::fs::write(&root, "a file").unwrap();
    bench.server.poll();
    let (result, error) = bench.server.last_sync(AUDIENCE);
    assert_eq!((result.as_str(), error.contains("old_users/CURRENT")), ("store", true), "{error}");
    assert_eq!(bench.server.sync_count(AUDIENCE, "store"), 2);
    bench.assert_serves(1, "a file instead of the directory");

    std::fs::remove_file(&root).unwrap();
    std::fs::rename(&gone, &root).unwrap();
    bench.accepts(&candidate, "back");
}

#[test]
fn directory_named_current_is_rejected() {
    let mut bench = Bench::new();
    let candidate = bench.publish();
    let path = bench.depot.path(AUDIENCE, "CURRENT");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    bench.server.poll();
    let (result, error) = bench.server.last_sync(AUDIENCE);
    // object_store reports a directory as a missing object.
    assert_eq!(result, "not_found", "{error}");
    bench.assert_serves(1, "a folder");
    std::fs::remove_dir(&path).unwrap();
    bench.depot.put(AUDIENCE, "CURRENT", Some(&candidate.sound["CURRENT"]));
    bench.accepts(&candidate, "a file again");
}

#[test]
fn symlinked_store_is_followed_when_the_link_changes() {
    // A ConfigMap or git-sync makes a new directory, then renames the link.
    let bench = Bench::new();
    let root = bench.depot.root.parent().unwrap().to_owned();
    let link = root.join("link");
    std::os::unix::fs::symlink(&bench.depot.root, &link).unwrap();
    let server = Server::start(config(link.to_str().unwrap(), CONFIG, NEVER));
    assert_eq!(server.generation(AUDIENCE), 1);

    let next = Depot::at(root.join("next"));
    next.publish(AUDIENCE, &bench.sets[0], &Spec::small());
    next.publish(AUDIENCE, &bench.sets[1], &Spec::small());
    std::os::unix::fs::symlink(&next.root, root.join("staged")).unwrap();
    std::fs::rename(root.join("staged"), &link).unwrap();
    server.poll();
    assert_eq!(server.generation(AUDIENCE), 2);
}

/// Opening a pipe would wait for its writer, on one more thread per poll.
#[test]
fn pipe_in_place_of_current_is_refused_at_once() {
    let depot = Depot::new();
    depot.publish(AUDIENCE, &keys(1, 1000, |shard| shard), &Spec::small());
    let text = "[[audience]]\nname = \"old_users\"\n[[strategy]]\nname = \"s\"\n\
                exclude = [\"old_users\"]\n";
    let mut server = Server::start(config(depot.url(), text, NEVER));
    let path = depot.path(AUDIENCE, "CURRENT");
    std::fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    for _ in 0..3 {
        server.poll();
        let (result, error) = server.last_sync(AUDIENCE);
        assert_eq!(result, "store");
        assert!(error.contains("found a pipe, a socket or a device"), "{error}");
    }
    assert_eq!(server.generation(AUDIENCE), 1, "the last good one is served");
}
