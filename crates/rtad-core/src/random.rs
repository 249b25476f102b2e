//! Random numbers of the operating system: owners of locks, seeds, jitter.
//!
//! The feature `simulated` lets a simulation determine them.

/// A random number.
///
/// # Panics
///
/// The system has no random numbers.
#[must_use]
pub fn number() -> u64 {
    #[cfg(feature = "simulated")]
    if let Some(number) = simulated::next() {
        return number;
    }
    getrandom::u64().expect("random numbers of the system")
}

/// A random fraction from 0 to 1.
#[must_use]
pub fn fraction() -> f64 {
    number() as f64 / u64::MAX as f64
}

/// Numbers of a simulated process.
#[cfg(feature = "simulated")]
pub mod simulated {
    use std::cell::RefCell;

    /// A sequence of numbers.
    type Sequence = Box<dyn FnMut() -> u64>;

    thread_local! {
        static NUMBERS: RefCell<Option<Sequence>> = const { RefCell::new(None) };
    }

    pub(super) fn next() -> Option<u64> {
        NUMBERS.with_borrow_mut(|numbers| numbers.as_mut().map(|next| next()))
    }

    /// Sets the numbers of this thread; `None` for those of the system. Returns what was set.
    pub fn set(numbers: Option<Sequence>) -> Option<Sequence> {
        NUMBERS.replace(numbers)
    }
}
