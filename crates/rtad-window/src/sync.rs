//! Locks and atomics of the table. The feature `model` replaces them by loom's, which tries every
//! interleaving.

#[cfg(feature = "model")]
pub(crate) use loom::sync::Mutex;
#[cfg(feature = "model")]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64};
#[cfg(not(feature = "model"))]
pub(crate) use std::sync::Mutex;
#[cfg(not(feature = "model"))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64};

pub(crate) use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{LockResult, PoisonError};

#[cfg(feature = "model")]
pub(crate) type Guard<'a, T> = loom::sync::MutexGuard<'a, T>;
#[cfg(not(feature = "model"))]
pub(crate) type Guard<'a, T> = std::sync::MutexGuard<'a, T>;

/// Content of a lock, also after a panic of another holder: each change leaves it valid.
pub(crate) fn guard<G>(locked: LockResult<G>) -> G {
    locked.unwrap_or_else(PoisonError::into_inner)
}
