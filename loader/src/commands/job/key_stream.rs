//! Sorted keys of a part, read from stdin shard by shard.

use std::io::{BufRead, ErrorKind};

use rtad_core::device::DeviceKey;

use super::error::JobError;

/// Keys of 16 bytes, back to back, in ascending order; duplicates are allowed.
#[derive(Debug)]
pub struct KeyStream<R> {
    reader: R,
    next: Option<DeviceKey>,
    /// Number of keys read, including `next`.
    count: u64,
}

impl<R: BufRead> KeyStream<R> {
    pub fn new(reader: R) -> Result<Self, JobError> {
        let mut stream = Self {
            reader,
            next: None,
            count: 0,
        };
        stream.advance()?;
        Ok(stream)
    }

    /// Replaces `keys` by the distinct ones of the shard, and returns the number read. Shards are
    /// read in ascending order. One id may fill a list, so duplicates take no memory.
    pub fn read_shard(&mut self, shard: u16, keys: &mut Vec<DeviceKey>) -> Result<u64, JobError> {
        keys.clear();
        let mut read = 0;
        while let Some(key) = self.next
            && key.shard() == shard
        {
            if keys.last() != Some(&key) {
                keys.push(key);
            }
            read += 1;
            self.advance()?;
        }
        Ok(read)
    }

    /// Refuses keys of shards that were not read.
    pub const fn check_end(&self) -> Result<(), JobError> {
        if self.next.is_some() {
            return Err(JobError::OutsidePart { key: self.count });
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<(), JobError> {
        if self.is_at_end()? {
            self.next = None;
            return Ok(());
        }

        let mut bytes = [0; 16];
        self.reader
            .read_exact(&mut bytes)
            .map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => JobError::TruncatedKey {
                    key: self.count + 1,
                },
                _ => JobError::Stdin(error),
            })?;
        self.count += 1;

        let key = DeviceKey::from_bytes(bytes);
        if self.next.is_some_and(|last| key < last) {
            return Err(JobError::NotSorted { key: self.count });
        }
        self.next = Some(key);
        Ok(())
    }

    fn is_at_end(&mut self) -> Result<bool, JobError> {
        loop {
            match self.reader.fill_buf() {
                Ok(bytes) => return Ok(bytes.is_empty()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(JobError::Stdin(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The distinct keys of two shards, and the number read.
    fn read(bytes: &[u8]) -> Result<(Vec<DeviceKey>, u64), JobError> {
        let mut stream = KeyStream::new(bytes)?;
        let mut all = Vec::new();
        let mut keys = Vec::new();
        let mut read = 0;
        for shard in [0, 1] {
            read += stream.read_shard(shard, &mut keys)?;
            all.append(&mut keys);
        }
        stream.check_end()?;
        Ok((all, read))
    }

    #[test]
    fn sorted_keys_are_read_and_others_refused() {
        let key = |shard: u8, last: u8| {
            let mut bytes = [0; 16];
            bytes[1] = shard;
            bytes[15] = last;
            bytes
        };
        let sorted = [key(0, 3), key(0, 3), key(1, 0)];
        let distinct = [sorted[0], sorted[2]].map(DeviceKey::from_bytes);
        let found = read(sorted.as_flattened()).unwrap();
        assert_eq!(found, (distinct.to_vec(), 3));
        assert_eq!(read(b"").unwrap(), (Vec::new(), 0));

        let refused = |keys: &[[u8; 16]], cut: usize| {
            let bytes = keys.as_flattened();
            read(&bytes[..bytes.len() - cut]).unwrap_err().to_string()
        };
        assert!(refused(&[key(1, 0), key(0, 3)], 0).contains("key 2 is smaller"));
        assert!(refused(&[key(0, 1), key(2, 0)], 0).contains("key 2 is outside"));
        assert!(refused(&sorted, 1).contains("key 3 is cut"));
    }
}
