//! Cached manifests and deltas with their signatures. Everything here blocks.

use std::io;
use std::path::Path;

use super::files::{read_at_most, write};
use rtad_store::{MAX_SIGNATURE_BYTES, Signed, Trust};

/// Writes a file, its signature first.
pub fn write_signed(folder: &Path, name: &str, file: &Signed) -> io::Result<()> {
    if let Some(signature) = &file.signature {
        write(folder, &format!("{name}.minisig"), signature)?;
    }
    write(folder, name, &file.bytes)
}

/// Reads a file of at most `limit` bytes, and its signature if signatures are required. Verifies
/// nothing.
pub fn read_signed(folder: &Path, name: &str, limit: u64, trust: &Trust) -> io::Result<Signed> {
    let bytes = read_at_most(&folder.join(name), limit)?;
    // An unreadable signature counts as a missing one.
    let signature =
        || read_at_most(&folder.join(format!("{name}.minisig")), MAX_SIGNATURE_BYTES).ok();
    Ok(Signed {
        bytes,
        signature: trust.is_required().then(signature).flatten(),
    })
}
