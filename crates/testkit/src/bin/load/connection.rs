//! Client connections: kept open, polled by epoll, one request in flight on each.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{CreateFlags, Event, EventData, EventFlags, add, create, wait};

/// Connections to one server. Each in-flight request has a tag `T`.
pub struct Connections<T> {
    address: SocketAddr,
    epoll: OwnedFd,
    open: Vec<Connection>,
    tags: Vec<Option<T>>,
    /// The longest idle connection first, so that all are used.
    idle: VecDeque<usize>,
    events: Vec<Event>,
    buffer: Vec<u8>,
}

impl<T> Connections<T> {
    pub fn open(address: SocketAddr, count: usize) -> io::Result<Self> {
        let epoll = create(CreateFlags::CLOEXEC)?;
        let open = (0..count).map(|index| Connection::open(address, &epoll, index));
        Ok(Self {
            address,
            open: open.collect::<io::Result<_>>()?,
            epoll,
            tags: (0..count).map(|_| None).collect(),
            idle: (0..count).collect(),
            events: Vec::with_capacity(1024),
            buffer: vec![0; 64 << 10],
        })
    }

    pub fn in_flight(&self) -> usize {
        self.open.len() - self.idle.len()
    }

    pub fn has_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    /// Sends a request on an idle connection. Requires [`has_idle`](Self::has_idle).
    pub fn send(&mut self, tag: T, request: &[u8]) {
        let index = self.idle.pop_front().expect("a connection is idle");
        self.tags[index] = Some(tag);
        // `receive` detects a broken connection.
        let _ = self.open[index].send(request);
    }

    /// Waits up to `timeout` and passes each completed request to `each`: its tag, and status and
    /// body or the error. If `each` returns false, the connection is replaced.
    pub fn receive(
        &mut self,
        timeout: Duration,
        mut each: impl FnMut(T, Result<(u16, &[u8]), io::Error>) -> bool,
    ) -> io::Result<()> {
        self.events.clear();
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match wait(
            &self.epoll,
            spare_capacity(&mut self.events),
            Some(&timeout),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &self.events {
            let index = event.data.u64() as usize;
            let Some(received) = self.open[index].receive(&mut self.buffer).transpose() else {
                continue;
            };
            let mut is_open = received.is_ok();
            if let Some(tag) = self.tags[index].take() {
                is_open &= each(tag, received);
                self.idle.push_back(index);
            }
            if !is_open {
                self.open[index] = Connection::open(self.address, &self.epoll, index)?;
            }
        }
        Ok(())
    }

    /// The tags of the requests still in flight.
    pub fn into_tags(self) -> impl Iterator<Item = T> {
        self.tags.into_iter().flatten()
    }
}

/// A non-blocking connection, registered with epoll under its index.
struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Connection {
    fn open(address: SocketAddr, epoll: impl AsFd, index: usize) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        add(
            &epoll,
            &stream,
            EventData::new_u64(index as u64),
            EventFlags::IN,
        )?;
        Ok(Self {
            stream,
            answer: Vec::new(),
        })
    }

    fn send(&mut self, mut request: &[u8]) -> io::Result<()> {
        self.answer.clear();
        while !request.is_empty() {
            match self.stream.write(request) {
                Ok(count) => request = &request[count..],
                // Retried: the server keeps reading this connection.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Status and body of the answer, once it is complete.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<(u16, &[u8])>> {
        match self.stream.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.answer.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut head = httparse::Response::new(&mut headers);
        let parsed = head
            .parse(&self.answer)
            .map_err(|_| ErrorKind::InvalidData)?;
        let httparse::Status::Complete(head_length) = parsed else {
            return Ok(None);
        };
        let length = head
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case("content-length"));
        let length =
            length.and_then(|header| str::from_utf8(header.value).ok()?.parse::<usize>().ok());
        let status = head.code.unwrap_or(0);
        let body = self
            .answer
            .get(head_length..head_length + length.unwrap_or(0));
        Ok(body.map(|body| (status, body)))
    }
}

/// The records of a file, as `tests/suites/fleet/questions.py` writes it: of each its length, a
/// line end, and its bytes.
pub fn read_records(file: &Path) -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error>> {
    let bytes = std::fs::read(file)?;
    let (mut rest, mut records) = (bytes.as_slice(), Vec::new());
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let length: usize = str::from_utf8(&rest[..end])?.parse()?;
        let record = rest
            .get(end + 1..end + 1 + length)
            .ok_or("the last record is cut off")?;
        records.push(record.to_vec());
        rest = &rest[end + 1 + length..];
    }
    Ok(records)
}
