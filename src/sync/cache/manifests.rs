//! Cached manifests, with the signatures that they were verified by. Everything here blocks.

use std::io;
use std::path::Path;

use super::files::{read_at_most, write};
use crate::snapshot::MAX_MANIFEST_BYTES;
use crate::store::{MAX_SIGNATURE_BYTES, Signed, Trust};

/// Writes a manifest, its signature first.
pub(super) fn write_manifest(folder: &Path, generation: u64, file: &Signed) -> io::Result<()> {
    let name = format!("{generation}.json");
    if let Some(signature) = &file.signature {
        write(folder, &format!("{name}.minisig"), signature)?;
    }
    write(folder, &name, &file.bytes)
}

/// Reads a manifest, and its signature if it must have one. Nothing is verified yet.
pub(super) fn read_manifest(folder: &Path, generation: u64, trust: &Trust) -> io::Result<Signed> {
    let name = format!("{generation}.json");
    let bytes = read_at_most(&folder.join(&name), MAX_MANIFEST_BYTES)?;
    // One that cannot be read is as good as none.
    let signature = || read_at_most(&folder.join(format!("{name}.minisig")), MAX_SIGNATURE_BYTES).ok();
    Ok(Signed { bytes, signature: trust.is_required().then(signature).flatten() })
}
