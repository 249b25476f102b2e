//! Engines in process: Bloom filters in shared memory.

pub(crate) mod apbf;
pub(crate) mod bits;
pub(crate) mod blocked;
pub(crate) mod plain;
pub(crate) mod rtad;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Keys whose cache misses overlap.
pub(crate) const GROUP: usize = 16;

/// Read lock of a batch. A panic of another thread leaves consistent bits.
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Write lock of a rotation.
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
