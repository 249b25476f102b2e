//! Manifest of a new generation.

use rtad_core::clock::now_unix_seconds;
use rtad_core::snapshot::{AudienceName, BuildReport, Folded, Manifest, ManifestBuilder};

use super::expiry_args::ExpiryArgs;

/// Generation in the manifest of a dry run, which is never written.
pub const NO_GENERATION: u64 = 0;

/// Completes the manifest of a generation created now. `build.tool` is set here.
pub fn new_manifest(
    chunks: ManifestBuilder,
    audience: &AudienceName,
    generation: u64,
    build: BuildReport,
    folded: Option<Folded>,
    expiry: ExpiryArgs,
) -> Manifest {
    let now = now_unix_seconds();
    let tool = concat!("rtad-loader ", env!("CARGO_PKG_VERSION")).to_owned();
    let mut manifest = chunks.finish(
        audience.clone(),
        generation,
        now,
        BuildReport { tool, ..build },
    );
    if let Some(folded) = folded {
        manifest = manifest.with_folded(folded);
    }
    match expiry.end(now) {
        Some(end) => manifest.expiring_at(end),
        None => manifest,
    }
}
