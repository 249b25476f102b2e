//! Ids from standard input into what Redis is given, on standard output.

use std::io::{BufRead as _, BufWriter, Write as _, stdin, stdout};

use crate::bloom::Bloom;

/// `SET id 1` of every id, in Redis's protocol.
pub(crate) fn set_commands() -> crate::Outcome {
    let mut to = BufWriter::with_capacity(1 << 20, stdout().lock());
    for id in stdin().lock().lines() {
        let id = id?;
        write!(to, "*3\r\n$3\r\nSET\r\n${}\r\n{id}\r\n$1\r\n1\r\n", id.len())?;
    }
    Ok(to.flush()?)
}

/// What so many ids' `SETBIT`s would leave: setting them here takes seconds, and there as many as thirteen commands an id.
pub(crate) fn bitmap(ids: u64) -> crate::Outcome {
    let bloom = Bloom::of(ids);
    let mut bytes = vec![0u8; bloom.size_bytes()];
    for id in stdin().lock().lines() {
        let id = id?;
        let places = bloom.places(&id).ok_or_else(|| format!("not an md5: {id}"))?;
        places.for_each(|place| bytes[(place / 8) as usize] |= 0x80 >> (place % 8));
    }
    Ok(stdout().lock().write_all(&bytes)?)
}
