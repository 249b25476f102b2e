//! Device keys, filters and snapshot files: the core of every rtad program.
//!
//! | module | job |
//! |---|---|
//! | [`error_chain`] | messages of an error and its causes in one line |
//! | [`clock`] | clocks of the process, Unix time |
//! | [`random`] | random numbers |
//! | [`backoff`] | time between attempts |
//! | [`hash`] | mixing step of keyed hashes |
//! | [`files`] | files that appear whole, and files opened without blocking |
//! | [`device`] | device ids and the 16-byte keys made of them |
//! | [`period`] | calendar days and hours in a time zone |
//! | [`schedule`] | times at which something holds |
//! | [`experiment`] | slots of experiments |
//! | [`cap`] | a limited number of distinct devices |
//! | [`synth`] | deterministic device ids for tests and load |
//! | [`headroom`] | memory left under the container's limit |
//! | [`memory`] | page-aligned memory for filters |
//! | [`filter`] | Bloom filter kinds, their sizing and probes |
//! | [`snapshot`] | manifest, chunk, delta and the record files, and a snapshot in memory |
//!
//! Each module uses only those above it in the table. The crate has no sockets, threads, runtime or
//! configuration: input is slices, output is vectors. Only [`files`] and [`headroom`] use files.
//!
//! # Example
//!
//! A lookup from ids, without files:
//!
//! ```
//! use std::sync::Arc;
//!
//! use rtad_core::device::{IdKind, KeyMaker};
//! use rtad_core::filter::{FilterKind, FilterSpec};
//! use rtad_core::snapshot::{BuiltChunk, GenerationFacts, ManifestBuilder, Snapshot};
//! use rtad_core::snapshot::{ChunkDecoder, ChunkReader};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let keys = KeyMaker::default();
//! let known = keys.key(IdKind::Imei, b"868049039501257").expect("a usable id");
//!
//! let spec = FilterSpec::for_fpr(FilterKind::Block512, 1e-4)?;
//! let built = BuiltChunk::build(&spec, &[known]);
//! let mut manifest = ManifestBuilder::new(spec, 1e-4);
//! manifest.add(&built);
//! let manifest = manifest.finish("old_users".parse()?, GenerationFacts::default())?;
//!
//! // A pod reads the file this way: every field and the digest are verified.
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
//! A lookup of a member is always positive; that of a non-member with the filter's false-positive
//! rate. An id that stands for "no id" never becomes a key. No function prints an id.

pub mod backoff;
pub mod cap;
pub mod clock;
pub mod device;
pub mod error_chain;
pub mod experiment;
pub mod files;
pub mod filter;
pub mod hash;
pub mod headroom;
pub mod memory;
pub mod period;
pub mod random;
pub mod schedule;
pub mod snapshot;
pub mod synth;
