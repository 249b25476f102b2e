//! `--if-changed`: skips a build whose result would be that of the live generation.
//!
//! The manifest has a digest of the inputs' names, sizes and versions and of the flags that shape
//! the keys and chunks. Contents are not read. Any change to the audience since its build, such as
//! an append, also calls for a new build, and so does an age of `--rebuild-after` or an expiry.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_core::clock::now_unix_seconds;
use rtad_core::snapshot::{Digest, Manifest, State};
use rtad_store::StoreError;

use super::super::context::runtime;
use super::{BuildArgs, Facts, shape};
use crate::input::{Input, Source};

#[derive(Debug, thiserror::Error)]
#[error(
    "--if-changed: changes of input {input} cannot be known before it is read: expected a file, or \
     a URL whose server sends ETag or Last-Modified; found {found}"
)]
struct UnversionedInput {
    found: &'static str,
    input: String,
}

impl CommandFailure for UnversionedInput {
    fn exit(&self) -> ExitStatus {
        ExitStatus::Usage
    }
}

/// Report of a build that was not needed.
#[derive(Debug, Serialize)]
pub struct Unchanged {
    audience: String,
    generation: u64,
    unchanged: bool,
}

impl Unchanged {
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self {
            audience,
            generation,
            ..
        } = self;
        writeln!(
            out,
            "{audience}: nothing changed since generation {generation}, which stays live"
        )
    }
}

/// Digest of everything that the result depends on, but for the store's deltas; `None` if an input
/// is a stream or has no version. Inputs that cannot be opened are reported by their reader.
pub fn digest(args: &BuildArgs, input: &Input) -> Option<Digest> {
    let tool = ("tool".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    let mut facts: Facts = vec![tool];
    facts.extend(shape(args, input));
    for source in &input.sources {
        facts.push((source.name(), source.identity().ok()??));
    }
    Some(Digest::of(&serde_json::to_vec(&facts).expect("plain text")))
}

/// The live generation, if a build would repeat it.
pub fn find(args: &BuildArgs) -> Result<Option<Unchanged>, CommandError> {
    let input = args
        .input
        .resolve_with_value(&args.inputs, args.value.as_deref())?;
    let is_unversioned = |source: &&Source| matches!(source.identity(), Ok(None));
    if let Some(source) = input.sources.iter().find(is_unversioned) {
        let found = if matches!(source, Source::Remote(_)) {
            "neither"
        } else {
            "a stream"
        };
        return Err(UnversionedInput {
            found,
            input: source.name(),
        }
        .into());
    }
    let store = args.sign.verifying(args.target.open()?)?;
    let audience = &args.target.audience;
    let found = runtime()?.block_on(async {
        let Some(live) = store.live(audience).await? else {
            return Ok(None);
        };
        let current = live.current;
        let is_as_built = current.sequence == current.published_sequence()
            && current.deltas.is_empty()
            && current.state != State::Deleted;
        if !is_as_built {
            return Ok(None);
        }
        match store.manifest(audience, &current).await {
            Ok(manifest) => Ok(Some(manifest)),
            // The build repairs it, or signs it with this key.
            Err(
                StoreError::NotFound { .. }
                | StoreError::Manifest { .. }
                | StoreError::Signature { .. },
            ) => Ok(None),
            Err(error) => Err(error),
        }
    })?;
    // Without --keep-carried, a repetition would no longer apply the deltas that this generation
    // includes.
    let loses_deltas = |manifest: &Manifest| {
        let has_deltas = manifest
            .folded()
            .is_some_and(|folded| !folded.deltas.is_empty());
        has_deltas && !args.carried.keep_carried
    };
    let Some(manifest) = found.filter(|manifest| !loses_deltas(manifest)) else {
        return Ok(None);
    };
    let built_from = manifest.lineage().and_then(|lineage| lineage.inputs_sha256);
    if built_from.is_none() || built_from != digest(args, &input) {
        return Ok(None);
    }
    let now = now_unix_seconds();
    // A damaged manifest may have any time.
    let age = Duration::from_secs(now.saturating_sub(manifest.created_unix_seconds()));
    let is_old = args.rebuild_after.is_some_and(|limit| age >= limit);
    if is_old || manifest.is_expired(now) {
        return Ok(None);
    }
    Ok(Some(Unchanged {
        audience: audience.as_str().to_owned(),
        generation: manifest.generation(),
        unchanged: true,
    }))
}
