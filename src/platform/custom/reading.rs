//! The values of a request's mapped fields, collected while its body is decoded.
//!
//! The decider gets ids only after the whole body is read, so a truncated body has no effect.

use arrayvec::ArrayVec;

use super::plan::{Leaf, Node, Plan, Role};
use super::value::{Digits, Value};
use crate::platform::adapter::MAX_ASKED;
use crate::platform::ids::{MAX_IDS, MAX_READ_IDS};

/// An unreadable body. Carries no details, as the sender is not authenticated.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// An id of the request.
pub(super) struct Found<'p, 'a> {
    pub(super) field: usize,
    pub(super) path: &'p str,
    pub(super) value: Value<'a>,
}

/// The values read so far.
pub(super) struct Reading<'p, 'a> {
    pub(super) plan: &'p Plan,
    pub(super) values: Vec<Value<'a>>,
    /// The first ids. Normal requests have no others.
    first_ids: ArrayVec<Found<'p, 'a>, MAX_IDS>,
    /// The others: at most one more than allowed, which shows that there are too many.
    other_ids: Vec<Found<'p, 'a>>,
    pub(super) asked: Vec<Value<'a>>,
    /// Types of ids that `kinds` does not map; `None` unless the decider wants them.
    pub(super) skipped: Option<Vec<Skipped<'a>>>,
}

/// The types of a skipped id.
pub(super) struct Skipped<'a> {
    kind: Value<'a>,
    secure: Value<'a>,
}

/// The reason for skipping the id, for explanations.
impl std::fmt::Display for Skipped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (mut kind, mut secure) = (Digits::new(), Digits::new());
        let (kind, secure) = (self.kind.text(&mut kind), self.secure.text(&mut secure));
        write!(f, "type {:?}", String::from_utf8_lossy(kind))?;
        if !secure.is_empty() {
            write!(f, " with secure {:?}", String::from_utf8_lossy(secure))?;
        }
        f.write_str(" is not in kinds")
    }
}

impl<'p, 'a> Reading<'p, 'a> {
    pub(super) fn new(plan: &'p Plan, keeps_skipped: bool) -> Self {
        let (values, skipped) = (plan.absent.clone(), keeps_skipped.then(Vec::new));
        let (first_ids, other_ids) = (ArrayVec::new(), Vec::new());
        Self { plan, values, first_ids, other_ids, asked: Vec::new(), skipped }
    }

    /// The ids, in the order of the body.
    pub(super) fn ids(&self) -> impl Iterator<Item = &Found<'p, 'a>> {
        self.first_ids.iter().chain(&self.other_ids)
    }

    /// The value in a slot.
    pub(super) fn value(&self, slot: Option<usize>) -> &Value<'a> {
        slot.map_or(&Value::Absent, |slot| &self.values[slot])
    }

    /// Stores a value in its slots.
    #[inline]
    pub(super) fn take(
        &mut self,
        leaf: &Leaf,
        is_in_list: bool,
        value: Value<'a>,
    ) -> Result<(), Malformed> {
        let (last, others) = leaf.slots.split_last().expect("a leaf has a slot");
        for slot in others {
            self.fill(*slot, is_in_list, value.clone())?;
        }
        self.fill(*last, is_in_list, value)
    }

    #[inline]
    fn fill(&mut self, slot: usize, is_in_list: bool, value: Value<'a>) -> Result<(), Malformed> {
        match &self.plan.roles[slot] {
            _ if !is_in_list => self.values[slot] = value,
            // Never with a schema; JSON may have a list anywhere.
            Role::Single | Role::Listed => return Err(Malformed),
            Role::Asked | Role::Id { .. } => return self.use_value(slot, value),
        }
        Ok(())
    }

    /// Clears the slots under a node, as a new element of a list begins.
    pub(super) fn begin(&mut self, node: &Node) {
        for slot in &node.slots {
            self.values[*slot] = self.plan.absent[*slot].clone();
        }
    }

    /// Takes ids and strategies from the slots under a node, as it has ended.
    pub(super) fn end(&mut self, node: &Node) -> Result<(), Malformed> {
        for slot in &node.slots {
            if !matches!(self.plan.roles[*slot], Role::Single) && !self.values[*slot].is_absent() {
                let value = std::mem::replace(&mut self.values[*slot], Value::Absent);
                self.use_value(*slot, value)?;
            }
        }
        Ok(())
    }

    fn use_value(&mut self, slot: usize, value: Value<'a>) -> Result<(), Malformed> {
        let plan = self.plan;
        match &plan.roles[slot] {
            Role::Single => {}
            Role::Asked => return self.request(value),
            Role::Id { field, path } => {
                self.add_id(Found { field: *field, path, value });
            }
            Role::Listed => {
                if let Some(list) = &plan.list {
                    let (mut kind_digits, mut secure_digits) = (Digits::new(), Digits::new());
                    let kind = self.values[list.kind].text(&mut kind_digits);
                    let secure = self.value(list.secure).text(&mut secure_digits);
                    if let Some(field) = list.field(kind, secure) {
                        self.add_id(Found { field, path: &list.path, value });
                    } else if self.skipped.as_ref().is_some_and(|skipped| skipped.len() < MAX_IDS) {
                        let (kind, secure) =
                            (self.values[list.kind].clone(), self.value(list.secure).clone());
                        self.skipped.get_or_insert_default().push(Skipped { kind, secure });
                    }
                }
            }
        }
        Ok(())
    }

    fn add_id(&mut self, id: Found<'p, 'a>) {
        if let Err(full) = self.first_ids.try_push(id)
            && MAX_IDS + self.other_ids.len() <= MAX_READ_IDS
        {
            self.other_ids.push(full.element());
        }
    }

    /// Adds a requested strategy, or several with separators between them.
    fn request(&mut self, value: Value<'a>) -> Result<(), Malformed> {
        match (&self.plan.separator, value) {
            (Some(separator), Value::Bytes(text)) => {
                for part in split(text, separator.as_bytes()) {
                    self.request_one(Value::Bytes(part))?;
                }
                Ok(())
            }
            (Some(separator), Value::Owned(text)) => {
                for part in split(&text, separator.as_bytes()) {
                    self.request_one(Value::Owned(part.into()))?;
                }
                Ok(())
            }
            (_, value) => self.request_one(value),
        }
    }

    fn request_one(&mut self, value: Value<'a>) -> Result<(), Malformed> {
        let is_empty = match &value {
            Value::Absent => true,
            Value::Bytes(text) => text.is_empty(),
            Value::Owned(text) => text.is_empty(),
            Value::Int(_) | Value::Uint(_) => false,
        };
        if is_empty {
            return Ok(());
        }
        if self.asked.len() == MAX_ASKED {
            return Err(Malformed);
        }
        self.asked.push(value);
        Ok(())
    }
}

/// The trimmed parts of a text between separators. The separator is not empty.
fn split<'t>(mut text: &'t [u8], separator: &[u8]) -> impl Iterator<Item = &'t [u8]> {
    let mut is_over = false;
    std::iter::from_fn(move || {
        if is_over {
            return None;
        }
        let end = text.windows(separator.len()).position(|window| window == separator);
        let part = &text[..end.unwrap_or(text.len())];
        match end {
            Some(end) => text = &text[end + separator.len()..],
            None => is_over = true,
        }
        Some(part.trim_ascii())
    })
}
