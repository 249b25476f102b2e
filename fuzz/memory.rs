//! Memory bounds of readers.

/// Bound for the smallest input: errors have a text, and small lists a capacity.
const BASE: usize = 4096;

/// Runs a reader of `input_bytes`.
///
/// # Panics
///
/// If the reader allocates more than `factor` times the input.
pub fn bounded<T>(name: &str, input_bytes: usize, factor: usize, read: impl FnOnce() -> T) -> T {
    let mut result = None;
    let counted = allocation_counter::measure(|| result = Some(read()));
    let bound = (BASE + factor * input_bytes) as u64;
    let peak = counted.bytes_max;
    assert!(
        peak <= bound,
        "{name} of {input_bytes} bytes took {peak}, expected at most {bound}"
    );
    result.expect("the reader has run")
}
