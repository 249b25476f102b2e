//! Standbys and owners over one store in memory.

use std::sync::Arc;

use rtad_store::Store;
use rtad_store::write::{MIN_SEGMENT_AGE, StoreWriter};
use rtad_window::{MIN_REMOVED_AGE, Seen};
use testkit::faulty_store::{FaultyStore, LostAnswer};
use testkit::wait_until;
use tokio::task::JoinSet;

use super::super::super::telemetry::Telemetry;
use super::super::served::ServedWindow;
use super::super::tables::write_table;
use super::super::take_over::start;
use super::super::take_over::tests::{Owned, standby_of};
use super::*;

fn store() -> StoreWriter {
    StoreWriter::new(Store::in_memory()).unwrap()
}

fn standby(store: &StoreWriter) -> Standby {
    standby_of(store, &Telemetry::default()).0
}

async fn catch_up(standby: &mut Standby) {
    while !standby.catch_up().await.unwrap() {}
}

/// Owns the window by `tasks`.
async fn own(mut standby: Standby, tasks: &mut JoinSet<()>) -> Arc<ServedWindow> {
    catch_up(&mut standby).await;
    let take_over = standby.take_over().await.unwrap().unwrap();
    start(standby, take_over, &[], tasks).unwrap()
}

async fn is_new(window: &ServedWindow, key: u8) -> bool {
    let observed = window.observe(vec![[key; 16]], None, None).await;
    observed.unwrap().unwrap().seen == [Seen::New]
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_has_what_the_owner_acknowledged_and_takes_over_when_it_is_released() {
    let store = store();
    let owner = Owned::over(&store).await;
    let mut next = standby(&store);
    catch_up(&mut next).await;
    assert!(!next.may_take_over().unwrap(), "the owner has just begun");
    for key in 1..=50 {
        assert!(is_new(&owner.window, key).await);
    }
    catch_up(&mut next).await;
    assert!(!next.may_take_over().unwrap());

    owner.window.finish().await;
    catch_up(&mut next).await;
    assert!(next.may_take_over().unwrap(), "it was given back");
    let mut tasks = JoinSet::new();
    let window = own(next, &mut tasks).await;
    for key in 1..=50 {
        assert!(!is_new(&window, key).await);
    }
    assert!(is_new(&window, 51).await);
}

/// An owner that created none for long must not find the number of a removed one free.
#[test]
fn segments_stay_as_long_as_an_owner_may_rely_on_them() {
    assert!(MIN_SEGMENT_AGE >= MIN_REMOVED_AGE);
}

/// Both create the next segment: one of them learns that it is not the owner any more.
#[tokio::test(flavor = "multi_thread")]
async fn earlier_owner_ends_with_its_next_segment() {
    let store = store();
    let owner = Owned::over(&store).await;
    assert!(is_new(&owner.window, 1).await);
    let mut tasks = JoinSet::new();
    let window = own(standby(&store), &mut tasks).await;

    let refused = owner.window.observe(vec![[2; 16]], None, None).await;
    refused.unwrap_err();
    wait_until("the engine of the earlier owner ends", || {
        owner.window.handle.has_ended()
    });
    assert!(is_new(&window, 2).await && !is_new(&window, 1).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_standbys_takes_over() {
    let store = store();
    Owned::over(&store).await.window.finish().await;
    let mut standbys = [standby(&store), standby(&store)];
    for standby in &mut standbys {
        catch_up(standby).await;
        assert!(standby.may_take_over().unwrap());
    }
    let [mut one, mut other] = standbys;
    let (one_won, other_won) = tokio::join!(one.take_over(), other.take_over());
    let won = [one_won, other_won].map(|taken| taken.unwrap().is_some());
    assert_eq!(won.iter().filter(|won| **won).count(), 1, "{won:?}");

    // The other one follows it, and waits.
    let mut loser = if won[0] { other } else { one };
    catch_up(&mut loser).await;
    assert!(!loser.may_take_over().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_of_the_store_are_no_loss_of_the_window() {
    for lost in [LostAnswer::Retried, LostAnswer::Broken] {
        let faulty = Arc::new(FaultyStore::default());
        let store = StoreWriter::new(Store::over(Arc::clone(&faulty) as _, "memory")).unwrap();
        faulty.lose_answers("/log/", lost);
        let owner = Owned::over(&store).await;
        for key in 1..=20 {
            assert!(is_new(&owner.window, key).await, "{lost:?}: {key}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn table_and_the_segments_after_it_are_the_window() {
    let store = store();
    let owner = Owned::over(&store).await;
    for key in 1..=30 {
        assert!(is_new(&owner.window, key).await);
    }
    let folder = WindowFolder::new(store.clone(), "w".parse().unwrap());
    write_table(&owner.window, &folder).await.unwrap();
    let table = folder.newest_table().await.unwrap().unwrap();
    assert!(table > 30, "{table}");
    for key in 31..=60 {
        assert!(is_new(&owner.window, key).await);
    }
    owner.window.finish().await;

    let mut tasks = JoinSet::new();
    let window = own(standby(&store), &mut tasks).await;
    for key in 1..=60 {
        assert!(!is_new(&window, key).await, "{key}");
    }
    // Another table, by an owner that began with one.
    write_table(&window, &folder).await.unwrap();
    assert!(folder.newest_table().await.unwrap().unwrap() > table);
    window.finish().await;
    let last = own(standby(&store), &mut tasks).await;
    assert!(!is_new(&last, 60).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn log_with_a_gap_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().to_str().unwrap()).unwrap();
    let store = StoreWriter::new(store).unwrap();
    let owner = Owned::over(&store).await;
    for key in 1..=3 {
        is_new(&owner.window, key).await;
    }
    let segment = folder.path().join(".windows/w/log/00000000000000000002");
    std::fs::remove_file(segment).unwrap();

    let mut next = standby(&store);
    let error = loop {
        if let Err(error) = next.catch_up().await {
            break error;
        }
    };
    assert!(
        matches!(error, StandbyError::Gap { number: 2, .. }),
        "{error}"
    );
}

/// A process that was stopped for so long that the segment which it asks for was removed.
#[tokio::test(flavor = "multi_thread")]
async fn standby_that_was_away_for_long_starts_over_from_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().to_str().unwrap()).unwrap();
    let store = StoreWriter::new(store).unwrap();
    let owner = Owned::over(&store).await;
    let mut away = standby(&store);
    let mut also_away = standby(&store);
    catch_up(&mut away).await;
    catch_up(&mut also_away).await;
    for key in 1..=10 {
        is_new(&owner.window, key).await;
    }
    let stored = WindowFolder::new(store.clone(), "w".parse().unwrap());
    write_table(&owner.window, &stored).await.unwrap();
    is_new(&owner.window, 11).await;
    for number in 1..=9 {
        let name = format!(".windows/w/log/{number:020}");
        std::fs::remove_file(folder.path().join(name)).unwrap();
    }

    let now = MachineTime::now();
    also_away.set_known_at(MachineTime {
        up: Duration::ZERO,
        ..now
    });
    let stale = also_away.take_over().await.unwrap();
    assert!(stale.is_none(), "its segment was there, and is removed");
    // A virtual machine that was suspended with its uptime, and whose wall clock was set.
    away.set_known_at(MachineTime {
        wall_seconds: now.wall_seconds - 3600,
        ..now
    });
    catch_up(&mut away).await;
    assert_eq!(away.newest(), owner.window.handle.state().created);
}
