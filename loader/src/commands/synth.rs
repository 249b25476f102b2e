//! `synth` command: deterministic synthetic device ids on stdout.
//!
//! Threads generate batches round-robin and stdout gets them in order, so the output does not
//! depend on the number of threads.

use std::io::{self, Write};
use std::sync::mpsc;

use clap::Args;

use rtad_cli::command_error::CommandError;
use rtad_core::device::IdKind;
use rtad_core::synth::Synth;

use super::context::default_threads;

const BATCH_IDS: u64 = 16 << 10;
const MAX_THREADS: usize = 4;
/// Batches that a thread may generate ahead.
const WAITING_BATCHES: usize = 2;

/// Write synthetic device ids, one per line, for demos, tests and load. Equal arguments give equal
/// ids.
///
/// Kind md5 gives the md5 digests of the IDFAs of the same seed. --json has no effect.
#[derive(Debug, Args)]
pub struct SynthArgs {
    /// Number of ids
    #[arg(long, value_name = "N")]
    count: u64,
    /// Kind of the ids: md5, idfa, imei, oaid, android_id, mac, caid, gaid, openid, sha1
    #[arg(long, value_name = "KIND", default_value = "md5")]
    id_kind: IdKind,
    /// Seed of the generator
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Index of the first id: with a count of 1000, offsets 0 and 1000 share no id
    #[arg(long, value_name = "K", default_value_t = 0)]
    offset: u64,
}

pub fn run(args: &SynthArgs) -> Result<(), CommandError> {
    let synth = Synth::new(args.id_kind, args.seed);
    let batches = args.count.div_ceil(BATCH_IDS);
    let threads = default_threads().min(MAX_THREADS) as u64;
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..threads)
            .map(|lane| {
                let (sender, receiver) = mpsc::sync_channel(WAITING_BATCHES);
                scope.spawn(move || {
                    for batch in (lane..batches).step_by(threads as usize) {
                        if sender.send(make(synth, args, batch)).is_err() {
                            return;
                        }
                    }
                });
                receiver
            })
            .collect();
        // Unbuffered: a batch is larger than any buffer.
        let mut out = io::stdout().lock();
        for batch in 0..batches {
            let ids = lanes[(batch % threads) as usize]
                .recv()
                .expect("a lane makes each of its batches");
            out.write_all(ids.as_bytes())
                .map_err(CommandError::output)?;
        }
        out.flush().map_err(CommandError::output)
    })
}

fn make(synth: Synth, args: &SynthArgs, batch: u64) -> String {
    let first = batch * BATCH_IDS;
    let count = BATCH_IDS.min(args.count - first);
    let mut ids = String::with_capacity(40 * BATCH_IDS as usize);
    for index in first..first + count {
        synth.write(args.offset.wrapping_add(index), &mut ids);
        ids.push('\n');
    }
    ids
}
