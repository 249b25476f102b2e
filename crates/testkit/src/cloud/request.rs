//! Requests and answers of HTTP/1.1, with bodies of a known length.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, Result};
use std::ops::RangeInclusive;

/// A request.
pub struct Request {
    pub method: String,
    pub target: String,
    /// By their names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Request {
    /// The next request of a connection; `None` at its end.
    pub fn read(stream: &mut impl BufRead) -> Result<Option<Self>> {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace().map(str::to_owned);
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Ok(None);
        };

        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else {
                break;
            };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }

        let length = headers.get("content-length");
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        Ok(Some(Self {
            method,
            target,
            headers,
            body,
        }))
    }

    /// The path without its first slash, as it was sent.
    pub fn path(&self) -> &str {
        let path = self.target.split('?').next().unwrap_or_default();
        path.strip_prefix('/').unwrap_or(path)
    }

    /// The query as it was sent.
    pub fn raw_query(&self) -> &str {
        self.target.split_once('?').map_or("", |(_, query)| query)
    }

    /// A parameter of the query; may be empty.
    pub fn query(&self, name: &str) -> Option<String> {
        let mut pairs = form_urlencoded::parse(self.raw_query().as_bytes());
        let pair = pairs.find(|(found, _)| found == name);
        pair.map(|(_, value)| value.into_owned())
    }

    /// A header; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value)
    }

    /// The wanted range of a body, `Err` if it is outside.
    pub fn range(&self, length: usize) -> Option<std::result::Result<RangeInclusive<usize>, ()>> {
        let (first, last) = self
            .header("range")
            .strip_prefix("bytes=")?
            .split_once('-')?;
        let range = match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), last) => first..=last.unwrap_or(usize::MAX).min(length.saturating_sub(1)),
            (Err(_), Ok(count)) => length.saturating_sub(count)..=length.saturating_sub(1),
            (Err(_), Err(_)) => return None,
        };
        Some(match range.is_empty() || *range.start() >= length {
            true => Err(()),
            false => Ok(range),
        })
    }
}

/// An answer.
pub struct Answer {
    status: u16,
    headers: String,
    body: Vec<u8>,
}

impl Answer {
    pub fn empty(status: u16) -> Self {
        Self::content(status, Vec::new())
    }

    pub fn content(status: u16, body: Vec<u8>) -> Self {
        Self {
            status,
            headers: String::new(),
            body,
        }
    }

    pub fn xml(status: u16, body: &str) -> Self {
        let body = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{body}");
        Self::content(status, body.into_bytes()).with("Content-Type", "application/xml")
    }

    /// An error as the clouds write it.
    pub fn error(status: u16, code: &str, message: &str) -> Self {
        let body = format!(
            "<Error><Code>{code}</Code><Message>{message}</Message><RequestId>5C06A3B1\
             </RequestId></Error>"
        );
        Self::xml(status, &body)
    }

    pub fn with(mut self, name: &str, value: &str) -> Self {
        let _ = write!(self.headers, "{name}: {value}\r\n");
        self
    }

    pub fn bytes(self, is_head: bool) -> Vec<u8> {
        let head = format!(
            "HTTP/1.1 {} Status\r\nContent-Length: {}\r\n{}\r\n",
            self.status,
            self.body.len(),
            self.headers
        );
        let mut bytes = head.into_bytes();
        if !is_head {
            bytes.extend(self.body);
        }
        bytes
    }
}

/// Text without percent encoding.
pub fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text)
        .decode_utf8_lossy()
        .into_owned()
}

/// Text of an XML element.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}

/// The text that [`escaped`] or another writer of XML made.
pub fn unescaped(text: &str) -> String {
    let text = text
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"");
    text.replace("&apos;", "'").replace("&amp;", "&")
}
