//! The plan of reading a request: a tree of its mapped fields, compiled when the platform is built.
//!
//! Each mapped path has a slot. A leaf of the tree names the slots that its value goes into; the role
//! of a slot says what becomes of the value. A field that comes once fills its slot, and the last
//! value wins; when its message ends, ids and strategies are taken out of the slots. One that is
//! repeated, or stands in a repeated message, hands over each.

use super::schema::{End, Scalar, Schema, Step, check_ids, check_number, check_single, resolve};
use super::value::Value;
use crate::config::{IdListConfig, Mistake, Named, RequestConfig};

/// What becomes of the value in a slot.
#[derive(Debug)]
pub(super) enum Role {
    /// It is looked at when all is read.
    Single,
    /// A strategy asked about.
    Asked,
    /// An id of the field at that index of [`rtad_core::device::IdField::ALL`].
    Id { field: usize, path: Box<str> },
    /// An id whose kind stands beside it.
    Listed,
}

/// A message, or an object.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) fields: Vec<Field>,
    /// The slots of everything under it.
    pub(super) slots: Vec<usize>,
}

/// A field that is mapped, or that leads to one.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    pub(super) name: Box<str>,
    pub(super) is_list: bool,
    pub(super) what: What,
}

/// What a field holds.
#[derive(Debug)]
pub(super) enum What {
    Node(Node),
    Leaf(Leaf),
}

/// A value.
#[derive(Debug)]
pub(super) struct Leaf {
    pub(super) scalar: Scalar,
    pub(super) slots: Vec<usize>,
}

/// What the ids of a list are.
#[derive(Debug)]
pub(super) struct List {
    pub(super) kind: usize,
    pub(super) secure: Option<usize>,
    pub(super) path: Box<str>,
    /// By the values of both.
    fields: Vec<Listed>,
}

/// An entry of `kinds`.
#[derive(Debug)]
struct Listed {
    kind: Box<[u8]>,
    secure: Box<[u8]>,
    field: usize,
}

impl List {
    /// The index in [`rtad_core::device::IdField::ALL`] of an id that stands beside these values.
    /// There is a handful of them.
    #[inline]
    pub(super) fn field(&self, kind: &[u8], secure: &[u8]) -> Option<usize> {
        let listed =
            self.fields.iter().find(|known| *known.kind == *kind && *known.secure == *secure);
        listed.map(|known| known.field)
    }
}

/// All that is read out of a request.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) root: Node,
    pub(super) roles: Vec<Role>,
    /// What each slot holds when its field is not there.
    pub(super) absent: Vec<Value<'static>>,
    pub(super) list: Option<List>,
    pub(super) separator: Option<String>,
    pub(super) request_id: Option<usize>,
    pub(super) ping: Option<usize>,
}

impl Node {
    /// The field of that number. There is a handful of them.
    #[inline]
    pub(super) fn numbered(&self, number: u32) -> Option<&Field> {
        self.fields.iter().find(|field| field.number == number)
    }

    /// The field of that name.
    #[inline]
    pub(super) fn named(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| &*field.name == name)
    }

    /// Leads a slot's value to it. False if one key makes a field a value, and another an object.
    fn insert(&mut self, steps: &[Step], slot: usize) -> bool {
        self.slots.push(slot);
        let (step, rest) = steps.split_first().expect("a path has at least one name");
        let index =
            self.fields.iter().position(|field| *field.name == step.name).unwrap_or_else(|| {
                let what = match step.scalar {
                    Some(scalar) => What::Leaf(Leaf { scalar, slots: Vec::new() }),
                    None => What::Node(Self::default()),
                };
                let name = step.name.as_str().into();
                self.fields.push(Field { number: step.number, name, is_list: step.is_list, what });
                self.fields.len() - 1
            });
        match (&mut self.fields[index].what, step.scalar) {
            (What::Leaf(leaf), Some(_)) => leaf.slots.push(slot),
            (What::Node(node), None) => return node.insert(rest, slot),
            _ => return false,
        }
        true
    }
}

/// Compiles a plan, key by key.
pub(super) struct Planner<'a> {
    pub(super) schema: &'a Schema,
    plan: Plan,
    mistakes: &'a mut Vec<Mistake>,
}

impl<'a> Planner<'a> {
    pub(super) fn new(
        schema: &'a Schema,
        mapping: &RequestConfig,
        mistakes: &'a mut Vec<Mistake>,
    ) -> Self {
        let plan = Plan {
            root: Node::default(),
            roles: Vec::new(),
            absent: Vec::new(),
            list: None,
            separator: mapping.strategies_separator.clone(),
            request_id: None,
            ping: None,
        };
        let mut planner = Self { schema, plan, mistakes };
        planner.plan.request_id =
            mapping.request_id.as_ref().and_then(|named| planner.single(named));
        planner.plan.ping = mapping.ping.as_ref().and_then(|named| planner.ping(named));
        if let Some(named) = &mapping.strategies {
            planner.each(named, Role::Asked);
        }
        for (field, named) in &mapping.ids {
            planner.each(named, Role::Id { field: *field, path: named.text.as_str().into() });
        }
        if let Some(list) = &mapping.id_list {
            planner.plan.list = planner.list(list);
        }
        planner
    }

    pub(super) fn finish(self) -> Plan {
        self.plan
    }

    pub(super) fn mistake(&mut self, mistake: Mistake) {
        self.mistakes.push(mistake);
    }

    /// Maps a field that comes once.
    pub(super) fn single(&mut self, named: &Named) -> Option<usize> {
        let steps = self.resolve(named)?;
        let checked = check_single(named, &steps);
        self.checked(checked)?;
        self.insert(named, &steps, Role::Single)
    }

    /// Strategy ids that no asked one could ever equal are mistakes.
    pub(super) fn check_asked(&mut self, named: &Named, ids: &[&[u8]]) {
        // What is wrong with the path itself has been told.
        let Ok(steps) = resolve(self.schema.request(), named, End::Value) else { return };
        let checked = check_ids(named, steps.last().map_or(Scalar::Text, Step::value), ids);
        self.checked(checked);
    }

    fn ping(&mut self, named: &Named) -> Option<usize> {
        let steps = self.resolve(named)?;
        let checked =
            check_single(named, &steps).and_then(|()| check_number(named, self.schema, &steps));
        self.checked(checked)?;
        self.insert(named, &steps, Role::Single)
    }

    /// Maps a field that may come any number of times.
    fn each(&mut self, named: &Named, role: Role) -> Option<usize> {
        let steps = self.resolve(named)?;
        self.insert(named, &steps, role)
    }

    fn list(&mut self, mapping: &IdListConfig) -> Option<List> {
        let prefix = match &mapping.list {
            Some(list) => {
                let steps = resolve(self.schema.request(), list, End::Message);
                self.checked(steps)?;
                format!("{}.", list.text)
            }
            None => String::new(),
        };
        let base = prefix.matches('.').count();
        let mut member = |named: &Named, role: Role| -> Option<(usize, Vec<Step>, String)> {
            let full = Named { text: format!("{prefix}{}", named.text), ..named.clone() };
            let steps = self.resolve(&full)?;
            let checked = check_single(&full, &steps[base..]);
            self.checked(checked)?;
            Some((self.insert(&full, &steps, role)?, steps, full.text))
        };
        let value = member(&mapping.value, Role::Listed);
        let kind = member(&mapping.kind, Role::Single);
        let secure = mapping.secure.as_ref().map(|named| member(named, Role::Single));
        let (_, _, path) = value?;
        let (kind, kind_steps, _) = kind?;
        let secure = match secure {
            Some(secure) => secure.map(|(slot, steps, _)| Some((slot, steps)))?,
            None => None,
        };
        let mut fields = Vec::with_capacity(mapping.kinds.len());
        for (named, field) in &mapping.kinds {
            let (kind, hash) = named.text.split_once('/').unwrap_or((&named.text, ""));
            let kind = self.discriminator(named, &kind_steps, kind);
            let hash = match &secure {
                Some((_, steps)) if !hash.is_empty() => self.discriminator(named, steps, hash),
                Some((_, steps)) if steps.last().is_some_and(|step| step.is_zero_when_absent) => {
                    Some(Box::from(*b"0"))
                }
                Some(_) => Some(Box::default()),
                None if hash.is_empty() => Some(Box::default()),
                None => {
                    self.mistake(named.mistake("there is no secure", "a value of type alone"));
                    None
                }
            };
            if let (Some(kind), Some(hash)) = (kind, hash) {
                fields.push(Listed { kind, secure: hash, field: *field });
            }
        }
        Some(List { kind, secure: secure.map(|(slot, _)| slot), path: path.into(), fields })
    }

    /// A value as requests have it: an enum's names are for the config alone.
    fn discriminator(&mut self, named: &Named, steps: &[Step], text: &str) -> Option<Box<[u8]>> {
        let step = steps.last().expect("a path has at least one name");
        let number = match &step.names {
            Some(names) => names.get_value_by_name(text).map(|value| value.number().to_string()),
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
            self.mistake(named.mistake(&format!("{text:?} is no value of the field"), &accepted));
            return None;
        }
        Some(text.into_bytes().into())
    }

    fn resolve(&mut self, named: &Named) -> Option<Vec<Step>> {
        let steps = resolve(self.schema.request(), named, End::Value);
        self.checked(steps)
    }

    fn checked<T>(&mut self, result: Result<T, Mistake>) -> Option<T> {
        result.map_err(|mistake| self.mistakes.push(mistake)).ok()
    }

    fn insert(&mut self, named: &Named, steps: &[Step], role: Role) -> Option<usize> {
        let slot = self.plan.roles.len();
        if !self.plan.root.insert(steps, slot) {
            let why = "is a value for one key, and an object for another";
            self.mistakes.push(named.mistake(why, "paths that do not end within each other"));
            return None;
        }
        let is_zero = matches!(role, Role::Single)
            && steps.last().is_some_and(|step| step.is_zero_when_absent);
        self.plan.absent.push(if is_zero { Value::Uint(0) } else { Value::Absent });
        self.plan.roles.push(role);
        Some(slot)
    }
}
