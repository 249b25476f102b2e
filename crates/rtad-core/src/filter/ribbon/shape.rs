//! Shapes of lines: columns, slots and threshold bits, at compile time.

use super::LINE_BYTES;

const LINE_BITS: usize = 8 * LINE_BYTES;

/// Bits of a row's sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowBits {
    pub(in crate::filter) fingerprint: u32,
    /// 0 or 4.
    pub(in crate::filter) value: u32,
}

/// Calls a function with the shape of a tier of `$bits` fingerprint bits without values.
macro_rules! with_shape {
    ($bits:expr, $function:ident($($argument:expr),*)) => {
        match $bits {
            12 => $function::<Shape<12, 42>>($($argument),*),
            13 => $function::<Shape<13, 39>>($($argument),*),
            14 => $function::<Shape<14, 36>>($($argument),*),
            15 => $function::<Shape<15, 34>>($($argument),*),
            _ => $function::<Shape<16, 31>>($($argument),*),
        }
    };
}
pub(super) use with_shape;

/// Calls a function with the shape of a tier of these [`RowBits`].
macro_rules! with_any_shape {
    ($bits:expr, $function:ident($($argument:expr),*)) => {
        match $bits {
            RowBits { fingerprint, value: 0 } => {
                with_shape!(fingerprint, $function($($argument),*))
            }
            RowBits { fingerprint: 12, .. } => $function::<ValueShape<12, 31>>($($argument),*),
            RowBits { fingerprint: 13, .. } => $function::<ValueShape<13, 30>>($($argument),*),
            RowBits { fingerprint: 14, .. } => $function::<ValueShape<14, 28>>($($argument),*),
            RowBits { fingerprint: 15, .. } => $function::<ValueShape<15, 26>>($($argument),*),
            RowBits { .. } => $function::<ValueShape<16, 25>>($($argument),*),
        }
    };
}
pub(super) use with_any_shape;

/// `R` fingerprint bits, `L` slots per line.
pub struct Shape<const R: usize, const L: usize>;

/// The same with four bits of value after the fingerprint.
pub struct ValueShape<const R: usize, const L: usize>;

/// The numbers of a tier.
pub trait Tier {
    /// Fingerprint bits: the first columns of a line.
    const BITS: usize;
    /// Bits of a value: the other columns.
    const VALUE_BITS: usize;
    /// Slots of a line.
    const SLOTS: usize;
    /// The value of a slot while a tier is solved.
    type Word: Word;

    const COLUMNS: usize = Self::BITS + Self::VALUE_BITS;
    /// Bits of a line's threshold.
    const THRESHOLD_BITS: usize = {
        let unused = LINE_BITS - Self::COLUMNS * Self::SLOTS;
        if unused < 5 { unused } else { 5 }
    };
    /// The bits of one column.
    const MASK: u64 = (1 << Self::SLOTS) - 1;
    /// The end of a threshold's range.
    const THRESHOLD_END: u64 = 1 << Self::THRESHOLD_BITS;
}

impl<const R: usize, const L: usize> Tier for Shape<R, L> {
    const BITS: usize = R;
    const VALUE_BITS: usize = 0;
    const SLOTS: usize = L;
    type Word = u16;
}

impl<const R: usize, const L: usize> Tier for ValueShape<R, L> {
    const BITS: usize = R;
    const VALUE_BITS: usize = 4;
    const SLOTS: usize = L;
    type Word = u32;
}

/// A number with a bit per column.
pub trait Word:
    Copy + std::ops::BitXorAssign + std::ops::BitAnd<Output = Self> + Into<u32>
{
    const ZERO: Self;
    const ONES: Self;
    /// The low bits of `bits`.
    fn truncated(bits: u64) -> Self;
}

impl Word for u16 {
    const ZERO: Self = 0;
    const ONES: Self = Self::MAX;

    fn truncated(bits: u64) -> Self {
        bits as Self
    }
}

impl Word for u32 {
    const ZERO: Self = 0;
    const ONES: Self = Self::MAX;

    fn truncated(bits: u64) -> Self {
        bits as Self
    }
}

pub fn slots(bits: RowBits) -> u64 {
    const fn of<T: Tier>() -> u64 {
        T::SLOTS as u64
    }
    with_any_shape!(bits, of())
}
