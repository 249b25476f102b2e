//! Manifest of a new generation.

use rtad_core::clock::now_unix_seconds;
use rtad_core::snapshot::{AudienceName, BuildReport, Folded, Manifest, ManifestBuilder};

/// Completes the manifest of a generation created now.
pub fn new_manifest(
    chunks: ManifestBuilder,
    audience: &AudienceName,
    generation: u64,
    folded: Option<Folded>,
) -> Manifest {
    let tool = concat!("rtad-writer ", env!("CARGO_PKG_VERSION")).to_owned();
    let build = BuildReport {
        tool,
        ..BuildReport::default()
    };
    let manifest = chunks.finish(audience.clone(), generation, now_unix_seconds(), build);
    match folded {
        Some(folded) => manifest.with_folded(folded),
        None => manifest,
    }
}
