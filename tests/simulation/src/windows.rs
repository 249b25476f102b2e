//! Windows of the writer: owners and standbys over one store, and clients that send events.
//!
//! Processes are killed, stopped for a while, cut off from the store, and stopped cleanly. Disks
//! are lost. Puts fail, arrive late, and lose their answers. After each step, what was acknowledged
//! is compared with a model:
//!
//! - `store`: no acknowledged event is lost, and of equal events exactly one is new;
//! - `disk`: so it is, but for events that only the disk of an owner had when the window went on
//!   without it: those of its last ten seconds;
//! - `disk`: no process acknowledges events after another one has taken the window over;
//! - without faults, events are acknowledged within 20 seconds.
//!
//! | file | job |
//! |---|---|
//! | `link` | the store, as a machine reaches it |
//! | `machine` | a machine with a process |
//! | `model` | what was acknowledged |
//! | `client` | a client of the window |

mod client;
mod link;
mod machine;
mod model;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use rtad_core::files;
use rtad_core::snapshot::AudienceName;

use crate::random::Random;
use crate::trace::Trace;
use crate::world::Outcome;
use client::{Attempt, Client};
use link::{LatePuts, Line, Link, SharedStore};
use machine::{Answer, AnswerSlot, Machine};
use model::{Model, Ownership};

/// Name of the window.
const WINDOW: &str = "w";
/// Keys of all events.
const KEYS: u64 = 40;
const CLIENTS: u64 = 4;
/// Time with faults.
const FAULTS: Duration = Duration::from_secs(150);
/// Time until events are acknowledged after the faults.
const RECOVERY: Duration = Duration::from_secs(20);
/// Time until all requests are answered after it.
const REST: Duration = Duration::from_secs(60);
/// Longer than a pause between two segments.
const PAUSE: Duration = Duration::from_millis(100);
/// Steps between two changes of the faults, on average.
const STEPS_OF_FAULT: u64 = 100;
/// Steps until a late put arrives, on average.
const STEPS_OF_LATE_PUT: u64 = 20;

/// Runs the windows of a seed.
pub fn run(seed: u64, keeps_trace: bool) -> Outcome {
    files::simulated::begin();
    let mut simulation = Simulation::new(seed, keeps_trace);
    let violation = simulation.live().err();
    Outcome {
        violation,
        digest: simulation.trace.digest(),
        trace: simulation.trace.text(),
        events: simulation.steps,
        records: simulation.model.answers,
    }
}

fn key(n: u64) -> [u8; 16] {
    let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (u128::from(n) << 64 | u128::from(!n)).to_le_bytes()
}

fn milliseconds(time: u64) -> Duration {
    Duration::from_millis(time)
}

struct Simulation {
    seed: u64,
    random: Random,
    trace: Trace,
    now: Duration,
    window: AudienceName,
    /// The file of `--config`, without its directory.
    config: String,
    store: SharedStore,
    late: LatePuts,
    machines: Vec<Machine>,
    clients: Vec<Client>,
    model: Model,
    /// Numbers that were given to disks and to processes.
    disks: u64,
    processes: u64,
    steps: u64,
}

impl Simulation {
    fn new(seed: u64, keeps_trace: bool) -> Self {
        let mut random = Random::named(seed, "windows");
        let is_disk = random.is_one_of(2);
        let durability = if is_disk { "disk" } else { "store" };
        let config = format!(
            "[[window]]\nname = {WINDOW:?}\nlength = \"1h\"\ncapacity = 1000\ncount = 10000\n\
             durability = {durability:?}\nanswers_memory = \"1MiB\"\n"
        );

        let store = SharedStore::default();
        let late = LatePuts::default();
        let mut machines = Vec::new();
        for number in 0..2 + random.below(2) {
            let name = format!("writer-{number}");
            let requests = Random::named(seed, &format!("requests of {name}"));
            let link = Link::new(store.clone(), Arc::clone(&late), requests);
            let ahead = Duration::from_millis(random.below(100_000));
            machines.push(Machine::new(name, number, link, ahead));
        }
        let mut clients = Vec::new();
        for number in 0..CLIENTS {
            let choices = Random::named(seed, &format!("client-{number}"));
            clients.push(Client::new(number, choices));
        }
        Self {
            seed,
            random,
            trace: Trace::new(keeps_trace),
            now: Duration::ZERO,
            window: WINDOW.parse().expect("a name"),
            config,
            store,
            late,
            disks: machines.len() as u64,
            machines,
            clients,
            model: Model::new(is_disk),
            processes: 0,
            steps: 0,
        }
    }

    fn say(&self, actor: &str, what: &str) {
        self.trace.add(self.now, actor, what);
    }

    fn live(&mut self) -> Result<(), String> {
        while self.now < FAULTS {
            if self.random.is_one_of(STEPS_OF_FAULT) {
                self.disturb();
            }
            self.step(true)?;
        }

        self.calm();
        let calm_at = self.now;
        let answers = self.model.answers;
        while self.model.answers == answers {
            if self.now > calm_at + RECOVERY {
                return Err(format!("no event was acknowledged within {RECOVERY:?}"));
            }
            self.step(true)?;
        }
        let end = self.now + REST;
        while self.clients.iter().any(Client::is_sending) {
            if self.now > end {
                return Err("a request was not answered".to_owned());
            }
            self.step(false)?;
        }
        // A window in a pause between two segments takes no request, and clocks stand still in one
        // that is asked for its counts.
        let rested = self.now + PAUSE;
        while self.now < rested {
            self.step(false)?;
        }
        self.compare_counts()
    }

    /// One step of all machines, one after the other, and of the clients.
    fn step(&mut self, sends_new: bool) -> Result<(), String> {
        let longest = *self.random.pick(&[10, 50, 200]);
        let time = milliseconds(self.random.between(1, longest));
        let count = self.machines.len();
        let first = self.random.below(count as u64) as usize;
        for index in first..first + count {
            self.run_machine(index % count, time)?;
            self.take_answers()?;
        }
        self.now += time;
        self.steps += 1;

        if self.random.is_one_of(STEPS_OF_LATE_PUT) {
            self.land_late_put();
            self.take_creators()?;
        }
        self.send(sends_new);
        Ok(())
    }

    fn run_machine(&mut self, index: usize, time: Duration) -> Result<(), String> {
        let now = self.now;
        let machine = &mut self.machines[index];
        if machine.stopped_until > now {
            return Ok(());
        }
        if machine.process.is_none() {
            if machine.starts_at <= now {
                self.processes += 1;
                let number = self.processes;
                let random = Random::named(self.seed, &format!("numbers of process {number}"));
                machine.start(&self.config, number, random, now);
                self.trace
                    .add(now, &machine.name, &format!("starts process {number}"));
            }
            return Ok(());
        }

        let has_ended = machine.run(now, time);
        let behind = machine.behind_of_owner(&self.window, now);
        let process = machine.process.as_ref().expect("it runs").number;
        let owner = Ownership {
            process,
            disk: machine.disk_number,
        };
        self.take_creators()?;
        if let Some(behind) = behind {
            self.model.owned(owner, behind, now);
        }
        if has_ended {
            let name = self.machines[index].name.clone();
            self.say(&name, &format!("process {process} has ended"));
            self.end_process(index);
        }
        Ok(())
    }

    /// Tells the model who has created segments.
    fn take_creators(&mut self) -> Result<(), String> {
        while let Some(by) = self.store.next_creator() {
            if self.model.created(by, self.now)? {
                let process = by.process;
                self.say("store", &format!("process {process} owns the window"));
            }
        }
        Ok(())
    }

    fn end_process(&mut self, index: usize) {
        let mut wait = *self.random.pick(&[0, 1, 5, 30]);
        if self.now >= FAULTS {
            wait = 0;
        }
        let machine = &mut self.machines[index];
        machine.kill(self.now);
        machine.starts_at = self.now + Duration::from_secs(wait);
    }

    /// A fault begins or ends.
    fn disturb(&mut self) {
        let index = self.random.below(self.machines.len() as u64) as usize;
        let now = self.now;
        let machine = &mut self.machines[index];
        let name = machine.name.clone();
        match self.random.below(10) {
            0..2 => {
                machine.stopped_until = Duration::ZERO;
                self.end_process(index);
                let lost = match self.random.below(3) {
                    0 => "its process",
                    1 => {
                        self.machines[index].lose_unsynced();
                        "its machine"
                    }
                    _ => {
                        self.disks += 1;
                        self.machines[index].lose_disk(self.disks);
                        "its disk"
                    }
                };
                self.say(&name, &format!("loses {lost}"));
            }
            2..4 => {
                let seconds = *self.random.pick(&[3, 9, 16, 40]);
                machine.settle(now);
                machine.stopped_until = now + Duration::from_secs(seconds);
                self.say(&name, &format!("stops for {seconds} s"));
            }
            4 => {
                machine.work(now, |windows, _| windows.stop());
                self.say(&name, "is asked to end");
            }
            5..7 => {
                let faults = *self.random.pick(&[0, 2, 5, 20]);
                let slowest = *self.random.pick(&[10, 100, 1000, 3000]);
                machine.link.set_faults(faults, slowest);
                self.say(
                    &name,
                    &format!("faults of one of {faults} puts, {slowest} ms"),
                );
            }
            other => {
                // A line that is not open is opened: otherwise all would be closed soon.
                let line = match (machine.link.line(), other) {
                    (Line::Open, 7) => Line::Hanging,
                    (Line::Open, 8) => Line::Refused,
                    _ => Line::Open,
                };
                machine.link.set_line(line);
                self.say(&name, &format!("its line to the store: {line:?}"));
            }
        }
    }

    /// Ends all faults.
    fn calm(&mut self) {
        self.say("world", "ends all faults");
        for machine in &mut self.machines {
            machine.link.set_line(Line::Open);
            machine.link.set_faults(0, 30);
            machine.stopped_until = Duration::ZERO;
            machine.starts_at = Duration::ZERO;
        }
        while self.land_late_put() {}
    }

    /// Lets a put arrive that was reported as failed; whether there was one.
    fn land_late_put(&self) -> bool {
        let Some(late) = self.late.lock().expect("no panic").pop_front() else {
            return false;
        };
        self.say("store", &format!("a late put of {}", late.path));
        // Another object may be there.
        let _ = self.store.put_late(late).now_or_never();
        true
    }

    fn send(&mut self, sends_new: bool) {
        let now = self.now;
        let count = self.machines.len();
        for client in &mut self.clients {
            let machine = &mut self.machines[client.machine % count];
            let Some(sending) = client.next_to_send(KEYS, sends_new, now) else {
                continue;
            };
            let Some(process) = &machine.process else {
                client.machine += 1;
                continue;
            };
            let slot = AnswerSlot::default();
            let process = process.number;
            let until = now + Duration::from_secs(1 + self.random.below(8));
            sending.attempt = Some(Attempt {
                slot: Arc::clone(&slot),
                to: Ownership {
                    process,
                    disk: machine.disk_number,
                },
                until,
            });
            self.model.sent(&sending.request);
            let keys = sending.request.keys.iter().map(|n| key(*n)).collect();
            machine.observe(&self.window, keys, sending.request_key, slot, now);
        }
    }

    fn take_answers(&mut self) -> Result<(), String> {
        let now = self.now;
        for client in &mut self.clients {
            let Some((answer, attempt)) = client.take_answer(now) else {
                continue;
            };
            let sending = client.current.as_mut().expect("it has sent the attempt");
            let is_done = match answer {
                Answer::Told(observed) => {
                    let what = format!("{:?}: {:?}", sending.request, observed.seen);
                    self.trace.add(now, "client", &what);
                    self.model
                        .acknowledged(&sending.request, &observed.seen, attempt.to, now)?;
                    true
                }
                Answer::NotOwner => {
                    if !sending.is_unknown {
                        self.model.not_counted(&sending.request);
                    }
                    client.machine += 1;
                    false
                }
                Answer::Unknown => {
                    sending.is_unknown = true;
                    client.machine += self.random.below(2) as usize;
                    // Sent again without a request key, they would be other events.
                    sending.request_key.is_none()
                }
            };
            client.next_at = now + milliseconds(self.random.below(300));
            if is_done {
                client.current = None;
            }
        }
        Ok(())
    }

    /// Compares the counts of the owner with the model.
    fn compare_counts(&mut self) -> Result<(), String> {
        for machine in &mut self.machines {
            let keys = (0..KEYS).map(key).collect();
            let Some(counts) = machine.counts(&self.window, keys, self.now) else {
                continue;
            };
            for (key, count) in (0..KEYS).zip(counts) {
                self.model.check_end(key, count)?;
            }
            return Ok(());
        }
        Err("no process owns the window".to_owned())
    }
}
