use super::*;
use crate::store::StoreError;

fn current(sequence: u64, generation: u64, rolled_back_from: Option<u64>) -> Current {
    Current::new(sequence, generation, b"", rolled_back_from)
}

#[test]
fn only_a_later_current_replaces_what_is_served() {
    for (current, (sequence, highest), served, expected) in [
        (current(6, 6, None), (5, 5), 5, true),
        (current(5, 5, None), (5, 5), 5, false),
        (current(4, 4, None), (5, 5), 5, false),
        (current(6, 3, None), (5, 5), 5, false),
        (current(6, 3, Some(5)), (5, 5), 5, true),
        (current(6, 3, Some(4)), (5, 5), 5, false),
        (current(7, 5, None), (6, 5), 3, true),
        (current(5, 5, None), (6, 5), 3, false),
        // `CURRENT` was lost and with it the count; the next publish goes above all the same.
        (current(1, 6, None), (9, 5), 5, true),
        (current(1, 5, None), (9, 5), 3, false),
    ] {
        let seen = Seen { sequence, highest, refused: None };
        assert_eq!(
            supersedes(&current, &seen, served),
            expected,
            "{current:?} after {seen:?}, serving {served}"
        );
    }
}

#[test]
fn intervals_vary_by_a_tenth() {
    for _ in 0..1000 {
        let interval = jittered(Duration::from_secs(10));
        assert!((Duration::from_secs(9)..=Duration::from_secs(11)).contains(&interval));
    }
}

#[test]
fn causes_are_told_once_and_in_order() {
    let cause = crate::snapshot::ManifestError::Version { found: 2 };
    let error = StoreError::Manifest { path: "a/CURRENT".to_owned(), source: cause };
    let line = chain(&SyncError::Store(error));
    assert_eq!(line, "a/CURRENT: version is 2, this rtad reads version 1: upgrade rtad");
}
