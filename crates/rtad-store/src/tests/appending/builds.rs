//! Appends and builds as by the loader.

use super::super::*;
use crate::write::{Appended, Change};

/// A build as by the loader: the input, changed by the deltas of the base.
pub async fn build_over(fixture: &StoreFixture, input: &[DeviceKey]) -> Result<u64, StoreError> {
    let base = fixture.writer.base(&audience()).await?;
    let mut members: BTreeSet<DeviceKey> = input.iter().copied().collect();
    if let Some(current) = base.current() {
        let overlay = fixture
            .store()
            .overlay(&audience(), current, &Overlay::default())
            .await?;
        for delta in overlay.deltas().chain(overlay.tombstones()) {
            members.extend(delta.added().iter());
            members.retain(|key| !delta.removed().contains(key));
        }
    }
    let members: Vec<_> = members.into_iter().collect();
    let folded = base.folded();
    let publication = fixture.writer.publish(base).await?;
    put_chunks(&publication, &members).await?;
    let manifest = build(1, &members).0;
    let manifest = match folded {
        Some(folded) => manifest.with_folded(folded),
        None => manifest,
    };
    let published = publication.commit(manifest).await?;
    Ok(published.manifest.generation())
}

/// Appends, with retries after conflicts.
pub async fn append(fixture: &StoreFixture, change: &Change) -> Result<Appended, StoreError> {
    let mut ledger = fixture.writer.ledger(&audience()).await?;
    loop {
        match ledger.append(change.clone()).await {
            Err(StoreError::Conflict { .. }) => drop(ledger.refresh().await?),
            // A gc has removed deltas that another append merged.
            Err(StoreError::NotFound { .. }) if ledger.refresh().await? => {}
            done => return done,
        }
    }
}

pub fn adding(keys: impl IntoIterator<Item = DeviceKey>) -> Change {
    let mut change = Change::default();
    keys.into_iter().for_each(|key| change.add(key));
    change
}

#[tokio::test]
async fn lost_records_continue_above_all_sequences() {
    for fixture in StoreFixture::local() {
        fixture.publish(&keys("old", 50)).await.unwrap();
        for n in 0..5 {
            append(&fixture, &adding(keys(&format!("new {n}"), 3)))
                .await
                .unwrap();
        }
        build_over(&fixture, &keys("old", 50)).await.unwrap();
        append(&fixture, &adding(keys("late", 3))).await.unwrap();
        let lost = fixture.current().await.sequence;
        for number in 1..=lost {
            fixture.delete(&record(number)).await;
        }
        let refused = fixture.writer.base(&audience()).await;
        assert!(
            matches!(refused, Err(StoreError::LostRecords { .. })),
            "{refused:?}"
        );
        // As `build --max-change any` does.
        let base = Base::new(audience(), None);
        let publication = fixture.writer.publish(base).await.unwrap();
        put_chunks(&publication, &keys("old", 60)).await.unwrap();
        let manifest = build(1, &keys("old", 60)).0;
        let published = publication.commit(manifest).await.unwrap();
        assert_eq!(published.manifest.generation(), 3);
        assert!(fixture.current().await.sequence > lost);
        append(&fixture, &adding(keys("since", 3))).await.unwrap();
        fixture.publish(&keys("old", 50)).await.unwrap();
        fixture.roll_back(3).await.unwrap();
        let snapshot = fixture.read().await.unwrap();
        assert!(
            keys("since", 3).iter().all(|key| snapshot.contains(key)),
            "{}",
            fixture.name()
        );
    }
}
