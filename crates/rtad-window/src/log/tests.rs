use super::read::{READ_BYTES, SegmentEnd};
use super::*;
use crate::disk::LocalDisk;
use crate::disk::tests::FaultyDisk;

fn change(slot: u64) -> Change {
    Change {
        slot,
        words: [slot as u32, 2, 3, 4, 5, 6],
    }
}

fn local() -> Arc<dyn Disk> {
    Arc::new(LocalDisk)
}

fn group(payload: &[u8]) -> LogGroup {
    let mut group = LogGroup::new();
    group.bytes.extend_from_slice(payload);
    group
}

fn create(dir: &Path, disk: &Arc<dyn Disk>) -> Segment {
    Segment::create(disk, dir, 7, 3, 10).unwrap()
}

fn write(dir: &Path, groups: &[&[u8]]) -> PathBuf {
    let mut segment = create(dir, &local());
    for payload in groups {
        segment.append(&mut group(payload)).unwrap();
    }
    segment_path(dir, 3)
}

fn read(path: &Path) -> Result<(Vec<Vec<u8>>, SegmentEnd), LogError> {
    let mut groups = Vec::new();
    let end = read_segment(path, 7, 3, 10, |payload| {
        groups.push(payload.to_vec());
        Some(())
    })?;
    Ok((groups, end))
}

fn frames(mut payload: &[u8]) -> Option<Vec<Frame>> {
    let mut frames = Vec::new();
    while !payload.is_empty() {
        frames.push(decode(&mut payload, LANES)?);
    }
    Some(frames)
}

#[test]
fn frames_survive_encoding() {
    let mut group = LogGroup::after_sync(77);
    group.add_changes(9, &[change(1), change(1 << 40)], LANES, false);
    group.add_changes(10, &[change(2)], LANES, true);
    let counts = Outcomes::Counts([1, 0, 65535].into());
    let answer = Answer {
        seconds: 5,
        request: [7; 16],
        outcomes: counts,
    };
    group.add_answer(&RequestKey([8; 16]), &answer);
    let news = Outcomes::News {
        events: 9,
        bits: [3, 1].into(),
    };
    let flags = Answer {
        seconds: 6,
        request: [6; 16],
        outcomes: news,
    };
    group.add_answer(&RequestKey([9; 16]), &flags);
    let expected = [
        Frame::Synced(77),
        Frame::Changes {
            tick: 9,
            changes: vec![change(1), change(1 << 40)],
        },
        Frame::Forgotten {
            tick: 10,
            changes: vec![change(2)],
        },
        Frame::Answered {
            request_key: RequestKey([8; 16]),
            answer,
        },
        Frame::Answered {
            request_key: RequestKey([9; 16]),
            answer: flags,
        },
    ];
    let bytes = &group.bytes[GROUP_HEADER..];
    assert_eq!(frames(bytes).unwrap(), expected);
    for end in 1..bytes.len() {
        if let Some(frames) = frames(&bytes[..end]) {
            assert!(frames.len() < expected.len());
        }
    }
}

#[test]
fn torn_tail_is_cut_at_every_byte() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), &[b"first", b"second, longer"]);
    let whole = std::fs::read(&path).unwrap();
    let second = whole.len() - GROUP_HEADER - 14;
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        let (groups, end) = read(&path).unwrap();
        let expected = if length >= second { 1 } else { 0 };
        assert_eq!(
            (groups.len(), end.next_group),
            (expected, 10 + expected as u64)
        );
    }
}

#[test]
fn every_flipped_byte_before_the_last_group_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), &[b"first", b"second, longer"]);
    let whole = std::fs::read(&path).unwrap();
    let second = whole.len() - GROUP_HEADER - 14;
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(read(&path).is_err(), at < second, "byte {at}");
    }
}

/// Groups larger than a piece, and a magic across two pieces.
#[test]
fn large_groups_are_read_and_damage_before_them_is_found() {
    let dir = tempfile::tempdir().unwrap();
    for extra in 0..8 {
        let large = vec![7; 2 * READ_BYTES + extra];
        let path = write(dir.path(), &[b"first", &large, b"third"]);
        let (groups, end) = read(&path).unwrap();
        assert_eq!((groups[1] == large, end.next_group), (true, 13));
        // The piece begins after the first byte of the broken group.
        let broken = vec![7; READ_BYTES - GROUP_HEADER - 2 + extra];
        let path = write(dir.path(), &[&broken, b"second"]);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[HEADER_BYTES + GROUP_HEADER] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert!(read(&path).is_err(), "{extra}");
    }
}

#[test]
fn group_that_failed_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::default());
    let mut segment = create(dir.path(), &(Arc::clone(&disk) as _));
    segment.append(&mut group(b"first")).unwrap();
    segment.append(&mut group(b"not synced")).unwrap();
    segment.remove_last();
    disk.fill(1);
    segment.append(&mut group(b"written in part")).unwrap_err();
    let (groups, end) = read(&segment_path(dir.path(), 3)).unwrap();
    assert_eq!(groups, [b"first"]);
    assert_eq!(
        end,
        SegmentEnd {
            next_group: 11,
            torn_bytes: 0
        }
    );
}

/// The machine wrote the later one of two groups that were not synced.
#[test]
fn groups_after_one_that_was_not_durable_are_cut() {
    let dir = tempfile::tempdir().unwrap();
    for (synced, is_refused) in [(10, false), (11, false), (12, true)] {
        let mut segment = create(dir.path(), &local());
        segment.append(&mut group(b"first")).unwrap();
        segment.append(&mut group(b"lost")).unwrap();
        segment.append(&mut LogGroup::after_sync(synced)).unwrap();
        let path = segment_path(dir.path(), 3);
        let mut bytes = std::fs::read(&path).unwrap();
        let second = HEADER_BYTES + GROUP_HEADER + 5;
        bytes[second..second + 8].fill(0);
        std::fs::write(&path, &bytes).unwrap();
        match read(&path) {
            Ok((groups, end)) => {
                assert_eq!((groups.len(), end.next_group, is_refused), (1, 11, false))
            }
            Err(error) => assert!(is_refused, "{error}"),
        }
    }
}

#[test]
fn segment_that_does_not_continue_the_one_before_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &[b"first", b"second"]);
    Segment::create(&local(), dir.path(), 7, 4, 11).unwrap();
    let path = segment_path(dir.path(), 4);
    assert!(read_segment(&path, 7, 4, 11, |_| Some(())).is_ok());
    let error = read_segment(&path, 7, 4, 12, |_| Some(())).unwrap_err();
    assert!(error.to_string().contains("does not continue"), "{error}");
}

#[test]
fn missing_group_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), &[b"first", b"second", b"third"]);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.drain(HEADER_BYTES..HEADER_BYTES + GROUP_HEADER + 5);
    std::fs::write(&path, &bytes).unwrap();
    assert!(
        read(&path)
            .unwrap_err()
            .to_string()
            .contains("a group is missing")
    );
}
