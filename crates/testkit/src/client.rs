//! HTTP/1.1 client over a bare socket: keeps connections, sends arbitrary bytes, exposes raw
//! answers.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use rtad_core::device::DeviceKey;
use serde_json::{Value, json};

use crate::store::hex;
use crate::wait::DEADLINE;

/// One connection.
pub struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

/// An answer of a server.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Header fields in their order.
    pub headers: Vec<(String, String)>,
    /// The whole body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The header of that name; panics if it is repeated.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self
            .headers
            .iter()
            .filter(|(key, _)| key.eq_ignore_ascii_case(name));
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(
            found.next().is_none(),
            "{name} is repeated: {:?}",
            self.headers
        );
        value
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The JSON of a 200.
    #[track_caller]
    pub fn ok(&self) -> Value {
        let kind = self.header("content-type");
        assert_eq!(
            (self.status, kind),
            (200, Some("application/json")),
            "{self:?}"
        );
        self.json()
    }

    /// Asserts a problem document with this status and code; returns its detail.
    #[track_caller]
    pub fn problem(&self, status: u16, code: &str) -> String {
        let kind = self.header("content-type");
        let expected = (status, Some("application/problem+json"));
        assert_eq!((self.status, kind), expected, "{}", self.text());
        let problem = self.json();
        let found = (problem["status"].as_u64(), problem["code"].as_str());
        assert_eq!(found, (Some(status.into()), Some(code)));
        let fields: Vec<_> = problem
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(fields, ["code", "detail", "status", "title"]);
        assert!(!problem["title"].as_str().unwrap().is_empty());
        let has_retry = self.header("retry-after").is_some();
        assert_eq!(has_retry, status == 503, "only 503 has Retry-After");
        problem["detail"].as_str().unwrap().to_owned()
    }
}

impl Client {
    /// Connects.
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            received: Vec::new(),
        }
    }

    /// Sends raw bytes. Ignores errors: the answer of a closed connection may still be readable.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Sends copies of `part` until one of them blocks for a second, or all are sent; returns the
    /// number sent.
    pub fn send_until_blocked(&mut self, part: &str, copies: usize) -> usize {
        self.stream
            .set_write_timeout(Some(Duration::from_secs(1)))
            .unwrap();
        let is_sent = |_: &usize| self.stream.write_all(part.as_bytes()).is_ok();
        (0..copies).take_while(is_sent).count()
    }

    /// Sends what the server accepts within the time.
    pub fn send_within(&mut self, text: &str, within: Duration) {
        self.stream.set_write_timeout(Some(within)).unwrap();
        let _ = self.stream.write_all(text.as_bytes());
    }

    /// Closes the sending side.
    pub fn close_writing(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// The next answer, if one arrives in time.
    pub fn try_next(&mut self, within: Duration) -> Option<Answer> {
        self.stream.set_read_timeout(Some(within)).unwrap();
        let has_bytes = matches!(self.stream.peek(&mut [0]), Ok(1));
        self.stream.set_read_timeout(Some(DEADLINE)).unwrap();
        if has_bytes { self.next() } else { None }
    }

    /// The next answer, including 100; `None` if the connection is closed.
    #[allow(
        clippy::should_implement_trait,
        reason = "an answer may follow a closed stream's None"
    )]
    pub fn next(&mut self) -> Option<Answer> {
        self.next_to("GET")
    }

    fn next_to(&mut self, method: &str) -> Option<Answer> {
        let end = loop {
            if let Some(at) = self
                .received
                .windows(4)
                .position(|four| four == b"\r\n\r\n")
            {
                break at;
            }
            if !self.receive() {
                let rest = String::from_utf8_lossy(&self.received);
                assert!(self.received.is_empty(), "truncated answer: {rest}");
                return None;
            }
        };
        let head = String::from_utf8(self.received[..end].to_vec()).unwrap();
        self.received.drain(..end + 4);
        let mut lines = head.split("\r\n");
        let status = lines
            .next()
            .unwrap()
            .split(' ')
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        let pair = |line: &str| {
            line.split_once(": ")
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        let headers: Vec<_> = lines.map(|line| pair(line).unwrap()).collect();
        let mut answer = Answer {
            status,
            headers,
            body: Vec::new(),
        };
        assert_eq!(
            answer.header("transfer-encoding"),
            None,
            "answers have a Content-Length"
        );
        if method != "HEAD" && status != 100 {
            let length = answer
                .header("content-length")
                .map_or(0, |length| length.parse().unwrap());
            while self.received.len() < length {
                assert!(self.receive(), "truncated body");
            }
            answer.body = self.received.drain(..length).collect();
        }
        Some(answer)
    }

    /// Reads more bytes; false if the connection was closed or reset.
    fn receive(&mut self) -> bool {
        let mut buffer = [0; 16 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(count) => {
                self.received.extend_from_slice(&buffer[..count]);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            // A read with a timeout is not restarted after a signal.
            Err(error) if error.kind() == ErrorKind::Interrupted => self.receive(),
            Err(error) => panic!("no answer: {error}"),
        }
    }

    /// Waits until the server has closed the connection without another answer.
    pub fn closes(mut self) {
        assert!(
            self.next().is_none(),
            "the connection closes without an answer"
        );
    }

    /// Sends a request with `headers`, each with its line ending, and returns the answer.
    pub fn request(
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
        let head = format!("{method} {target} HTTP/1.1\r\nHost: rtad\r\n{length}{headers}\r\n");
        self.send([head.as_bytes(), body].concat());
        self.next_to(method).expect("an answer")
    }

    /// `GET`.
    pub fn get(&mut self, target: &str) -> Answer {
        self.request("GET", target, "", "")
    }

    /// `POST` of JSON.
    pub fn post(&mut self, target: &str, body: impl AsRef<[u8]>) -> Answer {
        self.request("POST", target, "Content-Type: application/json\r\n", body)
    }

    /// `POST` of bytes.
    pub fn post_binary(&mut self, target: &str, body: impl AsRef<[u8]>) -> Answer {
        self.request(
            "POST",
            target,
            "Content-Type: application/octet-stream\r\n",
            body,
        )
    }

    /// Whether the audience has the device, by `GET`.
    #[track_caller]
    pub fn is_member(&mut self, audience: &str, key: &DeviceKey) -> bool {
        self.get(&format!("/v1/check/{audience}/{}", hex(key))).ok()["member"]
            .as_bool()
            .unwrap()
    }

    /// Whether the audience has each device, as JSON.
    #[track_caller]
    pub fn members(&mut self, audience: &str, keys: &[DeviceKey]) -> Vec<bool> {
        let ids: Vec<String> = keys.iter().map(hex).collect();
        let body = json!({ "ids": ids, "kind": "md5" }).to_string();
        let answer = self.post(&format!("/v1/check/{audience}"), body).ok();
        let members = answer["members"].as_array().unwrap();
        members
            .iter()
            .map(|member| member.as_bool().unwrap())
            .collect()
    }

    /// Whether the audience has each device, as 16-byte keys.
    #[track_caller]
    pub fn members_binary(&mut self, audience: &str, keys: &[DeviceKey]) -> Vec<bool> {
        let body: Vec<u8> = keys.iter().flat_map(|key| *key.as_bytes()).collect();
        let Answer {
            status, body: bits, ..
        } = self.post_binary(&format!("/v1/check/{audience}"), body);
        let expected = (200, keys.len().div_ceil(8));
        assert_eq!(
            (status, bits.len()),
            expected,
            "{}",
            String::from_utf8_lossy(&bits)
        );
        (0..keys.len())
            .map(|index| bits[index / 8] >> (index % 8) & 1 == 1)
            .collect()
    }

    /// Decisions of all strategies for a device with these keys, as `(bid, reason)`, in the
    /// config's order.
    #[track_caller]
    pub fn decide(&mut self, keys: &[DeviceKey]) -> Vec<(bool, String)> {
        let ids: Vec<String> = keys.iter().map(hex).collect();
        let body = json!({ "device": { "imei_md5": ids } }).to_string();
        let answer = self.post("/v1/decide", body).ok();
        let decision = |one: &Value| {
            (
                one["bid"].as_bool().unwrap(),
                one["reason"].as_str().unwrap().to_owned(),
            )
        };
        answer["decisions"]
            .as_array()
            .unwrap()
            .iter()
            .map(decision)
            .collect()
    }
}

/// Value of the series with exactly these labels, in the text format; 0 if absent.
pub fn metric<'a>(metrics: &'a str, name_and_labels: &str) -> f64 {
    let series = |line: &'a str| line.strip_prefix(name_and_labels)?.strip_prefix(' ');
    metrics
        .lines()
        .find_map(series)
        .map_or(0.0, |value| value.parse().unwrap())
}

/// Sum over all series whose lines start with `prefix`.
pub fn metric_sum(metrics: &str, prefix: &str) -> u64 {
    let values = metrics.lines().filter(|line| line.starts_with(prefix));
    values
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}
