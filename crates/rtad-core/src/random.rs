//! Random numbers of the operating system: owners of locks, seeds, jitter.

/// A random number.
///
/// # Panics
///
/// The system has no random numbers.
#[must_use]
pub fn number() -> u64 {
    getrandom::u64().expect("random numbers of the system")
}

/// A random fraction from 0 to 1.
#[must_use]
pub fn fraction() -> f64 {
    number() as f64 / u64::MAX as f64
}
