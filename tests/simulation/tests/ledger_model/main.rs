//! Random schedules of writers, builds, rollbacks, deletions, gcs and a polling pod,
//! each step compared with a model. A failing schedule is shrunk.
//!
//! Writers keep their ledgers between steps, so these are stale. Answers to writes are lost, reads
//! of chunks fail, and the pod swaps chunk by chunk. The number of schedules is `LEDGER_SCHEDULES`.

#![allow(clippy::unwrap_used, reason = "errors fail the test")]

mod model;
mod world;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any};
use proptest::prop_oneof;
use proptest::sample::Index;
use proptest::test_runner::{Config, FileFailurePersistence, TestRunner};
use testkit::faulty_store::LostAnswer;
use tokio::runtime::Runtime;

use model::{KEYS, Keys, Kind, bit};
use world::World;

/// Writers with a ledger each.
const WRITERS: usize = 3;
/// Most steps of a schedule.
const MAX_STEPS: usize = 24;

/// One step of a schedule.
#[derive(Debug, Clone)]
enum Step {
    Append {
        writer: usize,
        changes: Vec<(u8, Kind)>,
        lost: Option<LostAnswer>,
    },
    /// Appends of falling sizes, which are not merged; the last one removes or adds a key.
    Ladder {
        writer: usize,
        key: u8,
        kind: Kind,
    },
    StartBuild {
        input: Keys,
    },
    FinishBuild,
    /// A build without other steps between start and end.
    Build {
        input: Keys,
    },
    /// Rolls back to one of the other generations, or returns to a newer one.
    RollBack {
        to: Index,
    },
    /// Rolls back, appends, and returns to the newest generation.
    VisitOlder {
        to: Index,
        writer: usize,
        key: u8,
    },
    Disable(bool),
    Delete,
    Collect {
        keep: usize,
    },
    /// A poll of the pod, with so many reads of chunks before they fail.
    Poll {
        chunk_reads: Option<usize>,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = || {
        prop_oneof![
            4 => Just(Kind::Add),
            4 => Just(Kind::Remove),
            2 => Just(Kind::Entomb),
            2 => Just(Kind::Lift),
        ]
    };
    let lost = prop_oneof![
        6 => Just(None),
        1 => Just(Some(LostAnswer::Retried)),
        1 => Just(Some(LostAnswer::Broken)),
    ];
    let ladder = || {
        (
            0..WRITERS,
            0..KEYS,
            prop_oneof![Just(Kind::Add), Just(Kind::Remove)],
        )
            .prop_map(|(writer, key, kind)| Step::Ladder { writer, key, kind })
    };
    let build = || any::<Keys>().prop_map(|input| Step::Build { input });
    let visit = || {
        (any::<Index>(), 0..WRITERS, 0..KEYS).prop_map(|(to, writer, key)| Step::VisitOlder {
            to,
            writer,
            key,
        })
    };
    let step = prop_oneof![
        6 => (0..WRITERS, vec((0..KEYS, kind()), 1..4), lost)
            .prop_map(|(writer, changes, lost)| Step::Append { writer, changes, lost }),
        3 => ladder(),
        1 => any::<Keys>().prop_map(|input| Step::StartBuild { input }),
        1 => Just(Step::FinishBuild),
        4 => build(),
        2 => any::<Index>().prop_map(|to| Step::RollBack { to }),
        2 => visit(),
        1 => any::<bool>().prop_map(Step::Disable),
        1 => Just(Step::Delete),
        1 => (1..4_usize).prop_map(|keep| Step::Collect { keep }),
        4 => prop_oneof![2 => Just(None), 1 => (0..4_usize).prop_map(Some)]
            .prop_map(|chunk_reads| Step::Poll { chunk_reads }),
    ];
    // Rollbacks over full lists of deltas are rare among all steps.
    let rollbacks = prop_oneof![3 => ladder(), 3 => build(), 2 => visit()];
    prop_oneof![3 => vec(step, 1..MAX_STEPS), 1 => vec(rollbacks, 1..MAX_STEPS)]
}

#[test]
fn random_schedules_agree_with_the_model() {
    let schedules = std::env::var("LEDGER_SCHEDULES").map_or(300, |text| text.parse().unwrap());
    let config = Config {
        cases: schedules,
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..Config::default()
    };
    let runtime = paused_runtime();
    let run = |steps: Vec<Step>| {
        runtime.block_on(run(steps));
        Ok(())
    };
    TestRunner::new(config)
        .run(&steps(), run)
        .unwrap_or_else(|failure| panic!("{failure}"));
}

/// Regression: the model knew the states at polls only. The pod answers from the state between the
/// lifted tombstone and the build.
#[test]
fn failed_poll_may_answer_from_a_state_between_polls() {
    let keys = |numbers: &[u8]| numbers.iter().fold(0, |keys, number| keys | bit(*number));
    let append = |kind| Step::Append {
        writer: 0,
        changes: vec![(9, kind)],
        lost: None,
    };
    paused_runtime().block_on(run(vec![
        Step::Build {
            input: keys(&[9, 10]),
        },
        append(Kind::Entomb),
        Step::Poll { chunk_reads: None },
        append(Kind::Lift),
        Step::Build {
            input: keys(&[0, 4, 7, 10]),
        },
        Step::Poll {
            chunk_reads: Some(0),
        },
    ]));
}

/// Regression: the model knew the older generation only under its own tombstones. The pod serves it
/// under the newest ones, as the chunks of the newest generation cannot be read.
#[test]
fn failed_poll_may_answer_from_an_older_generation_without_its_tombstone() {
    let append = |kind| Step::Append {
        writer: 0,
        changes: vec![(10, kind)],
        lost: None,
    };
    paused_runtime().block_on(run(vec![
        Step::Build { input: bit(10) },
        append(Kind::Entomb),
        Step::Poll { chunk_reads: None },
        Step::Build { input: bit(11) },
        append(Kind::Lift),
        Step::Poll {
            chunk_reads: Some(0),
        },
    ]));
}

/// Retries do not wait: the clock is paused.
fn paused_runtime() -> Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap()
}

async fn run(steps: Vec<Step>) {
    let mut world = World::new();
    for step in steps {
        world.take(step).await;
    }
}
