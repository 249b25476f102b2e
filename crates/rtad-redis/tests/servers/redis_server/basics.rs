//! Answers of one server, for Redis and Valkey.

use std::time::{Duration, SystemTime};

use rtad_redis::{Eviction, Lifetime, RedisConfig, RedisError, RedisWindow, Seen};

use crate::redis_server::server::Server;
use crate::redis_server::{HOUR, all, config, keys, window};

const NEW: Seen = Seen::New;
const DUPLICATE: Seen = Seen::Duplicate;

/// Runs a test with Redis and with Valkey.
macro_rules! with_both {
    ($($test:ident),+ $(,)?) => {
        mod redis {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::Server::redis).await;
            })+
        }
        mod valkey {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::Server::valkey).await;
            })+
        }
    };
}

with_both!(
    first_event_is_new_and_later_ones_are_duplicates,
    identical_keys_of_a_batch_have_one_event,
    repeated_token_gets_the_first_answers,
    expired_key_is_new_again_and_events_do_not_extend_it,
    periods_are_separate_and_keys_outlive_theirs,
    forgotten_keys_are_new_again,
    namespaces_windows_and_databases_are_separate,
    eviction_is_read,
    eviction_is_unknown_if_info_is_denied,
    probe_writes_no_lasting_key,
    keys_of_any_bytes_are_distinct,
);

type Start = fn(&[&str]) -> Server;

async fn first_event_is_new_and_later_ones_are_duplicates(start: Start) {
    let server = start(&[]);
    let window = window(&server.url());
    let keys = keys(1, 1000);
    all(&window.observe(&keys, HOUR, 1).await.unwrap(), NEW);
    all(&window.observe(&keys, HOUR, 2).await.unwrap(), DUPLICATE);
    let mixed = [keys[7], [9; 16], keys[8], [8; 16]];
    let seen = window.observe(&mixed, HOUR, 3).await.unwrap();
    assert_eq!(seen, [DUPLICATE, NEW, DUPLICATE, NEW]);
    assert_eq!(server.size(), 1002);
    assert_eq!(window.observe(&[], HOUR, 4).await.unwrap(), []);
}

async fn identical_keys_of_a_batch_have_one_event(start: Start) {
    let server = start(&[]);
    let window = window(&server.url());
    let batch = [[1; 16], [2; 16], [1; 16], [1; 16], [3; 16], [2; 16]];
    let expected = [NEW, NEW, DUPLICATE, DUPLICATE, NEW, DUPLICATE];
    assert_eq!(window.observe(&batch, HOUR, 1).await.unwrap(), expected);
    assert_eq!(
        window.observe(&batch, HOUR, 1).await.unwrap(),
        expected,
        "repeated"
    );
    all(&window.observe(&batch, HOUR, 2).await.unwrap(), DUPLICATE);
}

async fn repeated_token_gets_the_first_answers(start: Start) {
    let server = start(&[]);
    let (one, other) = (window(&server.url()), window(&server.url()));
    let keys = keys(1, 100);
    for token in [0, 7, u64::MAX, 1 << 63] {
        one.forget(&keys, None).await.unwrap();
        all(&one.observe(&keys[..50], HOUR, 1234).await.unwrap(), NEW);
        let first = one.observe(&keys, HOUR, token).await.unwrap();
        assert_eq!(first, [vec![DUPLICATE; 50], vec![NEW; 50]].concat());
        assert_eq!(
            other.observe(&keys, HOUR, token).await.unwrap(),
            first,
            "another owner"
        );
    }
}

async fn expired_key_is_new_again_and_events_do_not_extend_it(start: Start) {
    let server = start(&[]);
    let window = window(&server.url());
    let lifetime = Lifetime::For(Duration::from_secs(5));
    let observe = async |token| window.observe(&[[1; 16]], lifetime, token).await.unwrap()[0];
    assert_eq!(observe(1).await, NEW);
    let begun = tokio::time::Instant::now();
    // Early, as a busy machine may delay the event until the key has expired. An extension would be
    // half a second.
    tokio::time::sleep_until(begun + Duration::from_millis(500)).await;
    assert_eq!(observe(2).await, DUPLICATE);
    tokio::time::sleep_until(begun + Duration::from_millis(5200)).await;
    assert_eq!(observe(3).await, NEW);
}

async fn periods_are_separate_and_keys_outlive_theirs(start: Start) {
    let server = start(&[]);
    let window = window(&server.url());
    let end = SystemTime::now() + Duration::from_secs(60);
    let day = |period| Lifetime::Until { period, end };
    let keys = keys(1, 10);
    all(&window.observe(&keys, day(20_780), 1).await.unwrap(), NEW);
    all(&window.observe(&keys, day(20_781), 2).await.unwrap(), NEW);
    all(
        &window.observe(&keys, day(20_780), 3).await.unwrap(),
        DUPLICATE,
    );
    let ended = Lifetime::Until {
        period: 20_779,
        end: end - Duration::from_secs(86_400),
    };
    all(&window.observe(&keys, ended, 4).await.unwrap(), NEW);
    all(&window.observe(&keys, ended, 5).await.unwrap(), DUPLICATE);
    assert_eq!(window.check(&keys, Some(20_781)).await.unwrap(), [true; 10]);
    assert_eq!(window.check(&keys, None).await.unwrap(), [false; 10]);

    let name = [b"rtad:day:20780".as_slice(), &keys[0]].concat();
    let mut connection = server.connection();
    let millis: u64 = ::redis::cmd("PTTL")
        .arg(name)
        .query(&mut connection)
        .unwrap();
    assert!((330_000..=360_000).contains(&millis), "{millis}");
}

async fn forgotten_keys_are_new_again(start: Start) {
    let server = start(&[]);
    let window = window(&server.url());
    let keys = keys(1, 100);
    window.observe(&keys[..60], HOUR, 1).await.unwrap();
    let expected = [vec![true; 60], vec![false; 40]].concat();
    assert_eq!(window.check(&keys, None).await.unwrap(), expected);
    assert_eq!(window.forget(&keys, None).await.unwrap(), expected);
    assert_eq!(window.check(&keys, None).await.unwrap(), [false; 100]);
    assert_eq!(server.size(), 0);
    all(&window.observe(&keys, HOUR, 2).await.unwrap(), NEW);
    let twice = [keys[0], keys[0], [7; 16]];
    assert_eq!(
        window.check(&twice, None).await.unwrap(),
        [true, true, false]
    );
}

async fn namespaces_windows_and_databases_are_separate(start: Start) {
    let server = start(&[]);
    let mut configs = vec![config(&server.url())];
    configs.push(config(&format!("{}/5", server.url())));
    configs.extend([config(&server.url()), config(&server.url())]);
    configs[2].window = "week".to_owned();
    configs[3].namespace = "staging".to_owned();
    for config in &configs {
        let window = RedisWindow::connect(config).unwrap();
        all(&window.observe(&keys(1, 10), HOUR, 1).await.unwrap(), NEW);
    }
    assert_eq!(server.size(), 30);
}

async fn eviction_is_read(start: Start) {
    let server = start(&["--maxmemory", "100mb"]);
    let window = window(&server.url());
    assert_eq!(window.eviction().await.unwrap(), Eviction::Never);
    server.command::<()>("CONFIG SET maxmemory-policy volatile-lru");
    let found = window.eviction().await.unwrap();
    assert_eq!(
        found,
        Eviction::Evicts {
            policy: "volatile-lru".to_owned()
        }
    );
}

async fn eviction_is_unknown_if_info_is_denied(start: Start) {
    let server = start(&[]);
    // The documented ACL.
    server.command::<()>("ACL SETUSER rtad on >secret ~rtad:* -@all +set +get +exists +del");
    let window = window(&server.url().replace("://", "://rtad:secret@"));
    assert_eq!(window.eviction().await.unwrap(), Eviction::Unknown);
    all(&window.observe(&keys(1, 10), HOUR, 1).await.unwrap(), NEW);
    assert_eq!(window.check(&[[0; 16]], None).await.unwrap(), [false]);
    window.forget(&keys(1, 10), None).await.unwrap();
    window.probe().await.unwrap();
}

async fn probe_writes_no_lasting_key(start: Start) {
    let server = start(&[]);
    let window = window(&server.url());
    window.probe().await.unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(
        server.command::<Vec<String>>("KEYS *"),
        Vec::<String>::new()
    );
}

async fn keys_of_any_bytes_are_distinct(start: Start) {
    let server = start(&[]);
    let window = window(&server.url());
    let mut keys = vec![
        *b"{}\r\n\0 '\"{a}*$5\r\n",
        *b"                ",
        [0; 16],
        [255; 16],
    ];
    keys.extend((0..=255).map(|byte| [byte, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, byte]));
    all(&window.observe(&keys, HOUR, 1).await.unwrap(), NEW);
    assert_eq!(server.size(), 260);
}

#[tokio::test]
async fn invalid_configs_are_rejected() {
    for url in ["http://127.0.0.1", "redis+cluster://127.0.0.1/3"] {
        let error = RedisWindow::connect(&RedisConfig::new(url, "day")).unwrap_err();
        assert!(matches!(error, RedisError::Config(_)), "{error:?}");
    }
}
