//! Hostile bodies: all seeds of `fuzz/corpus`, 50,000 mutants per protocol, and bodies built for
//! the highest memory use.
//!
//! Checks the properties of `fuzz/properties.rs` without a fuzzer. An allocator that counts by
//! thread also checks that the memory of an answer is bounded by its body's length.

#![allow(clippy::unwrap_used, reason = "errors fail the test")]

mod memory;
mod mutate;
#[path = "../../fuzz/properties.rs"]
#[allow(dead_code, unreachable_pub, reason = "a library to the fuzz targets")]
mod properties;

use std::path::Path;

use bytes::Bytes;
use properties::{Protocol, World, config, files};

/// The seeds of a protocol or a reader of files, by name.
fn corpus(name: &str) -> Vec<(String, Bytes)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(name);
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

/// Prints the body if its test panics.
struct PrintOnPanic<'a>(&'a str, &'a [u8]);

#[allow(clippy::print_stdout, reason = "output of a failing test")]
impl Drop for PrintOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}: {}", self.0, const_hex::encode(self.1));
        }
    }
}

/// A world that has answered: a thread's first load of the catalog allocates.
fn warm_world() -> World {
    let world = World::new();
    for protocol in Protocol::ALL {
        for (_, body) in corpus(protocol.corpus()) {
            world.answer(protocol, body);
        }
    }
    world
}

/// Answers a body and checks the answer; returns the peak of allocated bytes.
fn checked_peak(world: &World, protocol: Protocol, what: &str, body: &Bytes) -> usize {
    let _print = PrintOnPanic(what, body);
    // The body stays alive, so that its release is not counted.
    let (answer, peak) = memory::peak(|| world.answer(protocol, body.clone()));
    world.check(protocol, body, &answer);
    peak
}

#[test]
fn every_seed_satisfies_the_properties() {
    let world = warm_world();
    for protocol in Protocol::ALL {
        let seeds = corpus(protocol.corpus());
        assert!(seeds.len() > 20, "{protocol:?}");
        for (name, body) in seeds {
            memory::assert_bounded(
                protocol,
                &name,
                body.len(),
                checked_peak(&world, protocol, &name, &body),
            );
        }
    }
}

#[test]
fn every_seed_of_files_satisfies_the_properties() {
    for (target, check) in [
        ("chunk", files::check_chunk as fn(&[u8])),
        ("delta", files::check_delta),
        ("manifest", files::check_manifest),
        ("current", files::check_current),
        ("snapshot", files::check_snapshot),
        ("config", config::check_config),
    ] {
        let seeds = corpus(target);
        assert!(seeds.len() > 3, "{target}");
        for (name, file) in seeds {
            let _print = PrintOnPanic(&name, &file);
            check(&file);
        }
    }
}

/// A number of the environment: `make test-all` sets the count of mutants and their seed.
fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

fn check_mutants(protocol: Protocol) {
    let count = number("MUTANTS", 50_000);
    let world = warm_world();
    let seeds: Vec<Bytes> = corpus(protocol.corpus())
        .into_iter()
        .map(|(_, body)| body)
        .collect();
    let mut mutants = mutate::Mutants::of(seeds, number("TEST_SEED", 1));
    let (mut answered, mut bid) = (0, 0);
    for _ in 0..count {
        let body = mutants.next();
        let peak = checked_peak(&world, protocol, "mutant", &body);
        memory::assert_bounded(protocol, "mutant", body.len(), peak);
        let answer = world.answer(protocol, body);
        answered += u64::from(answer.failure.is_none());
        bid += u64::from(answer.failure.is_none() && answer.bids());
    }
    // Mutants must be neither all valid nor nearly all invalid, as most of JSON are.
    assert!(
        (count / 100..count * 9 / 10).contains(&answered),
        "{answered} of {count} were read"
    );
    assert!(
        (answered / 100..answered * 99 / 100).contains(&bid),
        "{bid} of {answered} got a bid"
    );
}

#[test]
fn mutants_satisfy_the_properties_tencent() {
    check_mutants(Protocol::Tencent);
}

#[test]
fn mutants_satisfy_the_properties_ocean() {
    check_mutants(Protocol::Ocean);
}

#[test]
fn mutants_satisfy_the_properties_api() {
    check_mutants(Protocol::Api);
}

#[test]
fn mutants_satisfy_the_properties_custom_protobuf() {
    check_mutants(Protocol::CustomProtobuf);
}

#[test]
fn mutants_satisfy_the_properties_custom_json() {
    check_mutants(Protocol::CustomJson);
}

#[test]
fn memory_of_costly_bodies_is_bounded() {
    let world = warm_world();
    for protocol in Protocol::ALL {
        for (name, body) in memory::costly(protocol) {
            let peak = checked_peak(&world, protocol, name, &body);
            println!(
                "{protocol:?} {name}: {} bytes, {peak} at most, {:.1} each",
                body.len(),
                peak as f64 / body.len() as f64
            );
            memory::assert_bounded(protocol, name, body.len(), peak);
        }
    }
}
