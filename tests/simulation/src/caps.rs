//! A world of a cap: pods that share it run around the ends of some periods, with faults. Then a
//! period without faults begins, of which all must be used.

mod ledger;
mod pod;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rtad::config::CapConfig;
use rtad_core::period::{Calendar, Period, PeriodUnit};

use self::ledger::{CAP, CapLedger, wall};
use self::pod::{CapPod, Order};
use crate::network::{Network, Weather};
use crate::process::Machine;
use crate::random::Random;
use crate::schedule::Schedule;
use crate::store::Bucket;
use crate::trace::Trace;
use crate::world::{Outcome, in_runtime, skew, sleep_seconds, weather};

const BUCKET: &str = "caps";
const PODS: u64 = 4;
/// Ends of periods with faults.
const ENDS: u64 = 2;
/// Time without faults before the last period.
const LULL: Duration = Duration::from_secs(60);
/// A period's first blocks are there by then.
const FIRST_BLOCKS: Duration = Duration::from_secs(60);
/// Time after which a cap is used up that somebody asks for: pods that wait read every ten seconds.
const USE: Duration = Duration::from_secs(270);
/// Requests of a pod in a minute that use up a cap.
const FULL_DEMAND: u64 = 600;

/// Runs the world of a seed.
pub fn run(seed: u64, keeps_trace: bool) -> Outcome {
    in_runtime(live(seed, keeps_trace))
}

async fn live(seed: u64, keeps_trace: bool) -> Outcome {
    let world = Rc::new(World::new(seed, keeps_trace));
    for number in 1..=ENDS {
        if !world.ledger.is_violated() {
            world.pass_end(number).await;
        }
    }
    if !world.ledger.is_violated() {
        world.use_up().await;
    }
    Outcome {
        violation: world.ledger.violation(),
        digest: world.trace.digest(),
        trace: world.trace.text(),
        events: world.schedule.happened(),
        records: world.ledger.records(),
    }
}

struct World {
    seed: u64,
    schedule: Arc<Schedule>,
    network: Arc<Network>,
    trace: Arc<Trace>,
    ledger: Arc<CapLedger>,
    calendar: Calendar,
    pods: Vec<CapPod>,
    /// The configuration of processes that start.
    config: RefCell<CapConfig>,
    /// Requests of a busy pod in a minute.
    demand: Cell<u64>,
}

impl World {
    fn new(seed: u64, keeps_trace: bool) -> Self {
        let schedule = Schedule::new();
        let trace = Arc::new(Trace::new(keeps_trace));
        let network = Network::new(seed, &schedule, &trace);
        let ledger = CapLedger::new(&schedule);
        let mut random = Random::named(seed, "caps");
        let bucket = Bucket::new(BUCKET, Arc::clone(&ledger) as _, skew(&mut random));
        let config = CapConfig {
            name: CAP.to_owned(),
            limit: limit(&mut random),
            period: *random.pick(&[PeriodUnit::Hour, PeriodUnit::Hour, PeriodUnit::Day]),
            time_zone: Some((*random.pick(&["UTC", "Asia/Kolkata"])).to_owned()),
        };
        let mut pods = Vec::new();
        for number in 1..=PODS {
            let name = format!("pod-{number}");
            let machine = Machine::new(schedule.start, skew(&mut random));
            pods.push(CapPod::new(&name, machine, &network, &bucket, &ledger));
        }
        Self {
            seed,
            calendar: config.calendar(),
            schedule,
            network,
            trace,
            ledger,
            pods,
            config: RefCell::new(config),
            demand: Cell::new(0),
        }
    }

    fn say(&self, what: &str) {
        self.trace.add(self.schedule.now(), "world", what);
    }

    fn period(&self) -> Period {
        self.calendar.at(wall(&self.schedule))
    }

    async fn run_until(&self, time: SystemTime) {
        let now = wall(&self.schedule);
        let after = time.duration_since(now).unwrap_or_default();
        let look = || {
            for pod in &self.pods {
                pod.check();
            }
        };
        let is_over = || self.ledger.is_violated();
        let end = self.schedule.now() + after;
        self.schedule.run_until(end, look, is_over).await;
    }

    /// Runs pods around the end of a period, with faults.
    async fn pass_end(self: &Rc<Self>, number: u64) {
        let mut random = Random::named(self.seed, &format!("end {number}"));
        let skipped = Duration::from_secs(random.below(15 * 3600));
        let end = self.calendar.at(wall(&self.schedule) + skipped).end;
        let before = Duration::from_secs(random.between(45, 400));
        self.run_until(end - before).await;

        self.network.set_weather(weather(&mut random));
        self.demand.set(*random.pick(&[10, 60, 300]));
        for pod in &self.pods {
            self.start(pod);
        }
        let mut disturbances = Vec::new();
        for part in 1..=2 {
            let name = format!("disturbances {part} of end {number}");
            let random = Random::named(self.seed, &name);
            let disturbed = Rc::clone(self).disturb(random);
            disturbances.push(tokio::task::spawn_local(disturbed));
        }
        let after = Duration::from_secs(random.between(60, 300));
        self.run_until(end + after).await;

        for disturbance in disturbances {
            disturbance.abort();
        }
        self.say("ends all pods");
        for pod in &self.pods {
            pod.kill();
        }
        self.network.join_all();
    }

    fn start(&self, pod: &CapPod) {
        self.say(&format!("starts {}", pod.name));
        let config = self.config.borrow().clone();
        pod.start(self.seed, config, self.demand.get());
    }

    /// Disturbs the world, without end.
    async fn disturb(self: Rc<Self>, mut random: Random) {
        loop {
            sleep_seconds(random.between(5, 120)).await;
            let pod = random.pick(&self.pods);
            match random.below(12) {
                0 => self.kill(pod, &mut random).await,
                1 | 2 => self.drain(pod, &mut random).await,
                3 | 4 => self.pause(pod, &mut random).await,
                5 => self.part(pod, &mut random).await,
                6 => {
                    let ahead = skew(&mut random);
                    self.say(&format!("sets the clock of {} {ahead} ms ahead", pod.name));
                    pod.machine.set_ahead(ahead);
                }
                7 => {
                    self.say("other weather");
                    self.network.set_weather(weather(&mut random));
                }
                8 => self.reload(&mut random).await,
                9 => self.remove(pod, &mut random).await,
                _ => {
                    let demand = *random.pick(&[0, 10, 100, 1_000]);
                    self.say(&format!("{demand} requests a minute at {}", pod.name));
                    if let Some(requests) = pod.requests() {
                        requests.demand.set(demand);
                    }
                }
            }
        }
    }

    async fn kill(&self, pod: &CapPod, random: &mut Random) {
        self.say(&format!("kills {}", pod.name));
        pod.kill();
        self.start_later(pod, random).await;
    }

    async fn start_later(&self, pod: &CapPod, random: &mut Random) {
        sleep_seconds(random.between(1, 60)).await;
        if !pod.is_running() {
            self.start(pod);
        }
    }

    async fn drain(&self, pod: &CapPod, random: &mut Random) {
        let is_idle = !random.is_one_of(4);
        self.say(&format!("drains {}, idle: {is_idle}", pod.name));
        if let Some(requests) = pod.requests() {
            requests.order(Order::Drain { is_idle });
        }
        sleep_seconds(random.between(3, 10)).await;
        pod.kill();
        self.start_later(pod, random).await;
    }

    async fn pause(&self, pod: &CapPod, random: &mut Random) {
        let seconds = random.between(1, 400);
        self.say(&format!("stops {} for {seconds} s", pod.name));
        pod.pause();
        sleep_seconds(seconds).await;
        self.say(&format!("resumes {}", pod.name));
        pod.resume();
    }

    async fn part(&self, pod: &CapPod, random: &mut Random) {
        let seconds = random.between(5, 400);
        self.say(&format!("parts {} for {seconds} s", pod.name));
        self.network.part(&pod.name, BUCKET);
        sleep_seconds(seconds).await;
        self.say("joins all");
        self.network.join_all();
    }

    /// A new limit reaches one pod after the other.
    async fn reload(&self, random: &mut Random) {
        let limit = limit(random);
        self.say(&format!("sets the limit to {limit}"));
        self.config.borrow_mut().limit = limit;
        for pod in &self.pods {
            sleep_seconds(random.below(20)).await;
            self.serve(pod);
        }
    }

    fn serve(&self, pod: &CapPod) {
        if let Some(requests) = pod.requests() {
            requests.order(Order::Serve(self.config.borrow().clone()));
        }
    }

    /// A pod has no cap for a while.
    async fn remove(&self, pod: &CapPod, random: &mut Random) {
        self.say(&format!("removes the cap of {}", pod.name));
        if let Some(requests) = pod.requests() {
            requests.order(Order::Remove);
        }
        sleep_seconds(random.between(1, 60)).await;
        self.say(&format!("adds the cap of {}", pod.name));
        self.serve(pod);
    }

    /// A period without faults, of which all is used.
    async fn use_up(&self) {
        let end = self.calendar.at(wall(&self.schedule) + LULL).end;
        self.run_until(end - LULL).await;
        self.say("ends all faults");
        self.network.set_weather(Weather::default());
        self.demand.set(FULL_DEMAND);
        for pod in &self.pods {
            pod.machine.set_ahead(0);
            self.start(pod);
        }

        self.run_until(end + FIRST_BLOCKS).await;
        let period = self.period();
        for pod in &self.pods {
            let usage = pod.requests().and_then(|requests| requests.usage());
            if usage.is_none_or(|usage| usage.period != period || usage.limit == 0) {
                let name = &pod.name;
                self.violate(|| format!("{name} has no block of the period: {usage:?}"));
            }
        }
        self.drain_one(period).await;

        self.run_until(end + USE).await;
        let granted = self.ledger.granted(period);
        let limit = self.config.borrow().limit;
        if granted < limit {
            self.violate(|| format!("only {granted} devices of {limit} are granted"));
        }
        for pod in &self.pods {
            let Some(requests) = pod.requests() else {
                continue;
            };
            let granted = self.ledger.part(period, requests.instance).granted;
            let usage = requests.usage();
            if usage.is_none_or(|usage| usage.devices != granted) {
                let name = &pod.name;
                self.violate(|| format!("{name} has not used its {granted}: {usage:?}"));
            }
        }
    }

    /// A pod that drains gives back all that it has not used.
    async fn drain_one(&self, period: Period) {
        let pod = &self.pods[0];
        let requests = pod.requests().expect("it was started");
        requests.order(Order::Drain { is_idle: true });
        self.run_until(wall(&self.schedule) + Duration::from_secs(4))
            .await;
        let granted = self.ledger.part(period, requests.instance).granted;
        let usage = requests.usage();
        let is_settled = usage.is_some_and(|usage| usage.devices == granted);
        if !pod.has_drained() || !is_settled {
            self.violate(|| format!("a drained pod keeps {granted}: {usage:?}"));
        }
        self.start(pod);
    }

    fn violate(&self, what: impl FnOnce() -> String) {
        self.ledger
            .violate(|| format!("without faults, {}", what()));
    }
}

/// A limit.
fn limit(random: &mut Random) -> u64 {
    *random.pick(&[100, 250, 300, 600])
}
