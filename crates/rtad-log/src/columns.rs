//! Rows to columns, in the order of the schema.

use parquet::data_type::{
    BoolType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, Int32Type, Int64Type,
};
use parquet::errors::Result;
use parquet::file::writer::SerializedRowGroupWriter;

use crate::buffer::{At, Buffer, Texts, WriteColumn};
use crate::row::{
    ATTRIBUTES, AudienceFact, Cap, DecisionFact, ExperimentFact, Ids, LogRow, LoggedFacts, NUMBERS,
    Raw,
};

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
    device: Buffer<FixedLenByteArrayType>,
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
fn places(index: usize) -> (At, At) {
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

    /// Adds a row, whose encoding has `size` bytes.
    pub(crate) fn push(&mut self, row: &LogRow<'_>, size: usize) {
        self.rows += 1;
        self.bytes += size;
        self.time.push(row.time);
        self.latency.push(row.latency.cast_signed());
        self.platform.push(row.platform.as_bytes());
        self.failure.push_at(At::ROW, row.failure.map(str::as_bytes));
        self.probability.push(row.probability);
        self.config.push(row.config.as_bytes());
        let nothing = LoggedFacts::default();
        let facts = row.facts.as_ref().unwrap_or(&nothing);
        let optional = |text: Option<&'static str>| text.map(str::as_bytes);
        self.request_id.push_at(At::ROW, facts.request_id.map(str::as_bytes));
        let device = facts.device.map(|device| FixedLenByteArray::from(device.hmac.to_vec()));
        self.device.push_at(At::ROW, device);
        self.secret.push_at(At::ROW, facts.device.map(|device| device.secret.as_bytes()));
        self.ids
            .push_at(At::ROW, optional(row.facts.as_ref().map(|facts| facts.ids).map(Ids::as_str)));
        for (column, text) in self.attributes.iter_mut().zip(facts.attributes) {
            column.push_at(At::ROW, text.map(str::as_bytes));
        }
        match &facts.asked {
            None => self.asked.push_empty(0),
            Some(asked) if asked.is_empty() => self.asked.push_empty(1),
            Some(asked) => {
                for (index, id) in asked.iter().enumerate() {
                    self.asked.push_at(places(index).1, Some(id.as_bytes()));
                }
            }
        }
        self.audiences.push(&facts.audiences);
        self.experiments.push(&facts.experiments);
        self.decisions.push(&facts.decisions);
        let Raw { query, body } = row.raw.unwrap_or(Raw { query: None, body: b"" });
        self.query.push_at(At::ROW, query.map(str::as_bytes));
        self.body.push_at(At::ROW, row.raw.map(|_| body));
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
    fn push(&mut self, facts: &[AudienceFact<'_>]) {
        if facts.is_empty() {
            self.name.push_empty(0);
            self.generation.push_empty();
            self.member.push_empty(0);
            self.value.push_empty();
        }
        for (index, fact) in facts.iter().enumerate() {
            let (required, optional) = places(index);
            self.name.push_at(required, Some(fact.name.as_bytes()));
            self.generation.push_at(optional, fact.generation.map(u64::cast_signed));
            self.member.push_at(required, Some(fact.member.as_str().as_bytes()));
            self.value.push_at(optional, fact.value.map(i32::from));
        }
    }

    fn columns(&mut self) -> [&mut dyn WriteColumn; 4] {
        [&mut self.name, &mut self.generation, &mut self.member, &mut self.value]
    }
}

impl Experiments {
    fn push(&mut self, facts: &[ExperimentFact<'_>]) {
        if facts.is_empty() {
            self.name.push_empty(0);
            self.rule.push_empty();
            self.bucket.push_empty(0);
            self.layer_slot.push_empty();
            self.bucket_slot.push_empty();
        }
        for (index, fact) in facts.iter().enumerate() {
            let (required, optional) = places(index);
            self.name.push_at(required, Some(fact.name.as_bytes()));
            self.rule.push_at(required, Some(fact.rule.cast_signed()));
            self.bucket.push_at(required, Some(fact.bucket.as_bytes()));
            let [layer, bucket] = [0, 1].map(|slot| fact.slots.map(|slots| slots[slot]));
            self.layer_slot.push_at(optional, layer.map(u32::cast_signed));
            self.bucket_slot.push_at(optional, bucket.map(u32::cast_signed));
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
    fn push(&mut self, facts: &[DecisionFact<'_>]) {
        if facts.is_empty() {
            self.strategy.push_empty(0);
            self.bid.push_empty();
            self.reason.push_empty(0);
            self.shadow.push_empty();
            self.cap.push_empty(0);
            self.scheduled.push_empty();
            self.numbers.iter_mut().for_each(Buffer::push_empty);
        }
        for (index, fact) in facts.iter().enumerate() {
            let (required, optional) = places(index);
            self.strategy.push_at(required, Some(fact.strategy.as_bytes()));
            self.bid.push_at(required, Some(fact.bid));
            self.reason.push_at(required, Some(fact.reason.as_bytes()));
            self.shadow.push_at(required, Some(fact.shadow));
            self.cap.push_at(optional, fact.cap.map(Cap::as_str).map(str::as_bytes));
            self.scheduled.push_at(optional, fact.scheduled);
            for (column, number) in self.numbers.iter_mut().zip(fact.numbers) {
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
