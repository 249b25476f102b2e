//! A world of one seed: two days of jobs, pods and faults, then a time without faults, after which
//! everything must be right.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rtad_store::StoreError;
use tokio::task::LocalSet;

use crate::audience::{HOME, Ledger};
use crate::jobs::Job;
use crate::network::{Network, Weather};
use crate::pod::Pod;
use crate::process::{Machine, Process};
use crate::random::Random;
use crate::schedule::Schedule;
use crate::store::{Bucket, Client};
use crate::trace::Trace;

const MIRROR: &str = "mirror";
/// Time with faults: a gc removes what is older than a day.
const FAULTS: Duration = Duration::from_secs(40 * 3600);
/// Time without faults until the checks. After failures a poll is due in half an hour.
const CALM: Duration = Duration::from_secs(40 * 60);
const PODS: u64 = 3;

/// How a world went.
#[derive(Debug)]
pub struct Outcome {
    /// The invariant that was violated, if any, and how.
    pub violation: Option<String>,
    /// Of the trace.
    pub digest: u64,
    /// The trace, if it was kept.
    pub trace: String,
    /// Number of events; of steps of the windows.
    pub events: u64,
    /// Number of records of the audience; of answers of the windows.
    pub records: u64,
}

/// Runs the world of a seed.
pub fn run(seed: u64, keeps_trace: bool) -> Outcome {
    in_runtime(live(seed, keeps_trace))
}

/// Runs a world in a runtime of its own, whose clock moves only while it waits.
pub fn in_runtime(live: impl Future<Output = Outcome>) -> Outcome {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    // One thread for blocking work: it ends in the order in which it was begun.
    runtime
        .enable_time()
        .start_paused(true)
        .max_blocking_threads(1);
    let runtime = runtime.build().expect("a runtime");
    let local = LocalSet::new();
    runtime.block_on(local.run_until(live))
}

async fn live(seed: u64, keeps_trace: bool) -> Outcome {
    let world = Rc::new(World::new(seed, keeps_trace));
    world.start_jobs();
    for pod in &world.pods {
        pod.start(seed);
    }
    let chaos = tokio::task::spawn_local(Rc::clone(&world).disturb());
    let scaling = tokio::task::spawn_local(Rc::clone(&world).scale());
    let look = || world.look();
    let is_over = || world.ledger.look(|known| known.violation.is_some());
    world.schedule.run_until(FAULTS, look, is_over).await;
    chaos.abort();
    scaling.abort();

    // The newest record is found, without help of a further write.
    world.calm();
    world.end_jobs();
    world.run_last(Last::Mirror);
    let schedule = &world.schedule;
    schedule.run_until(FAULTS + CALM, look, is_over).await;
    world.check_end();

    world.run_last(Last::All);
    schedule.run_until(FAULTS + 2 * CALM, look, is_over).await;
    world.check_end();
    world.outcome().await
}

struct World {
    seed: u64,
    schedule: Arc<Schedule>,
    network: Arc<Network>,
    trace: Arc<Trace>,
    ledger: Arc<Ledger>,
    home: Arc<Bucket>,
    mirror: Arc<Bucket>,
    pods: Vec<Pod>,
    jobs: RefCell<Vec<RunningJob>>,
    /// Whether no pod is to run.
    is_scaled_down: Cell<bool>,
}

/// A job and its machine.
struct RunningJob {
    name: &'static str,
    machine: Rc<Machine>,
    process: Option<Process>,
    starts: u64,
}

/// Jobs that run without faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    /// A mirror.
    Mirror,
    /// A build, an append and a mirror.
    All,
}

/// The jobs of the world.
const JOBS: [&str; 5] = ["loader", "collector", "writer-1", "writer-2", "mirrorer"];

impl World {
    fn new(seed: u64, keeps_trace: bool) -> Self {
        let schedule = Schedule::new();
        let trace = Arc::new(Trace::new(keeps_trace));
        let network = Network::new(seed, &schedule, &trace);
        let ledger = Arc::new(Ledger::default());
        let mut random = Random::named(seed, "world");
        let home = Bucket::new(HOME, Arc::clone(&ledger) as _, skew(&mut random));
        let mirror = Bucket::new(MIRROR, Arc::clone(&ledger) as _, skew(&mut random));
        network.set_weather(weather(&mut random));

        let mut pods = Vec::new();
        for number in 1..=PODS {
            let name = format!("pod-{number}");
            let mut stores = vec![Client::new(&network, &home, &name)];
            // Pods of another region read its mirror first.
            if random.is_one_of(2) {
                stores.insert(0, Client::new(&network, &mirror, &name));
            }
            pods.push(Pod::new(
                &name,
                Machine::new(schedule.start, skew(&mut random)),
                stores,
                &mut random,
            ));
        }
        let jobs = JOBS.map(|name| RunningJob {
            name,
            machine: Machine::new(schedule.start, skew(&mut random)),
            process: None,
            starts: 0,
        });
        Self {
            seed,
            schedule,
            network,
            trace,
            ledger,
            home,
            mirror,
            pods,
            jobs: RefCell::new(jobs.into()),
            is_scaled_down: Cell::new(false),
        }
    }

    fn start_jobs(&self) {
        for index in 0..JOBS.len() {
            self.start_job(index);
        }
    }

    fn start_job(&self, index: usize) {
        let mut jobs = self.jobs.borrow_mut();
        let running = &mut jobs[index];
        running.starts += 1;
        let name = format!("{} start {}", running.name, running.starts);
        let random = Random::named(self.seed, &name);
        let job = self.job(running.name, &name);
        let process = match running.name {
            "loader" => Process::start(&running.machine, random, job.load()),
            "collector" => Process::start(&running.machine, random, job.collect_garbage()),
            "mirrorer" => {
                let source = Client::new(&self.network, &self.home, running.name);
                Process::start(&running.machine, random, job.mirror(source))
            }
            _ => Process::start(&running.machine, random, job.write()),
        };
        running.process = Some(process);
    }

    fn job(&self, actor: &str, name: &str) -> Job {
        let bucket = if actor == "mirrorer" {
            &self.mirror
        } else {
            &self.home
        };
        Job {
            client: Client::new(&self.network, bucket, actor),
            ledger: Arc::clone(&self.ledger),
            random: Random::named(self.seed, &format!("choices of {name}")),
            is_urgent: name.starts_with("last"),
        }
    }

    /// Looks at the world after each event.
    fn look(&self) {
        for pod in &self.pods {
            if let Err(wrong) = pod.check(&self.ledger) {
                self.ledger.violate(|| format!("{} {wrong}", pod.name));
            }
        }
    }

    fn say(&self, what: &str) {
        self.trace.add(self.schedule.now(), "world", what);
    }

    /// Disturbs the world, without end.
    async fn disturb(self: Rc<Self>) {
        let mut random = Random::named(self.seed, "disturbances");
        loop {
            sleep_seconds(random.between(60, 3 * 3600)).await;
            match random.below(10) {
                0..=2 => self.kill_pod(&mut random).await,
                3 | 4 => self.kill_job(&mut random).await,
                5 => self.pause_pod(&mut random).await,
                6 => self.pause_job(&mut random).await,
                7 => self.part(&mut random).await,
                8 => self.set_clock(&mut random),
                _ => {
                    self.say("other weather");
                    self.network.set_weather(weather(&mut random));
                }
            }
        }
    }

    /// Runs pods for some hours, and none for the rest of the day. An hour of a pod takes as long
    /// to simulate as a day of the jobs.
    async fn scale(self: Rc<Self>) {
        let mut random = Random::named(self.seed, "scaling");
        loop {
            sleep_seconds(random.between(900, 2 * 3600)).await;
            self.say("ends all pods");
            self.is_scaled_down.set(true);
            for pod in &self.pods {
                pod.kill(false);
            }
            sleep_seconds(random.between(3 * 3600, 12 * 3600)).await;
            self.say("starts all pods");
            self.is_scaled_down.set(false);
            for pod in &self.pods {
                pod.start(self.seed);
            }
        }
    }

    async fn kill_pod(&self, random: &mut Random) {
        let pod = random.pick(&self.pods);
        let loses_disk = random.is_one_of(4);
        let disk = if loses_disk { ", with its disk" } else { "" };
        self.say(&format!("kills {}{disk}", pod.name));
        pod.kill(loses_disk);
        sleep_seconds(random.between(1, 1800)).await;
        if !self.is_scaled_down.get() {
            self.say(&format!("starts {}", pod.name));
            pod.start(self.seed);
        }
    }

    async fn kill_job(&self, random: &mut Random) {
        let index = random.below(JOBS.len() as u64) as usize;
        self.say(&format!("kills {}", JOBS[index]));
        self.jobs.borrow_mut()[index].process = None;
        sleep_seconds(random.between(1, 1800)).await;
        self.start_job(index);
    }

    async fn pause_pod(&self, random: &mut Random) {
        let pod = random.pick(&self.pods);
        let seconds = random.between(1, 1800);
        self.say(&format!("stops {} for {seconds} s", pod.name));
        if let Some(process) = &*pod.process() {
            process.pause();
        }
        sleep_seconds(seconds).await;
        if let Some(process) = &*pod.process() {
            process.resume();
        }
    }

    async fn pause_job(&self, random: &mut Random) {
        let index = random.below(JOBS.len() as u64) as usize;
        let seconds = random.between(1, 1800);
        self.say(&format!("stops {} for {seconds} s", JOBS[index]));
        if let Some(process) = &self.jobs.borrow()[index].process {
            process.pause();
        }
        sleep_seconds(seconds).await;
        if let Some(process) = &self.jobs.borrow()[index].process {
            process.resume();
        }
    }

    /// Parts some processes from a bucket for a while: a region that is away.
    async fn part(&self, random: &mut Random) {
        let bucket = *random.pick(&[HOME, MIRROR]);
        let seconds = random.between(10, 3 * 3600);
        let mut parted = Vec::new();
        for pod in &self.pods {
            if random.is_one_of(2) {
                parted.push(pod.name.clone());
            }
        }
        for job in JOBS {
            if random.is_one_of(3) {
                parted.push(job.to_owned());
            }
        }
        self.say(&format!(
            "parts {} from {bucket} for {seconds} s",
            parted.join(", ")
        ));
        for actor in parted {
            self.network.part(&actor, bucket);
        }
        sleep_seconds(seconds).await;
        self.say("joins all");
        self.network.join_all();
    }

    fn set_clock(&self, random: &mut Random) {
        let jobs = self.jobs.borrow();
        let ahead = skew(random);
        let index = random.below((self.pods.len() + jobs.len()) as u64) as usize;
        let (name, machine) = match self.pods.get(index) {
            Some(pod) => (pod.name.as_str(), pod.machine()),
            None => {
                let job = &jobs[index - self.pods.len()];
                (job.name, &*job.machine)
            }
        };
        self.say(&format!("sets the clock of {name} {ahead} ms ahead"));
        machine.set_ahead(ahead);
    }

    /// Ends all faults.
    fn calm(&self) {
        self.say("ends all faults");
        self.network.set_weather(Weather::default());
        self.network.join_all();
        for pod in &self.pods {
            let is_running = pod.process().is_some();
            if !is_running {
                pod.start(self.seed);
            }
            if let Some(process) = &*pod.process() {
                process.resume();
            }
        }
    }

    fn end_jobs(&self) {
        for job in &mut *self.jobs.borrow_mut() {
            job.process = None;
        }
    }

    /// Starts the last jobs, which must succeed.
    fn run_last(self: &Rc<Self>, last: Last) {
        let world = Rc::clone(self);
        let machine = Machine::new(self.schedule.start, 0);
        let random = Random::named(self.seed, &format!("{last:?}"));
        let jobs = async move { world.end_well(last).await };
        let process = Process::start(&machine, random, jobs);
        self.jobs.borrow_mut()[0].process = Some(process);
    }

    async fn end_well(&self, last: Last) {
        if last == Last::All {
            let built = self.job("loader", "last build").build_at_last().await;
            self.check_last("a build", built);
            let enabled = self.job("loader", "last state").enable().await;
            self.check_last("a change of the state", enabled);
            if !self.job("writer-1", "last append").append_at_last().await {
                let failed = || "without faults, an append failed".to_owned();
                self.ledger.violate(failed);
            }
        }
        // Nothing to copy before the first publish.
        if self.ledger.look(|known| known.history.newest()) > 0 {
            let source = Client::new(&self.network, &self.home, "mirrorer");
            let mirror = self.job("mirrorer", "last mirror");
            self.check_last("a mirror", mirror.mirror_at_last(source).await);
        }
    }

    fn check_last(&self, what: &str, result: Result<(), StoreError>) {
        if let Err(error) = result {
            self.ledger
                .violate(|| format!("without faults, {what} failed: {error}"));
        }
    }

    /// Everything is right at the end.
    fn check_end(&self) {
        if !self.jobs.borrow()[0]
            .process
            .as_ref()
            .is_some_and(Process::has_ended)
        {
            self.ledger
                .violate(|| "without faults, the last jobs do not end".to_owned());
        }
        for pod in &self.pods {
            if let Err(wrong) = pod.check_newest(&self.ledger) {
                self.ledger
                    .violate(|| format!("without faults, {} {wrong}", pod.name));
            }
        }
    }

    async fn outcome(&self) -> Outcome {
        let (violation, records) = self
            .ledger
            .look(|known| (known.violation.clone(), known.history.newest()));
        Outcome {
            violation,
            digest: self.trace.digest(),
            trace: self.trace.text(),
            events: self.schedule.happened(),
            records,
        }
    }
}

pub async fn sleep_seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// How far a clock is ahead, in milliseconds: up to ten minutes.
pub fn skew(random: &mut Random) -> i64 {
    if random.is_one_of(2) {
        return 0;
    }
    random.below(1_200_000) as i64 - 600_000
}

/// The weather of some hours.
pub fn weather(random: &mut Random) -> Weather {
    let mut some = |most: u64| {
        if random.is_one_of(2) {
            0
        } else {
            random.below(most)
        }
    };
    Weather {
        lost: some(100),
        unanswered: some(100),
        late: some(60),
        repeated: some(60),
        cut: some(60),
        slow: some(100),
    }
}
