//! Records to columns, in the order of the schema.

use parquet::data_type::{BoolType, DoubleType, FixedLenByteArrayType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::writer::SerializedRowGroupWriter;
use rtad_core::device::DeviceKey;

use crate::buffer::{Level, Numbers, Texts, WriteColumn};
use crate::record::{Decoder, VerdictBits};
use crate::row::{ATTRIBUTES, CapState, Device, NUMBERS};

/// The rows of a row group.
#[derive(Default)]
pub struct GroupColumns {
    rows: usize,
    bytes: usize,
    time: Numbers<Int64Type>,
    latency: Numbers<Int32Type>,
    platform: Texts,
    failure: Texts,
    probability: Numbers<DoubleType>,
    sampled: Numbers<BoolType>,
    config: Texts,
    facts: FactColumns,
    query: Texts,
    body: Texts,
}

#[derive(Default)]
struct FactColumns {
    request_id: Texts,
    device: Texts<FixedLenByteArrayType>,
    secret: Texts,
    ids: Texts,
    attributes: [Texts; ATTRIBUTES],
    asked: Texts,
    audiences: Audiences,
    experiments: Experiments,
    decisions: Decisions,
}

#[derive(Default)]
struct Audiences {
    name: Texts,
    generation: Numbers<Int64Type>,
    member: Texts,
    value: Numbers<Int32Type>,
}

#[derive(Default)]
struct Experiments {
    name: Texts,
    rule: Numbers<Int32Type>,
    bucket: Texts,
    layer_slot: Numbers<Int32Type>,
    bucket_slot: Numbers<Int32Type>,
}

#[derive(Default)]
struct Decisions {
    strategy: Texts,
    bid: Numbers<BoolType>,
    reason: Texts,
    shadow: Numbers<BoolType>,
    cap: Texts,
    scheduled: Numbers<BoolType>,
    numbers: [Numbers<DoubleType>; NUMBERS],
}

/// The levels of a required and of an optional field of a list's element.
const fn element_levels(index: u16) -> (Level, Level) {
    let is_continuation = index > 0;
    (
        Level {
            definition: 1,
            is_continuation,
        },
        Level {
            definition: 2,
            is_continuation,
        },
    )
}

fn push_empty<'c>(columns: impl Iterator<Item = &'c mut dyn WriteColumn>) {
    columns.for_each(WriteColumn::push_empty);
}

impl GroupColumns {
    /// Rows that wait.
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// About how many bytes they take.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the row of a record, with the name of its device.
    pub fn push<'n>(&mut self, record: &[u8], name: impl Fn(&DeviceKey) -> Device<'n>) {
        self.rows += 1;
        self.bytes += record.len();
        let from = &mut Decoder::new(record);
        match from.byte() {
            0 => push_empty(self.facts.columns()),
            _ => self.facts.push(from, name),
        }
        self.time.push(from.i64());
        self.latency.push(from.u32().cast_signed());
        self.platform
            .push(from.text().expect("each row has a platform"));
        self.failure.push_at(Level::ROW, from.text());
        self.probability.push(from.f64());
        self.sampled.push(from.byte() != 0);
        self.config
            .push(from.text().expect("each row has a configuration"));
        self.query.push_at(Level::ROW, from.text());
        self.body.push_at(Level::ROW, from.text());
    }

    /// Writes all rows and forgets them.
    pub fn write<W: std::io::Write + Send>(
        &mut self,
        mut to: SerializedRowGroupWriter<'_, W>,
    ) -> Result<()> {
        let first: [&mut dyn WriteColumn; 7] = [
            &mut self.time,
            &mut self.latency,
            &mut self.platform,
            &mut self.failure,
            &mut self.probability,
            &mut self.sampled,
            &mut self.config,
        ];
        let last: [&mut dyn WriteColumn; 2] = [&mut self.query, &mut self.body];
        for column in first.into_iter().chain(self.facts.columns()).chain(last) {
            column.write(to.next_column()?.expect("a column of the schema"))?;
        }
        to.close()?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }
}

impl FactColumns {
    fn columns(&mut self) -> impl Iterator<Item = &mut dyn WriteColumn> {
        let first: [&mut dyn WriteColumn; 4] = [
            &mut self.request_id,
            &mut self.device,
            &mut self.secret,
            &mut self.ids,
        ];
        first
            .into_iter()
            .chain(
                self.attributes
                    .iter_mut()
                    .map(|column| column as &mut dyn WriteColumn),
            )
            .chain([&mut self.asked as &mut dyn WriteColumn])
            .chain(self.audiences.columns())
            .chain(self.experiments.columns())
            .chain(self.decisions.columns())
    }

    fn push<'n>(&mut self, from: &mut Decoder<'_>, name: impl Fn(&DeviceKey) -> Device<'n>) {
        self.request_id.push_at(Level::ROW, from.text());
        let device = from.device().map(|key| name(&key));
        self.device.push_at(
            Level::ROW,
            device.as_ref().map(|device| device.hmac.as_slice()),
        );
        self.secret
            .push_at(Level::ROW, device.map(|device| device.secret.as_bytes()));
        self.ids
            .push_at(Level::ROW, Some(from.ids().as_str().as_bytes()));
        for column in &mut self.attributes {
            column.push_at(Level::ROW, from.text());
        }
        match from.list() {
            None => self.asked.push_empty(),
            // The list exists, its element does not.
            Some(0) => self.asked.push_at(element_levels(0).1, None),
            Some(count) => {
                for index in 0..count {
                    self.asked.push_at(element_levels(index).1, from.text());
                }
            }
        }
        self.audiences.push(from);
        self.experiments.push(from);
        self.decisions.push(from);
    }
}

impl Audiences {
    fn push(&mut self, from: &mut Decoder<'_>) {
        let count = from.list().unwrap_or(0);
        if count == 0 {
            push_empty(self.columns());
        }
        for index in 0..count {
            let (required, optional) = element_levels(index);
            self.name.push_at(required, from.text());
            self.member
                .push_at(required, Some(from.member().as_str().as_bytes()));
            self.value
                .push_at(optional, from.byte().checked_sub(1).map(i32::from));
            let generation = Some(from.u64()).filter(|generation| *generation > 0);
            self.generation
                .push_at(optional, generation.map(u64::cast_signed));
        }
    }

    fn columns(&mut self) -> impl Iterator<Item = &mut dyn WriteColumn> {
        let columns: [&mut dyn WriteColumn; 4] = [
            &mut self.name,
            &mut self.generation,
            &mut self.member,
            &mut self.value,
        ];
        columns.into_iter()
    }
}

impl Experiments {
    fn push(&mut self, from: &mut Decoder<'_>) {
        let count = from.list().unwrap_or(0);
        if count == 0 {
            push_empty(self.columns());
        }
        for index in 0..count {
            let (required, optional) = element_levels(index);
            self.name.push_at(required, from.text());
            self.rule.push_at(required, Some(from.u32().cast_signed()));
            self.bucket.push_at(required, from.text());
            let has_slots = from.byte() != 0;
            for column in [&mut self.layer_slot, &mut self.bucket_slot] {
                column.push_at(optional, has_slots.then(|| from.u32().cast_signed()));
            }
        }
    }

    fn columns(&mut self) -> impl Iterator<Item = &mut dyn WriteColumn> {
        let columns: [&mut dyn WriteColumn; 5] = [
            &mut self.name,
            &mut self.rule,
            &mut self.bucket,
            &mut self.layer_slot,
            &mut self.bucket_slot,
        ];
        columns.into_iter()
    }
}

impl Decisions {
    fn push(&mut self, from: &mut Decoder<'_>) {
        let count = from.list().unwrap_or(0);
        if count == 0 {
            push_empty(self.columns());
        }
        for index in 0..count {
            let (required, optional) = element_levels(index);
            self.strategy.push_at(required, from.text());
            self.reason.push_at(required, from.text());
            let VerdictBits {
                bid,
                shadow,
                scheduled,
                cap,
            } = from.verdict();
            self.bid.push_at(required, Some(bid));
            self.shadow.push_at(required, Some(shadow));
            self.cap
                .push_at(optional, cap.map(CapState::as_str).map(str::as_bytes));
            self.scheduled.push_at(optional, scheduled);
            for (column, number) in self.numbers.iter_mut().zip(from.numbers()) {
                column.push_at(optional, number);
            }
        }
    }

    fn columns(&mut self) -> impl Iterator<Item = &mut dyn WriteColumn> {
        let Self {
            strategy,
            bid,
            reason,
            shadow,
            cap,
            scheduled,
            numbers,
        } = self;
        let first: [&mut dyn WriteColumn; 6] = [strategy, bid, reason, shadow, cap, scheduled];
        first.into_iter().chain(
            numbers
                .iter_mut()
                .map(|column| column as &mut dyn WriteColumn),
        )
    }
}
