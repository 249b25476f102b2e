//! Sizes of Bloom filters for a false-positive rate.

/// Bits of a block: one cache line.
pub(crate) const BLOCK_BITS: u64 = 512;

/// Bits per key of a classic Bloom filter with `hashes` bits per key.
pub(crate) fn plain_bits_per_key(hashes: u32, fpr: f64) -> f64 {
    let hashes = f64::from(hashes);
    -hashes / (1.0 - fpr.powf(1.0 / hashes)).ln()
}

/// Number of hashes and bits per key of the smallest blocked Bloom filter.
pub(crate) fn blocked(most_hashes: u32, fpr: f64) -> (u32, f64) {
    (4..=most_hashes)
        .map(|hashes| (hashes, blocked_bits_per_key(hashes, fpr)))
        .min_by(|one, other| one.1.total_cmp(&other.1))
        .unwrap_or((most_hashes, f64::INFINITY))
}

fn blocked_bits_per_key(hashes: u32, fpr: f64) -> f64 {
    let (mut low, mut high) = (1.0, BLOCK_BITS as f64);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if blocked_fpr(hashes, middle) > fpr { low = middle } else { high = middle }
    }
    high
}

/// The number of keys of a block follows a Poisson distribution.
fn blocked_fpr(hashes: u32, bits_per_key: f64) -> f64 {
    let mean = BLOCK_BITS as f64 / bits_per_key;
    let (mut probability, mut fpr) = ((-mean).exp(), 0.0);
    for keys in 1..=(mean + 20.0 * mean.sqrt() + 20.0) as u32 {
        probability *= mean / f64::from(keys);
        let empty = (1.0 - 1.0 / BLOCK_BITS as f64).powf(f64::from(keys * hashes));
        fpr += probability * (1.0 - empty).powf(f64::from(hashes));
    }
    fpr
}

/// Smallest number of slices that a key is written to, for an age-partitioned Bloom filter with
/// `generations` further slices. Half of the bits of a full slice are set.
pub(crate) fn apbf_hashes(generations: u64, fpr: f64) -> Option<u64> {
    (4..=64).find(|&hashes| apbf_fpr(hashes, generations) <= fpr)
}

/// Probability that `hashes` consecutive slices match a new key, just before a shift.
pub(crate) fn apbf_fpr(hashes: u64, generations: u64) -> f64 {
    // Index: current number of consecutive matches.
    let mut by_run = vec![0.0; hashes as usize];
    by_run[0] = 1.0;
    let mut matched = 0.0;
    for slice in 0..hashes + generations {
        let filled = (slice + 1).min(hashes) as f64 / hashes as f64;
        let fill = 1.0 - 0.5f64.powf(filled);
        let mut next = vec![0.0; by_run.len()];
        for (run, probability) in by_run.iter().enumerate() {
            next[0] += probability * (1.0 - fill);
            match next.get_mut(run + 1) {
                Some(longer) => *longer += probability * fill,
                None => matched += probability * fill,
            }
        }
        by_run = next;
    }
    matched
}
