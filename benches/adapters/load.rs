//! Load client: keep-alive connections with one request in flight each.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream as StdStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const CONNECTIONS: usize = 64;

fn request(path: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: rtad\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Length of an answer's body.
pub fn answer_length(address: SocketAddr, path: &str, body: &[u8]) -> usize {
    let mut stream = StdStream::connect(address).expect("the server accepts");
    stream
        .write_all(&request(path, body))
        .expect("the server reads");
    let mut answer = vec![0; 4096];
    let count = stream.read(&mut answer).expect("the server answers");
    let (end, length) = framed(&answer[..count]).expect("a whole answer");
    assert!(answer.starts_with(b"HTTP/1.1 200"), "a 200");
    assert_eq!(end, count, "one answer");
    length
}

/// End of the first answer and length of its body; `None` if it is incomplete.
fn framed(received: &[u8]) -> Option<(usize, usize)> {
    let head = received.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let name = b"content-length: ";
    let at = received[..head]
        .windows(name.len())
        .position(|part| part.eq_ignore_ascii_case(name))?
        + name.len();
    let digits = received[at..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit());
    let length = digits.fold(0, |length, digit| length * 10 + usize::from(digit - b'0'));
    (received.len() >= head + length).then_some((head + length, length))
}

/// Sends requests for a duration; returns the number of answers.
pub async fn run(address: SocketAddr, path: &str, bodies: &Arc<[Bytes]>, time: Duration) -> u64 {
    let requests: Arc<[Vec<u8>]> = bodies.iter().map(|body| request(path, body)).collect();
    let until = Instant::now() + time;
    let mut connections = JoinSet::new();
    for number in 0..CONNECTIONS {
        connections.spawn(send_requests(address, Arc::clone(&requests), number, until));
    }
    connections.join_all().await.into_iter().sum()
}

async fn send_requests(
    address: SocketAddr,
    requests: Arc<[Vec<u8>]>,
    number: usize,
    until: Instant,
) -> u64 {
    let mut stream = TcpStream::connect(address)
        .await
        .expect("the server accepts");
    stream.set_nodelay(true).expect("a live socket");
    let mut received = Vec::with_capacity(4096);
    let mut answers = 0;
    for request in requests
        .iter()
        .cycle()
        .skip(number * requests.len() / CONNECTIONS)
    {
        stream.write_all(request).await.expect("the server reads");
        received.clear();
        while framed(&received).is_none() {
            let count = stream
                .read_buf(&mut received)
                .await
                .expect("the server answers");
            assert!(count > 0, "the server keeps the connection");
        }
        assert!(received.starts_with(b"HTTP/1.1 200"), "a 200");
        answers += 1;
        if Instant::now() >= until {
            break;
        }
    }
    answers
}
