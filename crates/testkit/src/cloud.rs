//! A bucket in memory, behind S3's protocol as S3, Alibaba OSS and Tencent COS speak it: signed
//! requests, conditions of puts, ranges, and lists in pages. What the clouds refuse is refused here
//! with their status and code:
//!
//! | request | S3 | OSS | COS |
//! |---|---|---|---|
//! | the bucket in the path | served | 403 `SecondLevelDomainForbidden` | 403 `PathStyleDomainForbidden` |
//! | a put with `If-Match`, `If-None-Match` | obeyed | 501 `NotImplemented` | 501 `NotImplemented` |
//! | a put with its header of [`Cloud::forbid_header`] on an object | – | 409 `FileAlreadyExists` | 409 `FileAlreadyExists` |
//! | the same in a bucket with versions | – | overwrites | overwrites |
//! | deletes without `Content-MD5` | 400 | 400 | 400 |
//!
//! Multipart uploads and copies are not there.

mod request;
mod signature;

use std::collections::BTreeMap;
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use request::{Answer, Request};
use rtad_core::clock::now_unix_seconds;
use sha2::{Digest as _, Sha256};

/// The bucket of every server.
pub const BUCKET: &str = "ads-1250000000";
/// The keys of its owner.
pub const KEY_ID: &str = "rtad-test";
/// Its secret.
pub const KEY_SECRET: &str = "not-a-secret";

/// Whose protocol a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cloud {
    /// Amazon S3.
    S3,
    /// Alibaba Cloud OSS.
    Oss,
    /// Tencent Cloud COS.
    Cos,
}

impl Cloud {
    /// The header of puts that replace nothing.
    pub const fn forbid_header(self) -> Option<&'static str> {
        match self {
            Self::S3 => None,
            Self::Oss => Some("x-oss-forbid-overwrite"),
            Self::Cos => Some("x-cos-forbid-overwrite"),
        }
    }

    const fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Oss => "oss",
            Self::Cos => "cos",
        }
    }
}

/// The server. Its threads end with the test process.
pub struct CloudServer {
    /// Its address.
    pub address: SocketAddr,
    cloud: Cloud,
    state: Arc<Mutex<State>>,
}

struct State {
    objects: BTreeMap<String, Object>,
    has_versions: bool,
    /// Time between the check of a put's condition and the put.
    race: Duration,
    /// Time before a put, and after it.
    put_delay: Duration,
    /// Names in a page of a list.
    page_names: usize,
    /// Method and target of each request.
    requests: Vec<String>,
}

struct Object {
    bytes: Vec<u8>,
    tag: String,
    modified: SystemTime,
}

impl CloudServer {
    /// Starts a server with an empty bucket.
    pub fn start(cloud: Cloud) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            cloud,
            state: Arc::new(Mutex::new(State {
                objects: BTreeMap::new(),
                has_versions: false,
                race: Duration::ZERO,
                put_delay: Duration::ZERO,
                page_names: 1000,
                requests: Vec::new(),
            })),
        };
        let state = Arc::clone(&server.state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, state) = (stream.unwrap(), Arc::clone(&state));
                // An error is the client's end of the connection.
                std::thread::spawn(move || _ = answer_all(&stream, cloud, &state));
            }
        });
        server
    }

    /// The environment of its clients.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let port = self.address.port();
        let (id, secret) = (KEY_ID.to_owned(), KEY_SECRET.to_owned());
        match self.cloud {
            Cloud::S3 => vec![
                ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")),
                ("AWS_ALLOW_HTTP", "true".to_owned()),
                ("AWS_REGION", "us-east-1".to_owned()),
                ("AWS_ACCESS_KEY_ID", id),
                ("AWS_SECRET_ACCESS_KEY", secret),
            ],
            Cloud::Oss => vec![
                ("OSS_ENDPOINT", format!("http://localhost:{port}")),
                ("OSS_REGION", "cn-hangzhou".to_owned()),
                ("OSS_ACCESS_KEY_ID", id),
                ("OSS_ACCESS_KEY_SECRET", secret),
            ],
            Cloud::Cos => vec![
                ("COS_ENDPOINT", format!("http://localhost:{port}")),
                ("COS_REGION", "ap-guangzhou".to_owned()),
                ("COS_SECRET_ID", id),
                ("COS_SECRET_KEY", secret),
            ],
        }
    }

    /// The URL of a prefix or an object.
    pub fn url(&self, path: &str) -> String {
        format!("{}://{BUCKET}/{path}", self.cloud.scheme())
    }

    /// Gives the bucket versions.
    pub fn add_versions(&self) {
        self.state.lock().unwrap().has_versions = true;
    }

    /// Lets so much time pass between the check of a put's condition and the put, so that several
    /// puts of a new object succeed.
    pub fn set_race(&self, race: Duration) {
        self.state.lock().unwrap().race = race;
    }

    /// Lets each put take so much longer, half of it after the object is there.
    pub fn set_put_delay(&self, put_delay: Duration) {
        self.state.lock().unwrap().put_delay = put_delay;
    }

    /// Sets the number of names in a page of a list.
    pub fn set_page_names(&self, page_names: usize) {
        self.state.lock().unwrap().page_names = page_names;
    }

    /// Puts an object.
    pub fn put(&self, name: &str, bytes: impl Into<Vec<u8>>) {
        self.state.lock().unwrap().put(name, bytes.into());
    }

    /// An object's content.
    pub fn object(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state.lock().unwrap();
        state.objects.get(name).map(|object| object.bytes.clone())
    }

    /// Method and target of each request since the last call.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }
}

fn answer_all(stream: &TcpStream, cloud: Cloud, state: &Mutex<State>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream.try_clone()?;
    while let Some(request) = Request::read(&mut reader)? {
        let line = format!("{} {}", request.method, request.target);
        state.lock().unwrap().requests.push(line);
        let mut delay = Duration::ZERO;
        if request.method == "PUT" {
            delay = state.lock().unwrap().put_delay / 2;
        }
        std::thread::sleep(delay);
        let answer = answer(&request, cloud, state);
        std::thread::sleep(delay);
        writer.write_all(&answer.bytes(request.method == "HEAD"))?;
    }
    Ok(())
}

fn answer(request: &Request, cloud: Cloud, state: &Mutex<State>) -> Answer {
    let path = match (cloud, request.path().split_once('/')) {
        (Cloud::S3, Some((BUCKET, rest))) => rest,
        (Cloud::S3, None) if request.path() == BUCKET => "",
        (Cloud::S3, _) => return Answer::error(404, "NoSuchBucket", ""),
        _ if request.header("host").split('.').next() == Some(BUCKET) => request.path(),
        (Cloud::Oss, _) => {
            let message = "Please use virtual hosted style to access.";
            return Answer::error(403, "SecondLevelDomainForbidden", message);
        }
        (Cloud::Cos, _) => {
            let message = "The bucket you are attempting to access must be addressed using COS \
                           virtual-styled domain.";
            return Answer::error(403, "PathStyleDomainForbidden", message);
        }
    };
    if let Err(refusal) = signature::check(request, KEY_ID, KEY_SECRET) {
        return Answer::error(403, "SignatureDoesNotMatch", refusal);
    }
    let name = request::decoded(path);
    match (request.method.as_str(), name.as_str()) {
        ("PUT", name) if !name.is_empty() => put(request, name, cloud, state),
        ("GET" | "HEAD", name) if !name.is_empty() => get(request, name, &state.lock().unwrap()),
        ("GET", "") if request.query("list-type").as_deref() == Some("2") => {
            list(request, &state.lock().unwrap())
        }
        ("DELETE", name) if !name.is_empty() => {
            state.lock().unwrap().objects.remove(name);
            Answer::empty(204)
        }
        ("POST", "") if request.query("delete").is_some() => {
            delete_all(request, &mut state.lock().unwrap())
        }
        _ => Answer::error(501, "NotImplemented", ""),
    }
}

fn put(request: &Request, name: &str, cloud: Cloud, state: &Mutex<State>) -> Answer {
    let create_only = request.header("if-none-match");
    let replaced_tag = request.header("if-match");
    if cloud != Cloud::S3 && !(create_only.is_empty() && replaced_tag.is_empty()) {
        let message = "A header you provided implies functionality that is not implemented";
        return Answer::error(501, "NotImplemented", message);
    }
    let forbids = cloud.forbid_header().map(|header| request.header(header));
    if let Some(value) = forbids
        && !matches!(value, "" | "true" | "false")
    {
        return Answer::error(400, "InvalidArgument", "");
    }

    let mut held = state.lock().unwrap();
    let tag = held.objects.get(name).map(|object| object.tag.clone());
    let (has_versions, race) = (held.has_versions, held.race);
    if tag.is_some() && forbids == Some("true") && !has_versions {
        let message = "The object you specified already exists and can not be overwritten.";
        return Answer::error(409, "FileAlreadyExists", message);
    }
    if tag.is_some() && create_only == "*" {
        return Answer::error(412, "PreconditionFailed", "");
    }
    if !replaced_tag.is_empty() && tag.as_deref() != Some(replaced_tag) {
        return Answer::error(412, "PreconditionFailed", "");
    }

    if !race.is_zero() {
        drop(held);
        std::thread::sleep(race);
        held = state.lock().unwrap();
    }
    let tag = held.put(name, request.body.clone());
    Answer::empty(200).with("ETag", &tag)
}

fn get(request: &Request, name: &str, state: &State) -> Answer {
    let Some(object) = state.objects.get(name) else {
        return Answer::error(404, "NoSuchKey", "The specified key does not exist.");
    };
    let wanted = request.header("if-match");
    if !wanted.is_empty() && wanted != object.tag {
        return Answer::error(412, "PreconditionFailed", "");
    }
    if request.header("if-none-match") == object.tag {
        return Answer::empty(304).with("ETag", &object.tag);
    }
    let found = match request.range(object.bytes.len()) {
        None => Answer::content(200, object.bytes.clone()),
        Some(Err(())) => return Answer::error(416, "InvalidRange", ""),
        Some(Ok(range)) => {
            let (first, last) = (*range.start(), *range.end());
            let content = format!("bytes {first}-{last}/{}", object.bytes.len());
            Answer::content(206, object.bytes[range].to_vec()).with("Content-Range", &content)
        }
    };
    found
        .with("ETag", &object.tag)
        .with("Last-Modified", &httpdate::fmt_http_date(object.modified))
}

fn list(request: &Request, state: &State) -> Answer {
    let prefix = request.query("prefix").unwrap_or_default();
    let delimiter = request.query("delimiter").unwrap_or_default();
    // A token is the last name of the page before.
    let after = request.query("continuation-token");
    let after = after
        .or_else(|| request.query("start-after"))
        .unwrap_or_default();

    let (mut entries, mut names, mut last) = (String::new(), 0, String::new());
    let mut is_truncated = false;
    let mut folders = std::collections::BTreeSet::new();
    for (name, object) in &state.objects {
        let Some(rest) = name.strip_prefix(&prefix) else {
            continue;
        };
        if *name <= after {
            continue;
        }
        if names == state.page_names {
            is_truncated = true;
            break;
        }
        if let Some(end) = rest.find(&delimiter).filter(|_| !delimiter.is_empty()) {
            folders.insert(format!("{prefix}{}", &rest[..=end]));
            continue;
        }
        let modified = humantime::format_rfc3339_millis(object.modified);
        entries += &format!(
            "<Contents><Key>{}</Key><LastModified>{modified}</LastModified><ETag>{}</ETag>\
             <Size>{}</Size><StorageClass>Standard</StorageClass></Contents>",
            request::escaped(name),
            request::escaped(&object.tag),
            object.bytes.len(),
        );
        names += 1;
        last = request::escaped(name);
    }
    for folder in folders {
        let folder = request::escaped(&folder);
        entries += &format!("<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>");
    }
    let token = match is_truncated {
        true => format!("<NextContinuationToken>{last}</NextContinuationToken>"),
        false => String::new(),
    };
    Answer::xml(
        200,
        &format!(
            "<ListBucketResult><Name>{BUCKET}</Name><IsTruncated>{is_truncated}</IsTruncated>\
             {token}{entries}</ListBucketResult>"
        ),
    )
}

fn delete_all(request: &Request, state: &mut State) -> Answer {
    if request.header("content-md5").is_empty() {
        return Answer::error(400, "MissingArgument", "Content-MD5");
    }
    let body = String::from_utf8_lossy(&request.body).into_owned();
    let mut deleted = String::new();
    for part in body.split("<Key>").skip(1) {
        let name = part.split("</Key>").next().unwrap_or_default();
        state.objects.remove(&request::unescaped(name));
        deleted += &format!("<Deleted><Key>{name}</Key></Deleted>");
    }
    Answer::xml(200, &format!("<DeleteResult>{deleted}</DeleteResult>"))
}

impl State {
    /// Puts an object; returns its tag.
    fn put(&mut self, name: &str, bytes: Vec<u8>) -> String {
        let digest = Sha256::digest(&bytes);
        let tag = format!("\"{}\"", const_hex::encode_upper(&digest[..16]));
        let object = Object {
            tag: tag.clone(),
            bytes,
            // Lists and heads of the clouds have whole seconds.
            modified: UNIX_EPOCH + Duration::from_secs(now_unix_seconds()),
        };
        self.objects.insert(name.to_owned(), object);
        tag
    }
}
