//! Coupons: a device's register in every sketch, and a value for it.
//!
//! The hash is that of Apache DataSketches for an item of 16 bytes, with its default seed, so that
//! their libraries can add devices to a sketch, or compare it with one of their own: MurmurHash3,
//! x64, 128 bits. The item is the device key: the md5 itself, not its hex digits.

use std::cell::Cell;

use rtad_core::device::DeviceKey;

/// Registers of a sketch, as a power of two. The standard error is 0.81 %, also of a union.
pub const LG_REGISTERS: u8 = 14;
/// Registers of a sketch, a byte each.
pub const REGISTERS: usize = 1 << LG_REGISTERS;

/// Default seed of the libraries.
const SEED: u64 = 9001;
const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

/// A register and a value for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Coupon {
    pub(super) register: u16,
    pub(super) value: u8,
}

impl Coupon {
    fn of(key: &DeviceKey) -> Self {
        let [a, b] = murmur3(key.as_bytes());
        let register = (a % REGISTERS as u64) as u16;
        // The format has six bits for a value; zero is an empty register.
        Self {
            register,
            value: b.leading_zeros().min(62) as u8 + 1,
        }
    }
}

fn murmur3(item: &[u8; 16]) -> [u64; 2] {
    let item = u128::from_le_bytes(*item);
    let (low, high) = (item as u64, (item >> 64) as u64);
    let mut a = SEED ^ low.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    a = a
        .rotate_left(27)
        .wrapping_add(SEED)
        .wrapping_mul(5)
        .wrapping_add(0x52dc_e729);
    let mut b = SEED ^ high.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    b = b
        .rotate_left(31)
        .wrapping_add(a)
        .wrapping_mul(5)
        .wrapping_add(0x3849_5ab5);
    (a, b) = add_both(a ^ 16, b ^ 16);
    (a, b) = add_both(mix(a), mix(b));
    [a, b]
}

const fn add_both(a: u64, b: u64) -> (u64, u64) {
    let a = a.wrapping_add(b);
    (a, b.wrapping_add(a))
}

const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits = (bits ^ bits >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    bits ^ bits >> 33
}

/// The device of a request, hashed at its first bid. A request without a key counts nowhere.
#[derive(Debug)]
pub struct ReachedDevice<'k> {
    key: Option<&'k DeviceKey>,
    coupon: Cell<Option<Coupon>>,
}

impl<'k> ReachedDevice<'k> {
    /// The device of this key.
    #[inline]
    pub const fn new(key: Option<&'k DeviceKey>) -> Self {
        Self {
            key,
            coupon: Cell::new(None),
        }
    }

    #[inline]
    pub(super) fn coupon(&self) -> Option<Coupon> {
        if self.coupon.get().is_none() {
            self.coupon.set(self.key.map(Coupon::of));
        }
        self.coupon.get()
    }
}
