//! Owners of a cluster's hash slots, from the answer to `CLUSTER SLOTS`.

use redis::Value;

use crate::config::Address;
use crate::name::SLOTS;

/// Marks a slot without an owner.
const NO_OWNER: u16 = u16::MAX;

/// The primary of each slot.
#[derive(Debug)]
pub struct SlotMap {
    primaries: Vec<Address>,
    /// Index into `primaries`, for each slot.
    owners: Vec<u16>,
}

impl SlotMap {
    /// Reads the answer of a node; `None` if it has another form. A node without a name of its own
    /// is the one that answered.
    pub fn read(answer: &Value, answering: &Address) -> Option<Self> {
        let Value::Array(ranges) = answer else {
            return None;
        };
        let mut map = Self {
            primaries: Vec::new(),
            owners: vec![NO_OWNER; SLOTS],
        };
        for range in ranges {
            let Value::Array(fields) = range else {
                return None;
            };
            let [
                Value::Int(first),
                Value::Int(last),
                Value::Array(primary),
                ..,
            ] = &fields[..]
            else {
                return None;
            };
            let [host, Value::Int(port), ..] = &primary[..] else {
                return None;
            };
            let host = match host {
                Value::Nil => String::new(),
                Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok()?,
                _ => return None,
            };
            let host = if host.is_empty() {
                answering.host.clone()
            } else {
                host
            };
            let address = Address {
                host,
                port: u16::try_from(*port).ok()?,
            };
            let slots = usize::try_from(*first).ok()?..=usize::try_from(*last).ok()?;
            let index = map.index(address)?;
            map.owners.get_mut(slots)?.fill(index);
        }
        Some(map)
    }

    fn index(&mut self, address: Address) -> Option<u16> {
        let known = self
            .primaries
            .iter()
            .position(|primary| *primary == address);
        let index = known.unwrap_or_else(|| {
            self.primaries.push(address);
            self.primaries.len() - 1
        });
        u16::try_from(index).ok().filter(|index| *index != NO_OWNER)
    }

    /// Primary of a slot.
    pub fn owner(&self, slot: u16) -> Option<&Address> {
        self.primaries
            .get(usize::from(*self.owners.get(usize::from(slot))?))
    }

    /// All primaries with slots.
    pub fn primaries(&self) -> &[Address] {
        &self.primaries
    }

    /// Number of slots without an owner.
    pub fn unowned(&self) -> usize {
        self.owners
            .iter()
            .filter(|owner| **owner == NO_OWNER)
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let node = Value::Array(vec![
            host,
            Value::Int(port),
            Value::BulkString(b"id".to_vec()),
        ]);
        Value::Array(vec![Value::Int(first), Value::Int(last), node])
    }

    fn host(name: &str) -> Value {
        Value::BulkString(name.into())
    }

    #[test]
    fn ranges_name_the_primary_of_each_slot() {
        let answering = Address {
            host: "self".to_owned(),
            port: 1,
        };
        let answer = Value::Array(vec![
            range(0, 99, host("a"), 7000),
            range(100, 199, Value::Nil, 7001),
            range(300, 16_383, host("a"), 7000),
        ]);
        let map = SlotMap::read(&answer, &answering).unwrap();
        let owner = |slot| map.owner(slot).map(Address::to_string);
        assert_eq!(owner(99).as_deref(), Some("a:7000"));
        assert_eq!(owner(100).as_deref(), Some("self:7001"));
        assert_eq!(owner(200), None);
        assert_eq!(owner(16_383).as_deref(), Some("a:7000"));
        assert_eq!((map.primaries().len(), map.unowned()), (2, 100));
    }

    #[test]
    fn other_forms_are_rejected() {
        let answering = Address {
            host: "self".to_owned(),
            port: 1,
        };
        for answer in [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(0, 16_384, host("a"), 7000)]),
            Value::Array(vec![range(0, 1, host("a"), 70_000)]),
            Value::Array(vec![range(-1, 1, host("a"), 7000)]),
        ] {
            assert!(SlotMap::read(&answer, &answering).is_none(), "{answer:?}");
        }
    }
}
