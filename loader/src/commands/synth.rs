//! `synth` command: deterministic synthetic device ids on stdout.

use std::io::{self, Write};

use clap::Args;

use rtad_cli::command_error::CommandError;
use rtad_core::device::IdKind;
use rtad_core::synth::Synth;

const BATCH_IDS: u64 = 16 << 10;

/// Write synthetic device ids, one per line, for demos, tests and load. Equal arguments give equal
/// ids.
///
/// Kind md5 gives the md5 digests of the IDFAs of the same seed. --json has no effect.
#[derive(Debug, Args)]
pub struct SynthArgs {
    /// Number of ids
    #[arg(long, value_name = "N")]
    count: u64,
    /// Kind of the ids: md5, idfa, imei, oaid, android_id, mac, caid, gaid, openid
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
    // Unbuffered: a batch is larger than any buffer.
    let mut out = io::stdout().lock();
    let mut ids = String::with_capacity(40 * BATCH_IDS as usize);

    let mut first = 0;
    while first < args.count {
        let end = args.count.min(first + BATCH_IDS);
        ids.clear();
        for index in first..end {
            synth.write(args.offset.wrapping_add(index), &mut ids);
            ids.push('\n');
        }
        out.write_all(ids.as_bytes())
            .map_err(CommandError::output)?;
        first = end;
    }
    out.flush().map_err(CommandError::output)
}
