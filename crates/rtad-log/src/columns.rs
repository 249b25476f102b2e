//! Records to columns, in the order of the schema.

use parquet::data_type::{BoolType, DoubleType, FixedLenByteArrayType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::writer::SerializedRowGroupWriter;
use rtad_core::device::DeviceKey;

use crate::buffer::{At, Buffer, Texts, WriteColumn};
use crate::record::{Decoder, VerdictBits};
use crate::row::{ATTRIBUTES, Cap, Device, NUMBERS};

/// The rows of a row group.
#[derive(Default)]
pub(crate) struct GroupColumns {
    rows: usize,
    bytes: usize,
    time: Buffer<Int64Type>,
    latency: Buffer<Int32Type>,
    platform: Texts,
    failure: Texts,
    probability: Buffer<DoubleType>,
    config: Texts,
    request_id: Texts,
    device: Texts<FixedLenByteArrayType>,
    secret: Texts,
    ids: Texts,
    attributes: [Texts; ATTRIBUTES],
    asked: Texts,
    audiences: Audiences,
    experiments: Experiments,
    decisions: Decisions,
    query: Texts,
    body: Texts,
}

#[derive(Default)]
struct Audiences {
    name: Texts,
    generation: Buffer<Int64Type>,
    member: Texts,
    value: Buffer<Int32Type>,
}

#[derive(Default)]
struct Experiments {
    name: Texts,
    rule: Buffer<Int32Type>,
    bucket: Texts,
    layer_slot: Buffer<Int32Type>,
    bucket_slot: Buffer<Int32Type>,
}

#[derive(Default)]
struct Decisions {
    strategy: Texts,
    bid: Buffer<BoolType>,
    reason: Texts,
    shadow: Buffer<BoolType>,
    cap: Texts,
    scheduled: Buffer<BoolType>,
    numbers: [Buffer<DoubleType>; NUMBERS],
}

/// The place of a required and of an optional field of a list's element.
const fn places(index: u16) -> (At, At) {
    let repeated = index > 0;
    (At { defined: 1, repeated }, At { defined: 2, repeated })
}

impl GroupColumns {
    /// Rows that wait.
    pub(crate) const fn rows(&self) -> usize {
        self.rows
    }

    /// About how many bytes they take.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the row of a record, with the name of its device.
    pub(crate) fn push<'n>(&mut self, record: &[u8], name: impl Fn(&DeviceKey) -> Device<'n>) {
        self.rows += 1;
        self.bytes += record.len();
        let from = &mut Decoder::new(record);
        match from.byte() {
            0 => self.push_no_facts(),
            _ => self.push_facts(from, name),
        }
        self.time.push(from.i64());
        self.latency.push(from.u32().cast_signed());
        self.platform.push(from.text().expect("each row has a platform"));
        self.failure.push_at(At::ROW, from.text());
        self.probability.push(from.f64());
        self.config.push(from.text().expect("each row has a configuration"));
        self.query.push_at(At::ROW, from.text());
        self.body.push_at(At::ROW, from.text());
    }

    fn push_no_facts(&mut self) {
        self.request_id.push_at(At::ROW, None);
        self.device.push_at(At::ROW, None);
        for column in [&mut self.secret, &mut self.ids].into_iter().chain(&mut self.attributes) {
            column.push_at(At::ROW, None);
        }
        self.asked.push_empty(0);
        self.audiences.push_empty();
        self.experiments.push_empty();
        self.decisions.push_empty();
    }

    fn push_facts<'n>(&mut self, from: &mut Decoder<'_>, name: impl Fn(&DeviceKey) -> Device<'n>) {
        self.request_id.push_at(At::ROW, from.text());
        let device = from.device().map(|key| name(&key));
        self.device.push_at(At::ROW, device.as_ref().map(|device| device.hmac.as_slice()));
        self.secret.push_at(At::ROW, device.map(|device| device.secret.as_bytes()));
        self.ids.push_at(At::ROW, Some(from.ids().as_str().as_bytes()));
        for column in &mut self.attributes {
            column.push_at(At::ROW, from.text());
        }
        match from.list() {
            None => self.asked.push_empty(0),
            Some(0) => self.asked.push_empty(1),
            Some(count) => {
                for index in 0..count {
                    self.asked.push_at(places(index).1, from.text());
                }
            }
        }
        self.audiences.push(from);
        self.experiments.push(from);
        self.decisions.push(from);
    }

    /// Writes all rows and forgets them.
    pub(crate) fn write<W: std::io::Write + Send>(
        &mut self,
        mut to: SerializedRowGroupWriter<'_, W>,
    ) -> Result<()> {
        let Self {
            rows,
            bytes,
            time,
            latency,
            platform,
            failure,
            probability,
            config,
            request_id,
            device,
            secret,
            ids,
            attributes,
            asked,
            audiences,
            experiments,
            decisions,
            query,
            body,
        } = self;
        let first: [&mut dyn WriteColumn; 10] = [
            time,
            latency,
            platform,
            failure,
            probability,
            config,
            request_id,
            device,
            secret,
            ids,
        ];
        let all = first
            .into_iter()
            .chain(attributes.iter_mut().map(|column| column as &mut dyn WriteColumn))
            .chain([asked as &mut dyn WriteColumn])
            .chain(audiences.columns())
            .chain(experiments.columns())
            .chain(decisions.columns())
            .chain([query as &mut dyn WriteColumn, body]);
        for column in all {
            let writer = to.next_column()?.expect("a column of the schema");
            column.write(writer)?;
        }
        to.close()?;
        (*rows, *bytes) = (0, 0);
        Ok(())
    }
}

impl Audiences {
    fn push_empty(&mut self) {
        self.name.push_empty(0);
        self.generation.push_empty();
        self.member.push_empty(0);
        self.value.push_empty();
    }

    fn push(&mut self, from: &mut Decoder<'_>) {
        let count = from.list().unwrap_or(0);
        if count == 0 {
            self.push_empty();
        }
        for index in 0..count {
            let (required, optional) = places(index);
            self.name.push_at(required, from.text());
            self.member.push_at(required, Some(from.member().as_str().as_bytes()));
            self.value.push_at(optional, from.byte().checked_sub(1).map(i32::from));
            let generation = Some(from.u64()).filter(|generation| *generation > 0);
            self.generation.push_at(optional, generation.map(u64::cast_signed));
        }
    }

    fn columns(&mut self) -> [&mut dyn WriteColumn; 4] {
        [&mut self.name, &mut self.generation, &mut self.member, &mut self.value]
    }
}

impl Experiments {
    fn push_empty(&mut self) {
        self.name.push_empty(0);
        self.rule.push_empty();
        self.bucket.push_empty(0);
        self.layer_slot.push_empty();
        self.bucket_slot.push_empty();
    }

    fn push(&mut self, from: &mut Decoder<'_>) {
        let count = from.list().unwrap_or(0);
        if count == 0 {
            self.push_empty();
        }
        for index in 0..count {
            let (required, optional) = places(index);
            self.name.push_at(required, from.text());
            self.rule.push_at(required, Some(from.u32().cast_signed()));
            self.bucket.push_at(required, from.text());
            let has_slots = from.byte() != 0;
            for column in [&mut self.layer_slot, &mut self.bucket_slot] {
                column.push_at(optional, has_slots.then(|| from.u32().cast_signed()));
            }
        }
    }

    fn columns(&mut self) -> [&mut dyn WriteColumn; 5] {
        [
            &mut self.name,
            &mut self.rule,
            &mut self.bucket,
            &mut self.layer_slot,
            &mut self.bucket_slot,
        ]
    }
}

impl Decisions {
    fn push_empty(&mut self) {
        self.strategy.push_empty(0);
        self.bid.push_empty();
        self.reason.push_empty(0);
        self.shadow.push_empty();
        self.cap.push_empty(0);
        self.scheduled.push_empty();
        self.numbers.iter_mut().for_each(Buffer::push_empty);
    }

    fn push(&mut self, from: &mut Decoder<'_>) {
        let count = from.list().unwrap_or(0);
        if count == 0 {
            self.push_empty();
        }
        for index in 0..count {
            let (required, optional) = places(index);
            self.strategy.push_at(required, from.text());
            self.reason.push_at(required, from.text());
            let VerdictBits { bid, shadow, scheduled, cap } = from.verdict();
            self.bid.push_at(required, Some(bid));
            self.shadow.push_at(required, Some(shadow));
            self.cap.push_at(optional, cap.map(Cap::as_str).map(str::as_bytes));
            self.scheduled.push_at(optional, scheduled);
            for (column, number) in self.numbers.iter_mut().zip(from.numbers()) {
                column.push_at(optional, number);
            }
        }
    }

    fn columns(&mut self) -> impl Iterator<Item = &mut dyn WriteColumn> {
        let Self { strategy, bid, reason, shadow, cap, scheduled, numbers } = self;
        let first: [&mut dyn WriteColumn; 6] = [strategy, bid, reason, shadow, cap, scheduled];
        first.into_iter().chain(numbers.iter_mut().map(|column| column as &mut dyn WriteColumn))
    }
}
