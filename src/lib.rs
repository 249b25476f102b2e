//! Decides whether an ad impression is for a device you already know.
//!
//! An ad platform asks before each impression; the answer must be there within 60 ms, hundreds of thousands of times a second. The
//! pool of known devices, 1.5 billion ids, is held as Bloom filters in the process: 65,536 of them, sharded by the key's first
//! 16 bits, swapped atomically from snapshots that an offline loader publishes.
//!
//! # The floors
//!
//! Each module uses only those below it; `docs/architecture.md` says why they stand as they do.
//!
//! | floor | modules |
//! |---|---|
//! | 7 | `serve` |
//! | 6 | `http` |
//! | 5 | `catalog`, `sync`, `explain` |
//! | 4 | `platform` |
//! | 3 | `strategy` |
//! | 2 | [`snapshot`], [`store`] |
//! | 1 | [`filter`], [`memory`] |
//! | 0 | [`device`], [`synth`] |
//!
//! `config` and `telemetry` stand beside. The feature `server`, on by default, gates floors 3 to 7; without it the library is
//! what the loader needs.
//!
//! # Example
//!
//! From ids to answers without a file in between:
//!
//! ```
//! use std::sync::Arc;
//!
//! use rtad::device::{IdKind, KeyMaker};
//! use rtad::filter::{FilterKind, FilterSpec};
//! use rtad::snapshot::{BuildReport, BuiltChunk, ChunkDecoder, ManifestBuilder, Snapshot};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let keys = KeyMaker::default();
//! let known = keys.key(IdKind::Imei, b"868049039501257").expect("a usable id");
//!
//! let spec = FilterSpec::for_fpr(FilterKind::Block512, 1e-4)?;
//! let built = BuiltChunk::build(&spec, &[known]);
//! let mut manifest = ManifestBuilder::new(spec, 1e-4);
//! manifest.add(&built);
//! let manifest = manifest.finish("old_users".parse()?, 1, 0, BuildReport::default());
//!
//! // What a pod does with the file: every field and the digest are checked.
//! let mut decoder = ChunkDecoder::new(manifest.filter(), &built.entry);
//! decoder.feed(&built.bytes)?;
//! let snapshot = Snapshot::assemble(manifest, vec![Arc::new(decoder.finish()?)]);
//!
//! assert!(snapshot.contains(&known));
//! let hashed = keys.key(IdKind::Md5, b"8D3EBD3654FB46A2832296669CF1B536").expect("a usable id");
//! assert!(snapshot.contains(&hashed), "the md5 of the same id is the same key");
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//!
//! A member is always found; a stranger is taken for one with the rate that the filter was sized for. An id that stands for "no
//! id" is never a key. Nothing here prints an id.

#[cfg(feature = "server")]
pub mod catalog;
#[cfg(feature = "server")]
pub mod config;
pub mod device;
#[cfg(feature = "server")]
pub mod explain;
pub mod filter;
#[cfg(feature = "server")]
pub mod http;
#[cfg(feature = "manual")]
pub mod manual;
pub mod memory;
#[cfg(feature = "server")]
pub mod platform;
#[cfg(feature = "server")]
pub mod serve;
pub mod snapshot;
pub mod store;
#[cfg(feature = "server")]
pub mod strategy;
#[cfg(feature = "server")]
pub mod sync;
pub mod synth;
#[cfg(feature = "server")]
pub mod telemetry;
