//! The secret of the log: HMACs of devices, and the sample of devices.

use hmac::{Hmac, KeyInit as _, Mac as _};
use rtad_core::device::DeviceKey;
use rtad_log::Device;
use sha2::{Digest as _, Sha256};

/// A secret, ready for use.
#[derive(Clone)]
pub struct LogKey {
    mac: Hmac<Sha256>,
    /// Keeps the sample apart from anything else that depends on a device's key.
    salt: u64,
    /// The first 8 hex digits of a hash of the secret.
    id: String,
}

/// Hides the secret.
impl std::fmt::Debug for LogKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl LogKey {
    /// The secret of these bytes.
    pub fn new(secret: &[u8]) -> Self {
        let mac = Hmac::<Sha256>::new_from_slice(secret).expect("any length is a key");

        let of_sample = mac.clone().chain_update("sample").finalize().into_bytes();
        let salt = u64::from_le_bytes(of_sample[..8].try_into().expect("8 bytes"));
        let of_id = mac.clone().chain_update("id").finalize().into_bytes();
        let id = const_hex::encode(&Sha256::digest(of_id)[..4]);
        Self { mac, salt, id }
    }

    /// Its id in the rows.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The name of a device in the files.
    pub fn name(&self, key: &DeviceKey) -> Device<'_> {
        let mac = self
            .mac
            .clone()
            .chain_update(key.as_bytes())
            .finalize()
            .into_bytes();
        Device {
            hmac: mac[..16].try_into().expect("16 bytes"),
            secret: &self.id,
        }
    }

    /// Whether a device is in the sample of a share, of which `threshold` is the threshold. The
    /// same in each pod with the secret. A larger share has all devices of a smaller one.
    #[inline]
    pub fn is_sampled(&self, key: &DeviceKey, threshold: u64) -> bool {
        let [.., a, b, c, d, e, f, g, h] = *key.as_bytes();
        // The key is an md5: its bytes are uniform. The multiplication spreads the salt.
        let mixed = (u64::from_le_bytes([a, b, c, d, e, f, g, h]) ^ self.salt)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 32) < threshold
    }
}

/// The numbers of 64 bits below which a share of all numbers is.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share from 0 to 1; the cast saturates"
)]
pub fn threshold(share: f64) -> u64 {
    if share >= 1.0 {
        u64::MAX
    } else {
        (share * u64::MAX as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_an_hmac_that_others_compute_alike() {
        // python3: hmac.new(b"0123456789abcdef", md5(b"868049039501257").digest(), "sha256")
        let key = LogKey::new(b"0123456789abcdef");
        let device = DeviceKey::of_canonical(b"868049039501257");
        assert_eq!(
            const_hex::encode(key.name(&device).hmac),
            "7460cbe53605aee394a38fdc30c478f5"
        );
        assert_eq!(key.id(), "d1636338");
        assert_ne!(
            LogKey::new(b"0123456789abcdeg").name(&device),
            key.name(&device)
        );
    }

    #[test]
    fn sample_is_the_share_of_devices_and_nested() {
        let (key, other) = (
            LogKey::new(b"0123456789abcdef"),
            LogKey::new(b"another secret 1"),
        );
        let (small, large) = (threshold(0.01), threshold(0.05));
        let mut counts = [0_u32; 4];
        for number in 0..200_000_u64 {
            let device = DeviceKey::of_canonical(&number.to_le_bytes());
            let (is_small, is_large) = (
                key.is_sampled(&device, small),
                key.is_sampled(&device, large),
            );
            assert!(is_large || !is_small);
            let is_other = other.is_sampled(&device, small);
            for (count, is_in) in
                counts
                    .iter_mut()
                    .zip([is_small, is_large, is_other, is_small && is_other])
            {
                *count += u32::from(is_in);
            }
            assert!(key.is_sampled(&device, threshold(1.0)));
            assert!(!key.is_sampled(&device, threshold(0.0)));
        }
        let [small, large, other, both] = counts;
        // Four standard deviations.
        assert!((1_822..2_178).contains(&small) && (1_822..2_178).contains(&other));
        assert!((9_610..10_390).contains(&large));
        assert!(both < 40, "secrets have samples of their own: {both}");
    }
}
