//! Requests and bytes between some processes and a bucket, by the minute.

use std::time::Duration;

use parking_lot::Mutex;

/// Requests and bytes of a time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Traffic {
    pub gets: u64,
    pub puts: u64,
    pub lists: u64,
    pub deletes: u64,
    /// GETs of chunks, within `gets`.
    pub chunk_gets: u64,
    /// Bytes read and written, without those of chunks.
    pub bytes: u64,
    /// Bytes of chunks, read and written.
    pub chunk_bytes: u64,
    /// PUTs of chunks, within `puts`.
    pub chunk_puts: u64,
}

impl Traffic {
    pub const fn requests(&self) -> u64 {
        self.gets + self.puts + self.lists + self.deletes
    }

    pub const fn add(&mut self, other: &Self) {
        self.gets += other.gets;
        self.puts += other.puts;
        self.lists += other.lists;
        self.deletes += other.deletes;
        self.chunk_gets += other.chunk_gets;
        self.bytes += other.bytes;
        self.chunk_bytes += other.chunk_bytes;
        self.chunk_puts += other.chunk_puts;
    }
}

/// Counts the requests of processes that are equally far from a bucket.
#[derive(Debug)]
pub struct Meter {
    /// The bucket.
    pub bucket: &'static str,
    /// Who asks.
    pub clients: String,
    /// Whether the bucket is in their region.
    pub is_near: bool,
    minutes: Mutex<Vec<Traffic>>,
}

impl Meter {
    pub fn new(bucket: &'static str, clients: String, is_near: bool) -> Self {
        Self {
            bucket,
            clients,
            is_near,
            minutes: Mutex::default(),
        }
    }

    /// Counts a request that reaches the bucket.
    pub fn count_request(&self, now: Duration, method: &str, path: &str) {
        let is_chunk = is_chunk(path);
        self.change(now, |traffic| match method {
            "GET" => {
                traffic.gets += 1;
                traffic.chunk_gets += u64::from(is_chunk);
            }
            "LIST" => traffic.lists += 1,
            "DELETE" => traffic.deletes += 1,
            _ => {
                traffic.puts += 1;
                traffic.chunk_puts += u64::from(is_chunk);
            }
        });
    }

    /// Counts bytes that are sent either way.
    pub fn count_bytes(&self, now: Duration, path: &str, bytes: u64) {
        self.change(now, |traffic| {
            if is_chunk(path) {
                traffic.chunk_bytes += bytes;
            } else {
                traffic.bytes += bytes;
            }
        });
    }

    fn change(&self, now: Duration, change: impl FnOnce(&mut Traffic)) {
        let minute = (now.as_secs() / 60) as usize;
        let mut minutes = self.minutes.lock();
        if minutes.len() <= minute {
            minutes.resize(minute + 1, Traffic::default());
        }
        change(&mut minutes[minute]);
    }

    /// The traffic from one minute until before another.
    pub fn between(&self, from: usize, until: usize) -> Traffic {
        let mut sum = Traffic::default();
        for minute in self.minutes.lock().iter().take(until).skip(from) {
            sum.add(minute);
        }
        sum
    }
}

fn is_chunk(path: &str) -> bool {
    path.contains("/chunks/")
}
