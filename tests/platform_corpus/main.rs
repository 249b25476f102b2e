//! Hostile bodies: every seed of `fuzz/corpus`, a million of its mutants for each protocol, and
//! bodies built to cost the most.
//!
//! What must be true of an answer stands in `fuzz/properties.rs`, which the fuzz targets use too.
//! Here it is held without a fuzzer, in every test run, and with an allocator that counts: what one
//! answer may cost in memory is bounded by its body's length.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod memory;
mod message;
mod mutate;
mod platform_properties;
#[path = "../../fuzz/properties.rs"]
#[allow(unreachable_pub, reason = "a library to the fuzz targets")]
mod properties;

use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use properties::{Protocol, World};

/// The allocator counts the whole process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The seeds of a protocol by name.
fn corpus(protocol: Protocol) -> Vec<(String, Bytes)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(protocol.corpus());
    let mut seeds: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            (
                path.file_name().unwrap().to_str().unwrap().to_owned(),
                Bytes::from(std::fs::read(path).unwrap()),
            )
        })
        .collect();
    seeds.sort();
    seeds
}

/// Says which body it was, should its property not hold.
struct Shown<'a>(&'a str, &'a [u8]);

#[allow(clippy::print_stdout, reason = "what a failing test says")]
impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}: {}", self.0, const_hex::encode(self.1));
        }
    }
}

/// Answers and checks; returns the most bytes that were allocated at a time for the answer.
fn held(world: &World, protocol: Protocol, what: &str, body: &Bytes) -> usize {
    let _shown = Shown(what, body);
    // The body stays alive, so that it is not counted as given back.
    let (answer, peak) = memory::peak(|| world.answer(protocol, body.clone()));
    world.check(protocol, body, &answer);
    peak
}

#[test]
fn every_seed_is_answered_as_it_must_be() {
    let _alone = alone();
    let world = World::new();
    for protocol in Protocol::ALL {
        let seeds = corpus(protocol);
        assert!(seeds.len() > 20, "{protocol:?}");
        for (name, body) in seeds {
            memory::assert_bounded(
                protocol,
                &name,
                body.len(),
                held(&world, protocol, &name, &body),
            );
        }
    }
}

fn mutants_hold(protocol: Protocol, count: u64) {
    let _alone = alone();
    let world = World::new();
    let seeds: Vec<Bytes> = corpus(protocol).into_iter().map(|(_, body)| body).collect();
    let mut mutants = mutate::Mutants::of(&seeds, protocol.is_json(), 0x5eed);
    let (mut answered, mut bid) = (0, 0);
    for _ in 0..count {
        let body = mutants.next();
        let peak = held(&world, protocol, "mutant", &body);
        memory::assert_bounded(protocol, "mutant", body.len(), peak);
        let answer = world.answer(protocol, body);
        answered += u64::from(answer.failure.is_none());
        bid += u64::from(answer.failure.is_none() && answer.bids());
    }
    // Mutants that all break tell little, and so do those that never do.
    assert!((count / 20..count * 9 / 10).contains(&answered), "{answered} of {count} were read");
    assert!((answered / 100..answered * 99 / 100).contains(&bid), "{bid} of {answered} got a bid");
}

const MILLION: u64 = 1_000_000;

#[test]
fn a_million_mutants_hold_for_tencent() {
    mutants_hold(Protocol::Tencent, MILLION);
}

#[test]
fn a_million_mutants_hold_for_ocean() {
    mutants_hold(Protocol::Ocean, MILLION);
}

#[test]
fn a_million_mutants_hold_for_the_api() {
    mutants_hold(Protocol::Api, MILLION);
}

#[test]
fn a_million_mutants_hold_for_the_custom_adapter_over_protobuf() {
    mutants_hold(Protocol::CustomProtobuf, MILLION);
}

#[test]
fn a_million_mutants_hold_for_the_custom_adapter_over_json() {
    mutants_hold(Protocol::CustomJson, MILLION);
}

#[test]
fn the_costliest_bodies_are_bounded() {
    let _alone = alone();
    let world = World::new();
    for protocol in Protocol::ALL {
        for (name, body) in memory::costly(protocol) {
            let peak = held(&world, protocol, name, &body);
            println!(
                "{protocol:?} {name}: {} bytes, {peak} at most, {:.1} each",
                body.len(),
                peak as f64 / body.len() as f64
            );
            memory::assert_bounded(protocol, name, body.len(), peak);
        }
    }
}
