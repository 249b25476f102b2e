//! Segments, local logs and tables that are cut or damaged anywhere.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::answers::{Answer, AnswerLimits, Outcomes, RequestKey};
use crate::disk::tests::FaultyDisk;
use crate::image::{Piece, TableHead};
use crate::log::{LogGroup, encode_answer};
use crate::segment::SegmentHead;
use crate::table::Change;
use crate::{Durability, Key, Seen, StateDir, TakeOver, WindowSpec};

const SPEC: WindowSpec = WindowSpec {
    capacity: 1000,
    fpr: 1e-9,
    count: 3,
    whole_keys: false,
    lifetime: 129,
};

fn shape(spec: WindowSpec, clock: &str) -> Shape {
    Shape {
        spec,
        clock: clock.to_owned(),
        answers: AnswerLimits {
            memory_bytes: 1 << 20,
            time: Duration::from_secs(600),
        },
    }
}

fn empty() -> Replica {
    Replica::empty(shape(SPEC, "ticks")).unwrap()
}

fn take_over(replica: &Replica, durability: &Durability, owner: u64) -> TakeOver {
    let made_at = Duration::ZERO;
    replica.take_over_as(durability, owner, made_at).unwrap()
}

/// A replica with the first segment, of owner 1.
fn begun() -> Replica {
    let mut replica = empty();
    let first = take_over(&replica, &Durability::Store, 1);
    replica.apply(&first.bytes).unwrap();
    replica
}

fn key(n: u8) -> Key {
    [n; 16]
}

/// The groups of events of a few keys, one each, and of an answer.
fn groups(replica: &Replica, keys: std::ops::Range<u8>) -> Vec<u8> {
    let mut window = Window::with_secret(SPEC, 7, replica.identity.secret).unwrap();
    // Slots of earlier keys are taken.
    window.observe(&(0..keys.start).map(key).collect::<Vec<_>>());
    let first_group = replica.newest.unwrap().next_group;
    let mut bytes = Vec::new();
    for (number, n) in (first_group..).zip(keys) {
        let mut changes: Vec<Change> = Vec::new();
        window.observe_with(&[key(n), key(n)], &mut changes);
        let mut group = LogGroup::new();
        group.add_changes(7, &changes, window.lanes(), false);
        group.add_answer(&RequestKey(key(n)), &answer());
        bytes.extend_from_slice(group.seal(number));
    }
    bytes
}

fn answer() -> Answer {
    Answer {
        seconds: 1000,
        request: [5; 16],
        outcomes: Outcomes::new(&[Seen::New, Seen::Duplicate(2)]),
    }
}

fn segment(replica: &Replica, owner: u64, groups: &[u8]) -> Vec<u8> {
    let newest = replica.newest.unwrap();
    let mut bytes = replica
        .head(owner, replica.next_segment(), newest.next_group)
        .encode();
    bytes.extend_from_slice(groups);
    bytes
}

fn counts(replica: &mut Replica, keys: std::ops::Range<u8>) -> Vec<u16> {
    let keys: Vec<Key> = keys.map(key).collect();
    replica.window.counts(&keys)
}

fn is_damaged(result: Result<SegmentInfo, OpenError>) -> bool {
    matches!(result, Err(OpenError::Damaged { .. }))
}

#[test]
fn replica_adopts_the_first_segment_and_follows() {
    let mut owner = begun();
    let first = take_over(&empty(), &Durability::Store, 1);
    let mut standby = empty();
    assert!(standby.is_new() && standby.owner().is_none());
    standby.apply(&first.bytes).unwrap();
    assert_ne!(standby.identity, owner.identity);
    assert!(is_damaged(standby.apply(&segment(&owner, 1, &[]))));

    let mut standby = empty();
    standby.apply(&owner.head(1, 1, 1).encode()).unwrap();
    let second = segment(&owner, 1, &groups(&owner, 0..3));
    let info = standby.apply(&second).unwrap();
    assert_eq!(info, owner.apply(&second).unwrap());
    assert_eq!((info.number, info.owner, info.groups), (2, 1, 3));
    assert_eq!(counts(&mut standby, 0..4), [2, 2, 2, 0]);
    assert_eq!(standby.window.stats().entries, 3);
    assert_eq!(standby.log.segments, 2);
    let released = SegmentHead {
        is_released: true,
        ..standby.head(1, 3, 4)
    };
    standby.apply(&released.encode()).unwrap();
    assert!(standby.is_released());
    assert_eq!((standby.owner(), standby.next_segment()), (Some(1), 4));
}

#[test]
fn segment_is_refused_for_every_cut_and_every_damaged_byte() {
    let owner = begun();
    let whole = segment(&owner, 1, &groups(&owner, 0..2));
    let first = owner.head(1, 1, 1).encode();
    let standby = || {
        let mut standby = empty();
        standby.apply(&first).unwrap();
        standby
    };
    let whole_groups: Vec<usize> = {
        let one = segment(&owner, 1, &groups(&owner, 0..1)).len();
        vec![whole.len() - 2 * (one - segment(&owner, 1, &[]).len()), one]
    };
    let mut standby_now = standby();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        assert!(is_damaged(standby_now.apply(&bytes)), "byte {at}");
        // A store has whole objects: a cut between two groups would be one.
        if !whole_groups.contains(&at) {
            assert!(is_damaged(standby_now.apply(&whole[..at])), "cut {at}");
        }
        let mut longer = whole.clone();
        longer.extend_from_slice(&whole[..at]);
        assert!(at == 0 || is_damaged(standby_now.apply(&longer)));
    }
    // Nothing was changed.
    standby_now.apply(&whole).unwrap();
    assert_eq!(counts(&mut standby_now, 0..2), [2, 2]);
}

#[test]
fn segment_that_does_not_continue_the_one_before_is_refused() {
    let owner = begun();
    let mut later = begun();
    later.identity = owner.identity.clone();
    let second = segment(&later, 1, &groups(&owner, 0..2));
    later.apply(&second).unwrap();
    let third = segment(&later, 1, &[]);
    let mut standby = begun();
    standby.identity = owner.identity.clone();
    assert!(is_damaged(standby.apply(&third)));
    let gap = standby.head(1, 2, 2).encode();
    assert!(is_damaged(standby.apply(&gap)));
    standby.apply(&second).unwrap();
    standby.apply(&third).unwrap();
}

#[test]
fn window_of_another_shape_is_refused() {
    let owner = begun();
    let bytes = owner.head(1, 1, 1).encode();
    let refused = |spec, clock| {
        let mut other = Replica::empty(shape(spec, clock)).unwrap();
        other.apply(&bytes).unwrap_err().to_string()
    };
    let larger = WindowSpec {
        capacity: 5000,
        ..SPEC
    };
    let expected = "segment 1: a window of another shape: expected ticks, capacity 5000, wide \
                    slots, found ticks, capacity 1000, wide slots";
    assert_eq!(refused(larger, "ticks"), expected);
    // The same layout.
    let more = WindowSpec {
        capacity: 1001,
        ..SPEC
    };
    assert_eq!(more.layout(), SPEC.layout());
    assert!(refused(more, "ticks").contains("capacity 1001"));
    assert!(refused(SPEC, "days").contains("expected days"));
    let count = WindowSpec { count: 2, ..SPEC };
    let mut other = Replica::empty(shape(count, "ticks")).unwrap();
    other.apply(&bytes).unwrap();
}

/// An image of a replica, as an owner makes it.
fn table(replica: &mut Replica) -> Vec<u8> {
    let newest = replica.newest.unwrap();
    let head = TableHead {
        number: replica.next_segment(),
        owner: newest.owner,
        first_group: newest.next_group,
        tick: replica.window.tick(),
        regions: replica.window.regions() as u64,
        window: replica.identity.clone(),
    };
    let mut bytes = Piece::Head(head).encode().unwrap();
    for region in 0..replica.window.regions() {
        let mut copy = Vec::new();
        let clock = replica.window.copy_region(region, &mut copy);
        bytes.extend(Piece::Region(clock, copy).encode().unwrap());
    }
    let mut frames = Vec::new();
    for number in replica.answers.range() {
        let (request_key, answer) = replica.answers.numbered(number).unwrap();
        encode_answer(request_key, answer, &mut frames);
    }
    bytes.extend(Piece::Answers(frames).encode().unwrap());
    bytes.extend(Piece::End.encode().unwrap());
    bytes
}

#[test]
fn table_is_refused_for_every_cut_and_every_damaged_byte() {
    let mut owner = begun();
    let second = segment(&owner, 1, &groups(&owner, 0..3));
    owner.apply(&second).unwrap();
    let whole = table(&mut owner);
    let read = |bytes: &[u8]| Replica::from_table(shape(SPEC, "ticks"), bytes);
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        assert!(read(&bytes).is_err(), "byte {at}");
        assert!(read(&whole[..at]).is_err(), "cut {at}");
    }
    let longer = [&whole[..], &[0]].concat();
    assert!(read(&longer).is_err());

    let mut replica = read(&whole).unwrap();
    assert_eq!(replica.newest, owner.newest);
    assert_eq!(counts(&mut replica, 0..4), [2, 2, 2, 0]);
    assert_eq!(replica.window.stats().entries, 3);
    for n in 0..3 {
        let kept = replica.answers.get(&RequestKey(key(n)), 1000);
        assert_eq!(kept, Some(&answer()));
    }
    let third = segment(&owner, 1, &[]);
    replica.apply(&third).unwrap();
}

fn state_dir(dir: &Path) -> StateDir {
    StateDir::open_on(dir, Arc::new(FaultyDisk::default())).unwrap()
}

/// A directory with the groups of a local log that no segment has.
fn with_local_log(dir: &Path, replica: &Replica, log: &[u8]) -> Durability {
    let state = state_dir(dir);
    state.set_owners(&[1]).unwrap();
    std::fs::write(state.log_path(replica.next_segment()), log).unwrap();
    Durability::Disk(state)
}

fn take_over_of(dir: &Path, replica: &Replica, log: &[u8]) -> Result<TakeOver, OpenError> {
    let durability = with_local_log(dir, replica, log);
    replica.take_over_as(&durability, 2, Duration::ZERO)
}

#[test]
fn local_log_is_cut_at_a_torn_group_and_refused_before_it() {
    let owner = begun();
    let whole = segment(&owner, 1, &groups(&owner, 0..2));
    let empty = segment(&owner, 1, &[]).len();
    let one = segment(&owner, 1, &groups(&owner, 0..1)).len();
    let dir = tempfile::tempdir().unwrap();
    let taken = |log: &[u8]| {
        let taken = take_over_of(dir.path(), &owner, log)?;
        let mut next = begun();
        next.identity = owner.identity.clone();
        Ok::<u64, OpenError>(next.apply(&taken.bytes)?.groups)
    };
    for at in 0..=whole.len() {
        let expected = if at < empty {
            None
        } else {
            Some(u64::from(at >= one) + u64::from(at == whole.len()))
        };
        assert_eq!(taken(&whole[..at]).ok(), expected, "cut {at}");
    }
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x20;
        // The last group may be torn.
        let expected = (at >= one).then_some(1);
        assert_eq!(taken(&bytes).ok(), expected, "byte {at}");
    }
}

#[test]
fn local_logs_of_several_segments_are_taken_over_file_by_file() {
    let mut owner = begun();
    let before = owner.newest;
    let dir = tempfile::tempdir().unwrap();
    let mut logs = Vec::new();
    let state = state_dir(dir.path());
    state.set_owners(&[1]).unwrap();
    for keys in [0..2, 2..3, 3..5] {
        let log = segment(&owner, 1, &groups(&owner, keys));
        std::fs::write(state.log_path(owner.next_segment()), &log).unwrap();
        owner.apply(&log).unwrap();
        logs.push(log);
    }

    let mut next = begun();
    next.identity = owner.identity.clone();
    next.window.set_secret(owner.identity.secret);
    assert_eq!(next.newest, before);
    let durability = Durability::Disk(state);
    assert!(next.may_take_over_at_once(&durability).unwrap());
    let taken = take_over(&next, &durability, 2);
    assert_eq!((taken.number, taken.rest.len()), (2, 2));
    next.apply(&taken.bytes).unwrap();
    for bytes in &taken.rest {
        next.apply(bytes).unwrap();
    }
    assert_eq!(counts(&mut next, 0..6), [2, 2, 2, 2, 2, 0]);
    assert_eq!(next.owner(), Some(2));
    // Until it is created, nothing of the directory is lost.
    assert_eq!(durability.dir().unwrap().owners().unwrap(), [1, 2]);
    assert_eq!(durability.dir().unwrap().logs().unwrap(), [2, 3, 4]);

    // Killed after its first segment, and twice more before the next one.
    let mut killed = begun();
    killed.identity = owner.identity.clone();
    killed.apply(&taken.bytes).unwrap();
    for owner in [3, 4, 5] {
        let again = take_over(&killed, &durability, owner);
        assert_eq!((again.number, again.rest.len()), (3, 1));
    }

    // A log in the middle that is missing, or torn.
    let path = durability.dir().unwrap().log_path(3);
    let middle = &logs[1];
    std::fs::write(&path, &middle[..middle.len() - 1]).unwrap();
    let mut again = begun();
    again.identity = owner.identity.clone();
    again
        .take_over_as(&durability, 3, Duration::ZERO)
        .err()
        .unwrap();
    std::fs::remove_file(path).unwrap();
    again
        .take_over_as(&durability, 3, Duration::ZERO)
        .err()
        .unwrap();
}

#[test]
fn local_log_of_another_history_is_dropped() {
    let owner = begun();
    let log = segment(&owner, 1, &groups(&owner, 0..2));
    let dir = tempfile::tempdir().unwrap();
    let mut other = begun();
    other.identity = owner.identity.clone();
    // Another process has taken over, with other groups of the same numbers.
    other
        .apply(&segment(&other, 9, &groups(&other, 5..7)))
        .unwrap();
    let durability = with_local_log(dir.path(), &owner, &log);
    assert!(!other.may_take_over_at_once(&durability).unwrap());
    let taken = take_over(&other, &durability, 2);
    assert!(taken.rest.is_empty());
    other.apply(&taken.bytes).unwrap();
    assert_eq!(other.newest.unwrap().next_group, 3);
    assert!(durability.dir().unwrap().logs().unwrap().is_empty());
    assert_eq!(durability.dir().unwrap().owners().unwrap(), [2]);
}

#[test]
fn events_without_their_store_are_refused() {
    let owner = begun();
    let log = segment(&owner, 1, &groups(&owner, 0..1));
    let dir = tempfile::tempdir().unwrap();
    let durability = with_local_log(dir.path(), &owner, &log);
    let refused = empty().take_over(&durability).err().unwrap();
    assert!(matches!(refused, OpenError::OtherStore { .. }), "{refused}");
}
