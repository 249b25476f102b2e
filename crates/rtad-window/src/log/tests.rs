use super::read::{READ_BYTES, SegmentEnd};
use super::*;

fn change(slot: u64) -> Change {
    Change { slot, words: [slot as u32, 2, 3, 4, 5, 6] }
}

fn write(dir: &Path, groups: &[&[u8]]) -> PathBuf {
    let mut segment = Segment::create(dir, 7, 3, 10).unwrap();
    for group in groups {
        segment.append(group).unwrap();
    }
    segment_path(dir, 3)
}

fn read(path: &Path) -> Result<(Vec<Vec<u8>>, SegmentEnd), LogError> {
    let mut groups = Vec::new();
    let end = read_segment(path, 7, 3, 10, None, |payload| {
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
    let mut bytes = Vec::new();
    encode_changes(&mut bytes, 9, &[change(1), change(1 << 40)], LANES, false);
    encode_changes(&mut bytes, 10, &[change(2)], LANES, true);
    let answer = Answer { seconds: 5, ticket: 0, request: [7; 16], counts: [1, 0, 65535].into() };
    encode_answer(&mut bytes, &Token([8; 16]), &answer);
    encode_wall_offset(&mut bytes, -3_600_000);
    let expected = [
        Frame::Changes { tick: 9, changes: vec![change(1), change(1 << 40)] },
        Frame::Forgotten { tick: 10, changes: vec![change(2)] },
        Frame::Answered { token: Token([8; 16]), answer },
        Frame::WallOffset(-3_600_000),
    ];
    assert_eq!(frames(&bytes).unwrap(), expected);
    for end in 1..bytes.len() {
        if let Some(frames) = frames(&bytes[..end]) {
            assert!(frames.len() < 4);
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
        assert_eq!((groups.len(), end.next_group), (expected, 10 + expected as u64));
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
fn group_that_was_not_synced_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let mut segment = Segment::create(dir.path(), 7, 3, 10).unwrap();
    segment.append(b"first").unwrap();
    segment.fails_sync = true;
    segment.append(b"refused").unwrap_err();
    let (groups, end) = read(&segment_path(dir.path(), 3)).unwrap();
    assert_eq!(groups, [b"first"]);
    assert_eq!(end, SegmentEnd { next_group: 11, torn_bytes: 0 });
}

#[test]
fn missing_group_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), &[b"first", b"second", b"third"]);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.drain(HEADER_BYTES..HEADER_BYTES + GROUP_HEADER + 5);
    std::fs::write(&path, &bytes).unwrap();
    assert!(read(&path).unwrap_err().to_string().contains("a group is missing"));
}
