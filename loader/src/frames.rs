//! Key frames: device keys between the steps of a distributed build, in frames of 16 neighboring
//! shards.
//!
//! ```text
//! offset  size  field    little-endian
//!      0     2  bucket   the first 12 bits of each of its keys: 16 shards, the minimum of a chunk
//!      2     1  content  0 ids, 1 added by deltas, 2 removed by deltas or tombstones,
//!                        3 and 4 carried additions and removals, which are only counted
//!      3     1  zero
//!      4     4  count    1 to 1,048,576
//!      8  16·n  keys     ascending
//! ```
//!
//! A shuffle, such as Spark's, routes hundreds of keys by the two bytes of the bucket. A chunk is
//! always a run of whole buckets. Frames may be in any order and may be concatenated.

use std::io::{self, ErrorKind, Read, Write};

use rtad_core::device::{DeviceKey, SHARDS};

/// Neighboring shards whose keys share frames.
pub const BUCKET_SHARDS: u32 = 16;
/// Number of buckets.
pub const BUCKETS: u32 = SHARDS as u32 / BUCKET_SHARDS;
const MAX_FRAME_KEYS: usize = 1 << 20;
const HEADER_BYTES: usize = 8;

/// Origin of the keys of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameContent {
    /// Ids of the input.
    Ids,
    /// Members added by deltas.
    Added,
    /// Non-members, removed by deltas and tombstones.
    Removed,
    /// Members that deltas before the previous build added.
    CarriedAdded,
    /// Non-members that they removed.
    CarriedRemoved,
}

/// Invalid frames. The message gives the offset, never a key.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("{input}: could not read it after byte {offset}")]
    Read {
        input: String,
        offset: u64,
        source: io::Error,
    },
    #[error("{input}: ends at byte {offset}, inside a frame; its writer may have been stopped")]
    Truncated { input: String, offset: u64 },
    #[error("{input}: {field} of the frame at byte {offset}: expected {accepted}, found {found}")]
    Field {
        input: String,
        offset: u64,
        field: &'static str,
        found: u64,
        accepted: &'static str,
    },
}

/// The bucket of a key.
pub fn bucket(key: &DeviceKey) -> u32 {
    u32::from(key.shard()) / BUCKET_SHARDS
}

/// Writes sorted keys as frames.
pub fn write(out: &mut impl Write, content: FrameContent, keys: &[DeviceKey]) -> io::Result<()> {
    for keys in keys.chunk_by(|a, b| bucket(a) == bucket(b)) {
        for keys in keys.chunks(MAX_FRAME_KEYS) {
            let bucket = u16::try_from(bucket(&keys[0])).expect("4,096 buckets");
            let count = u32::try_from(keys.len()).expect("at most 2²⁰");
            out.write_all(&bucket.to_le_bytes())?;
            out.write_all(&[content as u8, 0])?;
            out.write_all(&count.to_le_bytes())?;
            for key in keys {
                out.write_all(key.as_bytes())?;
            }
        }
    }
    Ok(())
}

/// Reads all frames and passes the keys of each to `take`. Memory does not depend on the input.
pub fn read(
    input: &str,
    mut reader: impl Read,
    mut take: impl FnMut(u32, FrameContent, &[DeviceKey]),
) -> Result<(), FrameError> {
    let (mut offset, mut body, mut keys) = (0, Vec::new(), Vec::new());
    loop {
        let mut header = [0; HEADER_BYTES];
        let found =
            fill(&mut reader, &mut header).map_err(|source| read_error(input, offset, source))?;
        if found == 0 {
            return Ok(());
        }
        let truncated = |after: usize| FrameError::Truncated {
            input: input.into(),
            offset: offset + after as u64,
        };
        if found < HEADER_BYTES {
            return Err(truncated(found));
        }
        let bucket = u32::from(u16::from_le_bytes([header[0], header[1]]));
        let count = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        let invalid = |field, found: u32, accepted| {
            Err(FrameError::Field {
                input: input.into(),
                offset,
                field,
                found: found.into(),
                accepted,
            })
        };
        if bucket >= BUCKETS {
            return invalid("the bucket", bucket, "0 to 4095");
        }
        let content = match header[2] {
            0 => FrameContent::Ids,
            1 => FrameContent::Added,
            2 => FrameContent::Removed,
            3 => FrameContent::CarriedAdded,
            4 => FrameContent::CarriedRemoved,
            other => return invalid("the content", other.into(), "0 to 4"),
        };
        if header[3] != 0 {
            return invalid("the byte before the count", header[3].into(), "0");
        }
        if count == 0 || count as usize > MAX_FRAME_KEYS {
            return invalid("the count", count, "1 to 1048576");
        }
        body.resize(count as usize * 16, 0);
        let found =
            fill(&mut reader, &mut body).map_err(|source| read_error(input, offset, source))?;
        if found < body.len() {
            return Err(truncated(HEADER_BYTES + found));
        }
        keys.clear();
        keys.extend(
            body.as_chunks::<16>()
                .0
                .iter()
                .map(|key| DeviceKey::from_bytes(*key)),
        );
        if let Some(stray) = keys.iter().map(self::bucket).find(|found| *found != bucket) {
            return invalid("the bucket of a key", stray, "the bucket of its frame");
        }
        take(bucket, content, &keys);
        offset += (HEADER_BYTES + body.len()) as u64;
    }
}

fn read_error(input: &str, offset: u64, source: io::Error) -> FrameError {
    FrameError::Read {
        input: input.into(),
        offset,
        source,
    }
}

/// Reads until the buffer is full or the input ends. Returns the number of bytes.
pub fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(count: u32) -> Vec<DeviceKey> {
        let mut keys: Vec<_> = (0..count)
            .map(|n| DeviceKey::of_canonical(&n.to_le_bytes()))
            .collect();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn frames_round_trip() {
        let keys = keys(20_000);
        let mut bytes = Vec::new();
        write(&mut bytes, FrameContent::Ids, &keys[..10_000]).unwrap();
        write(&mut bytes, FrameContent::Removed, &keys[10_000..]).unwrap();
        let (mut ids, mut removed) = (Vec::new(), Vec::new());
        read("-", &bytes[..], |number, content, found| {
            assert!(found.iter().all(|key| bucket(key) == number));
            match content {
                FrameContent::Ids => ids.extend_from_slice(found),
                FrameContent::Removed => removed.extend_from_slice(found),
                _ => panic!("no other keys were written"),
            }
        })
        .unwrap();
        assert!(ids == keys[..10_000] && removed == keys[10_000..]);
        assert!(read("-", &b""[..], |_, _, _| panic!("no frame")).is_ok());
    }

    #[test]
    fn invalid_frame_is_refused_with_its_offset() {
        let mut bytes = Vec::new();
        write(&mut bytes, FrameContent::Ids, &keys(2)).unwrap();
        let refused = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            read("x", &bytes[..], |_, _, _| {}).unwrap_err().to_string()
        };
        assert!(refused(1, 0x10).contains("expected 0 to 4095, found"));
        assert_eq!(
            refused(2, 5),
            "x: the content of the frame at byte 0: expected 0 to 4, found 5"
        );
        assert!(refused(3, 1).contains("the byte before the count"));
        assert!(refused(4, 0).contains("the count of the frame at byte 0: expected 1 to 1048576"));
        assert!(refused(7, 1).contains("the count"));
        assert!(refused(8, !bytes[8]).contains("the bucket of a key"));
        for end in 1..bytes.len() {
            // The second frame begins where the first one ends.
            let is_whole = end == 24;
            assert_eq!(
                read("x", &bytes[..end], |_, _, _| {}).is_ok(),
                is_whole,
                "{end}"
            );
        }
    }
}
