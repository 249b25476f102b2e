use super::*;
use rtad_store::StoreError;

#[test]
fn causes_are_told_once_and_in_order() {
    let cause = rtad_core::snapshot::ManifestError::Version { found: 2 };
    let error = StoreError::Manifest { path: "a/CURRENT".to_owned(), source: cause };
    let line = chain(&SyncError::Store(error));
    assert_eq!(line, "a/CURRENT: version is 2, this rtad reads version 1: upgrade rtad");

    // As some libraries do it.
    #[derive(Debug, thiserror::Error)]
    #[error("could not ask: {0}")]
    struct Repeating(#[source] std::fmt::Error);
    let cause = std::fmt::Error;
    assert_eq!(chain(&Repeating(cause)), format!("could not ask: {cause}"));
}
