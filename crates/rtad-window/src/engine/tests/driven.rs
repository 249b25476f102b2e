//! An owner whose cycles a test runs, on a disk that fails, with a clock that tests move.

use std::sync::atomic::{AtomicU64, Ordering};

use super::super::*;
use crate::disk::tests::FaultyDisk;
use crate::handle::{Begun, begin};
use crate::outbox::{Outbox, Shipping};
use crate::uptime::{MachineClock, MachineTime};
use crate::{Durability, OpenError, Replica, TakeOver};

/// The clocks of a machine.
#[derive(Debug, Default)]
pub struct TestClock {
    millis: AtomicU64,
    tick: AtomicU64,
    wall_ahead: AtomicU64,
}

impl TestClock {
    /// Time since a beginning that all machines have in common.
    pub fn uptime(&self) -> Duration {
        Duration::from_millis(self.millis.load(Ordering::Relaxed))
    }

    pub fn advance(&self, time: Duration) {
        self.millis
            .fetch_add(time.as_millis() as u64, Ordering::Relaxed);
    }

    pub fn advance_tick(&self, ticks: u64) {
        self.tick.fetch_add(ticks, Ordering::Relaxed);
    }

    /// Sets the wall clock ahead.
    pub fn set_wall_ahead(&self, seconds: u64) {
        self.wall_ahead.fetch_add(seconds, Ordering::Relaxed);
    }

    fn machine_time(&self) -> MachineTime {
        let up = self.uptime();
        MachineTime {
            up,
            wall_seconds: (1_000_000 + up.as_secs())
                .wrapping_add(self.wall_ahead.load(Ordering::Relaxed)),
        }
    }

    fn now(&self) -> Now {
        Now {
            tick: self.tick.load(Ordering::Relaxed),
            seconds: 1000 + self.millis.load(Ordering::Relaxed) / 1000,
        }
    }
}

fn machine_clock_of(clock: &Arc<TestClock>) -> MachineClock {
    let clock = Arc::clone(clock);
    Arc::new(move || clock.machine_time())
}

/// Changes that a listener was told.
#[derive(Debug, Default)]
pub struct Heard {
    pub reached: Vec<(u16, Key)>,
    pub left: Vec<Key>,
    pub lists: u32,
}

/// An owner whose cycles a test runs.
pub struct Driven {
    pub engine: Engine,
    pub queue: Arc<Queue>,
    pub outbox: Outbox,
    pub shipping: Arc<Shipping>,
    pub heard: Arc<Mutex<Heard>>,
    pub published: Published,
}

/// How a cycle ended.
#[derive(Debug)]
pub enum CycleEnd {
    Running,
    Closed,
    Failed(io::Error),
}

impl Driven {
    pub fn start(
        replica: Replica,
        take_over: TakeOver,
        durability: Durability,
        clock: &Arc<TestClock>,
    ) -> Result<Self, OpenError> {
        let is_whole = replica.window.spec().whole_keys;
        let queue = Arc::new(Queue::new());
        let published = Published::default();
        let begun = begin(
            replica,
            take_over,
            durability,
            &queue,
            machine_clock_of(clock),
        )?;
        let Begun {
            replica,
            journal,
            shipping,
        } = begun;
        let heard = Arc::new(Mutex::new(Heard::default()));
        let read = Arc::clone(clock);
        let settings = Settings {
            clock: Box::new(move || read.now()),
            listener: is_whole.then(|| listener(Arc::clone(&heard))),
        };
        let engine = Engine::new(
            replica.window,
            replica.answers,
            journal,
            settings,
            Arc::clone(&queue),
            Arc::clone(&published),
        );
        Ok(Self {
            engine,
            queue,
            outbox: Outbox::new(Arc::clone(&shipping)),
            shipping,
            heard,
            published,
        })
    }

    /// Runs a cycle. One that fails is the last.
    pub fn run_cycle(&mut self) -> CycleEnd {
        match self.engine.run_cycle() {
            Ok(false) => CycleEnd::Running,
            Ok(true) => CycleEnd::Closed,
            Err(error) => {
                self.queue.abandon();
                CycleEnd::Failed(error)
            }
        }
    }

    /// Whether answers wait for a segment.
    pub fn is_waiting(&self) -> bool {
        !self.engine.buffers.replies.is_empty()
    }

    /// Whether the next cycle takes requests.
    pub fn takes_requests(&self) -> bool {
        self.engine.takes_requests()
    }
}

fn listener(heard: Arc<Mutex<Heard>>) -> ChangeListener {
    let report = move |changed: Changed<'_>| {
        let mut heard = heard.lock().unwrap();
        match changed {
            Changed::Reached(count, keys) => {
                heard.reached.extend(keys.iter().map(|key| (count, *key)));
            }
            Changed::Left(keys) => heard.left.extend(keys),
            Changed::All => heard.lists += 1,
        }
    };
    ChangeListener {
        thresholds: vec![1, 2],
        report: Box::new(report),
    }
}

pub fn faulty_disk() -> Arc<FaultyDisk> {
    Arc::new(FaultyDisk::default())
}
