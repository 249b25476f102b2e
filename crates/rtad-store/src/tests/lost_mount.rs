//! A directory that is missing, or empty where an audience was: a mount that is lost.

use std::time::Duration;

use super::*;
use crate::write::{Change, Retention, WindowFolder};

/// The errors of all writes to an audience and a window that were in the store.
async fn errors_of_writes(
    writer: &StoreWriter,
    ledger: &mut crate::write::Ledger,
) -> Vec<StoreError> {
    let mut change = Change::default();
    change.add(keys("later", 1)[0]);
    let retention = Retention {
        keep: 1,
        min_age: Duration::ZERO,
    };
    let window = WindowFolder::new(writer.clone(), "a".parse().unwrap());
    vec![
        ledger.append(change).await.unwrap_err(),
        writer.ledger(&audience()).await.unwrap_err(),
        writer
            .collect(&audience(), retention, false)
            .await
            .unwrap_err(),
        writer.delete(&audience()).await.unwrap_err(),
        window.create(2, "2".into()).await.unwrap_err(),
    ]
}

#[tokio::test]
async fn nothing_but_a_first_build_creates_a_store() {
    let fixture = StoreFixture::directory();
    fixture.publish(&keys("member", 10)).await.unwrap();
    let root = fixture.folder.as_ref().unwrap().path();
    let mut ledger = fixture.writer.ledger(&audience()).await.unwrap();
    std::fs::remove_dir_all(root).unwrap();

    let mut errors = errors_of_writes(&fixture.writer, &mut ledger).await;
    errors.push(fixture.writer.base(&audience()).await.unwrap_err());
    let base = Base::new(audience(), None);
    errors.push(fixture.writer.publish(base).await.unwrap_err());
    let window = WindowFolder::new(fixture.writer.clone(), "a".parse().unwrap());
    errors.push(window.read(1).await.unwrap_err());
    errors.push(window.create(1, "1".into()).await.unwrap_err());
    errors.push(fixture.store().check_directory().await.unwrap_err());
    for error in errors {
        assert!(matches!(error, StoreError::NoDirectory { .. }), "{error:?}");
    }
    assert!(!root.exists());

    let builder = fixture.writer.clone().creating_store();
    let base = builder.base(&audience()).await.unwrap();
    builder.publish(base).await.unwrap();
    assert!(root.join(audience().as_str()).exists());
}

#[tokio::test]
async fn changes_of_what_existed_leave_an_empty_directory_empty() {
    let fixture = StoreFixture::directory();
    fixture.publish(&keys("member", 10)).await.unwrap();
    let root = fixture.folder.as_ref().unwrap().path();
    let mut ledger = fixture.writer.ledger(&audience()).await.unwrap();
    std::fs::remove_dir_all(root).unwrap();
    std::fs::create_dir(root).unwrap();

    for error in errors_of_writes(&fixture.writer, &mut ledger).await {
        let is_refused = matches!(
            error,
            StoreError::NotFound { .. } | StoreError::LostMount { .. }
        );
        assert!(is_refused, "{error:?}");
    }
    // Another audience, which a PUT would create.
    let other = "other".parse().unwrap();
    for error in [
        fixture.writer.base(&other).await.unwrap_err(),
        fixture.writer.ledger(&other).await.unwrap_err(),
    ] {
        assert!(matches!(error, StoreError::LostMount { .. }), "{error:?}");
    }
    assert_eq!(std::fs::read_dir(root).unwrap().count(), 0);
}

/// A process that has read nothing but the names in the directory.
#[tokio::test]
async fn directory_that_had_content_at_the_start_is_not_taken_for_a_new_one() {
    for folder in ["a", ".windows"] {
        let fixture = StoreFixture::directory();
        let root = fixture.folder.as_ref().unwrap().path();
        assert!(fixture.writer.base(&audience()).await.is_ok());
        std::fs::create_dir(root.join(folder)).unwrap();
        fixture.store().check_directory().await.unwrap();
        assert!(fixture.writer.base(&audience()).await.is_ok());

        std::fs::remove_dir(root.join(folder)).unwrap();
        let error = fixture.writer.base(&audience()).await.unwrap_err();
        assert!(matches!(error, StoreError::LostMount { .. }), "{error:?}");
        assert!(error.is_outage());
    }
}
