//! Where the levels of a page end, which say of each row whether it has a value.

use parquet::basic::Encoding;

/// The bytes that levels take at the beginning of a page of the first version.
pub(super) fn v1_bytes(text: &[u8], encoding: Encoding, values: u64, most: i16) -> Option<usize> {
    let bytes = match encoding {
        Encoding::RLE => {
            let length = text.first_chunk::<4>()?;
            u64::from(u32::from_le_bytes(*length)) + 4
        }
        // Packed in bits, in old files.
        _ => (values * u64::from(16 - most.leading_zeros())).div_ceil(8),
    };
    usize::try_from(bytes).ok().filter(|bytes| *bytes <= text.len())
}
