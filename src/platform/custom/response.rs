//! The plan for writing a response: a tree of its mapped fields, compiled when the platform is
//! built.
//!
//! [`super::writer`] writes it. In Protocol Buffers, messages without a field are omitted.

use prost_reflect::MessageDescriptor;

use super::codes::Codes;
use super::schema::{
    End, PathStep, Scalar, Schema, check_amounts, check_ids, check_number, check_single, resolve,
};
use crate::config::{Mistake, Named, ResponseConfig, VerdictsConfig};
use crate::platform::read::Value;
use crate::strategy::{BidValue, Tag, ValueKey};

/// A field of a response, of a message in it, or of a verdict.
#[derive(Debug)]
pub struct AnswerField {
    pub number: u32,
    pub name: String,
    /// Whether proto2 requires it: then it is written even without a value.
    pub is_required: bool,
    pub content: AnswerContent,
}

impl AnswerField {
    fn of(step: &PathStep, content: AnswerContent) -> Self {
        Self {
            number: step.number,
            name: step.name.clone(),
            is_required: step.is_required,
            content,
        }
    }
}

/// The content of a field.
#[derive(Debug)]
pub enum AnswerContent {
    Message(Vec<AnswerField>),
    RequestId(Scalar),
    Code(Scalar, Codes),
    /// A list of messages, one per strategy.
    Verdicts {
        fields: Vec<AnswerField>,
        /// Only for strategies that bid.
        is_of_bids: bool,
    },
    /// In a verdict: the strategy.
    Strategy(Scalar),
    /// In a verdict: whether it bids.
    IsAccepted(Scalar),
    /// In a verdict: a number of the bid's value.
    Amount(ValueKey, Scalar),
    /// In a verdict: the text of the bucket's tag.
    Tag(Scalar),
    /// A list of strategies.
    Accepted {
        scalar: Scalar,
        is_packed: bool,
    },
    /// The first strategy.
    FirstAccepted(Scalar),
    /// A list of the ids that are accepted.
    AcceptedIds(Scalar),
    Cache(Scalar),
}

/// A compiled response.
#[derive(Debug)]
pub struct Response {
    pub fields: Vec<AnswerField>,
    pub is_json: bool,
    /// Whether it lists the ids that are accepted, each a device of its own.
    pub lists_ids: bool,
}

impl Response {
    /// Compiles a response for these strategy ids, and the values and tags of their strategies.
    pub fn compile(
        schema: &Schema,
        mapping: &ResponseConfig,
        ids: &[&[u8]],
        values: &[BidValue],
        tags: &[Tag],
        mistakes: &mut Vec<Mistake>,
    ) -> Self {
        let message = schema.response();
        let mut compiler = Compiler {
            schema,
            fields: Vec::new(),
            ids,
            mistakes,
        };

        compiler.add(
            message,
            mapping.request_id.as_ref(),
            End::Value,
            |_, _, step| Ok(AnswerContent::RequestId(step.value())),
        );
        for code in &mapping.code {
            compiler.add(
                message,
                Some(&code.field),
                End::Value,
                |schema, named, step| {
                    Ok(AnswerContent::Code(
                        step.value(),
                        Codes::compile(schema, named, step, code)?,
                    ))
                },
            );
        }
        if let Some(verdicts) = &mapping.verdicts {
            compiler.verdicts(verdicts, values, tags);
        }
        compiler.accepted(mapping);
        compiler.add(
            message,
            mapping.first_accepted.as_ref(),
            End::Value,
            |_, named, step| {
                check_ids(named, step.value(), ids)?;
                Ok(AnswerContent::FirstAccepted(step.value()))
            },
        );
        compiler.accepted_ids(mapping);
        compiler.add(
            message,
            mapping.cache.as_ref(),
            End::Value,
            |schema, named, step| {
                check_number(named, schema, std::slice::from_ref(step))?;
                Ok(AnswerContent::Cache(step.value()))
            },
        );
        let mut fields = compiler.fields;

        if let Some(message) = message {
            sort(&mut fields);
            if mapping.is_whole {
                required(message, &fields, mapping, mistakes);
            }
        }

        if mapping.is_whole && !expresses_no_bid(mapping) {
            let found = "cannot express a no-bid".to_owned();
            let accepted = "code with a no_bid other than bid, verdicts, accepted, first_accepted \
                            or accepted_ids"
                .to_owned();
            mistakes.push(Mistake {
                location: mapping.location.clone(),
                found,
                accepted,
            });
        }

        Self {
            fields,
            is_json: message.is_none(),
            lists_ids: mapping.accepted_ids.is_some(),
        }
    }
}

fn expresses_no_bid(mapping: &ResponseConfig) -> bool {
    mapping.verdicts.is_some()
        || mapping.accepted.is_some()
        || mapping.first_accepted.is_some()
        || mapping.accepted_ids.is_some()
        || mapping.code.iter().any(|code| code.bid != code.no_bid)
}

struct Compiler<'a> {
    schema: &'a Schema,
    fields: Vec<AnswerField>,
    /// The configured strategies.
    ids: &'a [&'a [u8]],
    mistakes: &'a mut Vec<Mistake>,
}

impl Compiler<'_> {
    /// Adds a single field; `content` builds it from the last step.
    fn add(
        &mut self,
        message: Option<&MessageDescriptor>,
        named: Option<&Named>,
        end: End,
        content: impl FnOnce(&Schema, &Named, &PathStep) -> Result<AnswerContent, Mistake>,
    ) {
        let Some(named) = named else { return };

        let added = resolve(message, named, end).and_then(|steps| {
            check_single(named, &steps)?;
            let (step, above) = steps.split_last().expect("a path has at least one name");
            insert(
                &mut self.fields,
                named,
                above,
                step,
                content(self.schema, named, step)?,
            )
        });
        self.mistakes.extend(added.err());
    }

    fn verdicts(&mut self, mapping: &VerdictsConfig, values: &[BidValue], tags: &[Tag]) {
        let list = resolve(self.schema.response(), &mapping.list, End::Message);
        let Some(steps) = self.checked(list) else {
            return;
        };

        let (list, above) = steps.split_last().expect("a path has at least one name");
        let single = check_single(&mapping.list, above);
        if self.checked(single).is_none() {
            return;
        }
        if self.schema.response().is_some() && !list.is_list {
            self.mistakes.push(
                mapping
                    .list
                    .mistake("it is not repeated", "a list of messages"),
            );
            return;
        }

        // The fields of an entry are collected in place of those of the answer.
        let outer = std::mem::take(&mut self.fields);
        let entry = list.message.as_ref();
        let ids = self.ids;
        self.add(
            entry,
            Some(&mapping.strategy),
            End::Value,
            |_, named, step| {
                check_ids(named, step.value(), ids)?;
                Ok(AnswerContent::Strategy(step.value()))
            },
        );
        self.add(
            entry,
            mapping.accepted.as_ref(),
            End::Value,
            |schema, named, step| {
                check_number(named, schema, std::slice::from_ref(step))?;
                Ok(AnswerContent::IsAccepted(step.value()))
            },
        );
        for (key, field) in mapping.values() {
            self.add(entry, Some(field), End::Amount, |schema, named, step| {
                check_amounts(
                    named,
                    schema,
                    step,
                    values.iter().filter_map(|it| it.get(key)),
                )?;
                Ok(AnswerContent::Amount(key, step.value()))
            });
        }
        self.add(entry, mapping.tag.as_ref(), End::Value, |_, named, step| {
            check_tags(named, step.value(), tags)?;
            Ok(AnswerContent::Tag(step.value()))
        });

        let mut entry = std::mem::replace(&mut self.fields, outer);
        if self.schema.response().is_some() {
            sort(&mut entry);
        }
        let content = AnswerContent::Verdicts {
            fields: entry,
            is_of_bids: mapping.accepted.is_none(),
        };
        let inserted = insert(&mut self.fields, &mapping.list, above, list, content);
        self.mistakes.extend(inserted.err());
    }

    fn accepted(&mut self, mapping: &ResponseConfig) {
        let Some(named) = &mapping.accepted else {
            return;
        };
        let Some(steps) = self.checked(resolve(self.schema.response(), named, End::Value)) else {
            return;
        };
        let (step, above) = steps.split_last().expect("a path has at least one name");
        let is_protobuf = self.schema.response().is_some();
        if is_protobuf && !step.is_list {
            self.mistakes
                .push(named.mistake("it is not repeated", "a list"));
            return;
        }

        let content = AnswerContent::Accepted {
            scalar: step.value(),
            is_packed: step.is_packed,
        };
        let inserted = check_single(named, above)
            .and_then(|()| check_ids(named, step.value(), self.ids))
            .and_then(|()| insert(&mut self.fields, named, above, step, content));
        self.mistakes.extend(inserted.err());
    }

    fn accepted_ids(&mut self, mapping: &ResponseConfig) {
        let Some(named) = &mapping.accepted_ids else {
            return;
        };

        let resolved = resolve(self.schema.response(), named, End::Value);
        let inserted = resolved.and_then(|steps| {
            let (step, above) = steps.split_last().expect("a path has at least one name");
            check_single(named, above)?;
            let is_protobuf = self.schema.response().is_some();
            if is_protobuf && (!step.is_list || step.value() != Scalar::Text) {
                return Err(named.mistake("it is not a list of strings", "a list of strings"));
            }
            insert(
                &mut self.fields,
                named,
                above,
                step,
                AnswerContent::AcceptedIds(step.value()),
            )
        });
        self.mistakes.extend(inserted.err());
    }

    fn checked<T>(&mut self, result: Result<T, Mistake>) -> Option<T> {
        result.map_err(|mistake| self.mistakes.push(mistake)).ok()
    }
}

/// Checks that a field holds the texts of all tags.
fn check_tags(named: &Named, scalar: Scalar, tags: &[Tag]) -> Result<(), Mistake> {
    for text in tags.iter().filter_map(|tag| tag.text.as_ref()) {
        let number = Value::Bytes(text.as_bytes()).integer();
        let is_held = !scalar.is_number() || number.is_some_and(|number| scalar.holds(number));
        if !is_held {
            return Err(named.mistake(
                &format!("it cannot hold {text:?}, the tag of a bucket"),
                "a field whose type holds the tags of all buckets that the platform's strategies \
                 read",
            ));
        }
    }
    Ok(())
}

/// Whether any of the ids contains the separator, which is not empty.
pub fn contains(ids: &[&[u8]], separator: &str) -> bool {
    let separator = separator.as_bytes();
    ids.iter()
        .any(|id| id.windows(separator.len()).any(|part| part == separator))
}

/// Inserts a content under its parent messages.
fn insert(
    mut fields: &mut Vec<AnswerField>,
    named: &Named,
    above: &[PathStep],
    step: &PathStep,
    content: AnswerContent,
) -> Result<(), Mistake> {
    for parent in above {
        let index = fields
            .iter()
            .position(|field| field.name == parent.name)
            .unwrap_or_else(|| {
                let content = AnswerContent::Message(Vec::new());
                fields.push(AnswerField::of(parent, content));
                fields.len() - 1
            });
        match &mut fields[index].content {
            AnswerContent::Message(inner) => fields = inner,
            _ => return Err(mapped_twice(named)),
        }
    }

    if fields.iter().any(|field| field.name == step.name) {
        return Err(mapped_twice(named));
    }
    fields.push(AnswerField::of(step, content));
    Ok(())
}

fn mapped_twice(named: &Named) -> Mistake {
    named.mistake("it is mapped twice", "a field of its own for each")
}

/// Orders protobuf fields by number; JSON fields keep the order in which they were compiled.
fn sort(fields: &mut [AnswerField]) {
    fields.sort_by_key(|field| field.number);
    for field in fields {
        if let AnswerContent::Message(inner) = &mut field.content {
            sort(inner);
        }
    }
}

/// Reports required fields without a mapping, as no client could read the message.
fn required(
    message: &MessageDescriptor,
    fields: &[AnswerField],
    mapping: &ResponseConfig,
    mistakes: &mut Vec<Mistake>,
) {
    for field in message.fields() {
        let mapped = fields.iter().find(|mapped| mapped.number == field.number());
        let content = mapped.map(|mapped| &mapped.content);

        if content.is_none() && field.is_required() {
            let found = format!("maps nothing to {}.{}", message.name(), field.name());
            let accepted = "a mapping of every required field".to_owned();
            mistakes.push(Mistake {
                location: mapping.location.clone(),
                found,
                accepted,
            });
        }
        if let Some(AnswerContent::Message(inner) | AnswerContent::Verdicts { fields: inner, .. }) =
            content
            && let Some(message) = field.kind().as_message()
        {
            required(message, inner, mapping, mistakes);
        }
    }
}
