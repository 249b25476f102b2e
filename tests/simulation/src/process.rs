//! Processes: each with clocks and random numbers of its own, killed by dropping its future, and
//! stopped by not polling it.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use rtad_core::clock::simulated::{self as clock, Clocks};
use rtad_core::random::simulated as numbers;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::random::Random;

/// The wall clock at the start of the world: a Sunday, 2026-11-29 00:00 UTC.
pub const EPOCH: Duration = Duration::from_secs(1_795_910_400);

/// The machine of a process: its clocks go on while the process is stopped, or dead.
#[derive(Debug)]
pub struct Machine {
    start: Instant,
    /// How far its wall clock is ahead, in milliseconds.
    ahead: Cell<i64>,
}

impl Machine {
    /// A machine of a world that began at a time.
    pub fn new(start: Instant, ahead: i64) -> Rc<Self> {
        Rc::new(Self {
            start,
            ahead: Cell::new(ahead),
        })
    }

    pub fn set_ahead(&self, milliseconds: i64) {
        self.ahead.set(milliseconds);
    }

    fn clocks(&self) -> Clocks {
        let uptime = self.start.elapsed() + Duration::from_secs(3600);
        let ahead = Duration::from_millis(self.ahead.get().unsigned_abs());
        let right = SystemTime::UNIX_EPOCH + EPOCH + self.start.elapsed();
        let wall = if self.ahead.get() < 0 {
            right - ahead
        } else {
            right + ahead
        };
        Clocks { wall, uptime }
    }
}

/// Whether a process is stopped.
#[derive(Debug, Default)]
struct Stop {
    is_stopped: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// A process that runs, until it ends or is dropped.
#[derive(Debug)]
pub struct Process {
    task: JoinHandle<()>,
    stop: Rc<Stop>,
}

impl Process {
    /// Starts a process on a machine.
    pub fn start(
        machine: &Rc<Machine>,
        mut random: Random,
        work: impl Future<Output = ()> + 'static,
    ) -> Self {
        let stop = Rc::new(Stop::default());
        let run = Run {
            work: Box::pin(work),
            machine: Rc::clone(machine),
            numbers: Some(Box::new(move || random.number())),
            stop: Rc::clone(&stop),
        };
        Self {
            task: tokio::task::spawn_local(run),
            stop,
        }
    }

    /// Stops it: its clocks and the network go on.
    pub fn pause(&self) {
        self.stop.is_stopped.set(true);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.stop.is_stopped.set(false);
        if let Some(waker) = self.stop.waker.take() {
            waker.wake();
        }
    }

    pub fn has_ended(&self) -> bool {
        self.task.is_finished()
    }
}

impl Drop for Process {
    /// Kills it.
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The future of a process, polled with its clocks and numbers.
struct Run {
    work: Pin<Box<dyn Future<Output = ()>>>,
    machine: Rc<Machine>,
    /// `None` while it is polled.
    numbers: Option<Box<dyn FnMut() -> u64>>,
    stop: Rc<Stop>,
}

impl Future for Run {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.stop.is_stopped.get() {
            *self.stop.waker.borrow_mut() = Some(context.waker().clone());
            return Poll::Pending;
        }
        let enclosing = clock::set(Some(self.machine.clocks()));
        numbers::set(self.numbers.take());
        let polled = self.work.as_mut().poll(context);
        self.numbers = numbers::set(None);
        clock::set(enclosing);
        polled
    }
}

impl Drop for Run {
    /// Its tasks may read its clocks until they are dropped.
    fn drop(&mut self) {
        let enclosing = clock::set(Some(self.machine.clocks()));
        self.work = Box::pin(std::future::ready(()));
        clock::set(enclosing);
    }
}
