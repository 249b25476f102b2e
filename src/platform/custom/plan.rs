//! The plan for reading a request: a tree of its mapped fields, compiled when the platform is
//! built.
//!
//! Each mapped path has a slot. A leaf of the tree lists the slots that its value fills; a slot's
//! role defines the use of the value. A single field fills its slot, and the last value wins. At
//! the end of its message, ids and strategies are taken from the slots. A repeated field, or a
//! field of a repeated message, yields every value.

use std::collections::BTreeMap;

use super::schema::{
    End, PathStep, Scalar, Schema, check_ids, check_number, check_single, resolve,
};
use crate::config::{IdListConfig, Mistake, Named, RequestConfig};
use crate::platform::read::{Digits, Value};
use crate::strategy::{Attribute, os_word};
use rtad_core::device::IdField;

/// The use of the value in a slot.
#[derive(Debug)]
pub enum Role {
    /// A single value, used after the whole body is read.
    Single,
    /// A requested strategy.
    Asked,
    /// An id.
    Id { field: IdField, path: Box<str> },
    /// An id with its type in another field of the entry.
    Listed,
    /// The type of such an id, used at the end of the entry.
    Type,
}

impl Role {
    /// Whether it is a part of an entry of a list of ids.
    const fn is_of_entry(&self) -> bool {
        matches!(self, Self::Listed | Self::Type)
    }
}

/// A message or object.
#[derive(Debug, Default)]
pub struct MessageNode {
    pub fields: Vec<RequestField>,
    /// All slots under it.
    pub slots: Vec<usize>,
    /// Whether it has an id of the id list or its types, but not all of them: the rest comes from
    /// elsewhere in the entry.
    pub splits_entry: bool,
}

/// A mapped field, or an ancestor of one.
#[derive(Debug)]
pub struct RequestField {
    pub number: u32,
    pub name: Box<str>,
    pub is_list: bool,
    pub content: RequestContent,
}

/// The content of a field.
#[derive(Debug)]
pub enum RequestContent {
    Node(MessageNode),
    Leaf(Leaf),
}

/// A value.
#[derive(Debug)]
pub struct Leaf {
    pub scalar: Scalar,
    /// The numbers of a proto2 enum. Others are skipped, as unknown fields are.
    closed: Option<Box<[i64]>>,
    pub slots: Vec<usize>,
}

impl Leaf {
    /// Whether the field's type has this value. Scans a short list.
    #[inline]
    pub fn knows(&self, value: &Value<'_>) -> bool {
        match (&self.closed, value) {
            (Some(numbers), Value::Int(number)) => numbers.contains(number),
            _ => true,
        }
    }
}

/// A list of ids with their types.
#[derive(Debug)]
pub struct IdList {
    pub kind: usize,
    pub secure: Option<usize>,
    pub path: Box<str>,
    /// The kinds of ids, by type and second type.
    fields: Vec<ListedKind>,
}

/// An entry of `kinds`.
#[derive(Debug)]
struct ListedKind {
    kind: Box<[u8]>,
    secure: Box<[u8]>,
    field: IdField,
}

/// A mapped field of the entries of a list of ids.
struct ListMember {
    slot: usize,
    steps: Vec<PathStep>,
    path: String,
}

impl ListMember {
    fn is_zero_when_absent(&self) -> bool {
        self.steps
            .last()
            .is_some_and(|step| step.is_zero_when_absent)
    }
}
impl IdList {
    /// The field of an id with these types. Scans a short list.
    #[inline]
    pub fn field(&self, kind: &[u8], secure: &[u8]) -> Option<IdField> {
        let listed = self
            .fields
            .iter()
            .find(|known| *known.kind == *kind && *known.secure == *secure);
        listed.map(|known| known.field)
    }
}

/// The plan for reading a request.
#[derive(Debug)]
pub struct RequestPlan {
    pub root: MessageNode,
    pub roles: Vec<Role>,
    /// The value of each slot if its field is absent.
    pub absent: Vec<Value<'static>>,
    pub list: Option<IdList>,
    pub strategies_separator: Option<String>,
    /// Whether the answer lists ids: they are read as they are, CAIDs with their versions.
    pub answers_ids: bool,
    pub request_id: Option<usize>,
    pub ping: Option<usize>,
    /// The slots of attributes.
    pub attributes: Vec<(Attribute, usize)>,
    /// The platform's values of operating systems, and their words.
    pub os_values: Vec<(Box<[u8]>, &'static str)>,
}

impl RequestPlan {
    /// The operating system that a value of `os` stands for; `None` if it is not known.
    pub fn os(&self, value: &Value<'_>) -> Option<&'static str> {
        let mut digits = Digits::new();
        let text = value.text(&mut digits).trim_ascii();
        if self.os_values.is_empty() {
            return os_word(text);
        }
        let mut values = self.os_values.iter();
        let known = values.find(|(known, _)| known.eq_ignore_ascii_case(text));
        known.map(|(_, word)| *word)
    }
}

impl MessageNode {
    /// The field of this number. Scans a short list.
    #[inline]
    pub fn numbered(&self, number: u32) -> Option<&RequestField> {
        self.fields.iter().find(|field| field.number == number)
    }

    /// The field of this name.
    #[inline]
    pub fn named(&self, name: &str) -> Option<&RequestField> {
        self.fields.iter().find(|field| &*field.name == name)
    }

    fn mark_parts_of_entries(&mut self, roles: &[Role]) {
        let found = self
            .slots
            .iter()
            .filter(|slot| roles[**slot].is_of_entry())
            .count();
        let all = roles.iter().filter(|role| role.is_of_entry()).count();
        self.splits_entry = found > 0 && found < all;

        for field in &mut self.fields {
            if let RequestContent::Node(node) = &mut field.content {
                node.mark_parts_of_entries(roles);
            }
        }
    }

    /// Adds a slot. False if one path uses a field as a value, and another as an object.
    fn insert(&mut self, steps: &[PathStep], slot: usize) -> bool {
        self.slots.push(slot);
        let (step, rest) = steps.split_first().expect("a path has at least one name");

        let index = self
            .fields
            .iter()
            .position(|field| *field.name == step.name)
            .unwrap_or_else(|| {
                let content = match step.scalar {
                    Some(scalar) => RequestContent::Leaf(Leaf {
                        scalar,
                        closed: step.closed(),
                        slots: Vec::new(),
                    }),
                    None => RequestContent::Node(Self::default()),
                };
                let name = step.name.as_str().into();
                self.fields.push(RequestField {
                    number: step.number,
                    name,
                    is_list: step.is_list,
                    content,
                });
                self.fields.len() - 1
            });

        match (&mut self.fields[index].content, step.scalar) {
            (RequestContent::Leaf(leaf), Some(_)) => leaf.slots.push(slot),
            (RequestContent::Node(node), None) => return node.insert(rest, slot),
            _ => return false,
        }
        true
    }
}

/// Compiles a plan, key by key.
pub struct Planner<'a> {
    pub schema: &'a Schema,
    plan: RequestPlan,
    mistakes: &'a mut Vec<Mistake>,
}

impl<'a> Planner<'a> {
    pub fn new(
        schema: &'a Schema,
        mapping: &RequestConfig,
        mistakes: &'a mut Vec<Mistake>,
    ) -> Self {
        let plan = RequestPlan {
            root: MessageNode::default(),
            roles: Vec::new(),
            absent: Vec::new(),
            list: None,
            strategies_separator: mapping.strategies_separator.clone(),
            answers_ids: false,
            request_id: None,
            ping: None,
            attributes: Vec::new(),
            os_values: Vec::new(),
        };

        let mut planner = Self {
            schema,
            plan,
            mistakes,
        };

        if let Some(named) = &mapping.request_id {
            planner.plan.request_id = planner.single(named);
        }
        if let Some(named) = &mapping.ping {
            planner.plan.ping = planner.ping(named);
        }

        for (attribute, named) in &mapping.attributes {
            if let Some(slot) = planner.single(named) {
                planner.plan.attributes.push((*attribute, slot));
            }
        }
        if let Some(named) = mapping.attributes.get(&Attribute::Os) {
            planner.os_values(named, &mapping.os_values);
        }

        if let Some(named) = &mapping.strategies {
            planner.each(named, Role::Asked);
        }
        for (field, named) in &mapping.ids {
            planner.each(
                named,
                Role::Id {
                    field: *field,
                    path: named.text.as_str().into(),
                },
            );
        }

        if let Some(list) = &mapping.id_list {
            planner.plan.list = planner.list(list);
        }
        planner
    }

    pub fn finish(mut self) -> RequestPlan {
        if self.mistakes.is_empty() {
            self.plan.root.mark_parts_of_entries(&self.plan.roles);
        }
        self.plan
    }

    pub fn mistake(&mut self, mistake: Mistake) {
        self.mistakes.push(mistake);
    }

    /// Maps a single field.
    pub fn single(&mut self, named: &Named) -> Option<usize> {
        let steps = self.resolve(named)?;
        let checked = check_single(named, &steps);
        self.checked(checked)?;
        self.insert(named, &steps, Role::Single)
    }

    /// Reports strategy ids that no requested id could equal.
    pub fn check_strategies(&mut self, named: &Named, ids: &[&[u8]]) {
        // A mistake in the path was reported before.
        let Ok(steps) = resolve(self.schema.request(), named, End::Value) else {
            return;
        };
        let checked = check_ids(
            named,
            steps.last().map_or(Scalar::Text, PathStep::value),
            ids,
        );
        self.checked(checked);
    }

    /// Maps the values of `os`. Without a mapping, its field has to hold words.
    fn os_values(&mut self, named: &Named, words: &BTreeMap<String, String>) {
        // A mistake in the path was reported before.
        let Ok(steps) = resolve(self.schema.request(), named, End::Value) else {
            return;
        };
        let is_number = steps.last().is_some_and(|step| step.value().is_number());
        if words.is_empty() && is_number {
            let why = "is a number, and request.os_values is not given";
            self.mistake(named.mistake(why, "a text, or os_values with its numbers or names"));
        }

        for (value, word) in words {
            // Another word was reported before.
            let word = os_word(word.as_bytes());
            let value = self.discriminator(named, &steps, value.trim_ascii());
            self.plan.os_values.extend(value.zip(word));
        }
    }

    fn ping(&mut self, named: &Named) -> Option<usize> {
        let steps = self.resolve(named)?;
        let checked =
            check_single(named, &steps).and_then(|()| check_number(named, self.schema, &steps));
        self.checked(checked)?;
        self.insert(named, &steps, Role::Single)
    }

    /// Maps a field that may repeat.
    fn each(&mut self, named: &Named, role: Role) -> Option<usize> {
        let steps = self.resolve(named)?;
        self.insert(named, &steps, role)
    }

    fn list(&mut self, mapping: &IdListConfig) -> Option<IdList> {
        let prefix = match &mapping.list {
            Some(list) => {
                let steps = resolve(self.schema.request(), list, End::Message);
                self.checked(steps)?;
                format!("{}.", list.text)
            }
            None => String::new(),
        };

        let value = self.list_member(&prefix, &mapping.value, Role::Listed);
        let kind = self.list_member(&prefix, &mapping.kind, Role::Type);
        let secure = mapping
            .secure
            .as_ref()
            .map(|named| self.list_member(&prefix, named, Role::Type));
        // After the last of them, so that the mistakes of all are reported.
        let value = value?;
        let kind = kind?;
        let secure = match secure {
            Some(secure) => Some(secure?),
            None => None,
        };

        let mut fields = Vec::with_capacity(mapping.kinds.len());
        for (named, field) in &mapping.kinds {
            let (kind_text, secure_text) = named.text.split_once('/').unwrap_or((&named.text, ""));
            let kind_value = self.discriminator(named, &kind.steps, kind_text);
            let secure_value = match &secure {
                Some(secure) if !secure_text.is_empty() => {
                    self.discriminator(named, &secure.steps, secure_text)
                }
                Some(secure) if secure.is_zero_when_absent() => Some(Box::from(*b"0")),
                Some(_) => Some(Box::default()),
                None if secure_text.is_empty() => Some(Box::default()),
                None => {
                    self.mistake(named.mistake("secure is not set", "a value of type alone"));
                    None
                }
            };
            if let (Some(kind), Some(secure)) = (kind_value, secure_value) {
                fields.push(ListedKind {
                    kind,
                    secure,
                    field: *field,
                });
            }
        }

        Some(IdList {
            kind: kind.slot,
            secure: secure.map(|secure| secure.slot),
            path: value.path.into(),
            fields,
        })
    }

    /// A field of the entries of a list of ids; `prefix` is the path of the list.
    fn list_member(&mut self, prefix: &str, named: &Named, role: Role) -> Option<ListMember> {
        let full = Named {
            text: format!("{prefix}{}", named.text),
            ..named.clone()
        };
        let steps = self.resolve(&full)?;
        let steps_of_list = prefix.matches('.').count();
        let checked = check_single(&full, &steps[steps_of_list..]);
        self.checked(checked)?;

        Some(ListMember {
            slot: self.insert(&full, &steps, role)?,
            steps,
            path: full.text,
        })
    }

    /// A type as requests carry it: the config may use an enum's names, requests carry its numbers.
    fn discriminator(
        &mut self,
        named: &Named,
        steps: &[PathStep],
        text: &str,
    ) -> Option<Box<[u8]>> {
        let step = steps.last().expect("a path has at least one name");
        let number = match &step.names {
            Some(names) => names
                .get_value_by_name(text)
                .map(|value| value.number().to_string()),
            None if step.scalar == Some(Scalar::Bool) && text == "true" => Some("1".to_owned()),
            None if step.scalar == Some(Scalar::Bool) && text == "false" => Some("0".to_owned()),
            None => None,
        };
        let text = number.unwrap_or_else(|| text.to_owned());

        if step.scalar.is_some_and(Scalar::is_number) && text.parse::<i128>().is_err() {
            let accepted = match &step.names {
                Some(names) => names
                    .values()
                    .map(|value| value.name().to_owned())
                    .collect::<Vec<_>>()
                    .join(", "),
                None => "a number".to_owned(),
            };
            self.mistake(
                named.mistake(&format!("{text:?} is not a value of the field"), &accepted),
            );
            return None;
        }

        Some(text.into_bytes().into())
    }

    fn resolve(&mut self, named: &Named) -> Option<Vec<PathStep>> {
        let steps = resolve(self.schema.request(), named, End::Value);
        self.checked(steps)
    }

    fn checked<T>(&mut self, result: Result<T, Mistake>) -> Option<T> {
        result.map_err(|mistake| self.mistakes.push(mistake)).ok()
    }

    fn insert(&mut self, named: &Named, steps: &[PathStep], role: Role) -> Option<usize> {
        let slot = self.plan.roles.len();
        if !self.plan.root.insert(steps, slot) {
            let why = "is a value for one key and an object for another";
            self.mistakes
                .push(named.mistake(why, "paths of which none is a prefix of another"));
            return None;
        }

        let is_zero = matches!(role, Role::Single | Role::Type)
            && steps.last().is_some_and(|step| step.is_zero_when_absent);
        self.plan.absent.push(if is_zero {
            Value::Uint(0)
        } else {
            Value::Absent
        });
        self.plan.roles.push(role);
        Some(slot)
    }
}
