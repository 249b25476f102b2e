//! Writes that were done though the store said otherwise: what lies there decides.

use super::meddled::{Lost, Meddled};
use super::*;

#[tokio::test]
async fn a_write_whose_answer_was_lost_was_a_write() {
    for lost in [Lost::Retried, Lost::Broken] {
        for suffix in ["CURRENT", ".json"] {
            let (meddled, fixture) = Meddled::fixture();
            let [first, second] = ["first", "second"].map(|seed| keys(seed, 20));
            meddled.lose(suffix, lost);
            assert_eq!(fixture.publish(&first).await.unwrap().0, 1, "{lost:?} {suffix}");
            fixture.assert_serves(1, &first).await;
            assert_eq!(fixture.publish(&second).await.unwrap().0, 2, "{lost:?} {suffix}");
            fixture.assert_serves(2, &second).await;
            if suffix == "CURRENT" {
                fixture.roll_back(1).await.unwrap();
                fixture.assert_serves(1, &first).await;
            }
        }
    }
}

#[tokio::test]
async fn a_write_that_was_another_s_is_still_lost() {
    let (meddled, fixture) = Meddled::fixture();
    let [first, second] = ["first", "second"].map(|seed| keys(seed, 20));
    meddled.lose("CURRENT", Lost::Retried);
    let base = fixture.writer.base(&audience()).await.unwrap();
    let late = fixture.writer.publish(base).await.unwrap();
    fixture.publish(&first).await.unwrap();
    let before = fixture.files().await;
    let lost = late.commit(&build(1, &second).0).await.unwrap_err();
    assert!(matches!(lost, StoreError::Conflict { .. }), "{lost:?}");
    assert_eq!(fixture.files().await, before);
}
