//! Benchmark of sketches: cost of a device per decision, cost of a scrape, and errors of unions
//! over eight pods, which have the registers of one sketch of all devices.
//!
//! ```text
//! cargo bench --bench reach
//! ```

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::ops::Range;
use std::time::Instant;

use datasketches::hll::{HllSketch, HllType, HllUnion};
use rtad::telemetry::{Reach, ReachLabels, ReachSketch, ReachedDevice, count_as_worker, devices};
use rtad_core::device::DeviceKey;

/// Devices of the figures of cost.
const DEVICES: u64 = 10_000_000;
const PODS: u64 = 8;
/// Sets of devices whose errors are averaged.
const SETS: u64 = 10;

fn main() {
    count_as_worker(0);
    println!("| strategies with a bid | ns per request | ns per decision |\n|---|---|---|");
    for strategies in [1, 10, 64] {
        let reach = Reach::default();
        let sketches: Vec<_> = (0..strategies)
            .map(|it| sketch(&reach, &it.to_string()))
            .collect();
        let requests = DEVICES / strategies;
        let count = |device: &ReachedDevice<'_>| sketches.iter().for_each(|it| it.count(device));
        let with = time(requests, count);
        let cost = with - time(requests, |device| _ = black_box(device));
        println!(
            "| {strategies} | {cost:.1} | {:.1} |",
            cost / strategies as f64
        );
        if strategies == 64 {
            let begun = Instant::now();
            black_box(reach.counts());
            println!(
                "\nscrape of 64 sketches of one worker: {:.1?}",
                begun.elapsed()
            );
        }
    }
    println!("\n| devices, over {PODS} pods | error, root mean square | largest of {SETS} sets |");
    println!("|---|---|---|");
    for count in [1_000, 1_000_000, 30_000_000] {
        let error = |set: u64| {
            let mut union = HllUnion::new(14).expect("a valid size");
            for pod in 0..PODS {
                // Each pod shares half of its devices with the next one.
                let begin = pod * count / PODS;
                let numbers = begin..count.min(begin + count / 4);
                union.update(&of(set << 32 | numbers.start..set << 32 | numbers.end));
            }
            let found = devices(&union.to_sketch(HllType::Hll8));
            (found as f64 / count as f64 - 1.0).abs() * 100.0
        };
        let errors: Vec<_> = (0..SETS).map(error).collect();
        let squares: f64 = errors.iter().map(|error| error * error).sum();
        let largest = errors.iter().copied().fold(0.0, f64::max);
        println!(
            "| {count} | {:.2} % | {largest:.2} % |",
            (squares / SETS as f64).sqrt()
        );
    }
}

fn sketch(reach: &Reach, strategy: &str) -> ReachSketch {
    reach.sketch(ReachLabels::of(strategy))
}

/// The sketch of these devices.
fn of(numbers: Range<u64>) -> HllSketch {
    let reach = Reach::default();
    let sketch = sketch(&reach, "one");
    for number in numbers {
        sketch.count(&ReachedDevice::new(Some(&key(number))));
    }
    reach.take().pop().expect("it has devices").1
}

/// Nanoseconds per device.
fn time(devices: u64, count: impl Fn(&ReachedDevice<'_>)) -> f64 {
    let begun = Instant::now();
    for number in 0..devices {
        count(&ReachedDevice::new(Some(black_box(&key(number)))));
    }
    begun.elapsed().as_nanos() as f64 / devices as f64
}

/// A key as uniform as an md5, at less cost.
fn key(number: u64) -> DeviceKey {
    let mixed = |mut bits: u64| {
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        u128::from(bits ^ bits >> 31)
    };
    let next = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    DeviceKey::from_bytes((mixed(next) << 64 | mixed(!next)).to_le_bytes())
}
