//! Stores in folders: a link that changes, and a pipe.

use super::*;

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
fn pipe_in_place_of_a_record_is_refused_at_once() {
    let depot = Depot::new();
    depot.publish(AUDIENCE, &keys(1, 1000, |shard| shard), &Spec::small());
    let text = "[[audience]]\nname = \"old_users\"\n[[strategy]]\nname = \"s\"\n\
                exclude = [\"old_users\"]\n";
    let mut server = Server::start(config(depot.url(), text, NEVER));
    let path = depot.path(AUDIENCE, &depot.newest_record(AUDIENCE));
    std::fs::remove_file(&path).unwrap();
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    for _ in 0..3 {
        server.poll();
        let (result, error) = server.last_sync(AUDIENCE);
        assert_eq!(result, "store");
        assert!(
            error.contains("found a pipe, a socket or a device"),
            "{error}"
        );
    }
    assert_eq!(
        server.generation(AUDIENCE),
        1,
        "the last good one is served"
    );
}
