//! The least that a server can do for a request: one wait for many, one read, one write. It knows no HTTP: whatever ends with an
//! empty line is a request, so it must have no body, and not be pipelined.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{CreateFlags, EventData, EventFlags, add, create, wait};

/// Of the listener; a connection has its place in the list.
const LISTENER: u64 = u64::MAX;

/// Serves until it is killed. The answer has as many bytes as one of axum's with a body of that length.
pub(crate) fn serve(content_type: Option<&str>, length: usize) -> io::Result<()> {
    let answer = answer(content_type, length);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    crate::announce(listener.local_addr()?)?;
    let epoll = create(CreateFlags::CLOEXEC)?;
    add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    // Closed ones keep their place: a run opens some hundred.
    let mut connections: Vec<Option<TcpStream>> = Vec::new();
    let mut events = Vec::with_capacity(256);
    let mut request = vec![0; 16 << 10];
    loop {
        events.clear();
        wait(&epoll, spare_capacity(&mut events), None)?;
        for event in &events {
            let place = event.data.u64();
            if place == LISTENER {
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
            let connection = &mut connections[place as usize];
            let open =
                connection.as_mut().is_some_and(|stream| answered(stream, &mut request, &answer));
            if !open {
                // Closing takes it off the queue.
                *connection = None;
            }
        }
    }
}

fn answer(content_type: Option<&str>, length: usize) -> Vec<u8> {
    let content_type =
        content_type.map(|name| format!("content-type: {name}\r\n")).unwrap_or_default();
    let date = "date: Thu, 01 Jan 1970 00:00:00 GMT\r\n";
    let head = format!("HTTP/1.1 200 OK\r\n{content_type}content-length: {length}\r\n{date}\r\n");
    [head.into_bytes(), vec![b'x'; length]].concat()
}

fn accepted(listener: &TcpListener) -> impl Iterator<Item = TcpStream> {
    std::iter::from_fn(|| listener.accept().ok().map(|(stream, _)| stream))
}

/// Whether the connection is to be kept.
fn answered(stream: &mut TcpStream, request: &mut [u8], answer: &[u8]) -> bool {
    match stream.read(request) {
        Ok(0) => false,
        Ok(count) if request[..count].ends_with(b"\r\n\r\n") => stream.write_all(answer).is_ok(),
        Ok(_) => false,
        Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
    }
}
