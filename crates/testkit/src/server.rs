//! HTTP file server with injected faults: GET and HEAD, ranges, entity tags, keep-alive. A fault
//! applies to all paths that contain a word.
//!
//! `/moved/…` redirects to the same path without the prefix.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An injected fault.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// Closes the connection without an answer.
    Dead,
    /// Never answers.
    Mute,
    /// Does not answer until the fault is changed.
    Gate,
    /// Answers with this status, these headers and HTML.
    Status(&'static str, &'static str),
    /// Answers 200 with HTML.
    Html,
    /// Answers 200 with this body.
    Body(&'static str),
    /// Half of the body, then a reset.
    Reset,
    /// Half of the body, then an orderly close.
    Short,
    /// `Reset` for every other request, starting with the first.
    Hiccup,
    /// `Short` for every other request.
    ShortOnce,
    /// Every other request gets half of the body, then silence.
    StallOnce,
    /// A chunked body that never ends.
    EndlessChunked,
    /// A body with a `Content-Length` of 9 TB that never ends.
    EndlessLength,
    /// An error whose body never ends.
    EndlessError,
    /// The correct body, one byte every 20 ms.
    Drip,
    /// The correct body, 10 KiB a second: slow, but no stall.
    Trickle,
    /// Answers range requests with 200 and the whole body.
    RangeIgnored,
    /// The file changes after the first half of it was sent, and the connection breaks.
    Replaced,
    /// [`Fault::Replaced`] on a server that ignores `If-Match`.
    ReplacedUnnoticed,
    /// Redirects to another server.
    Elsewhere(SocketAddr),
}

#[derive(Debug, Default)]
struct State {
    /// The fault, and the word that a path must contain.
    fault: Option<(Fault, &'static str)>,
    /// Path of each request, and its status if no fault applied.
    log: Vec<(String, String)>,
    /// Bytes of all answers without a fault, including heads.
    sent_bytes: u64,
    /// Path and range of each GET.
    gets: Vec<(String, Option<String>)>,
    alternations: u32,
    /// Number of requests that wait at a gate.
    waiting: u32,
    hides_tags: bool,
}

impl State {
    /// The fault for every other call, starting with the first.
    const fn alternate(&mut self, fault: Fault) -> Option<Fault> {
        self.alternations += 1;
        if self.alternations % 2 == 1 {
            Some(fault)
        } else {
            None
        }
    }

    fn fault_on(&self, path: &str) -> Option<Fault> {
        self.fault
            .filter(|(_, word)| path.contains(word))
            .map(|(fault, _)| fault)
    }
}

/// The server. Its threads end with the test process.
pub struct FileServer {
    /// Its address.
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl FileServer {
    /// Serves `root`.
    pub fn serve(root: &Path) -> Self {
        let root = root.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (root, state) = (root.clone(), Arc::clone(&shared));
                // An error of the connection ends its thread only.
                std::thread::spawn(move || drop(answer_all(&stream, &root, &state)));
            }
        });
        Self { address, state }
    }

    /// Its URL, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Injects a fault for paths that contain `word`.
    pub fn misbehave(&self, fault: Fault, word: &'static str) {
        self.state.lock().unwrap().fault = Some((fault, word));
    }

    /// Removes the fault.
    pub fn behave(&self) {
        self.state.lock().unwrap().fault = None;
    }

    /// Number of requests for paths that contain `word`.
    pub fn requests(&self, word: &str) -> usize {
        self.state
            .lock()
            .unwrap()
            .log
            .iter()
            .filter(|(path, _)| path.contains(word))
            .count()
    }

    /// Whether a request waits at the [`Fault::Gate`].
    pub fn is_gate_used(&self) -> bool {
        self.state.lock().unwrap().waiting > 0
    }

    /// Stops sending entity tags.
    pub fn hide_tags(&self) {
        self.state.lock().unwrap().hides_tags = true;
    }

    /// Removes and returns the ranges of all GETs of paths that contain `word`.
    pub fn take_ranges(&self, word: &str) -> Vec<Option<String>> {
        let mut state = self.state.lock().unwrap();
        let taken = state.gets.extract_if(.., |(path, _)| path.contains(word));
        taken.map(|(_, range)| range).collect()
    }

    /// Number of answers with this status and without a fault to paths that contain `word`.
    pub fn answers(&self, word: &str, status: &str) -> usize {
        let state = self.state.lock().unwrap();
        state
            .log
            .iter()
            .filter(|(path, found)| path.contains(word) && found == status)
            .count()
    }

    /// Bytes of all answers without a fault, including heads.
    pub fn sent_bytes(&self) -> u64 {
        self.state.lock().unwrap().sent_bytes
    }
}

/// A request: the fields that the server uses.
#[derive(Clone, Default)]
pub struct Request {
    /// Method.
    pub method: String,
    /// Target.
    pub path: String,
    range: Option<String>,
    if_match: Option<String>,
}

impl Request {
    /// Reads the next request of a connection; `None` at its end.
    pub fn read(stream: &mut impl BufRead) -> Option<Self> {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let mut words = line.split_whitespace().map(str::to_owned);
        let mut request = Self {
            method: words.next()?,
            path: words.next()?,
            ..Self::default()
        };
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                return Some(request);
            };
            match name.to_ascii_lowercase().as_str() {
                "range" => request.range = Some(value.to_owned()),
                "if-match" => request.if_match = Some(value.to_owned()),
                _ => {}
            }
        }
    }

    /// Head and body of the answer without a fault, from the files under `root`. `HEAD` has a body,
    /// too: the caller omits it.
    pub fn answer(&self, root: &Path) -> (String, Vec<u8>) {
        let path = self.path.as_str();
        if let Some(rest) = path.strip_prefix("/moved/") {
            return redirect(&format!("/{rest}"));
        }
        if !matches!(self.method.as_str(), "GET" | "HEAD") {
            return empty("405 Method Not Allowed");
        }
        let file = root.join(path.trim_start_matches('/'));
        let (Ok(bytes), Ok(meta)) = (std::fs::read(&file), std::fs::metadata(&file)) else {
            return empty("404 Not Found");
        };
        let modified = meta.modified().ok();
        let modified = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        let tag = format!(
            "\"{:x}-{:x}\"",
            bytes.len(),
            modified.unwrap_or_default().as_nanos()
        );
        let all = bytes.len();
        let range = self
            .range
            .as_deref()
            .and_then(|range| parse_range(range, all));
        let Some((first, last)) = range else {
            return match self.range {
                Some(_) => empty("416 Range Not Satisfiable"),
                None => (head("200 OK", all, &format!("ETag: {tag}\r\n")), bytes),
            };
        };
        let mut fields = format!("ETag: {tag}\r\n");
        let _ = write!(fields, "Content-Range: bytes {first}-{last}/{all}\r\n");
        (
            head("206 Partial Content", last - first + 1, &fields),
            bytes[first..=last].to_vec(),
        )
    }
}

fn answer_all(stream: &TcpStream, root: &Path, state: &Mutex<State>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream.try_clone()?;
    while let Some(request) = Request::read(&mut reader) {
        let (mut head, body) = request.answer(root);
        if state.lock().unwrap().hides_tags {
            head = head.replace("ETag: ", "X-No-ETag: ");
        }
        let is_gated = || {
            matches!(
                state.lock().unwrap().fault_on(&request.path),
                Some(Fault::Gate)
            )
        };
        if is_gated() {
            state.lock().unwrap().waiting += 1;
            while is_gated() {
                std::thread::sleep(Duration::from_millis(2));
            }
            state.lock().unwrap().waiting -= 1;
        }
        let status = head.split(' ').nth(1).unwrap_or_default();
        let fault = take_fault(&mut state.lock().unwrap(), &request, status);
        match fault {
            None => {
                let body = if request.method == "GET" {
                    &body[..]
                } else {
                    &[]
                };
                state.lock().unwrap().sent_bytes += (head.len() + body.len()) as u64;
                writer.write_all(head.as_bytes())?;
                writer.write_all(body)?;
            }
            Some(fault) => {
                if !misbehave(&mut writer, fault, &request, root, (&head, &body))? {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// Logs a request and returns the fault that applies to it.
fn take_fault(state: &mut State, request: &Request, status: &str) -> Option<Fault> {
    use Fault::{Hiccup, RangeIgnored, Reset, Short, ShortOnce, StallOnce};
    if request.method == "GET" {
        state
            .gets
            .push((request.path.clone(), request.range.clone()));
    }
    // Faults of the body do not apply to HEAD.
    let is_body_fault = |fault: &Fault| {
        let once = matches!(fault, Hiccup | ShortOnce | StallOnce);
        once || matches!(fault, Reset | Short | RangeIgnored)
    };
    let fault = state.fault_on(&request.path);
    let fault = fault.filter(|fault| request.method == "GET" || !is_body_fault(fault));
    let logged = if fault.is_some() {
        String::new()
    } else {
        status.to_owned()
    };
    state.log.push((request.path.clone(), logged));
    match fault {
        Some(Hiccup) => state.alternate(Reset),
        Some(ShortOnce) => state.alternate(Short),
        Some(StallOnce) => state.alternate(StallOnce),
        fault => fault,
    }
}

/// Applies a fault; returns whether the connection stays open.
fn misbehave(
    stream: &mut TcpStream,
    fault: Fault,
    request: &Request,
    root: &Path,
    (head, body): (&str, &[u8]),
) -> std::io::Result<bool> {
    const HTML: &str = "<html><body>It works!</body></html>";
    let half = body.len() / 2;
    match fault {
        Fault::Dead => Ok(false),
        // Another gate was set after the wait.
        Fault::Mute | Fault::Gate => {
            std::thread::sleep(Duration::from_secs(120));
            Ok(false)
        }
        Fault::Status(status, fields) => {
            let length = HTML.len();
            write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{fields}\r\n{HTML}"
            )?;
            Ok(true)
        }
        Fault::Html => misbehave(stream, Fault::Body(HTML), request, root, (head, body)),
        Fault::Body(body) => {
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )?;
            Ok(true)
        }
        Fault::Reset => {
            stream.write_all(head.as_bytes())?;
            stream.write_all(&body[..half])?;
            stream.flush()?;
            // The half must arrive before the reset discards unread data.
            std::thread::sleep(Duration::from_millis(20));
            socket2::SockRef::from(&*stream).set_linger(Some(Duration::ZERO))?;
            Ok(false)
        }
        Fault::Short => {
            stream.write_all(head.as_bytes())?;
            stream.write_all(&body[..half])?;
            Ok(false)
        }
        Fault::StallOnce => {
            stream.write_all(head.as_bytes())?;
            stream.write_all(&body[..half])?;
            std::thread::sleep(Duration::from_secs(120));
            Ok(false)
        }
        Fault::Hiccup | Fault::ShortOnce => unreachable!("resolved by `take_fault`"),
        Fault::EndlessChunked => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            endless(stream, b"10\r\n0123456789abcdef\r\n")
        }
        Fault::EndlessLength => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9000000000000\r\n\r\n")?;
            endless(stream, b"0123456789abcdef")
        }
        Fault::EndlessError => {
            stream.write_all(b"HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            endless(stream, b"10\r\n0123456789abcdef\r\n")
        }
        Fault::Drip => {
            stream.write_all(head.as_bytes())?;
            for byte in body {
                stream.write_all(&[*byte])?;
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(true)
        }
        Fault::Trickle => {
            stream.write_all(head.as_bytes())?;
            for part in body.chunks(1024) {
                stream.write_all(part)?;
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(true)
        }
        Fault::RangeIgnored => {
            let whole = Request {
                range: None,
                ..request.clone()
            };
            let (head, body) = whole.answer(root);
            stream.write_all(head.as_bytes())?;
            stream.write_all(&body)?;
            Ok(true)
        }
        Fault::Replaced | Fault::ReplacedUnnoticed => {
            let range = request.range.as_deref();
            let is_first = range.is_none_or(|range| range.starts_with("bytes=0-"));
            if is_first {
                return misbehave(stream, Fault::Short, request, root, (head, body));
            }
            if request.if_match.is_some() && matches!(fault, Fault::Replaced) {
                stream
                    .write_all(b"HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n")?;
            } else {
                let head = head.replace("ETag: \"", "ETag: \"another-");
                stream.write_all(head.as_bytes())?;
                stream.write_all(&vec![0; body.len()])?;
            }
            Ok(true)
        }
        Fault::Elsewhere(address) => {
            let (head, _) = redirect(&format!("http://{address}{}", request.path));
            stream.write_all(head.as_bytes())?;
            Ok(true)
        }
    }
}

/// Sends until the client closes.
fn endless(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<bool> {
    let many = bytes.repeat(256);
    loop {
        stream.write_all(&many)?;
    }
}

/// First and last byte of `bytes=A-B`.
fn parse_range(range: &str, all: usize) -> Option<(usize, usize)> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let first: usize = first.parse().ok()?;
    let last = last
        .parse::<usize>()
        .unwrap_or(usize::MAX)
        .min(all.checked_sub(1)?);
    (first <= last).then_some((first, last))
}

fn redirect(to: &str) -> (String, Vec<u8>) {
    (
        head("302 Found", 0, &format!("Location: {to}\r\n")),
        Vec::new(),
    )
}

fn empty(status: &str) -> (String, Vec<u8>) {
    (head(status, 0, ""), Vec::new())
}

fn head(status: &str, length: usize, fields: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nAccept-Ranges: bytes\r\n{fields}\r\n")
}
