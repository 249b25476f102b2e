//! Lost answers: writes that succeeded although the client got an error.

use super::*;
use testkit::faulty_store::LostAnswer;

#[tokio::test]
async fn write_with_a_lost_answer_succeeds() {
    for lost in [LostAnswer::Retried, LostAnswer::Broken] {
        for suffix in ["CURRENT", ".json"] {
            let (faulty, fixture) = faulty_fixture();
            let [first, second] = ["first", "second"].map(|seed| keys(seed, 20));
            faulty.lose_answers(suffix, lost);
            assert_eq!(
                fixture.publish(&first).await.unwrap().0,
                1,
                "{lost:?} {suffix}"
            );
            fixture.assert_serves(1, &first).await;
            assert_eq!(
                fixture.publish(&second).await.unwrap().0,
                2,
                "{lost:?} {suffix}"
            );
            fixture.assert_serves(2, &second).await;
            if suffix == "CURRENT" {
                fixture.roll_back(1).await.unwrap();
                fixture.assert_serves(1, &first).await;
            }
        }
    }
}

#[tokio::test]
async fn lost_answer_to_another_writer_is_a_conflict() {
    let (faulty, fixture) = faulty_fixture();
    let [first, second] = ["first", "second"].map(|seed| keys(seed, 20));
    faulty.lose_answers("CURRENT", LostAnswer::Retried);
    let base = fixture.writer.base(&audience()).await.unwrap();
    let late = fixture.writer.publish(base).await.unwrap();
    fixture.publish(&first).await.unwrap();
    let before = fixture.files().await;
    let lost = late.commit(build(1, &second).0).await.unwrap_err();
    assert!(matches!(lost, StoreError::Conflict { .. }), "{lost:?}");
    assert_eq!(fixture.files().await, before);
}
