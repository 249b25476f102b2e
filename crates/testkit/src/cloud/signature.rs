//! AWS Signature Version 4 of a request in its `Authorization` header, checked.

use hmac::{Hmac, KeyInit as _, Mac as _};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest as _, Sha256};

use super::request::Request;

/// Headers of vendors, which must be part of the signature.
const SIGNED_PREFIXES: [&str; 3] = ["x-amz-", "x-oss-", "x-cos-"];

/// Checks the signature; the fault if it does not fit.
pub fn check(request: &Request, key_id: &str, secret: &str) -> Result<(), &'static str> {
    let authorization = request.header("authorization");
    let field = |name: &str| {
        let (_, rest) = authorization.split_once(name)?;
        rest.split(',').next().map(str::trim)
    };
    let credential = field("Credential=").ok_or("no credential")?;
    let signed = field("SignedHeaders=").ok_or("no signed headers")?;
    let found = field("Signature=").ok_or("no signature")?;
    let scope = credential.strip_prefix(key_id).ok_or("another key")?;
    let scope = scope.trim_start_matches('/');

    let signed_names: Vec<_> = signed.split(';').collect();
    for name in request.headers.keys() {
        let is_vendors = SIGNED_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix));
        if is_vendors && !signed_names.contains(&name.as_str()) {
            return Err("a header of the vendor is not signed");
        }
    }
    let body_digest = request.header("x-amz-content-sha256");
    if body_digest != const_hex::encode(Sha256::digest(&request.body)) {
        return Err("another body");
    }

    let mut canonical_headers = String::new();
    for name in signed_names {
        canonical_headers += &format!("{name}:{}\n", request.header(name));
    }
    let mut pairs: Vec<String> = Vec::new();
    for (name, value) in form_urlencoded::parse(request.raw_query().as_bytes()) {
        pairs.push(format!("{}={}", encoded(&name), encoded(&value)));
    }
    pairs.sort_unstable();
    let canonical = format!(
        "{}\n/{}\n{}\n{canonical_headers}\n{signed}\n{body_digest}",
        request.method,
        request.path(),
        pairs.join("&"),
    );
    let digest = const_hex::encode(Sha256::digest(canonical.as_bytes()));
    let date = request.header("x-amz-date");
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{digest}");

    let mut key = format!("AWS4{secret}").into_bytes();
    for part in scope.split('/') {
        key = hmac(&key, part);
    }
    match const_hex::encode(hmac(&key, &text)) == found {
        true => Ok(()),
        false => Err("another signature"),
    }
}

fn encoded(text: &str) -> impl std::fmt::Display {
    const KEPT: AsciiSet = NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~');
    utf8_percent_encode(text, &KEPT)
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length is a key");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}
