//! CPU time of events in process: the table of a window with its expiry, no log.
//!
//! `cargo bench -p rtad-window --bench observe -- --keys 100000000`
//!
//! The window is filled to its capacity and then replaced twice by expiry, so that the figures are
//! those of the steady state. Every event of the measured part is a new key; a second part repeats
//! keys that are in the window.

use clap::Parser;
use rustix::time::{ClockId, clock_gettime};

use rtad_window::{Key, Seen, Window, WindowSpec};

#[derive(Debug, Parser)]
struct Args {
    /// Capacity of the window
    #[arg(long, default_value_t = 10_000_000)]
    keys: u64,
    /// False-positive rate: decides the format
    #[arg(long, default_value_t = 2e-6)]
    fpr: f64,
    /// Highest count
    #[arg(long, default_value_t = 1)]
    count: u16,
    /// Whole keys instead of fingerprints
    #[arg(long)]
    whole_keys: bool,
    /// Lifetimes of measured events
    #[arg(long, default_value_t = 2)]
    lifetimes: u64,
    /// Passed by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

const LIFETIME: u64 = 129;

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn key(n: u64) -> Key {
    let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (u128::from(n) << 64 | u128::from(!n)).to_le_bytes()
}

/// Events between two readings of the clock, which costs as much as several events.
const TIMED: u64 = 1 << 16;

/// Observes `keys` in batches; returns CPU seconds and the number of new events.
fn run(window: &mut Window, keys: std::ops::Range<u64>, batch: usize) -> (f64, u64) {
    let (mut seconds, mut new) = (0.0, 0);
    let mut timed = Vec::with_capacity(TIMED as usize);
    for start in keys.clone().step_by(TIMED as usize) {
        timed.clear();
        timed.extend((start..keys.end.min(start + TIMED)).map(key));
        let begun = cpu_seconds();
        for batch in timed.chunks(batch) {
            for seen in window.observe(batch) {
                new += u64::from(seen == Seen::New);
            }
        }
        seconds += cpu_seconds() - begun;
    }
    (seconds, new)
}

#[expect(clippy::print_stdout, reason = "the report")]
fn main() {
    let Args {
        keys,
        fpr,
        count,
        whole_keys,
        lifetimes,
        bench: _,
    } = Args::parse();
    let spec = WindowSpec {
        capacity: keys,
        fpr,
        count,
        whole_keys,
        lifetime: LIFETIME as u16,
    };
    let mut window = Window::new(spec, 0).expect("a valid spec");
    let bits = window.stats().memory_bytes as f64 * 8.0 / keys as f64;
    println!("{:?} slots, {bits:.1} bits per key", spec.format());
    let per_tick = keys / LIFETIME;
    let mut tick = 0;
    let mut advance = |window: &mut Window, batch: usize, ticks: u64| {
        let (mut seconds, mut new) = (0.0, 0);
        for _ in 0..ticks {
            let first = tick * per_tick;
            window.set_tick(tick);
            let measured = run(window, first..first + per_tick, batch);
            (seconds, new) = (seconds + measured.0, new + measured.1);
            tick += 1;
        }
        (seconds, new)
    };
    advance(&mut window, 1000, LIFETIME * 2);
    println!("| batch | M events/s per core | ns per event | new | full |");
    println!("|---|---|---|---|---|");
    for batch in [1000, 64, 1] {
        let full_before = window.stats().full;
        let (seconds, new) = advance(&mut window, batch, LIFETIME * lifetimes);
        let full = window.stats().full - full_before;
        let events = (per_tick * LIFETIME * lifetimes) as f64;
        println!(
            "| {batch} | {:.2} | {:.0} | {new} | {full} |",
            events / seconds / 1e6,
            seconds / events * 1e9
        );
    }
    let last = tick * per_tick;
    let live = last - per_tick * (LIFETIME / 2)..last;
    let events = (live.end - live.start) as f64;
    let (seconds, new) = run(&mut window, live, 1000);
    println!(
        "duplicates in batches of 1000: {:.2} M/s; {new} of {events} taken for new",
        events / seconds / 1e6
    );
    println!("{:?}", window.stats());
}
