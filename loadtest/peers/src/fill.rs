//! Redis data from ids: reads standard input, writes standard output.

use std::io::{BufRead as _, BufWriter, Write as _, stdin, stdout};

use crate::bloom::Bloom;

/// Writes `SET id 1` for every id, in the Redis protocol.
pub(crate) fn set_commands() -> crate::Outcome {
    let mut out = BufWriter::with_capacity(1 << 20, stdout().lock());
    for id in stdin().lock().lines() {
        let id = id?;
        write!(
            out,
            "*3\r\n$3\r\nSET\r\n${}\r\n{id}\r\n$1\r\n1\r\n",
            id.len()
        )?;
    }
    Ok(out.flush()?)
}

/// Writes the bitmap of the filter. Setting the bits in Redis would take 13 commands per id.
pub(crate) fn bitmap(ids: u64) -> crate::Outcome {
    let bloom = Bloom::of(ids);
    let mut bytes = vec![0u8; bloom.size_bytes()];
    for id in stdin().lock().lines() {
        let id = id?;
        let offsets = bloom.bit_offsets(&id).ok_or("not an md5")?;
        offsets.for_each(|bit| bytes[(bit / 8) as usize] |= 0x80 >> (bit % 8));
    }
    Ok(stdout().lock().write_all(&bytes)?)
}
