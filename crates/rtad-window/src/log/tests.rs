use super::*;

fn change(slot: u64) -> Change {
    Change {
        slot,
        words: [slot as u32, 2, 3, 4, 5, 6],
    }
}

/// Frames of a payload; `None` after one that is cut.
fn frames(mut payload: &[u8]) -> Option<Vec<Frame<'_>>> {
    let mut frames = Vec::new();
    while !payload.is_empty() {
        frames.push(take_frame(&mut payload, LANES)?);
    }
    Some(frames)
}

#[test]
fn frames_survive_encoding() {
    let counts = Answer {
        seconds: 5,
        request: [7; 16],
        outcomes: Outcomes::Counts([1, 0, 65535].into()),
    };
    let news = Answer {
        seconds: 6,
        request: [6; 16],
        outcomes: Outcomes::News {
            events: 9,
            bits: [3, 1].into(),
        },
    };
    let mut group = LogGroup::new();
    assert!(group.is_empty());
    group.add_changes(9, &[change(1), change(1 << 40)], LANES, false);
    group.add_changes(10, &[change(2)], LANES, true);
    group.add_answer(&RequestKey([8; 16]), &counts);
    group.add_answer(&RequestKey([9; 16]), &news);

    let mut log = group.seal(77);
    let group = take_group(&mut log).unwrap();
    assert_eq!((group.number, log.len()), (77, 0));
    let found = frames(group.payload).unwrap();
    let Frame::Changes {
        tick: 9,
        changes,
        is_forget: false,
    } = found[0]
    else {
        panic!("{found:?}");
    };
    let changed: Vec<Change> = changes.iter().collect();
    assert_eq!(changed, [change(1), change(1 << 40)]);
    let Frame::Changes {
        tick: 10,
        changes,
        is_forget: true,
    } = found[1]
    else {
        panic!("{found:?}");
    };
    assert_eq!(changes.iter().collect::<Vec<_>>(), [change(2)]);
    let answered = |request_key, answer| Frame::Answered {
        request_key,
        answer,
    };
    assert_eq!(found[2], answered(RequestKey([8; 16]), counts));
    assert_eq!(found[3], answered(RequestKey([9; 16]), news));

    for end in 1..group.payload.len() {
        if let Some(cut) = frames(&group.payload[..end]) {
            assert!(cut.len() < found.len());
        }
    }
}

#[test]
fn later_group_is_found_behind_any_damage() {
    let mut first = LogGroup::new();
    first.add_changes(1, &[change(1)], 2, false);
    let first = first.seal(5).to_vec();
    let mut second = LogGroup::new();
    second.add_changes(1, &[change(2)], 2, false);
    let second = second.seal(6).to_vec();
    for at in 0..first.len() {
        let mut broken = first.clone();
        broken[at] ^= 1;
        assert!(take_group(&mut &broken[..]).is_none(), "byte {at}");
        assert!(!has_later_group(&broken, 5));
        broken.extend_from_slice(&second);
        assert!(has_later_group(&broken, 5));
        assert!(!has_later_group(&broken, 6));
    }
}
