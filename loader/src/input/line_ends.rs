//! Line ends: CR, LF and CRLF each end a line, in any mixture.

/// Turns the line ends of a stream into LF, read by read.
#[derive(Debug, Default)]
pub struct LineEnds {
    /// The last byte of the read before was a CR: an LF that follows belongs to it.
    follows_return: bool,
}

impl LineEnds {
    /// Converts the line ends of a read in place. Returns the length, which may be smaller.
    pub fn convert(&mut self, bytes: &mut [u8]) -> usize {
        let mut from = usize::from(self.follows_return && bytes.first() == Some(&b'\n'));
        self.follows_return &= bytes.is_empty();
        let mut to = 0;
        while let Some(length) = memchr::memchr(b'\r', &bytes[from..]) {
            bytes.copy_within(from..from + length, to);
            bytes[to + length] = b'\n';
            to += length + 1;
            from += length + 1;
            match bytes.get(from) {
                Some(b'\n') => from += 1,
                Some(_) => {}
                None => self.follows_return = true,
            }
        }
        if from != to {
            bytes.copy_within(from.., to);
        }
        to + bytes.len() - from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_end_is_a_line_feed_however_it_is_read() {
        let text = b"a\rb\r\nc\nd\r\re\r\n\r\nf\n\rg\r";
        for step in 1..=text.len() {
            let (mut ends, mut found) = (LineEnds::default(), Vec::new());
            for part in text.chunks(step) {
                let mut part = part.to_vec();
                let length = ends.convert(&mut part);
                found.extend_from_slice(&part[..length]);
            }
            assert_eq!(found, b"a\nb\nc\nd\n\ne\n\nf\n\ng\n", "{step}");
        }
    }
}
