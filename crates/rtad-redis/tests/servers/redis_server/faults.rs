//! Lost answers, hangs, restarts and refusals.

use std::time::{Duration, Instant};

use rtad_redis::{Lifetime, RedisConfig, RedisError, RedisWindow, Seen};
use testkit::port::free_port;
use testkit::wait_until;

use crate::redis_server::proxy::Proxy;
use crate::redis_server::server::Server;
use crate::redis_server::{HOUR, all, config, keys, window};

/// More than the limits of time of any window here, with a margin for a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A window with the default limit of time for an answer.
fn impatient(url: &str) -> RedisWindow {
    let response_timeout = RedisConfig::new(url, "day").response_timeout;
    RedisWindow::connect(&RedisConfig {
        response_timeout,
        ..config(url)
    })
    .unwrap()
}

/// Repeats a request that times out, as a busy machine may exceed the default limits.
async fn repeated(window: &RedisWindow, keys: &[[u8; 16]], token: u64) -> Vec<Seen> {
    for _ in 0..20 {
        match window.observe(keys, HOUR, token).await {
            Err(RedisError::Timeout { .. }) => {}
            result => return result.unwrap(),
        }
    }
    panic!("no answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answer_is_repeated_and_sees_its_own_writes() {
    let server = Server::redis(&[]);
    let proxy = Proxy::before(server.port).await;
    let window = window(&proxy.url());
    window.probe().await.unwrap();
    let keys = keys(1, 1000);
    let before = server.size();
    proxy.drop_answers();
    let executed = async {
        // A connection of its own, not through the proxy.
        let executed = || server.size() >= before + 1000;
        tokio::task::block_in_place(|| wait_until("the batch", executed));
        proxy.close();
    };
    let (seen, ()) = tokio::join!(window.observe(&keys, HOUR, 1), executed);
    all(&seen.unwrap(), Seen::New);
    assert_eq!(proxy.connections(), 2, "one retry");
    all(
        &window.observe(&keys, HOUR, 2).await.unwrap(),
        Seen::Duplicate,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_cut_in_the_middle_is_completed_by_the_retry() {
    let server = Server::redis(&[]);
    let proxy = Proxy::before(server.port).await;
    let window = window(&proxy.url());
    for (round, bytes) in [1, 10_000, 40_000, 100_003].into_iter().enumerate() {
        let keys = keys(round as u64, 1000);
        window.probe().await.unwrap();
        proxy.cut_request(bytes);
        let token = round as u64 + 1;
        all(
            &window.observe(&keys, HOUR, token).await.unwrap(),
            Seen::New,
        );
        all(
            &window.observe(&keys, HOUR, 99).await.unwrap(),
            Seen::Duplicate,
        );
        assert_eq!(proxy.connections(), round + 2, "one retry");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unanswered_request_is_repeated_by_another_owner() {
    let server = Server::redis(&[]);
    let proxy = Proxy::before(server.port).await;
    let keys = keys(1, 1000);
    let begun = Instant::now();
    proxy.drop_answers();
    // Time to send all of the batch.
    let config = RedisConfig {
        response_timeout: Duration::from_secs(2),
        ..config(&proxy.url())
    };
    let unanswered = RedisWindow::connect(&config).unwrap();
    let error = unanswered.observe(&keys, HOUR, 1).await.unwrap_err();
    assert!(matches!(error, RedisError::Timeout { .. }), "{error:?}");
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
    wait_until("the batch", || server.size() == 1000);
    let other = window(&server.url());
    all(&other.observe(&keys, HOUR, 1).await.unwrap(), Seen::New);
    all(
        &other.observe(&keys, HOUR, 2).await.unwrap(),
        Seen::Duplicate,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connection_is_replaced() {
    let server = Server::redis(&[]);
    let proxy = Proxy::before(server.port).await;
    let window = impatient(&proxy.url());
    repeated(&window, &[[0; 16]], 9).await;
    // As after the end of a host: nothing arrives, not even an end.
    proxy.stall();
    let error = window.observe(&keys(1, 10), HOUR, 1).await.unwrap_err();
    assert!(matches!(error, RedisError::Timeout { .. }), "{error:?}");
    all(&repeated(&window, &keys(1, 10), 1).await, Seen::New);
    assert!(proxy.connections() >= 2);
}

#[tokio::test]
async fn server_may_start_after_the_window() {
    let port = free_port();
    let window = window(&format!("redis://127.0.0.1:{port}"));
    for _ in 0..3 {
        let begun = Instant::now();
        let error = window.observe(&keys(1, 10), HOUR, 1).await.unwrap_err();
        assert!(matches!(error, RedisError::Unreachable { .. }), "{error:?}");
        assert!(error.is_transient() && begun.elapsed() < LIMIT);
        assert!(window.probe().await.is_err());
    }
    let _server = Server::redis_at(port, &[]);
    all(
        &window.observe(&keys(1, 10), HOUR, 1).await.unwrap(),
        Seen::New,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_server_times_out_and_is_used_again_once_it_continues() {
    let server = Server::redis(&[]);
    let window = impatient(&server.url());
    repeated(&window, &[[0; 16]], 9).await;
    server.signal("STOP");
    let keys = keys(1, 1000);
    // On the open connection, then on a new one, which the kernel accepts.
    for attempt in 0..3 {
        let begun = Instant::now();
        let error = window.observe(&keys, HOUR, 1).await.unwrap_err();
        assert!(
            matches!(error, RedisError::Timeout { .. }),
            "{attempt}: {error:?}"
        );
        assert!(begun.elapsed() < LIMIT, "{attempt}: {:?}", begun.elapsed());
    }
    server.signal("CONT");
    // The server executes the requests that it received: they have this token.
    all(&repeated(&window, &keys, 1).await, Seen::New);
    all(&repeated(&window, &keys, 2).await, Seen::Duplicate);
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_server_is_used_again() {
    let mut server = Server::redis(&[]);
    let window = window(&server.url());
    all(
        &window.observe(&keys(1, 10), HOUR, 1).await.unwrap(),
        Seen::New,
    );
    for round in 2..4 {
        server.kill();
        let begun = Instant::now();
        let error = window.observe(&keys(1, 10), HOUR, round).await.unwrap_err();
        assert!(matches!(error, RedisError::Unreachable { .. }), "{error:?}");
        assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
        server.start_again();
        // Without persistence a restart loses all keys.
        all(
            &window.observe(&keys(1, 10), HOUR, round).await.unwrap(),
            Seen::New,
        );
    }
    // A restart between two requests: the lost connection is found by the second.
    server.kill();
    server.start_again();
    all(
        &window.observe(&keys(1, 10), HOUR, 9).await.unwrap(),
        Seen::New,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn many_requests_share_the_new_connection() {
    let mut server = Server::redis(&["--maxclients", "20"]);
    let window = window(&server.url());
    window.probe().await.unwrap();
    server.kill();
    server.start_again();
    let (window, keys) = (&window, &keys(1, 64));
    let requests = keys
        .iter()
        .map(|key| async move { window.observe(&[*key], HOUR, 1).await.unwrap()[0] });
    all(&futures_util::future::join_all(requests).await, Seen::New);
    let clients: String = server.command("INFO clients");
    // One of them is that of this command.
    assert!(clients.contains("connected_clients:2"), "{clients}");
}

/// One key of its own for each token.
async fn counted(window: &RedisWindow, token: u64) -> Result<Vec<Seen>, RedisError> {
    window.observe(&keys(token, 1), HOUR, token).await
}

/// The time of a call runs from its first command: those that wait are not late, and those that
/// wait for too long send nothing.
#[tokio::test(flavor = "multi_thread")]
async fn excess_calls_wait_and_then_send_nothing() {
    let server = Server::redis(&[]);
    let mut config = config(&server.url());
    config.max_keys_in_flight = 1;
    let window = RedisWindow::connect(&config).unwrap();
    let calls = (0..200).map(|token| counted(&window, token));
    let seen = futures_util::future::join_all(calls).await;
    assert!(seen.into_iter().all(|seen| seen.unwrap() == [Seen::New]));

    let other = RedisWindow::connect(&config).unwrap();
    config.response_timeout = Duration::from_millis(100);
    let window = RedisWindow::connect(&config).unwrap();
    repeated(&window, &[[0; 16]], 9).await;
    server.signal("STOP");
    let begun = Instant::now();
    let calls = (1000..1100).map(|token| counted(&window, token));
    let results = futures_util::future::join_all(calls).await;
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
    server.signal("CONT");
    let mut overloaded = 0;
    for (number, result) in (1000..).zip(results) {
        match result {
            Err(RedisError::Timeout { .. } | RedisError::Unreachable { .. }) => {}
            Err(RedisError::Overloaded { .. }) => {
                overloaded += 1;
                assert_eq!(other.check(&keys(number, 1), None).await.unwrap(), [false]);
            }
            result => panic!("{result:?}"),
        }
    }
    assert!(overloaded > 0);
    repeated(&window, &[[2; 16]], 9).await;
}

/// A batch over the limit of keys in flight has the server alone.
#[tokio::test(flavor = "multi_thread")]
async fn batch_larger_than_a_pipeline_is_counted_in_its_order() {
    let server = Server::redis(&[]);
    let mut config = config(&server.url());
    config.max_keys_in_flight = 1500;
    let window = RedisWindow::connect(&config).unwrap();
    let batch = keys(1, 4000);
    all(
        &window.observe(&batch[1000..3500], HOUR, 1).await.unwrap(),
        Seen::New,
    );
    let seen = window.observe(&batch, HOUR, 2).await.unwrap();
    let is_old = |index: usize| (1000..3500).contains(&index);
    assert!(
        seen.iter()
            .enumerate()
            .all(|(index, seen)| (*seen == Seen::Duplicate) == is_old(index))
    );
}

#[tokio::test]
async fn wrong_credentials_are_denied() {
    let server = Server::redis(&["--requirepass", "right"]);
    let address = server.address();
    for (password, code) in [("", "NOAUTH"), (":wrong-password@", "WRONGPASS")] {
        let window = window(&format!("redis://{password}{address}"));
        for _ in 0..2 {
            let error = window.observe(&keys(1, 1), HOUR, 1).await.unwrap_err();
            let RedisError::Denied { code: found, .. } = &error else {
                panic!("{error:?}")
            };
            assert_eq!(found, code);
            assert!(!error.is_transient() && !error.to_string().contains("wrong-password"));
        }
        assert!(matches!(
            window.probe().await,
            Err(RedisError::Denied { .. })
        ));
        assert!(matches!(
            window.eviction().await,
            Ok(_) | Err(RedisError::Denied { .. })
        ));
    }
    let window = window(&format!("redis://:right@{address}"));
    all(
        &window.observe(&keys(1, 1), HOUR, 1).await.unwrap(),
        Seen::New,
    );

    server.command::<()>("ACL SETUSER other on >secret ~other:* +@all");
    let other = crate::redis_server::window(&format!("redis://other:secret@{address}"));
    let error = other.observe(&keys(1, 1), HOUR, 1).await.unwrap_err();
    assert!(
        matches!(&error, RedisError::Denied { code, .. } if code == "NOPERM"),
        "{error:?}"
    );
}

#[tokio::test]
async fn replica_is_read_only() {
    let primary = Server::redis(&[]);
    let replica = Server::redis(&["--replicaof", "127.0.0.1", &primary.port.to_string()]);
    let in_sync = || {
        replica
            .command::<String>("INFO replication")
            .contains("link_status:up")
    };
    wait_until("replication", in_sync);
    let window = window(&replica.url());
    for result in [
        window.observe(&keys(1, 10), HOUR, 1).await.map(drop),
        window.probe().await,
    ] {
        assert!(
            matches!(result, Err(RedisError::ReadOnly { .. })),
            "{result:?}"
        );
    }
    // A failover.
    replica.command::<()>("REPLICAOF NO ONE");
    all(
        &window.observe(&keys(1, 10), HOUR, 1).await.unwrap(),
        Seen::New,
    );
}

#[tokio::test]
async fn full_server_refuses_new_keys() {
    let server = Server::redis(&["--maxmemory", "3mb", "--maxmemory-policy", "noeviction"]);
    let window = window(&server.url());
    let mut failed = None;
    for round in 0..100 {
        match window.observe(&keys(round, 1000), HOUR, round).await {
            Ok(seen) => all(&seen, Seen::New),
            Err(error) => {
                failed = Some((round, error));
                break;
            }
        }
    }
    let (round, error) = failed.expect("a full server");
    assert!(matches!(error, RedisError::OutOfMemory { .. }), "{error:?}");
    // The refused request's own buffers are free again: the probe may fit.
    server.command::<()>("CONFIG SET maxmemory 1");
    assert!(matches!(
        window.probe().await,
        Err(RedisError::OutOfMemory { .. })
    ));
    assert_eq!(
        window.check(&keys(0, 1), None).await.unwrap(),
        [true],
        "reads go on"
    );
    // More memory, and the repetition tells the keys that were recorded from those that were not.
    server.command::<()>("CONFIG SET maxmemory 30mb");
    all(
        &window
            .observe(&keys(round, 1000), HOUR, round)
            .await
            .unwrap(),
        Seen::New,
    );
}

#[tokio::test]
async fn errors_name_no_key_and_no_token() {
    let server = Server::redis(&[
        "--rename-command",
        "SET",
        "TES",
        "--rename-command",
        "DEL",
        "LED",
    ]);
    let window = window(&server.url());
    let key = *b"SECRETSECRETSECR";
    let error = window.observe(&[key], HOUR, 987_654_321).await.unwrap_err();
    assert!(matches!(error, RedisError::Other { .. }), "{error:?}");
    let texts = format!(
        "{error} {error:?} {:?} {window:?}",
        window.forget(&[key], None).await
    );
    assert!(texts.contains("unknown command"), "{texts}");
    assert!(
        !texts.contains("SECRET") && !texts.contains("987654321"),
        "{texts}"
    );
}

#[tokio::test]
async fn expiry_is_set_with_the_key() {
    // Not by a second command, which might not come.
    let server = Server::redis(&[]);
    let window = window(&server.url());
    let lifetime = Lifetime::For(Duration::from_secs(60));
    window.observe(&keys(1, 100), lifetime, 1).await.unwrap();
    let info: String = server.command("INFO keyspace");
    assert!(info.contains("keys=100,expires=100"), "{info}");
}
