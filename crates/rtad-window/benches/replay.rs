//! Time to load a window: all of its segments, and a table.
//!
//! `cargo bench -p rtad-window --bench replay -- --keys 100000000`

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Parser;

use rtad_window::{
    AnswerLimits, Durability, Key, Now, Outbox, Replica, Settings, Shape, StartedWindow,
    WindowHandle, WindowSpec,
};

#[derive(Debug, Parser)]
struct Args {
    /// Keys of the window
    #[arg(long, default_value_t = 10_000_000)]
    keys: u64,
    /// Highest count
    #[arg(long, default_value_t = 1)]
    count: u16,
    /// Whole keys instead of fingerprints
    #[arg(long)]
    whole_keys: bool,
    /// Passed by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// Events of a request.
const BATCH: u64 = 50_000;

fn key(n: u64) -> Key {
    let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (u128::from(n) << 64 | u128::from(!n)).to_le_bytes()
}

async fn ship(outbox: Outbox, segments: Arc<Mutex<Vec<Bytes>>>) {
    while let Some(segment) = outbox.next().await {
        segments
            .lock()
            .expect("no panic")
            .push(segment.bytes.clone());
        outbox.created(segment.number);
    }
}

#[expect(clippy::print_stdout, reason = "the report")]
fn report(what: &str, keys: u64, bytes: usize, begun: Instant) {
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{what}: {seconds:.2} s, {:.1} M keys/s, {:.0} MB",
        keys as f64 / seconds / 1e6,
        bytes as f64 / 1e6
    );
}

#[tokio::main]
async fn main() {
    let args = Args::parse();
    let spec = WindowSpec {
        capacity: args.keys,
        fpr: 2e-6,
        count: args.count,
        whole_keys: args.whole_keys,
        lifetime: 129,
    };
    let shape = Shape {
        spec,
        clock: "ticks".to_owned(),
        answers: AnswerLimits {
            memory_bytes: 0,
            time: Duration::ZERO,
        },
    };
    let settings = Settings {
        clock: Box::new(|| Now {
            tick: 0,
            seconds: 0,
        }),
        listener: None,
    };
    let segments = Arc::new(Mutex::new(Vec::new()));
    let replica = Replica::empty(shape.clone()).expect("a valid spec");
    let take_over = replica.take_over(&Durability::Store).expect("no files");
    segments
        .lock()
        .expect("no panic")
        .push(take_over.bytes.clone());
    let started = WindowHandle::start(replica, take_over, Durability::Store, settings);
    let StartedWindow {
        handle: window,
        engine,
        outbox,
    } = started.expect("a window");
    tokio::spawn(engine.run());
    let shipper = tokio::spawn(ship(outbox, Arc::clone(&segments)));

    let begun = Instant::now();
    for first in (0..args.keys).step_by(BATCH as usize) {
        let keys = (first..args.keys.min(first + BATCH)).map(key).collect();
        window.observe(keys, None, None).await.expect("an answer");
    }
    report("written", args.keys, 0, begun);

    let begun = Instant::now();
    let mut table = Vec::new();
    let mut copy = window.begin_table().await.expect("a table");
    while let Some(block) = copy.next_block().await.expect("a block") {
        table.extend(block);
    }
    report("table copied", args.keys, table.len(), begun);
    drop(copy);
    window.close().await;
    shipper.await.expect("no panic");
    drop(window);

    let segments = segments.lock().expect("no panic").clone();
    let begun = Instant::now();
    let mut replica = Replica::empty(shape.clone()).expect("a valid spec");
    let mut bytes = 0;
    for segment in &segments {
        bytes += segment.len();
        replica.apply(segment).expect("a segment");
    }
    report("segments loaded", args.keys, bytes, begun);
    drop(replica);

    let begun = Instant::now();
    Replica::from_table(shape, &table[..]).expect("a table");
    report("table loaded", args.keys, table.len(), begun);
}
