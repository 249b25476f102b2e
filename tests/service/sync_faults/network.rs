//! Network faults: the old generation is served, the fault is counted by its name, and the new one
//! is loaded after the fault ends.

use std::time::Duration;

use rtad::sync::{Shared, Syncer};
use rtad_store::{STALL_TIMEOUT, Store};
use testkit::server::{Fault, FileServer};

use super::*;

const OFTEN: Duration = Duration::from_millis(100);
/// Time without progress after which a read fails.
const STALLS: Duration = Duration::from_secs(1);
/// Shards of one key take a block each: more than 2 MiB in one chunk.
const MANY: usize = 100_000;

/// A pod over a store with injected faults.
struct Network {
    depot: Depot,
    unruly: FileServer,
    server: Server,
    client: Client,
    sets: [Vec<DeviceKey>; 2],
    spec: Spec,
}

impl Network {
    fn small() -> Self {
        Self::new([1, 2].map(members), Spec::small(), STALL_TIMEOUT)
    }

    /// Only for faults that stall: on a busy machine, other reads may take as long.
    fn hasty() -> Self {
        Self::new([1, 2].map(members), Spec::small(), STALLS)
    }

    fn large() -> Self {
        let sets = [1, 2].map(|seed| keys(seed, MANY, |shard| shard));
        Self::new(
            sets,
            Spec {
                shards_per_chunk: 65_536,
                ..Spec::small()
            },
            STALL_TIMEOUT,
        )
    }

    fn new(sets: [Vec<DeviceKey>; 2], spec: Spec, stall_timeout: Duration) -> Self {
        let depot = Depot::new();
        depot.publish(AUDIENCE, &sets[0], &spec);
        let unruly = FileServer::serve(&depot.root);
        let mut config = config(&unruly.url(), CONFIG, OFTEN);
        config.store.stall_timeout = stall_timeout;
        let server = Server::start(config);
        let client = server.connect();
        Self {
            depot,
            unruly,
            server,
            client,
            sets,
            spec,
        }
    }

    #[track_caller]
    fn assert_serves(&mut self, generation: u64, context: &str) {
        assert_eq!(self.server.generation(AUDIENCE), generation, "{context}");
        let members = &self.sets[(generation as usize + 1) % 2];
        let some = &members[..members.len().min(1000)];
        assert!(
            self.client
                .members(AUDIENCE, some)
                .iter()
                .all(|member| *member),
            "{context}"
        );
        let non_members = &self.sets[generation as usize % 2];
        let some = &non_members[..non_members.len().min(1000)];
        let found = self
            .client
            .members_binary(AUDIENCE, some)
            .into_iter()
            .filter(|member| *member);
        assert!(found.count() < 5, "{context}");
        assert!(self.server.is_ready(), "{context}");
    }

    /// Publishes the next generation during a fault; asserts that it is served only after the
    /// fault.
    #[track_caller]
    fn survives(&mut self, fault: Fault, word: &'static str, result: &str, words: &str) {
        let context = format!("{fault:?} on {word:?}");
        let served = self.server.generation(AUDIENCE);
        let counted = self.server.sync_count(AUDIENCE, result);
        self.unruly.misbehave(fault, word);
        let set = &self.sets[served as usize % 2];
        assert_eq!(self.depot.publish(AUDIENCE, set, &self.spec), served + 1);
        wait_until(&context, || {
            self.server.sync_count(AUDIENCE, result) >= counted + 2
        });
        let (_, error) = self.server.last_sync(AUDIENCE);
        assert!(
            error.contains(words),
            "{context}: {error:?} says nothing of {words:?}"
        );
        assert!(
            error.len() < 600 && !error.contains('\n'),
            "{context}: {} bytes of error",
            error.len()
        );
        self.assert_serves(served, &context);
        self.unruly.behave();
        self.recovers(served + 1, &context);
    }

    #[track_caller]
    fn recovers(&mut self, generation: u64, context: &str) {
        wait_until(context, || self.server.generation(AUDIENCE) == generation);
        self.assert_serves(generation, context);
    }
}

#[test]
fn pod_survives_nonsense_answers() {
    let mut network = Network::small();
    let forbidden = Fault::Status("403 Forbidden", "");
    for (fault, word, result, words) in [
        (
            Fault::Dead,
            "",
            "store",
            "could not read old_users/records/",
        ),
        (forbidden, "", "store", "403 Forbidden"),
        (forbidden, "chunks/", "store", "403 Forbidden"),
        (
            Fault::Status("404 Not Found", ""),
            "chunks/",
            "not_found",
            ".chunk does not exist",
        ),
        (
            Fault::Html,
            "records/",
            "format",
            "is not valid in version 1 of the format",
        ),
        (
            Fault::Html,
            "manifests/",
            "truncated",
            "has 35 bytes, expected ",
        ),
        (
            Fault::Html,
            "chunks/",
            "truncated",
            "has 35 bytes, expected ",
        ),
        (Fault::EndlessChunked, "records/", "store", "Content-Length"),
        (Fault::EndlessChunked, "chunks/", "store", "Content-"),
        (
            Fault::EndlessLength,
            "records/",
            "too_large",
            "bytes, the limit is 69633",
        ),
        (
            Fault::EndlessLength,
            "manifests/",
            "too_large",
            "bytes, the limit is 4194304",
        ),
        (
            Fault::EndlessLength,
            "chunks/",
            "truncated",
            "has 9000000000000 bytes or more, expected ",
        ),
        (Fault::EndlessError, "", "store", "403 Forbidden"),
    ] {
        network.survives(fault, word, result, words);
    }
}

#[test]
fn error_after_retries_names_the_status() {
    let mut network = Network::small();
    for word in ["manifests/", "records/"] {
        let status = "500 Internal Server Error";
        network.survives(Fault::Status(status, ""), word, "store", status);
    }
}

#[test]
fn pod_survives_broken_connections() {
    let mut network = Network::small();
    for (fault, word) in [
        (Fault::Reset, "records/"),
        (Fault::Reset, "chunks/"),
        (Fault::Short, "records/"),
        (Fault::Short, "chunks/"),
    ] {
        network.survives(fault, word, "store", "old_users/");
    }
}

#[test]
fn pod_survives_reads_that_stall() {
    let mut network = Network::hasty();
    // The stall and the deadline of a poll are equal here: either ends it.
    network.survives(Fault::Mute, "records/", "store", "in 1 s");
    for word in ["records/", "chunks/"] {
        network.survives(Fault::Drip, word, "store", "old_users/");
    }
}

#[test]
fn file_changed_during_read_is_rejected() {
    let mut network = Network::large();
    let words = "chunk was replaced while it was read";
    network.survives(Fault::Replaced, "chunks/", "digest", words);
    network.survives(Fault::ReplacedUnnoticed, "chunks/", "digest", words);
}

#[test]
fn server_without_ranges_is_read_whole() {
    let mut network = Network::large();
    network.unruly.misbehave(Fault::RangeIgnored, "chunks/");
    network
        .depot
        .publish(AUDIENCE, &network.sets[1], &network.spec);
    network.recovers(2, "whole");
    for result in ["store", "truncated", "digest"] {
        assert_eq!(network.server.sync_count(AUDIENCE, result), 0, "{result}");
    }
}

#[test]
fn redirect_to_another_server_is_not_followed() {
    let mut network = Network::small();
    let away = FileServer::serve(&network.depot.root);
    network.survives(
        Fault::Elsewhere(away.address),
        "",
        "store",
        "expected no redirect",
    );
    network.survives(
        Fault::Elsewhere(away.address),
        "chunks/",
        "store",
        "expected no redirect",
    );
    assert_eq!(away.requests(""), 0);
}

/// 40 pods with three audiences each: what a poll without news costs, also beside a store that is
/// paid by the request.
#[test]
fn poll_without_news_is_one_request_per_audience() {
    const PODS: usize = 40;
    const POLLS: usize = 3;
    let depot = Depot::new();
    let names = [AUDIENCE, "vip", "others"];
    let mut text = String::new();
    for name in names {
        depot.publish(name, &members(1), &Spec::small());
        text += &format!("[[audience]]\nname = \"{name}\"\n");
    }
    let web = FileServer::serve(&depot.root);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut pods = Vec::new();
    for _ in 0..PODS {
        let shared = Shared::default();
        let served = crate::server::Served::from(config(&web.url(), &text, OFTEN));
        let store = Store::open(&web.url()).unwrap();
        let sync = Syncer::new(store, served.0.plan(), shared.clone());
        runtime.block_on(sync.poll_all());
        pods.push((sync, shared));
    }
    let poll_all = || {
        let (requests, absent) = (web.requests(""), web.answers("/records/", "404"));
        for (sync, _) in &pods {
            runtime.block_on(sync.poll_all());
        }
        let absent = web.answers("/records/", "404") - absent;
        (web.requests("") - requests, absent)
    };

    for _ in 0..POLLS {
        let expected = PODS * names.len();
        assert_eq!(poll_all(), (expected, expected));
    }
    for (_, shared) in &pods {
        let metrics = shared.telemetry.render();
        for name in names {
            let polls = format!("rtad_sync_total{{audience=\"{name}\",result=\"unchanged\"}}");
            assert_eq!(metric(&metrics, &polls) as usize, POLLS);
        }
    }

    // News: the record, the hint, the record after it, the delta.
    let mut change = Change::default();
    change.add(members(2)[0]);
    depot.append(AUDIENCE, change);
    let (requests, absent) = poll_all();
    assert_eq!((requests, absent), (PODS * 6, PODS * 3));
    let expected = PODS * names.len();
    assert_eq!(poll_all(), (expected, expected));
}

/// A bucket whose policy does not allow a listing answers so.
#[test]
fn store_that_answers_403_for_records_that_do_not_exist_is_told_apart() {
    let mut network = Network::small();
    let next = format!("/{}", record_path(2)).leak();
    let words = "a record that does not exist must be answered with 404; many buckets answer 403 \
                 unless the reader may list them (s3:ListBucket): ";
    let forbidden = Fault::Status("403 Forbidden", "");
    network.unruly.misbehave(forbidden, next);
    wait_until("two polls", || {
        network.server.sync_count(AUDIENCE, "store") >= 2
    });
    let (_, error) = network.server.last_sync(AUDIENCE);
    assert!(
        error.contains(words) && error.contains("403 Forbidden"),
        "{error}"
    );
    network.assert_serves(1, "403");

    // A pod that starts says so, too.
    let mut late = Server::start(config(&network.unruly.url(), CONFIG, NEVER));
    assert!(!late.is_ready());
    let (_, error) = late.last_sync(AUDIENCE);
    assert!(error.contains(words), "{error}");
    network.unruly.behave();
    late.poll();
    assert!(late.is_ready());
}

#[test]
fn dead_store_is_retried_until_it_is_back() {
    let mut network = Network::small();
    network.unruly.misbehave(Fault::Dead, "");
    network
        .depot
        .publish(AUDIENCE, &network.sets[1], &network.spec);
    wait_until("six polls", || {
        network.server.sync_count(AUDIENCE, "store") >= 6
    });
    network.assert_serves(1, "dead");
    network.unruly.behave();
    network.recovers(2, "back");
}
