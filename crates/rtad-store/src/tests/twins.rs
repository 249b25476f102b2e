//! Two writers who write the same at the same time: one has written it, and the other knows that it was not it.

use super::meddled::{Lost, Meddled};
use super::*;
use crate::write::Change;

#[tokio::test]
async fn of_two_who_append_the_same_one_has_lost() {
    for fixture in StoreFixture::all() {
        fixture.publish(&keys("member", 30)).await.unwrap();
        for round in 0..20 {
            let mut change = Change::default();
            keys(&format!("round {round}"), 10).into_iter().for_each(|key| change.add(key));
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

#[tokio::test]
async fn who_lost_the_answer_alone_knows_it_for_done() {
    let (meddled, fixture) = Meddled::fixture();
    fixture.publish(&keys("member", 30)).await.unwrap();
    let mut change = Change::default();
    change.add(keys("new", 1)[0]);
    let mut first = fixture.writer.ledger(&audience()).await.unwrap();
    let mut second = fixture.writer.ledger(&audience()).await.unwrap();
    meddled.lose("CURRENT", Lost::Retried);
    assert_eq!(first.append(change.clone()).await.unwrap().sequence, 2);
    let lost = second.append(change).await.unwrap_err();
    assert!(matches!(lost, StoreError::Conflict { .. }), "{lost:?}");
}
