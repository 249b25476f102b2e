//! Rows to the columns of a record batch.

use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, FixedSizeBinaryBuilder, Float64Builder, Int32Builder,
    StringBuilder, TimestampMicrosecondBuilder, UInt32Builder, UInt64Builder,
};
use arrow_array::{ArrayRef, ListArray, RecordBatch, StructArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer, OffsetBufferBuilder};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, SchemaRef};

use crate::row::{
    ATTRIBUTES, AudienceFact, DecisionFact, Device, ExperimentFact, LogRow, LoggedFacts, NUMBERS,
};

/// Bytes of a device's name.
const DEVICE_BYTES: i32 = 16;

/// Rows that wait, in the order of the schema.
pub struct RowColumns {
    schema: SchemaRef,
    rows: usize,
    time: TimestampMicrosecondBuilder,
    latency: Int32Builder,
    platform: StringBuilder,
    failure: StringBuilder,
    probability: Float64Builder,
    sampled: BooleanBuilder,
    config: StringBuilder,
    request_id: StringBuilder,
    device: FixedSizeBinaryBuilder,
    secret: StringBuilder,
    ids: StringBuilder,
    attributes: [StringBuilder; ATTRIBUTES],
    asked: AskedColumn,
    audiences: AudienceColumns,
    experiments: ExperimentColumns,
    decisions: DecisionColumns,
    query: StringBuilder,
    body: BinaryBuilder,
}

struct AskedColumn {
    exists: NullBufferBuilder,
    lists: ListEnds,
    ids: StringBuilder,
}

#[derive(Default)]
struct AudienceColumns {
    lists: ListEnds,
    name: StringBuilder,
    generation: UInt64Builder,
    member: StringBuilder,
    value: Int32Builder,
}

#[derive(Default)]
struct ExperimentColumns {
    lists: ListEnds,
    name: StringBuilder,
    rule: UInt32Builder,
    bucket: StringBuilder,
    layer_slot: Int32Builder,
    bucket_slot: Int32Builder,
}

#[derive(Default)]
struct DecisionColumns {
    lists: ListEnds,
    strategy: StringBuilder,
    bid: BooleanBuilder,
    reason: StringBuilder,
    condition: StringBuilder,
    shadow: BooleanBuilder,
    cap: StringBuilder,
    cap_name: StringBuilder,
    scheduled: BooleanBuilder,
    numbers: [Float64Builder; NUMBERS],
}

/// The ends of the rows' lists among the elements of all rows.
struct ListEnds(OffsetBufferBuilder<i32>);

impl Default for ListEnds {
    fn default() -> Self {
        Self(OffsetBufferBuilder::new(0))
    }
}

impl ListEnds {
    fn push(&mut self, length: usize) {
        self.0.push_length(length);
    }

    fn finish(&mut self) -> OffsetBuffer<i32> {
        std::mem::take(self).0.finish()
    }
}

impl RowColumns {
    /// No rows, of a schema.
    pub fn new(schema: SchemaRef) -> Self {
        Self {
            schema,
            rows: 0,
            time: TimestampMicrosecondBuilder::new().with_timezone("UTC"),
            latency: Int32Builder::new(),
            platform: StringBuilder::new(),
            failure: StringBuilder::new(),
            probability: Float64Builder::new(),
            sampled: BooleanBuilder::new(),
            config: StringBuilder::new(),
            request_id: StringBuilder::new(),
            device: FixedSizeBinaryBuilder::new(DEVICE_BYTES),
            secret: StringBuilder::new(),
            ids: StringBuilder::new(),
            attributes: Default::default(),
            asked: AskedColumn {
                exists: NullBufferBuilder::new(0),
                lists: ListEnds::default(),
                ids: StringBuilder::new(),
            },
            audiences: AudienceColumns::default(),
            experiments: ExperimentColumns::default(),
            decisions: DecisionColumns::default(),
            query: StringBuilder::new(),
            body: BinaryBuilder::new(),
        }
    }

    /// Rows that wait.
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Adds a row. `device` is the name of its device.
    pub fn push<N>(&mut self, row: &LogRow<'_, N>, device: Option<&Device<'_>>) {
        self.rows += 1;
        let end = &row.end;
        self.time.append_value(end.time);
        self.latency.append_value(end.latency.cast_signed());
        self.platform.append_value(end.platform);
        self.failure.append_option(end.failure);
        self.probability.append_value(end.probability);
        self.sampled.append_value(end.sampled);
        self.config.append_value(end.config);

        match device {
            Some(device) => {
                let name = self.device.append_value(device.hmac);
                name.expect("a name has 16 bytes");
                self.secret.append_value(device.secret);
            }
            None => {
                self.device.append_null();
                self.secret.append_null();
            }
        }
        match &row.facts {
            Some(facts) => self.push_facts(facts),
            None => self.push_no_facts(),
        }

        self.query.append_option(end.raw.and_then(|raw| raw.query));
        self.body.append_option(end.raw.map(|raw| raw.body));
    }

    fn push_facts<N>(&mut self, facts: &LoggedFacts<'_, N>) {
        self.request_id.append_option(facts.request_id);
        self.ids.append_value(facts.ids.as_str());
        for (column, attribute) in self.attributes.iter_mut().zip(facts.attributes) {
            column.append_option(attribute);
        }
        self.asked.push(facts.asked.as_deref());
        self.audiences.push(&facts.audiences);
        self.experiments.push(&facts.experiments);
        self.decisions.push(&facts.decisions);
    }

    fn push_no_facts(&mut self) {
        self.request_id.append_null();
        self.ids.append_null();
        for column in &mut self.attributes {
            column.append_null();
        }
        self.asked.push(None);
        self.audiences.push(&[]);
        self.experiments.push(&[]);
        self.decisions.push(&[]);
    }

    /// Takes all rows.
    pub fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        self.rows = 0;
        let schema = Arc::clone(&self.schema);
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(self.time.finish()),
            Arc::new(self.latency.finish()),
            Arc::new(self.platform.finish()),
            Arc::new(self.failure.finish()),
            Arc::new(self.probability.finish()),
            Arc::new(self.sampled.finish()),
            Arc::new(self.config.finish()),
            Arc::new(self.request_id.finish()),
            Arc::new(self.device.finish()),
            Arc::new(self.secret.finish()),
            Arc::new(self.ids.finish()),
        ];

        for column in &mut self.attributes {
            columns.push(Arc::new(column.finish()));
        }
        columns.push(self.asked.finish(schema.field_with_name("asked")?)?);
        columns.push(
            self.audiences
                .finish(schema.field_with_name("audiences")?)?,
        );

        columns.push(
            self.experiments
                .finish(schema.field_with_name("experiments")?)?,
        );

        columns.push(
            self.decisions
                .finish(schema.field_with_name("decisions")?)?,
        );

        columns.push(Arc::new(self.query.finish()));
        columns.push(Arc::new(self.body.finish()));
        RecordBatch::try_new(schema, columns)
    }
}

impl AskedColumn {
    fn push(&mut self, asked: Option<&[&str]>) {
        self.exists.append(asked.is_some());
        let asked = asked.unwrap_or_default();
        self.lists.push(asked.len());
        for id in asked {
            self.ids.append_value(id);
        }
    }

    fn finish(&mut self, field: &Field) -> Result<ArrayRef, ArrowError> {
        let element = Arc::clone(element_of(field)?);
        let lists = self.lists.finish();
        let ids = Arc::new(self.ids.finish());
        let list = ListArray::try_new(element, lists, ids, self.exists.finish())?;
        Ok(Arc::new(list))
    }
}

impl AudienceColumns {
    fn push(&mut self, facts: &[AudienceFact<'_>]) {
        self.lists.push(facts.len());
        for fact in facts {
            self.name.append_value(fact.name);
            self.generation.append_option(fact.generation);
            self.member.append_value(fact.member.as_str());
            self.value.append_option(fact.value.map(i32::from));
        }
    }

    fn finish(&mut self, field: &Field) -> Result<ArrayRef, ArrowError> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.name.finish()),
            Arc::new(self.generation.finish()),
            Arc::new(self.member.finish()),
            Arc::new(self.value.finish()),
        ];
        list_of_structs(field, self.lists.finish(), columns)
    }
}

impl ExperimentColumns {
    fn push(&mut self, facts: &[ExperimentFact<'_>]) {
        self.lists.push(facts.len());
        for fact in facts {
            self.name.append_value(fact.name);
            self.rule.append_value(fact.rule);
            self.bucket.append_value(fact.bucket);
            let slots = fact.slots.map(|slots| slots.map(u32::cast_signed));
            self.layer_slot.append_option(slots.map(|[layer, _]| layer));
            self.bucket_slot.append_option(slots.map(|[_, slot]| slot));
        }
    }

    fn finish(&mut self, field: &Field) -> Result<ArrayRef, ArrowError> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.name.finish()),
            Arc::new(self.rule.finish()),
            Arc::new(self.bucket.finish()),
            Arc::new(self.layer_slot.finish()),
            Arc::new(self.bucket_slot.finish()),
        ];
        list_of_structs(field, self.lists.finish(), columns)
    }
}

impl DecisionColumns {
    fn push(&mut self, facts: &[DecisionFact<'_>]) {
        self.lists.push(facts.len());
        for fact in facts {
            self.strategy.append_value(fact.strategy);
            self.bid.append_value(fact.bid);
            self.reason.append_value(fact.reason);
            self.condition.append_option(fact.condition);
            self.shadow.append_value(fact.shadow);
            let state = fact.cap.map(|cap| cap.state.as_str());
            self.cap.append_option(state);
            self.cap_name.append_option(fact.cap.map(|cap| cap.name));
            self.scheduled.append_option(fact.scheduled);
            for (column, number) in self.numbers.iter_mut().zip(fact.numbers) {
                column.append_option(number);
            }
        }
    }

    fn finish(&mut self, field: &Field) -> Result<ArrayRef, ArrowError> {
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(self.strategy.finish()),
            Arc::new(self.bid.finish()),
            Arc::new(self.reason.finish()),
            Arc::new(self.condition.finish()),
            Arc::new(self.shadow.finish()),
            Arc::new(self.cap.finish()),
            Arc::new(self.cap_name.finish()),
            Arc::new(self.scheduled.finish()),
        ];
        for column in &mut self.numbers {
            columns.push(Arc::new(column.finish()));
        }
        list_of_structs(field, self.lists.finish(), columns)
    }
}

fn list_of_structs(
    field: &Field,
    lists: OffsetBuffer<i32>,
    columns: Vec<ArrayRef>,
) -> Result<ArrayRef, ArrowError> {
    let element = element_of(field)?;
    let DataType::Struct(fields) = element.data_type() else {
        return Err(ArrowError::SchemaError(format!("{field} has no structs")));
    };
    let elements = StructArray::try_new(fields.clone(), columns, None)?;
    let list = ListArray::try_new(Arc::clone(element), lists, Arc::new(elements), None)?;
    Ok(Arc::new(list))
}

fn element_of(field: &Field) -> Result<&FieldRef, ArrowError> {
    match field.data_type() {
        DataType::List(element) => Ok(element),
        _ => Err(ArrowError::SchemaError(format!("{field} is no list"))),
    }
}
