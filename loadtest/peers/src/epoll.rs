//! Bare epoll server: the minimum per request, one shared wait, one read and one write. It does not
//! parse HTTP: any read that ends with an empty line is a request, without body or pipelining.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{CreateFlags, EventData, EventFlags, add, create, wait};

/// Epoll data of the listener. A connection has its index.
const LISTENER: u64 = u64::MAX;

/// Serves until killed. The answer is as long as that of axum with a body of `length` bytes.
pub(crate) fn serve(content_type: Option<&str>, length: usize) -> io::Result<()> {
    let answer = answer(content_type, length);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    crate::announce(listener.local_addr()?)?;
    let epoll = create(CreateFlags::CLOEXEC)?;
    add(
        &epoll,
        &listener,
        EventData::new_u64(LISTENER),
        EventFlags::IN,
    )?;
    // Indexes of closed connections are not reused: a run opens a few hundred.
    let mut connections: Vec<Option<TcpStream>> = Vec::new();
    let mut events = Vec::with_capacity(256);
    let mut request = vec![0; 16 << 10];
    loop {
        events.clear();
        wait(&epoll, spare_capacity(&mut events), None)?;
        for event in &events {
            let index = event.data.u64();
            if index == LISTENER {
                for stream in accepted(&listener) {
                    stream.set_nonblocking(true)?;
                    add(
                        &epoll,
                        &stream,
                        EventData::new_u64(connections.len() as u64),
                        EventFlags::IN,
                    )?;
                    connections.push(Some(stream));
                }
                continue;
            }
            let connection = &mut connections[index as usize];
            let open = connection
                .as_mut()
                .is_some_and(|stream| answered(stream, &mut request, &answer));
            if !open {
                // Closing removes it from epoll.
                *connection = None;
            }
        }
    }
}

fn answer(content_type: Option<&str>, length: usize) -> Vec<u8> {
    let content_type = content_type
        .map(|name| format!("content-type: {name}\r\n"))
        .unwrap_or_default();
    let date = "date: Thu, 01 Jan 1970 00:00:00 GMT\r\n";
    let head = format!("HTTP/1.1 200 OK\r\n{content_type}content-length: {length}\r\n{date}\r\n");
    [head.into_bytes(), vec![b'x'; length]].concat()
}

fn accepted(listener: &TcpListener) -> impl Iterator<Item = TcpStream> {
    std::iter::from_fn(|| listener.accept().ok().map(|(stream, _)| stream))
}

/// Answers one request. Returns false if the connection should be closed.
fn answered(stream: &mut TcpStream, request: &mut [u8], answer: &[u8]) -> bool {
    match stream.read(request) {
        Ok(0) => false,
        Ok(count) if request[..count].ends_with(b"\r\n\r\n") => stream.write_all(answer).is_ok(),
        Ok(_) => false,
        Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
    }
}
