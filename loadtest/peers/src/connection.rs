//! One kept connection of those that ask: it carries one request at a time.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::event::epoll::{EventData, EventFlags, add};

/// A connection that does not block, known to epoll by its place.
pub(crate) struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Connection {
    pub(crate) fn open(
        address: SocketAddr,
        epoll: impl AsFd,
        place: usize,
    ) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        add(&epoll, &stream, EventData::new_u64(place as u64), EventFlags::IN)?;
        Ok(Self { stream, answer: Vec::new() })
    }

    pub(crate) fn send(&mut self, mut request: &[u8]) -> std::io::Result<()> {
        self.answer.clear();
        while !request.is_empty() {
            match self.stream.write(request) {
                Ok(count) => request = &request[count..],
                // The server reads on: it has nothing else of this connection to do.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Status and body of the answer, once it is there whole.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> std::io::Result<Option<(u16, &[u8])>> {
        match self.stream.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.answer.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut head = httparse::Response::new(&mut headers);
        let parsed = head.parse(&self.answer).map_err(|_| ErrorKind::InvalidData)?;
        let httparse::Status::Complete(head_length) = parsed else { return Ok(None) };
        let length =
            head.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
        let length =
            length.and_then(|header| str::from_utf8(header.value).ok()?.parse::<usize>().ok());
        let status = head.code.unwrap_or(0);
        let body = self.answer.get(head_length..head_length + length.unwrap_or(0));
        Ok(body.map(|body| (status, body)))
    }
}

/// The records of a file, such as requests that `asking.py` has written: each is its length, a line's end, and as many bytes.
pub(crate) fn read(file: &Path) -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error>> {
    let bytes = std::fs::read(file)?;
    let (mut rest, mut records) = (bytes.as_slice(), Vec::new());
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let length: usize = str::from_utf8(&rest[..end])?.parse()?;
        let record = rest.get(end + 1..end + 1 + length).ok_or("the last record is cut off")?;
        records.push(record.to_vec());
        rest = &rest[end + 1 + length..];
    }
    Ok(records)
}
