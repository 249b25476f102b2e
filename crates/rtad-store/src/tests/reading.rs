//! Readers: polls, stale copies of a store, and records that are refused.

use super::*;
use crate::write::Change;

async fn poll(fixture: &StoreFixture, last: &Live) -> Result<Live, StoreError> {
    let live = fixture.store().live_since(&audience(), Some(last)).await?;
    Ok(live.unwrap())
}

async fn live(fixture: &StoreFixture) -> Live {
    let live = fixture.store().live(&audience()).await.unwrap();
    live.unwrap()
}

#[tokio::test]
async fn poll_returns_the_newest_record_in_every_store() {
    for fixture in StoreFixture::all() {
        fixture.publish(&keys("first", 20)).await.unwrap();
        let first = live(&fixture).await;
        assert_eq!(poll(&fixture, &first).await.unwrap().current, first.current);
        for seed in ["second", "third"] {
            fixture.publish(&keys(seed, 20)).await.unwrap();
        }
        let third = poll(&fixture, &first).await.unwrap();
        assert_eq!(third.current.sequence, 3, "{}", fixture.name());
        assert_eq!(third.object(), fixture.files().await[&record(3)]);
    }
}

#[tokio::test]
async fn poll_without_news_costs_one_request() {
    let (faulty, fixture) = faulty_fixture();
    fixture.publish(&keys("first", 20)).await.unwrap();
    let mut last = live(&fixture).await;
    faulty.limit_reads(Some(("old_users", 1)));
    assert_eq!(poll(&fixture, &last).await.unwrap().current, last.current);
    assert!(poll(&fixture, &last).await.unwrap_err().is_outage());

    // From time to time, three.
    last.age(Duration::from_secs(600));
    faulty.limit_reads(Some(("old_users", 3)));
    let checked = poll(&fixture, &last).await.unwrap();
    assert_eq!(checked.current, last.current);
    faulty.limit_reads(Some(("old_users", 1)));
    poll(&fixture, &checked).await.unwrap();
}

/// A folder that was restored from an older copy: the reader sees the older record.
#[tokio::test]
async fn older_copy_of_a_store_is_seen_by_the_next_check() {
    for fixture in StoreFixture::local() {
        fixture.publish(&keys("first", 20)).await.unwrap();
        let copy = fixture.files().await;
        fixture.publish(&keys("second", 20)).await.unwrap();
        let mut last = live(&fixture).await;
        for path in fixture.files().await.keys() {
            fixture.delete(path).await;
        }
        for (path, bytes) in copy {
            fixture.write(&path, bytes).await;
        }

        if fixture.store().is_remote() {
            assert_eq!(poll(&fixture, &last).await.unwrap().current, last.current);
            last.age(Duration::from_secs(600));
        }
        let older = poll(&fixture, &last).await.unwrap();
        assert_eq!(older.current.sequence, 1, "{}", fixture.name());

        // Another history continues from there, with the same number.
        let mut ledger = fixture.writer.ledger(&audience()).await.unwrap();
        let mut change = Change::default();
        change.add(keys("other", 1)[0]);
        ledger.append(change).await.unwrap();
        let other = poll(&fixture, &last).await.unwrap();
        assert_eq!(other.current.sequence, last.current.sequence);
        assert_eq!(other.current, fixture.current().await);
        assert_ne!(other.current, last.current);
    }
}

#[tokio::test]
async fn foreign_and_misnumbered_records_are_refused() {
    for fixture in StoreFixture::local() {
        let members = keys("member", 20);
        fixture.publish(&members).await.unwrap();
        let last = live(&fixture).await;
        let next = last.current.next();
        let mut misnumbered = next.clone();
        misnumbered.sequence = 7;
        let manifest = fixture.files().await[&fixture.manifest_file(1).await].clone();
        for (object, message) in [
            (last.object().to_vec(), "sequence is 1, expected 2"),
            (misnumbered.to_bytes(), "sequence is 7, expected 2"),
            (manifest, "format"),
            (
                b"\n".to_vec(),
                "is not valid in version 1 of the format: EOF",
            ),
            (b"1".to_vec(), "is not valid in version 1"),
            (
                vec![b' '; 65_537],
                "the record is 65537 bytes, the limit is 65536",
            ),
            (vec![b'x'; 70_000], "the record is "),
        ] {
            fixture.write(&record(2), object).await;
            for refused in [
                poll(&fixture, &last).await.map(drop),
                fixture.store().live(&audience()).await.map(drop),
                fixture.publish(&members).await.map(drop),
            ] {
                let text = chain(&refused.unwrap_err());
                assert!(text.starts_with(&format!("{}: ", record(2))), "{text}");
                assert!(text.contains(message), "{text}, not {message}");
            }
        }
        // A signature is read only with public keys.
        let object = [&next.to_bytes()[..], b"\nanything"].concat();
        fixture.write(&record(2), object).await;
        assert_eq!(live(&fixture).await.current, next);
        fixture.assert_serves(1, &members).await;
    }
}

#[tokio::test]
async fn empty_folder_of_an_audience_is_an_audience_without_records() {
    let fixture = StoreFixture::directory();
    std::fs::create_dir_all(fixture.audience_folder().join("records")).unwrap();
    assert_eq!(fixture.store().audiences().await.unwrap(), [audience()]);
    assert!(fixture.store().live(&audience()).await.unwrap().is_none());
    let error = fixture.writer.delete(&audience()).await.unwrap_err();
    assert_eq!(error.cause(), "not_found");
    let members = keys("member", 20);
    assert_eq!(fixture.publish(&members).await.unwrap().0, 1);
    fixture.assert_serves(1, &members).await;
}
