//! Writes that were done though the store said otherwise: what lies there decides.

use super::meddled::{Lost, Meddled};
use super::*;

#[tokio::test]
async fn a_write_whose_answer_was_lost_was_a_write() {
    for lost in [Lost::Retried, Lost::Broken] {
        for suffix in ["CURRENT", ".json"] {
            let (meddled, place) = Meddled::place();
            let [first, second] = ["first", "second"].map(|seed| keys(seed, 20));
            meddled.lose(suffix, lost);
            assert_eq!(place.publish(&first).await.unwrap().0, 1, "{lost:?} {suffix}");
            place.assert_serves(1, &first).await;
            assert_eq!(place.publish(&second).await.unwrap().0, 2, "{lost:?} {suffix}");
            place.assert_serves(2, &second).await;
            if suffix == "CURRENT" {
                place.roll_back(1).await.unwrap();
                place.assert_serves(1, &first).await;
            }
        }
    }
}

#[tokio::test]
async fn a_write_that_was_another_s_is_still_lost() {
    let (meddled, place) = Meddled::place();
    let [first, second] = ["first", "second"].map(|seed| keys(seed, 20));
    meddled.lose("CURRENT", Lost::Retried);
    let base = place.writer.base(&audience()).await.unwrap();
    let late = place.writer.publish(base).await.unwrap();
    place.publish(&first).await.unwrap();
    let before = place.files().await;
    let lost = late.commit(&build(1, &second).0).await.unwrap_err();
    assert!(matches!(lost, StoreError::Conflict { .. }), "{lost:?}");
    assert_eq!(place.files().await, before);
}
