//! Leases: never more than the total, whatever is lost.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rtad_redis::{Lease, Member, Quota, RedisError, RedisLeases};

use crate::redis_server::cluster::Cluster;
use crate::redis_server::config;
use crate::redis_server::proxy::Proxy;
use crate::redis_server::server::Server;

const NAME: &str = "new-users:day:1795392000";

fn quota(total: u64) -> Quota<'static> {
    Quota {
        name: NAME,
        total,
        end: SystemTime::now() + Duration::from_secs(3600),
    }
}

fn lease([granted, all, recorded]: [u64; 3]) -> Lease {
    Lease {
        granted,
        all,
        recorded,
        was_lost: false,
    }
}

fn member(id: u64, recorded: u64) -> Member {
    Member {
        id,
        recorded,
        is_doubtful: false,
    }
}

fn leases(url: &str) -> RedisLeases {
    RedisLeases::connect(&config(url)).unwrap()
}

fn field(server: &Server, field: &str) -> u64 {
    server
        .command::<Option<u64>>(&format!("HGET rtad:day.leases:{NAME} {field}"))
        .unwrap_or(0)
}

/// Sixteen members with connections of their own take blocks until there are no more.
async fn members_get_exactly_the_total(url: String) {
    let total = 100_003;
    let members = (0..16).map(|id: u64| {
        let leases = leases(&url);
        tokio::spawn(async move {
            let (mut granted, mut recorded) = (0, 0);
            loop {
                let lease = leases
                    .take(quota(total), member(id, recorded), 90 + id)
                    .await
                    .unwrap();
                assert!(!lease.was_lost);
                granted += lease.granted;
                recorded = lease.recorded;
                if lease.granted == 0 {
                    return granted;
                }
            }
        })
    });
    let mut granted = 0;
    for member in members.collect::<Vec<_>>() {
        granted += member.await.unwrap();
    }
    assert_eq!(granted, total);
}

#[tokio::test(flavor = "multi_thread")]
async fn members_get_exactly_the_total_of_redis() {
    let server = Server::redis(&[]);
    members_get_exactly_the_total(server.url()).await;
    let seconds: u64 = server.command(&format!("TTL rtad:day.leases:{NAME}"));
    assert!((89_000..=90_000).contains(&seconds), "{seconds}");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_get_exactly_the_total_of_valkey() {
    members_get_exactly_the_total(Server::valkey(&[]).url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_get_exactly_the_total_of_a_cluster() {
    let cluster = Cluster::start();
    members_get_exactly_the_total(cluster.url()).await;
}

/// A call whose answer is lost after the server has executed it. It is not repeated.
async fn lose_answer(server: &Server, proxy: &Proxy, call: impl Future<Output = bool>, all: u64) {
    let executed = async {
        // The call goes on in this task.
        while field(server, "all") != all {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        proxy.close();
    };
    let both = tokio::time::timeout(Duration::from_secs(30), async {
        tokio::join!(call, executed)
    });
    assert!(both.await.expect("the call is executed").0);
    assert_eq!(field(server, "all"), all);
}

fn is_lost<T>(answer: Result<T, RedisError>) -> bool {
    matches!(answer, Err(RedisError::Unreachable { .. }))
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answer_is_asked_for_and_granted() {
    let server = Server::redis(&[]);
    let proxy = Proxy::before(server.port).await;
    let leases = leases(&proxy.url());
    let first = leases.take(quota(1000), member(1, 0), 100).await.unwrap();
    assert_eq!(first, lease([100, 100, 100]));
    proxy.drop_answers();
    let call = async { is_lost(leases.take(quota(1000), member(1, 100), 100).await) };
    lose_answer(&server, &proxy, call, 200).await;
    let asked = leases.take(quota(1000), member(1, 100), 0).await.unwrap();
    assert_eq!(asked, lease([100, 200, 200]));
    let rest = leases.take(quota(1000), member(1, 200), 900).await.unwrap();
    assert_eq!(rest, lease([800, 1000, 1000]));
    assert_eq!(
        [field(&server, "all"), field(&server, "0000000000000001")],
        [1000; 2]
    );
}

/// Which of the units were within the total is not known.
#[tokio::test(flavor = "multi_thread")]
async fn units_of_a_lost_answer_beyond_the_total_are_given_back() {
    let server = Server::redis(&[]);
    let proxy = Proxy::before(server.port).await;
    let leases = leases(&proxy.url());
    leases.take(quota(1000), member(1, 0), 100).await.unwrap();
    proxy.drop_answers();
    let call = async { is_lost(leases.take(quota(1000), member(1, 100), 800).await) };
    lose_answer(&server, &proxy, call, 900).await;
    let other = leases.take(quota(850), member(2, 0), 200).await.unwrap();
    assert_eq!(other, lease([0, 900, 0]));
    let asked = leases.take(quota(850), member(1, 100), 0).await.unwrap();
    assert_eq!(asked, lease([0, 100, 100]));
    assert_eq!(
        leases
            .take(quota(850), member(2, 0), 750)
            .await
            .unwrap()
            .granted,
        750
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn units_are_given_back_at_most_once() {
    let server = Server::redis(&[]);
    let proxy = Proxy::before(server.port).await;
    let leases = leases(&proxy.url());
    leases.take(quota(1000), member(1, 0), 1000).await.unwrap();
    leases
        .give_back(quota(1000), member(1, 1000), 300)
        .await
        .unwrap();
    assert_eq!(
        [field(&server, "all"), field(&server, "0000000000000001")],
        [700; 2]
    );
    // The member's own record is read and changed first.
    proxy.drop_answers_after(2);
    let call = async { is_lost(leases.give_back(quota(1000), member(1, 700), 100).await) };
    lose_answer(&server, &proxy, call, 600).await;
    let others = leases.take(quota(1000), member(2, 0), 1000).await.unwrap();
    assert_eq!(others.granted, 400);
}

/// Members that ask for more than is left do not hide what others give back.
#[tokio::test(flavor = "multi_thread")]
async fn units_given_back_after_contention_are_leased_again() {
    let server = Server::redis(&[]);
    let leases = Arc::new(leases(&server.url()));
    let contending = (1..=4).map(|id: u64| {
        let leases = Arc::clone(&leases);
        tokio::spawn(async move { leases.take(quota(1000), member(id, 0), 750).await.unwrap() })
    });
    let mut granted = Vec::new();
    for lease in contending.collect::<Vec<_>>() {
        granted.push(lease.await.unwrap());
    }
    assert_eq!(granted.iter().map(|lease| lease.granted).sum::<u64>(), 1000);
    assert_eq!(field(&server, "all"), 1000);
    for (id, lease) in (1..).zip(&granted) {
        let half = lease.granted / 2;
        leases
            .give_back(quota(1000), member(id, lease.recorded), half)
            .await
            .unwrap();
    }
    let late = leases.take(quota(1000), member(9, 0), 600).await.unwrap();
    assert_eq!(late, lease([500, 1000, 500]));
    // A raised total is that of the units in use.
    let raised = leases
        .take(quota(1600), member(9, 500), 1000)
        .await
        .unwrap();
    assert_eq!(raised, lease([600, 1600, 1100]));
}

/// The member's record may have units that the sum lacks.
#[tokio::test]
async fn units_of_a_doubtful_call_are_wasted() {
    let server = Server::redis(&[]);
    let leases = leases(&server.url());
    let () = server.command(&format!("HSET rtad:day.leases:{NAME} 0000000000000001 100"));
    let doubtful = Member {
        is_doubtful: true,
        ..member(1, 0)
    };
    let lease_of_all = leases.take(quota(1000), doubtful, 1000).await.unwrap();
    assert_eq!(lease_of_all, lease([1000, 1000, 1100]));
    leases
        .give_back(
            quota(1000),
            Member {
                recorded: 1050,
                ..doubtful
            },
            10,
        )
        .await
        .unwrap();
    assert_eq!(field(&server, "all"), 990);
}

#[tokio::test]
async fn server_that_lost_its_data_learns_what_was_leased() {
    let mut server = Server::redis(&["--save", "", "--appendonly", "no"]);
    let (a, b) = (leases(&server.url()), leases(&server.url()));
    assert_eq!(
        a.take(quota(1000), member(1, 0), 600)
            .await
            .unwrap()
            .granted,
        600
    );
    assert_eq!(
        b.take(quota(1000), member(2, 0), 300)
            .await
            .unwrap()
            .granted,
        300
    );
    server.kill();
    server.start_again();
    // Both only ask, and find that their records are gone.
    let asked = a.take(quota(1000), member(1, 600), 0).await.unwrap();
    assert_eq!(
        asked,
        Lease {
            was_lost: true,
            ..lease([0, 600, 600])
        }
    );
    // One asks for more: it gets nothing this time. Its connection is new: a call with units is not
    // repeated over a lost one.
    let other = Quota {
        name: "other",
        ..quota(1000)
    };
    b.take(other, member(2, 0), 0).await.unwrap();
    let asked = b.take(quota(1000), member(2, 300), 50).await.unwrap();
    assert_eq!(
        asked,
        Lease {
            was_lost: true,
            ..lease([0, 900, 300])
        }
    );
    let lease = b.take(quota(1000), member(2, 300), 150).await.unwrap();
    assert_eq!((lease.granted, lease.was_lost), (100, false));
}

#[tokio::test]
async fn nothing_is_given_back_to_a_server_that_lost_it() {
    let server = Server::redis(&[]);
    let leases = leases(&server.url());
    let lease = leases.take(quota(1000), member(1, 0), 100).await.unwrap();
    let () = server.command("FLUSHALL");
    leases
        .give_back(quota(1000), member(1, lease.recorded), 60)
        .await
        .unwrap();
    assert_eq!(field(&server, "all"), 0);
    assert_eq!(
        leases
            .take(quota(1000), member(2, 0), 10)
            .await
            .unwrap()
            .granted,
        10
    );
}

/// An ACL without `EXPIRE`: `HINCRBY` is executed, and the call fails.
#[tokio::test]
async fn refused_expiry_fails_the_call() {
    let server = Server::redis(&[]);
    let () = server.command("ACL SETUSER pod on >secret ~rtad:* -@all +hincrby");
    let leases = leases(&server.url().replace("redis://", "redis://pod:secret@"));
    for units in [5, 0, 0] {
        leases
            .take(quota(10), member(1, 0), units)
            .await
            .unwrap_err();
        assert_eq!(field(&server, "all"), 5);
    }
}

#[tokio::test]
async fn refused_and_unexpected_answers_grant_nothing() {
    let server = Server::redis(&["--maxmemory", "1", "--maxmemory-policy", "noeviction"]);
    let full = leases(&server.url())
        .take(quota(10), member(1, 0), 5)
        .await
        .unwrap_err();
    assert!(matches!(full, RedisError::OutOfMemory { .. }), "{full:?}");

    let server = Server::redis(&[]);
    let () = server.command(&format!("SET rtad:day.leases:{NAME} text"));
    let other = leases(&server.url())
        .take(quota(10), member(1, 0), 5)
        .await
        .unwrap_err();
    assert!(matches!(other, RedisError::Other { .. }), "{other:?}");
    let () = server.command(&format!("DEL rtad:day.leases:{NAME}"));
    let () = server.command(&format!("HSET rtad:day.leases:{NAME} all -1000"));
    let negative = leases(&server.url())
        .take(quota(10), member(1, 0), 5)
        .await
        .unwrap_err();
    assert!(
        negative
            .to_string()
            .contains("unexpected answer to HINCRBY"),
        "{negative}"
    );
}

#[tokio::test]
async fn documented_acl_of_a_member_is_enough() {
    let server = Server::redis(&[]);
    let acl = "ACL SETUSER pod on >secret ~rtad:* -@all +hincrby +expire";
    let () = server.command(acl);
    let url = server.url().replace("redis://", "redis://pod:secret@");
    let leases = Arc::new(leases(&url));
    assert_eq!(
        leases
            .take(quota(10), member(1, 0), 5)
            .await
            .unwrap()
            .granted,
        5
    );
    leases.give_back(quota(10), member(1, 5), 5).await.unwrap();
}
