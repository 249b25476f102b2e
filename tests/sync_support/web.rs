//! A small HTTP server over a directory, as any file server is one: GET and HEAD, ranges, entity tags, keep-alive.
//!
//! Below `/moved/` it redirects to the same path without it, on this host; below `/away/` to the host it was given. It knows
//! nothing but std, so that the tests of the loader can include it as well.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The server; its threads end with the test's process.
pub(crate) struct Web {
    pub(crate) address: SocketAddr,
    requests: Arc<AtomicU32>,
    sent_bytes: Arc<AtomicU64>,
}

impl Web {
    /// Serves `root`; `/away/…` leads to `away`.
    pub(crate) fn serve(root: &Path, away: Option<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let requests = Arc::new(AtomicU32::new(0));
        let sent_bytes = Arc::new(AtomicU64::new(0));
        let (root, counter, sent) = (root.to_owned(), Arc::clone(&requests), Arc::clone(&sent_bytes));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (root, counter, sent) = (root.clone(), Arc::clone(&counter), Arc::clone(&sent));
                // A client that is gone ends its thread, no more.
                std::thread::spawn(move || answer_all(stream, &root, away, &counter, &sent));
            }
        });
        Self { address, requests, sent_bytes }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Bytes of all answers, heads included.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// How many requests there were.
    pub(crate) fn requests(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }
}

/// What is asked for, of what matters here.
#[derive(Clone, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) range: Option<String>,
    pub(crate) if_match: Option<String>,
    pub(crate) if_none_match: Option<String>,
}

pub(crate) fn read(stream: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    if stream.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let mut request = Request { method: words.next()?, path: words.next()?, ..Request::default() };
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { return Some(request) };
        match name.to_ascii_lowercase().as_str() {
            "range" => request.range = Some(value.to_owned()),
            "if-match" => request.if_match = Some(value.to_owned()),
            "if-none-match" => request.if_none_match = Some(value.to_owned()),
            _ => {}
        }
    }
}

fn answer_all(
    stream: TcpStream,
    root: &Path,
    away: Option<SocketAddr>,
    counter: &AtomicU32,
    sent_bytes: &AtomicU64,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    while let Some(request) = read(&mut reader) {
        counter.fetch_add(1, Ordering::Relaxed);
        let (head, body) = answer(&request, root, away);
        writer.write_all(head.as_bytes())?;
        sent_bytes.fetch_add(head.len() as u64, Ordering::Relaxed);
        if request.method == "GET" {
            writer.write_all(&body)?;
            sent_bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
        }
    }
    Ok(())
}

pub(crate) fn answer(request: &Request, root: &Path, away: Option<SocketAddr>) -> (String, Vec<u8>) {
    let path = request.path.as_str();
    if let Some(rest) = path.strip_prefix("/moved/") {
        return redirect(&format!("/{rest}"));
    }
    if let (Some(rest), Some(away)) = (path.strip_prefix("/away/"), away) {
        return redirect(&format!("http://{away}/{rest}"));
    }
    if !matches!(request.method.as_str(), "GET" | "HEAD") {
        return empty("405 Method Not Allowed");
    }
    let file: PathBuf = root.join(path.trim_start_matches('/'));
    let (Ok(bytes), Ok(meta)) = (std::fs::read(&file), std::fs::metadata(&file)) else {
        return empty("404 Not Found");
    };
    let modified = meta.modified().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let tag = format!("\"{:x}-{:x}\"", bytes.len(), modified.unwrap_or_default().as_nanos());
    if request.if_none_match.as_deref() == Some(&tag) {
        return empty("304 Not Modified");
    }
    let all = bytes.len();
    let Some((first, last)) = request.range.as_deref().and_then(|range| parse_range(range, all)) else {
        return match request.range {
            Some(_) => empty("416 Range Not Satisfiable"),
            None => (head("200 OK", all, &format!("ETag: {tag}\r\n")), bytes),
        };
    };
    let mut fields = format!("ETag: {tag}\r\n");
    let _ = write!(fields, "Content-Range: bytes {first}-{last}/{all}\r\n");
    (head("206 Partial Content", last - first + 1, &fields), bytes[first..=last].to_vec())
}

/// The first and the last byte of `bytes=A-B`.
fn parse_range(range: &str, all: usize) -> Option<(usize, usize)> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let first: usize = first.parse().ok()?;
    let last = last.parse::<usize>().unwrap_or(usize::MAX).min(all.checked_sub(1)?);
    (first <= last).then_some((first, last))
}

fn redirect(to: &str) -> (String, Vec<u8>) {
    (head("302 Found", 0, &format!("Location: {to}\r\n")), Vec::new())
}

fn empty(status: &str) -> (String, Vec<u8>) {
    (head(status, 0, ""), Vec::new())
}

fn head(status: &str, length: usize, fields: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nAccept-Ranges: bytes\r\n{fields}\r\n")
}
