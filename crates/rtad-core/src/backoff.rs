//! Exponential backoff: the time between attempts, in units of the caller.

/// Units of time until the next attempt, doubled by each failure in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// 0 without a failure.
    units: u32,
    most: u32,
}

impl Backoff {
    /// A backoff of at most `most` units.
    #[must_use]
    pub const fn new(most: u32) -> Self {
        Self { units: 0, most }
    }

    /// Records a failure. Returns the units until the next attempt: 1, 2, 4 and so on.
    pub fn fail(&mut self) -> u32 {
        self.units = self.units.saturating_mul(2).clamp(1, self.most);
        self.units
    }

    /// The units since the last failure; 0 without one.
    #[must_use]
    pub const fn units(&self) -> u32 {
        self.units
    }

    /// Begins with one unit again.
    pub const fn reset(&mut self) {
        self.units = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_double_up_to_the_most_until_a_reset() {
        let mut backoff = Backoff::new(6);
        assert_eq!(backoff.units(), 0);
        assert_eq!([0; 5].map(|_| backoff.fail()), [1, 2, 4, 6, 6]);
        assert_eq!(backoff.units(), 6);
        backoff.reset();
        assert_eq!(backoff.units(), 0);
        assert_eq!(backoff.fail(), 1);
    }
}
