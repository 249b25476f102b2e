//! Lost answers: writes that succeeded although the client got an error.

use std::time::Duration;

use super::*;
use testkit::faulty_store::LostAnswer;

#[tokio::test]
async fn write_with_a_lost_answer_succeeds() {
    for lost in [LostAnswer::Retried, LostAnswer::Broken] {
        for part in ["/records/", "LATEST"] {
            let (faulty, fixture) = faulty_fixture();
            let [first, second] = ["first", "second"].map(|seed| keys(seed, 20));
            faulty.lose_answers(part, lost);
            assert_eq!(
                fixture.publish(&first).await.unwrap().0,
                1,
                "{lost:?} {part}"
            );
            fixture.assert_serves(1, &first).await;
            assert_eq!(
                fixture.publish(&second).await.unwrap().0,
                2,
                "{lost:?} {part}"
            );
            fixture.assert_serves(2, &second).await;
            fixture.roll_back(1).await.unwrap();
            fixture.assert_serves(1, &first).await;
        }
    }
}

#[tokio::test]
async fn lost_answer_to_another_writer_is_a_conflict() {
    let (faulty, fixture) = faulty_fixture();
    let [first, second] = ["first", "second"].map(|seed| keys(seed, 20));
    faulty.lose_answers("/records/", LostAnswer::Retried);
    let base = fixture.writer.base(&audience()).await.unwrap();
    let late = fixture.writer.publish(base).await.unwrap();
    fixture.publish(&first).await.unwrap();
    let lost = late.commit(build(1, &second).0).await.unwrap_err();
    assert!(matches!(lost, StoreError::Conflict { .. }), "{lost:?}");
    fixture.assert_serves(1, &first).await;
}

/// A write that arrives after its error was reported: the next attempt finds it, or is faster.
#[tokio::test(start_paused = true)]
async fn late_record_is_published_once() {
    for arrives_first in [true, false] {
        let (faulty, fixture) = faulty_fixture();
        let [first, second] = ["first", "second"].map(|seed| keys(seed, 20));
        fixture.publish(&first).await.unwrap();
        faulty.delay_next_put("/records/0");
        let arrival = async {
            if arrives_first {
                tokio::time::sleep(Duration::from_millis(100)).await;
                assert!(faulty.land_late_put().await);
            }
        };
        let (published, ()) = tokio::join!(fixture.publish(&second), arrival);
        assert_eq!(published.unwrap().0, 2);
        if !arrives_first {
            assert!(!faulty.land_late_put().await);
        }
        fixture.assert_serves(2, &second).await;
        assert_eq!(fixture.publish(&second).await.unwrap().0, 3);
    }
}

/// The store stops answering at any read of the publish, after or before the record is there.
#[tokio::test(start_paused = true)]
async fn publish_without_an_answer_is_not_repeated_blindly() {
    let mut unanswered = 0;
    for reads in 0..20 {
        for outage in [20, 200] {
            let (faulty, fixture) = faulty_fixture();
            let members = keys("first", 20);
            fixture.publish(&members).await.unwrap();
            faulty.lose_answers("/records/0", LostAnswer::Broken);
            faulty.limit_reads(Some(("/records/", reads)));
            let end = async {
                tokio::time::sleep(Duration::from_secs(outage)).await;
                faulty.limit_reads(None);
            };
            let (published, ()) = tokio::join!(fixture.publish(&members), end);

            let live = fixture.store().live(&audience()).await.unwrap().unwrap();
            let is_live = live.current.generation == 2;
            match published {
                Ok((2, _)) => assert!(is_live),
                Err(StoreError::Unanswered { .. }) => {
                    assert!(outage == 200 && is_live);
                    unanswered += 1;
                }
                Err(error) => assert!(!is_live, "{error} after {reads} reads"),
                Ok(other) => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(unanswered, 1);
}
