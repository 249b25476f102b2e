//! A web server over a directory that misbehaves on command, for all paths that hold a word.
//!
//! What it does when it behaves is `web.rs`'s.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::web::{self, Request};

/// What is done instead of answering.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// The connection ends without a word.
    Dead,
    /// Nothing is ever said.
    Mute,
    /// Nothing is said until it is told something else.
    Gate,
    /// An answer with this status line, these fields and a word of HTML.
    Status(&'static str, &'static str),
    /// HTML with 200, with its length.
    Html,
    /// Half of the body, then a reset.
    Reset,
    /// Half of the body, then the connection ends as if that were all.
    Short,
    /// Half of the body, once; the rest if it is asked for. Then the same again.
    Hiccup,
    /// The same, ended as `Short` ends.
    ShortOnce,
    /// The same, with silence after the half.
    StallOnce,
    /// A chunked body that never ends.
    EndlessChunked,
    /// A body of an absurd length that never ends.
    EndlessLength,
    /// An error whose body never ends.
    EndlessError,
    /// The right body, a byte every 20 ms.
    Drip,
    /// 200 with all of it, whatever range was asked for.
    RangeIgnored,
    /// The same, but only half of it the first time that no range is asked for.
    RangeIgnoredShortOnce,
    /// After its first piece the file is another.
    Replaced,
    /// The same, by a server that does not know `If-Match`.
    ReplacedUnnoticed,
    /// Redirects to another server.
    Elsewhere(SocketAddr),
}

#[derive(Debug, Default)]
struct Orders {
    /// With the word that a path must hold.
    fault: Option<(Fault, &'static str)>,
    /// Of each request: its path, and the status of a good answer.
    log: Vec<(String, String)>,
    /// Of each GET: its path, and its range.
    gets: Vec<(String, Option<String>)>,
    hiccups: u32,
    hides_tags: bool,
}

impl Orders {
    fn fault_on(&self, path: &str) -> Option<Fault> {
        self.fault.filter(|(_, word)| path.contains(word)).map(|(fault, _)| fault)
    }
}

/// The server; its threads end with the test's process.
pub(crate) struct Unruly {
    pub(crate) address: SocketAddr,
    orders: Arc<Mutex<Orders>>,
}

impl Unruly {
    pub(crate) fn serve(root: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let orders = Arc::new(Mutex::new(Orders::default()));
        let (root, shared) = (root.to_owned(), Arc::clone(&orders));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (root, orders) = (root.clone(), Arc::clone(&shared));
                // A client that is gone ends its thread, no more.
                std::thread::spawn(move || drop(answer_all(&stream, &root, &orders)));
            }
        });
        Self { address, orders }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on, for paths that hold `word`.
    pub(crate) fn misbehave(&self, fault: Fault, word: &'static str) {
        self.orders.lock().unwrap().fault = Some((fault, word));
    }

    pub(crate) fn behave(&self) {
        self.orders.lock().unwrap().fault = None;
    }

    /// Requests for paths that hold `word`.
    pub(crate) fn requests(&self, word: &str) -> usize {
        self.orders.lock().unwrap().log.iter().filter(|(path, _)| path.contains(word)).count()
    }

    /// From now on no answer has an entity tag.
    pub(crate) fn hide_tags(&self) {
        self.orders.lock().unwrap().hides_tags = true;
    }

    /// The ranges of all GETs of paths that hold `word`, and forgets them.
    pub(crate) fn take_ranges(&self, word: &str) -> Vec<Option<String>> {
        let mut orders = self.orders.lock().unwrap();
        let taken = orders.gets.extract_if(.., |(path, _)| path.contains(word));
        taken.map(|(_, range)| range).collect()
    }

    /// Well-behaved answers with this status to paths that hold `word`.
    pub(crate) fn answers(&self, word: &str, status: &str) -> usize {
        let orders = self.orders.lock().unwrap();
        orders.log.iter().filter(|(path, found)| path.contains(word) && found == status).count()
    }
}

fn answer_all(stream: &TcpStream, root: &Path, orders: &Mutex<Orders>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream.try_clone()?;
    while let Some(request) = web::read(&mut reader) {
        let (mut head, body) = web::answer(&request, root, None);
        let status = head.split(' ').nth(1).unwrap_or_default().to_owned();
        while matches!(orders.lock().unwrap().fault_on(&request.path), Some(Fault::Gate)) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let fault = {
            let mut orders = orders.lock().unwrap();
            // An answer to HEAD has no body to be wrong.
            let is_of_body = |fault: &Fault| {
                use Fault::{
                    Hiccup, RangeIgnored, RangeIgnoredShortOnce, Reset, Short, ShortOnce, StallOnce,
                };
                matches!(
                    fault,
                    Reset | Short | Hiccup | ShortOnce | StallOnce | RangeIgnored | RangeIgnoredShortOnce
                )
            };
            if orders.hides_tags {
                head = head.replace("ETag: ", "X-No-ETag: ");
            }
            if request.method == "GET" {
                orders.gets.push((request.path.clone(), request.range.clone()));
            }
            let fault = orders.fault_on(&request.path);
            let fault = fault.filter(|fault| request.method == "GET" || !is_of_body(fault));
            let logged = if fault.is_some() { String::new() } else { status };
            orders.log.push((request.path.clone(), logged));
            let mut hiccup = |fault| {
                orders.hiccups += 1;
                (orders.hiccups % 2 == 1).then_some(fault)
            };
            match fault {
                Some(Fault::Hiccup) => hiccup(Fault::Reset),
                Some(Fault::ShortOnce) => hiccup(Fault::Short),
                Some(Fault::StallOnce) => hiccup(Fault::StallOnce),
                Some(Fault::RangeIgnoredShortOnce) if request.range.is_some() => Some(Fault::RangeIgnored),
                Some(Fault::RangeIgnoredShortOnce) => hiccup(Fault::Short),
                fault => fault,
            }
        };
        match fault {
            None => {
                writer.write_all(head.as_bytes())?;
                if request.method == "GET" {
                    writer.write_all(&body)?;
                }
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

/// Whether the connection goes on.
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
        // A gate is gone by now, or was put up again.
        Fault::Mute | Fault::Gate => {
            std::thread::sleep(Duration::from_secs(120));
            Ok(false)
        }
        Fault::Status(status, fields) => {
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{fields}\r\n{HTML}", HTML.len())?;
            Ok(true)
        }
        Fault::Html => {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{HTML}", HTML.len())?;
            Ok(true)
        }
        Fault::Reset => {
            stream.write_all(head.as_bytes())?;
            stream.write_all(&body[..half])?;
            stream.flush()?;
            // So that the half arrives before the reset throws away what was not read.
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
        Fault::Hiccup | Fault::ShortOnce | Fault::RangeIgnoredShortOnce => {
            unreachable!("each time another fault")
        }
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
        Fault::RangeIgnored => {
            let whole = Request { range: None, ..request.clone() };
            let (head, body) = web::answer(&whole, root, None);
            stream.write_all(head.as_bytes())?;
            stream.write_all(&body)?;
            Ok(true)
        }
        Fault::Replaced | Fault::ReplacedUnnoticed => {
            let is_first = request.range.as_deref().is_none_or(|range| range.starts_with("bytes=0-"));
            if is_first {
                stream.write_all(head.as_bytes())?;
                stream.write_all(body)?;
            } else if request.if_match.is_some() && matches!(fault, Fault::Replaced) {
                stream.write_all(b"HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n")?;
            } else {
                let head = head.replace("ETag: \"", "ETag: \"another-");
                stream.write_all(head.as_bytes())?;
                stream.write_all(&vec![0; body.len()])?;
            }
            Ok(true)
        }
        Fault::Elsewhere(address) => {
            write!(
                stream,
                "HTTP/1.1 302 Found\r\nLocation: http://{address}{}\r\nContent-Length: 0\r\n\r\n",
                request.path
            )?;
            Ok(true)
        }
    }
}

/// Until the other side has had enough.
fn endless(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<bool> {
    let many = bytes.repeat(256);
    loop {
        stream.write_all(&many)?;
    }
}
