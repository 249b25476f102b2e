//! A client over one keep-alive connection: as little HTTP/1.1 as rtad's answers need.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use rtad_core::device::DeviceKey;
use serde_json::Value;

use super::{DEADLINE, hex};

/// One connection; every request goes over it.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        Self(BufReader::new(stream))
    }

    pub(crate) fn get(&mut self, path: &str) -> (u16, Vec<u8>) {
        self.request("GET", path, "", b"")
    }

    pub(crate) fn post(&mut self, path: &str, content_type: &str, body: &[u8]) -> (u16, Vec<u8>) {
        self.request("POST", path, content_type, body)
    }

    fn request(&mut self, method: &str, path: &str, content_type: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: rtad\r\n");
        if method == "POST" {
            request += &format!("Content-Type: {content_type}\r\nContent-Length: {}\r\n", body.len());
        }
        request += "\r\n";
        let mut bytes = request.into_bytes();
        bytes.extend_from_slice(body);
        self.0.get_mut().write_all(&bytes).unwrap();
        self.answer()
    }

    fn answer(&mut self) -> (u16, Vec<u8>) {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("a status line, not {line:?}"));
        let status = status.parse().unwrap();
        let mut length = 0;
        loop {
            line.clear();
            self.0.read_line(&mut line).unwrap();
            match line.trim_end().split_once(": ") {
                None => break,
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.parse().unwrap();
                }
                Some(_) => {}
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (status, body)
    }

    /// A GET of JSON that has to go well.
    pub(crate) fn json(&mut self, path: &str) -> Value {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }

    /// Whether the audience has the device, by `GET`.
    pub(crate) fn is_member(&mut self, audience: &str, key: &DeviceKey) -> bool {
        let path = format!("/v1/check/{audience}/{}", hex(key));
        self.json(&path)["member"].as_bool().unwrap()
    }

    /// The same of many, as JSON.
    pub(crate) fn members(&mut self, audience: &str, keys: &[DeviceKey]) -> Vec<bool> {
        let ids: Vec<String> = keys.iter().map(hex).collect();
        let body = serde_json::json!({ "ids": ids, "kind": "md5" }).to_string();
        let (status, answer) =
            self.post(&format!("/v1/check/{audience}"), "application/json", body.as_bytes());
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        answer["members"].as_array().unwrap().iter().map(|member| member.as_bool().unwrap()).collect()
    }

    /// The same of many, as 16-byte keys.
    pub(crate) fn members_binary(&mut self, audience: &str, keys: &[DeviceKey]) -> Vec<bool> {
        let body: Vec<u8> = keys.iter().flat_map(|key| *key.as_bytes()).collect();
        let path = format!("/v1/check/{audience}");
        let (status, bits) = self.post(&path, "application/octet-stream", &body);
        assert_eq!((status, bits.len()), (200, keys.len().div_ceil(8)), "{}", String::from_utf8_lossy(&bits));
        (0..keys.len()).map(|index| bits[index / 8] >> (index % 8) & 1 == 1).collect()
    }

    /// What the strategies decide about a device with these keys: `(bid, reason)` each, in the config's order.
    pub(crate) fn decide(&mut self, keys: &[DeviceKey]) -> Vec<(bool, String)> {
        let ids: Vec<String> = keys.iter().map(hex).collect();
        let body = serde_json::json!({ "device": { "imei_md5": ids } }).to_string();
        let (status, answer) = self.post("/v1/decide", "application/json", body.as_bytes());
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let decision =
            |one: &Value| (one["bid"].as_bool().unwrap(), one["reason"].as_str().unwrap().to_owned());
        answer["decisions"].as_array().unwrap().iter().map(decision).collect()
    }
}
