//! Coalescing of requests into one change, with the same answers as one request after the other.
//!
//! Pure: no clock, no store. The state of the audience is an argument. If it turns out to be
//! stale, the same requests are coalesced again.

use std::collections::{HashMap, HashSet};

use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{AudienceName, Delta, Snapshot};
use rtad_store::write::Change;

use crate::op::Op;

#[derive(Debug)]
pub struct WriteRequest {
    pub(crate) op: Op,
    pub(crate) keys: Vec<DeviceKey>,
    /// Those of the keys, of operations that add; empty if none has one.
    pub(crate) values: Vec<Option<u8>>,
    /// The window of which this is a change: the audience must follow it.
    pub(crate) window: Option<AudienceName>,
}

/// Answer to one request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Keys not added because of a tombstone.
    pub(super) entombed: Vec<DeviceKey>,
    /// Keys added without a value.
    pub(super) without_value: u64,
    /// Whether each key was a non-member; `AddIfAbsent` only.
    pub(super) new: Vec<bool>,
}

/// A change, and the answers to the requests in it.
#[derive(Debug)]
pub struct Coalesced {
    pub(super) change: Change,
    /// One for each of the first requests; the remaining requests need another change.
    pub(super) outcomes: Vec<Outcome>,
}

/// Coalesces requests up to the first that conflicts with an earlier one. A change has no order
/// between additions and tombstones, so a key may have only one of them. `members` is required
/// if any request is `AddIfAbsent`.
pub fn coalesce<'a>(
    requests: impl IntoIterator<Item = &'a WriteRequest>,
    members: Option<&Snapshot>,
    tombstones: Option<&Delta>,
) -> Coalesced {
    let mut coalesced = Coalesced {
        change: Change::default(),
        outcomes: Vec::new(),
    };
    let mut added: HashMap<DeviceKey, bool> = HashMap::new();
    let mut buried: HashSet<DeviceKey> = HashSet::new();
    let is_entombed =
        |key: &DeviceKey| tombstones.is_some_and(|delta| delta.removed().contains(key));
    for WriteRequest {
        op, keys, values, ..
    } in requests
    {
        let clashes = |key: &DeviceKey| match op.is_about_tombstones() {
            true => added.contains_key(key),
            false => buried.contains(key),
        };
        if keys.iter().any(clashes) {
            break;
        }
        let mut outcome = Outcome::default();
        let add = |change: &mut Change, index: usize| {
            let value: Option<u8> = values.get(index).copied().flatten();
            match value {
                Some(value) => change.add_with_value(keys[index], value),
                None => change.add(keys[index]),
            }
            u64::from(value.is_none())
        };
        for (index, key) in keys.iter().enumerate() {
            if op.adds() && is_entombed(key) {
                outcome.entombed.push(*key);
                if *op == Op::AddIfAbsent {
                    outcome.new.push(false);
                }
                continue;
            }
            match op {
                Op::Tombstone | Op::Lift => {
                    match op {
                        Op::Tombstone => coalesced.change.entomb(*key),
                        _ => coalesced.change.lift(*key),
                    }
                    buried.insert(*key);
                }
                Op::Remove => {
                    coalesced.change.remove(*key);
                    added.insert(*key, false);
                }
                Op::Add => {
                    outcome.without_value += add(&mut coalesced.change, index);
                    added.insert(*key, true);
                }
                Op::AddIfAbsent => {
                    let before = || members.expect("passed with `AddIfAbsent`").contains(key);
                    let is_member = added.get(key).copied().unwrap_or_else(before);
                    outcome.new.push(!is_member);
                    if !is_member {
                        outcome.without_value += add(&mut coalesced.change, index);
                        added.insert(*key, true);
                    }
                }
            }
        }
        coalesced.outcomes.push(outcome);
    }
    coalesced
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(op: Op, numbers: &[u8]) -> WriteRequest {
        WriteRequest {
            op,
            keys: numbers
                .iter()
                .map(|number| DeviceKey::of_canonical(&[*number]))
                .collect(),
            values: Vec::new(),
            window: None,
        }
    }

    #[test]
    fn conflicting_request_starts_a_new_change() {
        for (requests, expected) in [
            (
                vec![
                    request(Op::Add, &[1]),
                    request(Op::Tombstone, &[2]),
                    request(Op::Remove, &[3]),
                ],
                3,
            ),
            (
                vec![request(Op::Add, &[1, 2]), request(Op::Tombstone, &[3, 2])],
                1,
            ),
            (
                vec![
                    request(Op::Lift, &[1]),
                    request(Op::Tombstone, &[1]),
                    request(Op::Add, &[1]),
                ],
                2,
            ),
            (
                vec![
                    request(Op::Tombstone, &[1]),
                    request(Op::Remove, &[2]),
                    request(Op::Lift, &[2]),
                ],
                2,
            ),
            (
                vec![
                    request(Op::Add, &[1]),
                    request(Op::Remove, &[1]),
                    request(Op::Add, &[1]),
                ],
                3,
            ),
        ] {
            let coalesced = coalesce(&requests, None, None);
            assert_eq!(coalesced.outcomes.len(), expected, "{requests:?}");
            let keys = requests[..expected]
                .iter()
                .map(|request| request.keys.len())
                .sum::<usize>();
            assert_eq!(coalesced.change.len(), keys);
        }
    }
}
