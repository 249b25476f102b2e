//! Stages: promoted, widened, dropped, replaced, and under appends, rollbacks and gcs.

use super::*;
use crate::write::{Change, Retention};
use rtad_core::snapshot::StagePlace;

const SHARE: u32 = 50_000;

impl StoreFixture {
    async fn stage(&self, keys: &[DeviceKey]) -> Result<u64, StoreError> {
        let base = self.writer.base(&audience()).await?;
        let publication = self.writer.publish(base).await?;
        put_chunks(&publication, keys).await?;
        let manifest = build(1, keys).0;
        let published = publication.commit_staged(manifest, SHARE).await?;
        Ok(published.manifest.generation())
    }

    async fn promote(&self, share: Option<u32>) -> Result<Current, StoreError> {
        let base = self.writer.base(&audience()).await?;
        self.writer.promote(&base, share).await
    }

    async fn drop_stage(&self) -> Result<Current, StoreError> {
        let base = self.writer.base(&audience()).await?;
        self.writer.drop_stage(&base).await
    }

    async fn append(&self, seed: &str) {
        let mut change = Change::default();
        keys(seed, 5).into_iter().for_each(|key| change.add(key));
        let mut ledger = self.writer.ledger(&audience()).await.unwrap();
        ledger.append(change).await.unwrap();
    }

    /// The generation that the first pod of a stage serves.
    async fn seen_first(&self) -> u64 {
        let current = self.current().await;
        current.seen_from(first_place()).generation
    }
}

/// The place of a pod that takes a stage of 5 %.
fn first_place() -> StagePlace {
    let places = (0..200).map(|number| StagePlace::of(&format!("pod-{number}"), &audience()));
    let state = Current::new(1, 1, b"", None)
        .staging(rtad_core::snapshot::GenerationEntry::of(2, b""), SHARE);
    let taken: Vec<_> = places
        .filter(|place| state.clone().seen_from(*place).generation == 2)
        .collect();
    assert!(
        (3..25).contains(&taken.len()),
        "about 10 of 200 pods: {}",
        taken.len()
    );
    taken[0]
}

#[tokio::test]
async fn stage_is_promoted_in_every_store() {
    for fixture in StoreFixture::all() {
        fixture.publish(&keys("live", 100)).await.unwrap();
        fixture.append("before").await;
        assert_eq!(fixture.stage(&keys("staged", 100)).await.unwrap(), 2);
        fixture.assert_serves(1, &keys("live", 100)).await;
        assert_eq!(fixture.seen_first().await, 2);
        assert_eq!(
            fixture
                .current()
                .await
                .seen_from(StagePlace::LAST)
                .generation,
            1
        );

        fixture.append("after").await;
        assert_eq!(fixture.seen_first().await, 2);
        fixture.promote(Some(2 * SHARE)).await.unwrap();
        assert_eq!(fixture.current().await.generation, 1);
        fixture.promote(None).await.unwrap();
        fixture.assert_serves(2, &keys("staged", 100)).await;
        let read = fixture.read().await.unwrap();
        assert!(keys("after", 5).iter().all(|key| read.contains(key)));

        // The one before is kept for a rollback.
        assert_eq!(fixture.generations().await, [1, 2]);
        fixture.roll_back(1).await.unwrap();
        fixture.assert_serves(1, &keys("live", 100)).await;
    }
}

#[tokio::test]
async fn dropped_stage_is_gone_and_its_number_is_not_used_again() {
    let fixture = StoreFixture::directory();
    fixture.publish(&keys("live", 100)).await.unwrap();
    fixture.stage(&keys("staged", 100)).await.unwrap();
    let dropped = fixture.drop_stage().await.unwrap();
    assert_eq!((dropped.generation, dropped.rolled_back_from), (1, Some(2)));
    assert_eq!(fixture.generations().await, [1]);
    assert_eq!(fixture.stage(&keys("other", 100)).await.unwrap(), 3);
    assert_eq!(fixture.publish(&keys("next", 100)).await.unwrap().0, 4);
    assert_eq!(
        fixture.current().await.staged,
        None,
        "a publish replaces it"
    );
    assert_eq!(fixture.generations().await, [1, 4]);
}

#[tokio::test]
async fn nothing_is_staged_without_a_live_generation() {
    let fixture = StoreFixture::directory();
    let error = fixture.stage(&keys("staged", 100)).await.unwrap_err();
    assert!(matches!(error, StoreError::NothingStaged { .. }), "{error}");
    fixture.publish(&keys("live", 100)).await.unwrap();
    for error in [fixture.promote(None).await, fixture.drop_stage().await] {
        let error = error.unwrap_err();
        assert!(matches!(error, StoreError::NothingStaged { .. }), "{error}");
    }
}

#[tokio::test]
async fn gc_keeps_a_staged_generation() {
    let fixture = StoreFixture::directory();
    fixture.publish(&keys("live", 100)).await.unwrap();
    fixture.stage(&keys("staged", 100)).await.unwrap();
    let retention = Retention {
        keep: 1,
        min_age: Duration::ZERO,
    };
    fixture
        .writer
        .collect(&audience(), retention, false)
        .await
        .unwrap();
    fixture.promote(None).await.unwrap();
    fixture.assert_serves(2, &keys("staged", 100)).await;
}

#[tokio::test]
async fn build_begun_before_a_stage_is_refused() {
    let fixture = StoreFixture::directory();
    fixture.publish(&keys("live", 100)).await.unwrap();
    let base = fixture.writer.base(&audience()).await.unwrap();
    fixture.stage(&keys("staged", 100)).await.unwrap();
    let error = fixture.writer.publish(base.clone()).await.unwrap_err();
    assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
    let error = fixture.writer.promote(&base, None).await.unwrap_err();
    assert!(matches!(
        error,
        StoreError::Conflict { .. } | StoreError::NothingStaged { .. }
    ));
}
