//! Batches of ids: the keys of many ids, whose md5s are computed together.
//!
//! The results are those of [`KeyMaker::keys`] for one id at a time, in the same order.

use super::key::DeviceKey;
use super::key_maker::{Form, KeyMaker, Unusable, append_distinct, trim};
use super::kind::{Case, IdKind};
use super::md5_lanes::Md5Lanes;

/// Ids whose keys are computed together. Reused, so that only the first batches allocate.
#[derive(Debug, Default)]
pub struct KeyBatch {
    ids: Vec<BatchId>,
    hashes: Md5Lanes,
}

/// An id of a batch.
#[derive(Debug, Clone, Copy)]
enum BatchId {
    /// Known without a hash.
    Known(Result<DeviceKey, Unusable>),
    /// The index of the one hash.
    One { hash: usize, has_shape: bool },
    /// The index of the first of three hashes, one for each case; the shape is valid.
    Three { first: usize },
}

impl KeyBatch {
    /// Ids per batch: more are no faster, and take more of the first-level cache.
    pub const USUAL_LEN: usize = 256;

    /// Adds an id as received.
    #[inline]
    pub fn push(&mut self, maker: &KeyMaker, kind: IdKind, case: Case, id: &[u8]) {
        let id = trim(id);
        let id = match maker.form(kind, id) {
            Form::Known(result) => BatchId::Known(result),
            Form::Unhashed { has_shape: true } if case == Case::All => {
                let first = self.hashes.push(Case::AsIs, id);
                self.hashes.push(Case::Lower, id);
                self.hashes.push(Case::Upper, id);
                BatchId::Three { first }
            }
            Form::Unhashed { has_shape } => {
                let case = if has_shape { case } else { Case::AsIs };
                BatchId::One {
                    hash: self.hashes.push(case, id),
                    has_shape,
                }
            }
        };

        self.ids.push(id);
    }

    /// Number of ids added.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether no id was added.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Appends the distinct keys of each id in order, and calls `each` after those of one. Empties
    /// the batch.
    #[inline]
    pub fn finish(
        &mut self,
        maker: &KeyMaker,
        keys: &mut Vec<DeviceKey>,
        mut each: impl FnMut(Result<(), Unusable>),
    ) {
        let hashes = self.hashes.digests();
        for id in self.ids.drain(..) {
            each(match id {
                BatchId::Known(result) => result.map(|key| keys.push(key)),
                BatchId::One { hash, has_shape } => maker
                    .hashed(hashes[hash], has_shape)
                    .map(|key| keys.push(key)),
                BatchId::Three { first } => {
                    let results = hashes[first..first + 3].iter();
                    append_distinct(results.map(|hash| maker.hashed(*hash, true)), keys)
                }
            });
        }

        self.hashes.clear();
    }
}

impl KeyMaker {
    /// The same as [`keys`](Self::keys) in the canonical case for each of many `ids`: calls `each`
    /// after the keys of one. Takes a third of the time per raw id.
    pub fn keys_of_many<'i>(
        &self,
        kind: IdKind,
        ids: impl IntoIterator<Item = &'i [u8]>,
        keys: &mut Vec<DeviceKey>,
        mut each: impl FnMut(Result<(), Unusable>),
    ) {
        if kind == IdKind::Md5 {
            // No hash to share, and a batch costs 18 ns per id.
            for id in ids {
                each(self.key(kind, id).map(|key| keys.push(key)));
            }
            return;
        }

        let mut batch = KeyBatch::default();
        for id in ids {
            batch.push(self, kind, kind.canonical_case(), id);
            if batch.len() == KeyBatch::USUAL_LEN {
                batch.finish(self, keys, &mut each);
            }
        }

        batch.finish(self, keys, each);
    }
}
