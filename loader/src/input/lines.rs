//! Line input: bytes cut into blocks at line ends, for many parsers.
//!
//! Lines may have any encoding and length, and the last may lack its line end. A line longer than a
//! block is truncated just beyond the limit and so rejected later. Memory does not depend on the
//! input. Does *not* parse ids.

use std::io::{self, Read};
use std::sync::Arc;

use rtad_core::device::DeviceKey;

use super::block::{BLOCK_BYTES, Block, MAX_ROW_BYTES, Pool, Rows};
use super::error::InputError;
use super::open::{Opened, Source};
use crate::progress::Bytes;

/// Reads all of `reader` and sends blocks of whole lines, until `send` returns false.
pub fn read_blocks(
    reader: &mut impl Read,
    source: usize,
    pool: &Pool,
    mut send: impl FnMut(Block) -> bool,
) -> io::Result<()> {
    let mut bytes = pool.take(BLOCK_BYTES);
    let mut filled = 0;
    let mut first_row = 1;
    let mut skipping = false;

    loop {
        let count = reader.read(&mut bytes[filled..])?;
        if count == 0 {
            if filled > 0 {
                send(Block {
                    source,
                    bytes,
                    len: filled,
                    rows: Rows::Lines { first: first_row },
                });
            }
            return Ok(());
        }

        let mut end = filled + count;
        if skipping {
            // The rest of a truncated line.
            let Some(line_end) = memchr::memchr(b'\n', &bytes[filled..end]) else {
                continue;
            };
            bytes.copy_within(filled + line_end..end, filled);
            end -= line_end;
            skipping = false;
        }
        filled = end;
        if filled < bytes.len() {
            continue;
        }

        match memchr::memrchr(b'\n', &bytes) {
            Some(last) => {
                let mut next = pool.take(BLOCK_BYTES);
                let rest = &bytes[last + 1..];
                next[..rest.len()].copy_from_slice(rest);
                filled = rest.len();

                let rows = memchr::memchr_iter(b'\n', &bytes[..=last]).count() as u64;
                let block = Block {
                    source,
                    bytes,
                    len: last + 1,
                    rows: Rows::Lines { first: first_row },
                };
                if !send(block) {
                    return Ok(());
                }
                first_row += rows;
                bytes = next;
            }
            None => {
                filled = MAX_ROW_BYTES + 1;
                skipping = true;
            }
        }
    }
}

/// Calls `each` with the lines of a source, decompressed, without their line ends and byte order
/// marks, until it returns false. A line longer than the limit may be cut just beyond it.
pub fn each_line(
    source: &Source,
    bytes: &Arc<Bytes>,
    mut each: impl FnMut(&[u8]) -> bool,
) -> Result<(), InputError> {
    let mut opened = Opened::open(source, bytes, None)?;
    let pool = Pool::default();
    let read = read_blocks(&mut opened, 0, &pool, |block| {
        let goes_on = lines(&block.bytes[..block.len]).all(|line| each(without_mark(line)));
        pool.give_back(block.bytes);
        goes_on
    });
    read.map_err(|error| opened.failed(error))
}

/// Strips a byte order mark, which files that were joined have within them.
pub fn without_mark(line: &[u8]) -> &[u8] {
    line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
}

/// The lines of a block, without their line ends.
pub fn lines(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = block;
    std::iter::from_fn(move || {
        let (line, after) = first_line(rest)?;
        rest = after;
        Some(line)
    })
}

/// The first line of some lines, without its line end, and those after it; `None` at the end.
pub fn first_line(lines: &[u8]) -> Option<(&[u8], &[u8])> {
    if lines.is_empty() {
        return None;
    }
    match memchr::memchr(b'\n', lines) {
        Some(end) => Some((&lines[..end], &lines[end + 1..])),
        None => Some((lines, &[])),
    }
}

/// The key in the first line, if that is 32 hex digits and its line end, and the lines after it.
#[inline]
pub fn first_digest(lines: &[u8]) -> Option<(DeviceKey, &[u8])> {
    let (line, after) = lines.split_first_chunk::<33>()?;
    let digits = line.strip_suffix(b"\n")?;
    let key = DeviceKey::from_hex(digits)?;
    Some((key, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a few bytes at a time, like a pipe.
    struct SlowReader<'a>(&'a [u8], usize);

    impl Read for SlowReader<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(buffer.len()).min(self.1);
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn rows_of(text: &[u8], step: usize) -> Vec<(u64, Vec<u8>)> {
        let mut rows = Vec::new();
        read_blocks(&mut SlowReader(text, step), 0, &Pool::default(), |block| {
            let Rows::Lines { first } = block.rows else {
                panic!("expected lines")
            };
            assert!(block.bytes.len() <= BLOCK_BYTES);
            rows.extend((first..).zip(lines(&block.bytes[..block.len]).map(<[u8]>::to_vec)));
            true
        })
        .unwrap();
        rows
    }

    #[test]
    fn every_line_is_read_once_with_its_number() {
        let mut text = Vec::new();
        for row in 0..200_000 {
            text.extend_from_slice(format!("line {row}\n").as_bytes());
        }
        text.extend_from_slice(b"no line end");
        for step in [997, 1 << 30] {
            let rows = rows_of(&text, step);
            assert_eq!(rows.len(), 200_001);
            for (index, (number, line)) in rows.iter().enumerate().take(200_000) {
                assert_eq!(
                    (*number, line.as_slice()),
                    (index as u64 + 1, format!("line {index}").as_bytes())
                );
            }
            assert_eq!(rows[200_000].1, b"no line end");
        }
    }

    #[test]
    fn line_longer_than_a_block_is_truncated() {
        let mut text = b"before\n".to_vec();
        text.resize(5 * BLOCK_BYTES + 123, b'x');
        text.extend_from_slice(b"\nafter\n");
        for step in [4096, 1 << 30] {
            let rows = rows_of(&text, step);
            let lengths: Vec<_> = rows
                .iter()
                .map(|(number, line)| (*number, line.len()))
                .collect();
            assert_eq!(lengths.len(), 3, "{lengths:?}");
            assert!(lengths[1].1 > MAX_ROW_BYTES);
            assert_eq!(rows[2], (3, b"after".to_vec()));
        }
        assert!(rows_of(b"", 1).is_empty());
        assert_eq!(rows_of(b"\n\n", 1), [(1, vec![]), (2, vec![])]);
    }
}
