//! One id per line: cuts bytes into blocks at line ends, so that many threads can parse them.
//!
//! Nothing is assumed of a line: no encoding, no length, no final line end. Of a line that is longer than a
//! block only the beginning is kept, enough to be refused as too long; memory does not depend on the input.
//!
//! Does *not* look at ids.

use std::io::{self, Read};

use super::{BLOCK_BYTES, Block, MAX_ROW_BYTES, Pool, Rows};

/// Reads all of `reader`, handing over blocks of whole lines. Stops early, without an error, if `send` says
/// that nobody wants more.
pub(super) fn read_blocks(
    reader: &mut impl Read,
    source: usize,
    pool: &Pool,
    mut send: impl FnMut(Block) -> bool,
) -> io::Result<()> {
    let mut bytes = pool.take(BLOCK_BYTES);
    let (mut filled, mut first_row, mut skipping) = (0, 1, false);
    loop {
        let count = reader.read(&mut bytes[filled..])?;
        if count == 0 {
            if filled > 0 {
                send(Block { source, bytes, len: filled, rows: Rows::Lines { first: first_row } });
            }
            return Ok(());
        }
        let mut end = filled + count;
        if skipping {
            // The rest of a line whose beginning is kept already.
            let Some(line_end) = bytes[filled..end].iter().position(|byte| *byte == b'\n') else {
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
        match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => {
                let mut next = pool.take(BLOCK_BYTES);
                let carried = &bytes[last + 1..];
                next[..carried.len()].copy_from_slice(carried);
                filled = carried.len();
                let rows = bytes[..=last].iter().filter(|byte| **byte == b'\n').count() as u64;
                let block =
                    Block { source, bytes, len: last + 1, rows: Rows::Lines { first: first_row } };
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

/// The lines of a block, without their line ends.
pub(crate) fn lines(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    block.split_inclusive(|byte| *byte == b'\n').map(|line| {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        line.strip_suffix(b"\r").unwrap_or(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a few bytes at a time, as a pipe does.
    struct Dribble<'a>(&'a [u8], usize);

    impl Read for Dribble<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(buffer.len()).min(self.1);
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn rows_of(text: &[u8], step: usize) -> Vec<(u64, Vec<u8>)> {
        let mut rows = Vec::new();
        read_blocks(&mut Dribble(text, step), 0, &Pool::default(), |block| {
            let Rows::Lines { first } = block.rows else { panic!("lines come as lines") };
            assert!(block.bytes.len() <= BLOCK_BYTES);
            rows.extend((first..).zip(lines(&block.bytes[..block.len]).map(<[u8]>::to_vec)));
            true
        })
        .unwrap();
        rows
    }

    #[test]
    fn every_line_comes_once_with_its_number() {
        let mut text = Vec::new();
        for row in 0..200_000 {
            text.extend_from_slice(
                format!("line {row}{}", if row % 3 == 0 { "\r\n" } else { "\n" }).as_bytes(),
            );
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
    fn only_the_beginning_of_an_endless_line_is_kept() {
        let mut text = b"before\n".to_vec();
        text.resize(5 * BLOCK_BYTES + 123, b'x');
        text.extend_from_slice(b"\nafter\n");
        for step in [4096, 1 << 30] {
            let rows = rows_of(&text, step);
            let lengths: Vec<_> = rows.iter().map(|(number, line)| (*number, line.len())).collect();
            assert_eq!(lengths.len(), 3, "{lengths:?}");
            assert!(lengths[1].1 > MAX_ROW_BYTES);
            assert_eq!(rows[2], (3, b"after".to_vec()));
        }
        assert!(rows_of(b"", 1).is_empty());
        assert_eq!(rows_of(b"\n\n", 1), [(1, vec![]), (2, vec![])]);
    }
}
