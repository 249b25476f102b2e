//! An HTTP/1.1 client over a bare socket: it keeps connections, sends any bytes, and shows what came back as it came.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// A test that waits longer hangs, and fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

/// What a server answered.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The one header of that name; a header that comes twice fails the test.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} comes once: {:?}", self.headers);
        value
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The JSON of a 200.
    pub(crate) fn ok(&self) -> Value {
        assert_eq!((self.status, self.header("content-type")), (200, Some("application/json")), "{self:?}");
        self.json()
    }

    /// Asserts that this is a problem document of that status and code; returns its detail.
    pub(crate) fn problem(&self, status: u16, code: &str) -> String {
        let kind = self.header("content-type");
        assert_eq!((self.status, kind), (status, Some("application/problem+json")), "{}", self.text());
        let problem = self.json();
        assert_eq!((problem["status"].as_u64(), problem["code"].as_str()), (Some(status.into()), Some(code)));
        let fields: Vec<_> = problem.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields, ["code", "detail", "status", "title"]);
        assert!(!problem["title"].as_str().unwrap().is_empty());
        assert_eq!(self.header("retry-after").is_some(), status == 503, "only 503 says when to try again");
        problem["detail"].as_str().unwrap().to_owned()
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, received: Vec::new() }
    }

    /// Sends bytes as they are. A server that has closed already is no failure: what it said is still to be read.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// The next answer, a 100 included; `None` if the connection is closed instead.
    pub(crate) fn next(&mut self) -> Option<Answer> {
        self.next_to("GET")
    }

    fn next_to(&mut self, method: &str) -> Option<Answer> {
        let end = loop {
            if let Some(at) = self.received.windows(4).position(|four| four == b"\r\n\r\n") {
                break at;
            }
            if !self.receive() {
                assert!(self.received.is_empty(), "cut off: {}", String::from_utf8_lossy(&self.received));
                return None;
            }
        };
        let head = String::from_utf8(self.received[..end].to_vec()).unwrap();
        self.received.drain(..end + 4);
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let pair =
            |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
        let headers: Vec<_> = lines.map(|line| pair(line).unwrap()).collect();
        let mut answer = Answer { status, headers, body: Vec::new() };
        assert_eq!(answer.header("transfer-encoding"), None, "every answer's length is known");
        if method != "HEAD" && status != 100 {
            let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
            while self.received.len() < length {
                assert!(self.receive(), "the body is cut off");
            }
            answer.body = self.received.drain(..length).collect();
        }
        Some(answer)
    }

    /// Reads some more; false at the end of the connection, in whatever way it ends.
    fn receive(&mut self) -> bool {
        let mut buffer = [0; 16 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(count) => {
                self.received.extend_from_slice(&buffer[..count]);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            // With a time-out a read is not taken up again by itself.
            Err(error) if error.kind() == ErrorKind::Interrupted => self.receive(),
            Err(error) => panic!("no answer: {error}"),
        }
    }

    /// Waits until the server has closed the connection, which must say nothing more.
    pub(crate) fn closes(mut self) {
        assert!(self.next().is_none(), "the connection says nothing more");
    }

    pub(crate) fn request(
        &mut self,
        method: &str,
        target: &str,
        headers: &str,
        body: impl AsRef<[u8]>,
    ) -> Answer {
        let body = body.as_ref();
        let length = if body.is_empty() && method != "POST" {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        let mut bytes =
            format!("{method} {target} HTTP/1.1\r\nHost: rtad\r\n{length}{headers}\r\n").into_bytes();
        bytes.extend_from_slice(body);
        self.send(bytes);
        self.next_to(method).expect("an answer")
    }

    pub(crate) fn get(&mut self, target: &str) -> Answer {
        self.request("GET", target, "", "")
    }

    pub(crate) fn post(&mut self, target: &str, body: impl AsRef<[u8]>) -> Answer {
        self.request("POST", target, "Content-Type: application/json\r\n", body)
    }

    pub(crate) fn post_binary(&mut self, target: &str, body: impl AsRef<[u8]>) -> Answer {
        self.request("POST", target, "Content-Type: application/octet-stream\r\n", body)
    }
}

/// Asks until the answer is as wanted; for what the server does on a thread of its own.
pub(crate) fn wait_until<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = std::time::Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "what was waited for did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The value of a metric with exactly these labels, written as in the text format; 0 if there is none yet.
pub(crate) fn metric(metrics: &str, name_and_labels: &str) -> f64 {
    let value = metrics.lines().find_map(|line| line.strip_prefix(name_and_labels)?.strip_prefix(' '));
    value.map_or(0.0, |value| value.parse().unwrap())
}
