//! Identical concurrent appends: one succeeds, and the other gets a conflict.

use super::appending::builds::{adding, append};
use super::*;
use crate::write::Change;
use testkit::faulty_store::LostAnswer;

#[tokio::test]
async fn identical_concurrent_appends_conflict_in_every_store() {
    for fixture in StoreFixture::all() {
        fixture.publish(&keys("member", 30)).await.unwrap();
        for round in 0..20 {
            let mut change = Change::default();
            keys(&format!("round {round}"), 10)
                .into_iter()
                .for_each(|key| change.add(key));
            let mut first = fixture.writer.ledger(&audience()).await.unwrap();
            let mut second = fixture.writer.ledger(&audience()).await.unwrap();
            let appended =
                tokio::join!(first.append(change.clone()), second.append(change.clone()));
            let (won, lost) = match appended {
                (Ok(won), Err(lost)) | (Err(lost), Ok(won)) => (won, lost),
                both => panic!("{}: {both:?}", fixture.name()),
            };
            assert!(matches!(lost, StoreError::Conflict { .. }), "{lost:?}");
            assert_eq!(fixture.current().await.sequence, won.sequence);
        }
    }
}

/// Twenty writers append at once, with retries. All changes are live in the end.
#[tokio::test]
async fn appends_of_twenty_writers_are_all_live_in_every_store() {
    for fixture in StoreFixture::all() {
        fixture.publish(&keys("member", 30)).await.unwrap();
        let mut appends = Vec::new();
        for writer in 0..20 {
            let fixture = &fixture;
            appends.push(async move {
                let change = adding(keys(&format!("writer {writer}"), 3));
                append(fixture, &change).await.unwrap().sequence
            });
        }
        let mut sequences = futures_util::future::join_all(appends).await;
        sequences.sort_unstable();
        assert!(sequences.into_iter().eq(2..=21), "{}", fixture.name());
        assert_eq!(fixture.current().await.sequence, 21);
        let snapshot = fixture.read().await.unwrap();
        for writer in 0..20 {
            let added = keys(&format!("writer {writer}"), 3);
            assert!(added.iter().all(|key| snapshot.contains(key)), "{writer}");
        }
    }
}

#[tokio::test]
async fn append_with_a_lost_answer_beats_its_twin() {
    let (faulty, fixture) = faulty_fixture();
    fixture.publish(&keys("member", 30)).await.unwrap();
    let mut change = Change::default();
    change.add(keys("new", 1)[0]);
    let mut first = fixture.writer.ledger(&audience()).await.unwrap();
    let mut second = fixture.writer.ledger(&audience()).await.unwrap();
    faulty.lose_answers("/records/", LostAnswer::Retried);
    assert_eq!(first.append(change.clone()).await.unwrap().sequence, 2);
    let lost = second.append(change).await.unwrap_err();
    assert!(matches!(lost, StoreError::Conflict { .. }), "{lost:?}");
}
