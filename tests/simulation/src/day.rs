//! A day of a fleet, without faults but those of its plan: pods of three regions over a bucket and
//! its mirrors, a nightly list, appends, erasures, a list of the wrong people, a region that is
//! lost for an hour. What is measured of it is for [`report`](crate::report).
//!
//! The day begins after [`LEAD`], in which the fleet starts. Hours of a shorter day are shorter.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rtad::catalog::{Catalog, Serving};
use rtad::sync::SwapMode;
use rtad_core::device::DeviceKey;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{BuiltChunk, GenerationFacts, ManifestBuilder, chunk_runs};
use rtad_store::write::{Change, Ledger, MIN_AGE, Retention, StoreWriter};
use rtad_store::{Store, StoreError};
use tokio::task::LocalSet;

use crate::audience::{AUDIENCE, HOME, audience};
use crate::meter::Meter;
use crate::network::{Distance, Network};
use crate::pod;
use crate::process::{Machine, Process};
use crate::random::Random;
use crate::schedule::Schedule;
use crate::store::{Bucket, Client, Objects, Watch, Work};
use crate::trace::Trace;

/// Time before the day.
pub const LEAD: Duration = Duration::from_secs(600);
/// Chunks of a list. Each event of a world takes a millisecond: more chunks would slow the others
/// down.
pub const CHUNKS: u32 = 16;
/// Time of a build of 1.5 billion ids, as measured: see the page of performance.
pub const BUILD: Duration = Duration::from_secs(174);
/// Pods that try a list first, of a million.
pub const STAGE: u32 = 50_000;
/// Devices of the model. Two fifths of them are members at first.
const DEVICES: u32 = 8_000;
/// Devices that ask.
const ASKING: u32 = 200;
/// One in so many members leaves the list in a night, and as many others join it.
const CHURN: u64 = 10;
/// Attempts of a job.
const ATTEMPTS: u32 = 6;

/// A region of the fleet.
pub struct Region {
    pub name: &'static str,
    /// Its bucket: the one that is written to, or a mirror.
    pub bucket: &'static str,
    /// Requests per second at the busiest time.
    pub peak: f64,
}

/// The regions. The first one writes.
pub const REGIONS: [Region; 3] = [
    Region {
        name: "north",
        bucket: HOME,
        peak: 1_200_000.0,
    },
    Region {
        name: "south",
        bucket: "mirror-south",
        peak: 1_000_000.0,
    },
    Region {
        name: "west",
        bucket: "mirror-west",
        peak: 800_000.0,
    },
];

/// Index of the region that is lost.
const LOST: usize = 1;
/// Within a region: 1 to 5 ms for a request and its answer.
pub const NEAR: Distance = Distance { least: 1, most: 3 };
/// Between regions: 31 to 45 ms.
pub const FAR: Distance = Distance {
    least: 16,
    most: 23,
};

/// Requests in each hour, as a share of those of the busiest one.
pub const DEMAND: [f64; 24] = [
    0.55, 0.40, 0.30, 0.24, 0.22, 0.25, 0.35, 0.48, 0.58, 0.64, 0.70, 0.76, 0.82, 0.80, 0.76, 0.76,
    0.78, 0.82, 0.88, 0.95, 1.00, 0.98, 0.88, 0.72,
];

/// Size and length of a day.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub seed: u64,
    /// In all regions.
    pub pods: u64,
    pub length: Duration,
    pub poll_interval: Duration,
}

impl Plan {
    /// Time of the world at an hour of the day.
    fn at(&self, hour: f64) -> Duration {
        LEAD + self.length.mul_f64(hour / 24.0)
    }

    /// The share of the busiest hour's requests, at a time of the day.
    pub fn demand(&self, time: Duration) -> f64 {
        let hour = time.as_secs_f64() / self.length.as_secs_f64() * 24.0;
        let before = DEMAND[hour as usize % 24];
        let after = DEMAND[(hour as usize + 1) % 24];
        before + (after - before) * hour.fract()
    }
}

/// An event of the day, for the report.
pub struct Event {
    pub at: Duration,
    pub what: String,
}

/// A record, and when all pods of each region had it.
pub struct Record {
    pub at: Duration,
    pub seen_at: [Option<Duration>; REGIONS.len()],
}

/// Pods of a generation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Group {
    pub pods: u64,
    /// Sum of the shares of devices that each of them bids on.
    pub bid_shares: f64,
}

/// The fleet at the end of a minute.
#[derive(Default)]
pub struct Minute {
    /// Requests per second of each region.
    pub requests: [f64; REGIONS.len()],
    /// Bids per second of each region.
    pub bids: [f64; REGIONS.len()],
    /// By generation; 0 is none.
    pub generations: BTreeMap<u64, Group>,
    /// Age of the oldest record that a pod of each region lacked, at most, in seconds.
    pub lag: [u64; REGIONS.len()],
}

/// A day, as it was.
pub struct Measured {
    pub plan: Plan,
    pub events: Vec<Event>,
    pub minutes: Vec<Minute>,
    pub records: Vec<Record>,
    pub meters: Vec<Arc<Meter>>,
}

/// Runs a day.
pub fn run(plan: Plan) -> Measured {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    // One thread for blocking work: it ends in the order in which it was begun.
    runtime
        .enable_time()
        .start_paused(true)
        .max_blocking_threads(1);
    let runtime = runtime.build().expect("a runtime");
    let local = LocalSet::new();
    runtime.block_on(local.run_until(live(plan)))
}

async fn live(plan: Plan) -> Measured {
    let day = Rc::new(Day::new(plan));
    let jobs = day.start_jobs();
    let schedule = &day.schedule;
    let start_pods = LEAD / 2;
    schedule.run_until(start_pods, || {}, || false).await;
    let pods = day.start_pods();
    schedule.run_until(LEAD, || {}, || false).await;

    let observer = tokio::task::spawn_local(Rc::clone(&day).observe(pods));
    let outage = tokio::task::spawn_local(Rc::clone(&day).lose_region());
    let end = LEAD + plan.length;
    // The last second belongs to the day.
    let tail = Duration::from_millis(500);
    schedule.run_until(end + tail, || {}, || false).await;
    outage.abort();
    drop(jobs);
    let minutes = observer.await.expect("an observer that ends");
    day.measured(minutes)
}

/// When records were created in the bucket that is written to.
struct Records {
    schedule: Arc<Schedule>,
    records: Mutex<Vec<Record>>,
}

impl Watch for Records {
    fn written(&self, bucket: &Objects, path: &str, _: &Bytes, _: &str, _: Option<Work>) {
        if bucket.name == HOME && path.starts_with(&format!("{AUDIENCE}/records/0")) {
            self.records.lock().push(Record {
                at: self.schedule.now(),
                seen_at: [None; REGIONS.len()],
            });
        }
    }

    fn removed(&self, _: &Objects, _: &str, _: &str) {}
}

/// A pod, and what was last seen of it.
struct WatchedPod {
    region: usize,
    serving: Arc<Serving>,
    seen: Option<Seen>,
    _process: Process,
}

/// The answers of a pod.
struct Seen {
    catalog: Arc<Catalog>,
    record: u64,
    generation: u64,
    /// Share of the devices that ask.
    bid_share: f64,
}

impl WatchedPod {
    /// Looks at the pod, and asks for all devices if its answers may be others.
    fn look(&mut self, asking: &[DeviceKey]) -> &Seen {
        let catalog = self.serving.load_full();
        let is_known = |seen: &Seen| Arc::ptr_eq(&seen.catalog, &catalog);
        if !self.seen.as_ref().is_some_and(is_known) {
            self.seen = None;
        }
        self.seen.get_or_insert_with(|| {
            let mut seen = Seen {
                catalog: Arc::clone(&catalog),
                record: 0,
                generation: 0,
                bid_share: 0.0,
            };
            if let Some(snapshot) = catalog.audiences()[0].available() {
                let bids = asking.iter().filter(|key| !snapshot.contains(key)).count();
                seen.record = snapshot.overlay().sequence();
                seen.generation = snapshot.manifest().generation();
                seen.bid_share = bids as f64 / asking.len() as f64;
            }
            seen
        })
    }
}

/// The people of a list.
#[derive(Clone, Copy)]
enum List {
    /// Those of the model.
    First,
    /// Those of the model, after a night.
    Nightly,
    /// People who never ask.
    Strangers,
}

/// Work of the loader.
#[derive(Clone, Copy)]
enum Step {
    Build(List),
    Promote,
    DropStage,
    Collect,
}

/// The world of a day.
struct Day {
    plan: Plan,
    schedule: Arc<Schedule>,
    network: Arc<Network>,
    records: Arc<Records>,
    buckets: Vec<Arc<Bucket>>,
    meters: RefCell<Vec<Arc<Meter>>>,
    events: RefCell<Vec<Event>>,
    /// Numbers of the devices on the list.
    members: RefCell<BTreeSet<u32>>,
}

impl Day {
    fn new(plan: Plan) -> Self {
        let schedule = Schedule::new();
        let trace = Arc::new(Trace::new(false));
        let records = Arc::new(Records {
            schedule: Arc::clone(&schedule),
            records: Mutex::default(),
        });
        let mut buckets = Vec::new();
        for region in &REGIONS {
            buckets.push(Bucket::new(region.bucket, Arc::clone(&records) as _, 0));
        }
        Self {
            plan,
            network: Network::new(plan.seed, &schedule, &trace),
            schedule,
            records,
            buckets,
            meters: RefCell::default(),
            events: RefCell::default(),
            members: RefCell::new((0..DEVICES).filter(|number| number % 5 < 2).collect()),
        }
    }

    fn say(&self, what: String) {
        if let Some(at) = self.schedule.now().checked_sub(LEAD) {
            self.events.borrow_mut().push(Event { at, what });
        }
    }

    async fn sleep_until(&self, hour: f64) {
        tokio::time::sleep_until(self.schedule.start + self.plan.at(hour)).await;
    }

    fn meter(&self, clients: &str, from: usize, to: usize) -> Arc<Meter> {
        let clients = format!("{clients} of {}", REGIONS[from].name);
        let meter = Arc::new(Meter::new(REGIONS[to].bucket, clients, from == to));
        self.meters.borrow_mut().push(Arc::clone(&meter));
        meter
    }

    fn client(&self, actor: &str, to: usize, meter: &Arc<Meter>) -> Client {
        let distance = if meter.is_near { NEAR } else { FAR };
        Client::new(&self.network, &self.buckets[to], actor).with_meter(distance, meter)
    }

    fn start(&self, name: &str, work: impl Future<Output = ()> + 'static) -> Process {
        let machine = Machine::new(self.schedule.start, 0);
        Process::start(&machine, Random::named(self.plan.seed, name), work)
    }

    fn start_pods(&self) -> Vec<WatchedPod> {
        let mut pods = Vec::new();
        for (region, of) in REGIONS.iter().enumerate() {
            let near = self.meter("pods", region, region);
            let far = (region > 0).then(|| self.meter("pods", region, 0));
            let count = self.plan.pods / REGIONS.len() as u64;
            for number in 1..=count {
                let name = format!("{}-pod-{number:03}", of.name);
                let mut stores = vec![self.client(&name, region, &near)];
                if let Some(far) = &far {
                    stores.push(self.client(&name, 0, far));
                }
                let sync = pod::syncer(&name, &stores, self.plan.poll_interval, SwapMode::Whole);
                pods.push(WatchedPod {
                    region,
                    serving: sync.serving(),
                    seen: None,
                    _process: self.start(&name, pod::run(sync)),
                });
            }
        }
        pods
    }

    fn start_jobs(self: &Rc<Self>) -> Vec<Process> {
        let loader = self.client("loader", 0, &self.meter("the loader", 0, 0));
        let writer = self.client("writer", 0, &self.meter("the writer", 0, 0));
        let mut jobs = vec![
            self.start("loader", Rc::clone(self).load(writer_of(&loader))),
            self.start("writer", Rc::clone(self).write(writer_of(&writer))),
        ];
        for (region, of) in REGIONS.iter().enumerate().skip(1) {
            let source = self.client(of.bucket, 0, &self.meter("the mirror", region, 0));
            let target = self.client(of.bucket, region, &self.meter("the mirror", region, region));
            let mirror = mirror(writer_of(&target), store_of(&source));
            jobs.push(self.start(of.bucket, mirror));
        }
        jobs
    }

    /// The loader and its operator.
    async fn load(self: Rc<Self>, writer: StoreWriter) {
        self.run_step(&writer, Step::Build(List::First)).await;
        self.sleep_until(2.0).await;
        self.run_step(&writer, Step::Build(List::Nightly)).await;
        self.sleep_until(3.0).await;
        self.run_step(&writer, Step::Promote).await;
        self.sleep_until(5.0).await;
        self.run_step(&writer, Step::Collect).await;

        self.sleep_until(14.0).await;
        self.run_step(&writer, Step::Build(List::Strangers)).await;
        self.sleep_until(15.0).await;
        self.run_step(&writer, Step::DropStage).await;
    }

    async fn run_step(&self, writer: &StoreWriter, step: Step) {
        for _ in 0..ATTEMPTS {
            match self.try_step(writer, step).await {
                Ok(what) => return self.say(what),
                Err(error) => self.say(format!("a job of the loader failed: {error}")),
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    }

    async fn try_step(&self, writer: &StoreWriter, step: Step) -> Result<String, StoreError> {
        match step {
            Step::Build(list) => self.build(writer, list).await,
            Step::Promote => {
                let base = writer.base(&audience()).await?;
                let generation = writer.promote(&base, None).await?.generation;
                Ok(format!("generation {generation} was promoted to all pods"))
            }
            Step::DropStage => {
                let base = writer.base(&audience()).await?;
                let generation = writer.drop_stage(&base).await?.generation;
                Ok(format!(
                    "the stage was rolled back: all pods go on with generation {generation}"
                ))
            }
            Step::Collect => {
                let retention = Retention {
                    keep: 3,
                    min_age: MIN_AGE,
                };
                writer.collect(&audience(), retention, false).await?;
                Ok("the loader's gc ran".to_owned())
            }
        }
    }

    async fn build(&self, writer: &StoreWriter, list: List) -> Result<String, StoreError> {
        let base = writer.base(&audience()).await?;
        let facts = GenerationFacts {
            folded: base.folded(),
            ..GenerationFacts::default()
        };
        let keys = self.keys(list);
        let publication = writer.publish(base).await?;
        let spec = FilterSpec::for_fpr(FilterKind::Block512, 1e-4).expect("a rate");
        let mut builder = ManifestBuilder::new(spec, 1e-4);
        for run in chunk_runs(&keys, (1 << 16) / CHUNKS) {
            let chunk = BuiltChunk::build(&spec, run);
            builder.add(&chunk);
            publication.put_chunk(chunk).await?;
        }
        let manifest = builder.finish(audience(), facts).expect("a manifest");

        let what = match list {
            List::First => {
                let published = publication.commit(manifest).await?;
                let generation = published.current.generation;
                return Ok(format!("generation {generation} was published"));
            }
            List::Nightly => "the nightly list",
            List::Strangers => "a list of the wrong people",
        };
        tokio::time::sleep(BUILD).await;
        let published = publication.commit_staged(manifest, STAGE).await?;
        let generation = published.current.highest_generation();
        let percent = STAGE / 10_000;
        Ok(format!(
            "{what} was staged as generation {generation}, for {percent} % of the pods"
        ))
    }

    /// The keys of a list, sorted.
    fn keys(&self, list: List) -> Vec<DeviceKey> {
        let mut members = self.members.borrow_mut();
        if matches!(list, List::Nightly) {
            let mut random = Random::named(self.plan.seed, "the night");
            for number in 0..DEVICES {
                let is_member = members.contains(&number);
                if is_member && random.is_one_of(CHURN) {
                    members.remove(&number);
                } else if !is_member && random.is_one_of(CHURN * 3 / 2) {
                    members.insert(number);
                }
            }
        }
        let is_of_strangers = matches!(list, List::Strangers);
        let first = if is_of_strangers { DEVICES } else { 0 };
        let mut keys: Vec<DeviceKey> = members.iter().map(|number| key(first + number)).collect();
        keys.sort_unstable();
        keys
    }

    /// Online writes: registrations, and erasures now and then.
    async fn write(self: Rc<Self>, writer: StoreWriter) {
        let mut random = Random::named(self.plan.seed, "registrations");
        let mut ledger = None;
        loop {
            tokio::time::sleep(Duration::from_secs(random.between(120, 360))).await;
            let mut numbers = Vec::new();
            for _ in 0..random.between(1, 3) {
                numbers.push(random.below(u64::from(DEVICES)) as u32);
            }
            let is_erasure = random.is_one_of(6);
            for _ in 0..ATTEMPTS {
                match append(&writer, &mut ledger, &numbers, is_erasure).await {
                    Ok(()) => break,
                    Err(error) => self.say(format!("an append failed: {error}")),
                }
                ledger = None;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let mut members = self.members.borrow_mut();
            for number in numbers {
                if is_erasure {
                    members.remove(&number);
                } else {
                    members.insert(number);
                }
            }
        }
    }

    /// Parts the pods and the mirror of a region from all buckets for an hour.
    async fn lose_region(self: Rc<Self>) {
        let lost = &REGIONS[LOST];
        self.sleep_until(17.0).await;
        self.say(format!(
            "region {} lost its mirror and its link to the others",
            lost.name
        ));
        let mut parted = vec![lost.bucket.to_owned()];
        for number in 1..=self.plan.pods {
            parted.push(format!("{}-pod-{number:03}", lost.name));
        }
        for actor in parted {
            self.network.part(&actor, HOME);
            self.network.part(&actor, lost.bucket);
        }
        self.sleep_until(18.0).await;
        self.say(format!("region {} is back", lost.name));
        self.network.join_all();
    }

    /// Looks at all pods every second of the day.
    async fn observe(self: Rc<Self>, mut pods: Vec<WatchedPod>) -> Vec<Minute> {
        let asking: Vec<DeviceKey> = (0..ASKING).map(key).collect();
        let mut minutes = Vec::new();
        let mut lag = [0; REGIONS.len()];
        for second in 1..=self.plan.length.as_secs() {
            let time = Duration::from_secs(second);
            tokio::time::sleep_until(self.schedule.start + LEAD + time).await;
            let mut oldest = [u64::MAX; REGIONS.len()];
            for pod in &mut pods {
                let region = pod.region;
                oldest[region] = oldest[region].min(pod.look(&asking).record);
            }
            for (region, record) in oldest.into_iter().enumerate() {
                let age = self.note_record(region, record);
                lag[region] = lag[region].max(age.as_secs());
            }
            if second % 60 == 0 {
                let mut minute = self.minute(&pods, time);
                minute.lag = std::mem::take(&mut lag);
                minutes.push(minute);
            }
        }
        minutes
    }

    /// Notes that all pods of a region have a record. Returns the age of the next one.
    fn note_record(&self, region: usize, record: u64) -> Duration {
        let now = self.schedule.now();
        let mut records = self.records.records.lock();
        let had = record as usize;
        for seen in records.iter_mut().take(had).rev() {
            if seen.seen_at[region].is_some() {
                break;
            }
            seen.seen_at[region] = Some(now);
        }
        let next = records.get(had);
        next.map_or(Duration::ZERO, |next| now - next.at)
    }

    fn minute(&self, pods: &[WatchedPod], time: Duration) -> Minute {
        let mut minute = Minute::default();
        let mut bid_shares = [0.0; REGIONS.len()];
        for pod in pods {
            let Some(seen) = &pod.seen else { continue };
            bid_shares[pod.region] += seen.bid_share;
            let group = minute.generations.entry(seen.generation).or_default();
            group.pods += 1;
            group.bid_shares += seen.bid_share;
        }
        let pods_of_region = (self.plan.pods / REGIONS.len() as u64) as f64;
        for (region, of) in REGIONS.iter().enumerate() {
            minute.requests[region] = of.peak * self.plan.demand(time);
            minute.bids[region] = minute.requests[region] * bid_shares[region] / pods_of_region;
        }
        minute
    }

    /// Measurements, in times of the day.
    fn measured(&self, minutes: Vec<Minute>) -> Measured {
        let mut records = Vec::new();
        for record in self.records.records.lock().drain(..) {
            let Some(at) = record.at.checked_sub(LEAD) else {
                continue;
            };
            let seen_at = record.seen_at.map(|seen_at| seen_at.map(|at| at - LEAD));
            records.push(Record { at, seen_at });
        }
        Measured {
            plan: self.plan,
            events: self.events.take(),
            minutes,
            records,
            meters: self.meters.take(),
        }
    }
}

/// The key of a device of the model, or of a stranger.
fn key(number: u32) -> DeviceKey {
    let mut random = Random::named(0, &format!("device {number}"));
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&random.number().to_be_bytes());
    bytes[8..].copy_from_slice(&random.number().to_be_bytes());
    DeviceKey::from_bytes(bytes)
}

fn store_of(client: &Client) -> Store {
    Store::over(Arc::new(client.clone()), client.bucket.name)
}

fn writer_of(client: &Client) -> StoreWriter {
    StoreWriter::new(store_of(client)).expect("a writable store")
}

async fn append(
    writer: &StoreWriter,
    ledger: &mut Option<Ledger>,
    numbers: &[u32],
    is_erasure: bool,
) -> Result<(), StoreError> {
    let ledger = match ledger {
        Some(ledger) => ledger,
        None => ledger.insert(writer.ledger(&audience()).await?),
    };
    // The loader has written meanwhile.
    ledger.refresh().await?;
    let mut change = Change::default();
    for number in numbers {
        if is_erasure {
            change.entomb(key(*number));
        } else {
            change.add(key(*number));
        }
    }
    ledger.append(change).await.map(drop)
}

/// Copies the audience every minute. What fails is tried again in the next one.
async fn mirror(writer: StoreWriter, source: Store) {
    loop {
        let _ = writer.mirror_from(&source, &audience()).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
}
