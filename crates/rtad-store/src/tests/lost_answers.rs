//! Lost answers: writes that succeeded although the client got an error.

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

/// A write that arrives after its error was reported, and after the next write of its kind.
#[tokio::test]
async fn late_record_is_refused_or_a_change_like_any_other() {
    let (faulty, fixture) = faulty_fixture();
    let [first, second, third] = ["first", "second", "third"].map(|seed| keys(seed, 20));
    fixture.publish(&first).await.unwrap();

    faulty.delay_next_put("/records/0");
    fixture.publish(&second).await.unwrap_err();
    fixture.assert_serves(1, &first).await;
    assert!(faulty.land_late_put().await);
    fixture.assert_serves(2, &second).await;

    faulty.delay_next_put("/records/0");
    fixture.publish(&first).await.unwrap_err();
    assert_eq!(fixture.publish(&third).await.unwrap().0, 3);
    assert!(!faulty.land_late_put().await);
    fixture.assert_serves(3, &third).await;
    fixture.publish(&first).await.unwrap();
    fixture.assert_serves(4, &first).await;
}
