//! Rolling under load: no errors, and every answer is that of one of the two generations.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

const GENERATIONS: u64 = 4;

/// Devices by the generations that they belong to.
struct People {
    always: Vec<DeviceKey>,
    even: Vec<DeviceKey>,
    odd: Vec<DeviceKey>,
    never: Vec<DeviceKey>,
}

impl People {
    /// The members of a generation, sorted.
    fn of(&self, generation: u64) -> Vec<DeviceKey> {
        let sometimes = if generation.is_multiple_of(2) {
            &self.even
        } else {
            &self.odd
        };
        let mut all = [&self.always[..], sometimes].concat();
        all.sort_unstable();
        all
    }
}

fn spec(generation: u64) -> Spec {
    // Enough bits to avoid false positives; other chunk boundaries in each generation.
    let filter = FilterSpec::new(FilterKind::Block512, 10, 400_000).unwrap();
    Spec {
        filter,
        shards_per_chunk: [8192, 20_000, 16_384, 30_000][generation as usize % 4],
        ..Spec::small()
    }
}

/// Sends requests until stopped; counts the rounds.
fn ask(address: SocketAddr, people: &People, seed: usize, stop: &AtomicBool, rounds: &AtomicU64) {
    let mut client = Client::connect(address);
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        let pick = |from: &[DeviceKey]| {
            let start = (round * 7919 + seed * 104_729) % (from.len() - 200);
            from[start..start + 200].to_vec()
        };
        let [always, never, even, odd] =
            [&people.always, &people.never, &people.even, &people.odd].map(|from| pick(from));
        assert!(
            client
                .members(AUDIENCE, &always)
                .iter()
                .all(|member| *member),
            "a member was not found"
        );
        assert!(
            !client.members_binary(AUDIENCE, &never).contains(&true),
            "false positive"
        );
        // Members of every other generation get either answer. Two ids of a device are looked up in
        // one snapshot.
        let ids = [even[0], odd[0], always[0]];
        let decision = client.decide(&ids);
        assert_eq!(decision, [(false, "member".to_owned())]);
        let decision = client.decide(&never[..3]);
        assert_eq!(decision, [(true, "not_member".to_owned())]);
        client.members(AUDIENCE, &[even, odd].concat());
        round += 1;
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn rolling_causes_no_errors_or_wrong_answers() {
    let people = Arc::new(People {
        always: keys(1, 4000, |shard| shard),
        even: keys(2, 6000, |shard| shard),
        odd: keys(3, 6000, |shard| shard),
        never: keys(4, 4000, |shard| shard),
    });
    let depot = Depot::new();
    depot.publish(AUDIENCE, &people.of(1), &spec(1));

    let folder = tempfile::tempdir().unwrap();
    let mut config = config(depot.url(), CONFIG, NEVER);
    config.store.cache_dir = Some(folder.path().to_owned());
    config.store.swap = rtad::sync::SwapMode::Rolling;
    let mut server = Server::start(config);
    let (stop, rounds) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let clients: Vec<_> = (0..3)
        .map(|seed| {
            let (people, stop, rounds) =
                (Arc::clone(&people), Arc::clone(&stop), Arc::clone(&rounds));
            let address = server.address();
            std::thread::spawn(move || ask(address, &people, seed, &stop, &rounds))
        })
        .collect();
    let asked_again = || {
        let now = rounds.load(Ordering::Relaxed);
        let is_over = || clients.iter().any(std::thread::JoinHandle::is_finished);
        wait_until("every client asks", || {
            is_over() || rounds.load(Ordering::Relaxed) > now + 6
        });
        assert!(!is_over(), "a client saw something wrong");
    };
    asked_again();
    for generation in 2..=GENERATIONS {
        depot.publish(AUDIENCE, &people.of(generation), &spec(generation));
        server.poll();
        assert_eq!(server.last_sync(AUDIENCE), ("ok".to_owned(), String::new()));
        assert_eq!(server.generation(AUDIENCE), generation);
        let (members, mut client) = (people.of(generation), server.connect());
        let mut all = members
            .chunks(10_000)
            .flat_map(|keys| client.members_binary(AUDIENCE, keys));
        assert!(all.all(|member| member));
        asked_again();
    }
    stop.store(true, Ordering::Relaxed);
    clients
        .into_iter()
        .for_each(|client| client.join().unwrap());
}
