//! Two owners with connections of their own: each key is new once.
//!
//! `RTAD_WINDOW_EVENTS` sets the number of events: 1,000,000 by default.

use std::sync::Arc;

use rtad_redis::{RedisWindow, Seen};
use testkit::random::SplitMix64;

use crate::redis_server::server::Server;
use crate::redis_server::{HOUR, key, window};

const BATCH: usize = 1000;
const TASKS: usize = 8;

/// Numbers of the keys of all events, shuffled: 7.45% are repetitions of other events.
fn events(count: usize, random: &mut SplitMix64) -> (usize, Vec<u32>) {
    let distinct = count - count * 745 / 10_000;
    let mut events: Vec<u32> = (0..distinct as u32).collect();
    events.extend((distinct..count).map(|_| random.below(distinct) as u32));
    for index in (1..count).rev() {
        events.swap(index, random.below(index + 1));
    }
    (distinct, events)
}

async fn owner_task(
    window: Arc<RedisWindow>,
    batches: Vec<Vec<u32>>,
    mut token: u64,
) -> Vec<(u32, Seen)> {
    let mut seen = Vec::new();
    for batch in batches {
        let keys: Vec<[u8; 16]> = batch
            .iter()
            .map(|number| {
                key(
                    SplitMix64::new(u64::from(*number)).number(),
                    u64::from(*number),
                )
            })
            .collect();
        token += 1;
        let answers = loop {
            // A busy machine may exceed the limit of time: the repetition has the same token.
            match window.observe(&keys, HOUR, token).await {
                Ok(answers) => break answers,
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
        };
        seen.extend(batch.into_iter().zip(answers));
    }
    seen
}

async fn each_key_is_new_once(server: Server, urls: [String; 2]) {
    let count = std::env::var("RTAD_WINDOW_EVENTS").map_or(1_000_000, |n| n.parse().unwrap());
    let (distinct, events) = events(count, &mut SplitMix64::new(7));
    let mut random = SplitMix64::new(11);
    let mut batches: Vec<Vec<Vec<u32>>> = vec![Vec::new(); 2 * TASKS];
    for batch in events.chunks(BATCH) {
        batches[random.below(2 * TASKS)].push(batch.to_vec());
    }
    let owners = urls.map(|url| Arc::new(window(&url)));
    let tasks: Vec<_> = batches
        .into_iter()
        .enumerate()
        .map(|(index, batches)| {
            let owner = Arc::clone(&owners[index % 2]);
            tokio::spawn(owner_task(owner, batches, (index as u64) << 32))
        })
        .collect();
    let mut times_new = vec![0_u8; distinct];
    let mut duplicates = 0;
    for task in tasks {
        for (number, seen) in task.await.unwrap() {
            match seen {
                Seen::New => times_new[number as usize] += 1,
                Seen::Duplicate => duplicates += 1,
            }
        }
    }
    let wrong = times_new.iter().filter(|times| **times != 1).count();
    assert_eq!(
        wrong, 0,
        "keys that were not new exactly once, of {distinct}"
    );
    assert_eq!(duplicates, count - distinct);
    assert_eq!(server.size(), distinct as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_key_is_new_once_for_two_owners_of_redis() {
    let server = Server::redis(&[]);
    let url = server.url();
    each_key_is_new_once(server, [url.clone(), url]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_key_is_new_once_for_two_owners_of_valkey() {
    let server = Server::valkey(&[]);
    let url = server.url();
    each_key_is_new_once(server, [url.clone(), url]).await;
}
