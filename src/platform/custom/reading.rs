//! The values of a request's mapped fields, collected while its body is decoded.

use super::plan::{Leaf, MessageNode, RequestPlan, Role};
use crate::platform::read::{Asked, AskedList, Digits, Id, MAX_ASKED, Read, SkippedId, Value};
use rtad_core::device::{IdField, IdKind, trim};

/// An unreadable body. Carries no details, as the sender is not authenticated.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed;

/// The values read so far.
pub struct Reading<'r, 'a> {
    pub plan: &'a RequestPlan,
    pub values: Vec<Value<'a>>,
    pub read: &'r mut Read<'a>,
}

impl<'r, 'a> Reading<'r, 'a> {
    pub fn new(plan: &'a RequestPlan, read: &'r mut Read<'a>) -> Self {
        Self {
            plan,
            values: plan.absent.clone(),
            read,
        }
    }

    /// The value in a slot.
    pub fn value(&self, slot: Option<usize>) -> &Value<'a> {
        slot.map_or(&Value::Absent, |slot| &self.values[slot])
    }

    /// Stores a value in its slots.
    #[inline]
    pub fn take(
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
            Role::Single | Role::Type | Role::Listed => return Err(Malformed),
            Role::Asked | Role::Id { .. } => return self.use_value(slot, value),
        }
        Ok(())
    }

    /// Whether a node has a value of which the body, or an entry of the id list, has one.
    pub fn has_single(&self, node: &MessageNode) -> bool {
        node.splits_entry
            || node
                .slots
                .iter()
                .any(|slot| matches!(self.plan.roles[*slot], Role::Single))
    }

    /// Clears the slots under a node, as a new element of a list begins.
    pub fn begin(&mut self, node: &MessageNode) {
        for slot in &node.slots {
            self.values[*slot] = self.plan.absent[*slot].clone();
        }
    }

    /// Takes ids and strategies from the slots under a node, as it has ended.
    pub fn end(&mut self, node: &MessageNode) -> Result<(), Malformed> {
        for slot in &node.slots {
            let is_kept = match self.plan.roles[*slot] {
                Role::Single | Role::Type => true,
                Role::Listed => node.splits_entry,
                Role::Asked | Role::Id { .. } => false,
            };
            if !is_kept && !self.values[*slot].is_absent() {
                let value = std::mem::replace(&mut self.values[*slot], Value::Absent);
                self.use_value(*slot, value)?;
            }
        }
        Ok(())
    }

    fn use_value(&mut self, slot: usize, value: Value<'a>) -> Result<(), Malformed> {
        let plan = self.plan;
        match &plan.roles[slot] {
            Role::Single | Role::Type => {}
            Role::Asked => return self.request(value),
            Role::Id { field, path } => self.add_id(path, *field, value),
            Role::Listed => {
                if let Some(list) = &plan.list {
                    let mut kind_digits = Digits::new();
                    let mut secure_digits = Digits::new();
                    let kind = self.values[list.kind].text(&mut kind_digits);
                    let secure = self.value(list.secure).text(&mut secure_digits);
                    let path = &*list.path;

                    if let Some(field) = list.field(kind, secure) {
                        self.add_id(path, field, value);
                    } else {
                        let kind = self.values[list.kind].clone();
                        let secure = self.value(list.secure).clone();
                        self.read.skip_id(SkippedId { path, kind, secure });
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds an id; a CAID without its version.
    #[inline]
    fn add_id(&mut self, path: &'a str, field: IdField, value: Value<'a>) {
        let value = if field.id_kind() == IdKind::Caid && !self.plan.answers_ids {
            caid_of(value)
        } else {
            value
        };

        self.read.add_id(Id {
            path,
            field,
            value,
            is_doubtful: false,
            is_accepted: false,
        });
    }

    /// Adds a requested strategy, or several with separators between them.
    fn request(&mut self, value: Value<'a>) -> Result<(), Malformed> {
        let Some(separator) = self.plan.strategies_separator.as_deref() else {
            return self.request_one(value);
        };

        match value {
            Value::Bytes(text) => {
                for part in split(text, separator.as_bytes()) {
                    self.request_one(Value::Bytes(part))?;
                }
            }
            Value::Owned(text) => {
                for part in split(&text, separator.as_bytes()) {
                    self.request_one(Value::Owned(part.into()))?;
                }
            }
            number => self.request_one(number)?,
        }
        Ok(())
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

        match &mut self.read.asked {
            AskedList::Named(asked) if asked.len() < MAX_ASKED => {
                asked.push(Asked {
                    id: value,
                    known: None,
                    ad: None,
                });
                Ok(())
            }
            _ => Err(Malformed),
        }
    }
}

/// A value without a CAID's version.
fn caid_of(value: Value<'_>) -> Value<'_> {
    match value {
        Value::Bytes(text) => Value::Bytes(without_version(text)),
        Value::Owned(text) => Value::Owned(without_version(&text).into()),
        number => number,
    }
}

const CAID_LENGTH: usize = 32;

/// All digits of a CAID may be decimal, so its length alone tells it from a version.
fn is_caid(part: &[u8]) -> bool {
    part.len() == CAID_LENGTH && part.iter().all(u8::is_ascii_hexdigit)
}

fn is_caid_version(part: &[u8]) -> bool {
    part.len() < CAID_LENGTH && part.iter().all(u8::is_ascii_digit)
}

/// A CAID without its version, a number before or after it, parted by a character such as `_`.
fn without_version(text: &[u8]) -> &[u8] {
    let trimmed = trim(text);
    let Some(end) = trimmed
        .iter()
        .position(|byte| !byte.is_ascii_alphanumeric())
    else {
        return text;
    };
    let first = &trimmed[..end];
    let second = &trimmed[end + 1..];

    if is_caid(first) && is_caid_version(second) {
        first
    } else if is_caid_version(first) && is_caid(second) {
        second
    } else {
        text
    }
}

/// The trimmed parts of a text between separators. The separator is not empty.
fn split<'t>(mut text: &'t [u8], separator: &[u8]) -> impl Iterator<Item = &'t [u8]> {
    let mut is_over = false;
    std::iter::from_fn(move || {
        if is_over {
            return None;
        }

        let end = text
            .windows(separator.len())
            .position(|window| window == separator);
        let part = &text[..end.unwrap_or(text.len())];
        match end {
            Some(end) => text = &text[end + separator.len()..],
            None => is_over = true,
        }
        Some(part.trim_ascii())
    })
}
