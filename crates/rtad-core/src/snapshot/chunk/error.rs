//! Reasons why a chunk file is rejected.

use std::io;

use super::super::Fault;
use super::super::name::Digest;

/// Why a chunk file is rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkError {
    /// The file is too short or too long.
    #[error(
        "has {found} bytes{}, expected {expected}",
        if *found > *expected { " or more" } else { "" }
    )]
    Length {
        /// Bytes received.
        found: u64,
        /// Size in the manifest.
        expected: u64,
    },
    /// Not a chunk file.
    #[error("is not a chunk: it does not begin with RTADCHNK")]
    Magic,
    /// Written by a newer rtad.
    #[error("version is {found}, this rtad reads version 1: upgrade rtad")]
    Version {
        /// The version of the file.
        found: u32,
    },
    /// A field contradicts the manifest or another field.
    #[error(
        "{field} at byte {offset} is {found}, expected {expected}: rebuild with `rtad-loader build`"
    )]
    Field {
        /// The field's name.
        field: &'static str,
        /// Its offset in the file.
        offset: usize,
        /// The value found.
        found: u64,
        /// The expected value.
        expected: u64,
    },
    /// A count of a ribbon filter is impossible.
    #[error(
        "{field} at byte {offset} is {found}, expected at most {limit}: \
         rebuild with `rtad-loader build`"
    )]
    AboveLimit {
        /// The field's name.
        field: &'static str,
        /// Its offset in the file.
        offset: usize,
        /// The value found.
        found: u32,
        /// The highest possible value.
        limit: u32,
    },
    /// The bytes are not the published ones.
    #[error(
        "digest is {found}, expected {expected}: \
         delete the file and publish again with `rtad-loader build`"
    )]
    Digest {
        /// Digest of the bytes read.
        found: Digest,
        /// Digest in the manifest.
        expected: Digest,
    },
    /// Larger than the limit of a chunk.
    #[error("has {bytes} bytes of filters, the limit is {limit}")]
    TooLarge {
        /// Stated size of the filters.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Memory for the filters could not be allocated.
    #[error("cannot allocate {bytes} bytes for filters")]
    Memory {
        /// Size of the allocation.
        bytes: u64,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
}

impl ChunkError {
    /// The kind of fault, for the metric.
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Digest { .. } => Fault::Digest,
            Self::Length { .. } => Fault::Truncated,
            Self::TooLarge { .. } | Self::Memory { .. } => Fault::TooLarge,
            _ => Fault::Format,
        }
    }
}
