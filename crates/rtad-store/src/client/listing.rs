//! Answers to lists, checked before [`object_store`] parses them.
//!
//! The parser takes any XML, such as a login page, for an empty list, and a truncated list without
//! a token for a complete one. A missing chunk would then be blamed on a gc.

use object_store::client::HttpRequest;

use super::excerpt::element;

/// Longest name of a found element in messages.
const MAX_NAME_CHARS: usize = 40;

/// An answer that is not the next page of a list.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ListError {
    #[error(
        "the answer is no list: expected <ListBucketResult> or <EnumerationResults>, found \
         {found}; is the endpoint a console, a proxy or a login page?"
    )]
    Foreign { found: String },
    #[error(
        "the list is truncated: expected a NextContinuationToken, found none; the server must \
         support ListObjectsV2"
    )]
    NoToken,
    #[error("the list begins anew: expected another NextContinuationToken than the request's")]
    SameToken,
}

/// Whether a request asks for a list, of S3's and Google's protocol or of Azure's.
pub fn is_list(request: &HttpRequest) -> bool {
    let query = request.uri().query().unwrap_or_default();
    request.method() == "GET"
        && query
            .split('&')
            .any(|pair| matches!(pair, "list-type=2" | "comp=list"))
}

/// Checks the answer to a list with this query.
pub fn check(query: &str, body: &[u8]) -> Result<(), ListError> {
    let body = String::from_utf8_lossy(body);
    match root(&body) {
        Some("EnumerationResults") => return Ok(()),
        Some("ListBucketResult") => {}
        Some(name) => {
            let name: String = name.chars().take(MAX_NAME_CHARS).collect();
            return Err(ListError::Foreign {
                found: format!("<{name}>"),
            });
        }
        None => {
            return Err(ListError::Foreign {
                found: "no XML".to_owned(),
            });
        }
    }
    // A key's own tags are escaped.
    if element(&body, "IsTruncated").is_none_or(|truncated| truncated.trim() != "true") {
        return Ok(());
    }
    let token = element(&body, "NextContinuationToken").filter(|token| !token.is_empty());
    let token = token.ok_or(ListError::NoToken)?;
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    match pairs.any(|(name, value)| name == "continuation-token" && value == token) {
        true => Err(ListError::SameToken),
        false => Ok(()),
    }
}

/// The name of the first element.
fn root(xml: &str) -> Option<&str> {
    let is_of_name = |char: char| char.is_ascii_alphanumeric() || "_-:.".contains(char);
    let mut tags = xml.split('<').skip(1);
    let tag = tags.find(|tag| tag.starts_with(|char: char| char.is_ascii_alphabetic()))?;
    Some(&tag[..tag.find(|char| !is_of_name(char)).unwrap_or(tag.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "\u{feff}<?xml version=\"1.0\"?>\n<!-- a list -->\n";

    fn checked(query: &str, xml: &str) -> Result<(), ListError> {
        check(query, format!("{HEAD}{xml}").as_bytes())
    }

    #[test]
    fn complete_pages_are_lists() {
        let first = "list-type=2&prefix=a%2F";
        for xml in [
            "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"/>",
            "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>",
            "<ListBucketResult><NextContinuationToken>1+/=</NextContinuationToken>\
             <IsTruncated>true</IsTruncated></ListBucketResult>",
            "<EnumerationResults ContainerName=\"a\"><Blobs /><NextMarker /></EnumerationResults>",
        ] {
            assert_eq!(checked(first, xml), Ok(()), "{xml}");
        }
    }

    #[test]
    fn pages_of_other_content_are_refused_by_their_name() {
        for (xml, found) in [
            (
                "<!DOCTYPE html>\n<html lang=\"en\"><body>Log in</body></html>",
                "<html>",
            ),
            (
                "<ListAllMyBucketsResult><Buckets/></ListAllMyBucketsResult>",
                "<ListAllMy",
            ),
            ("{\"items\": []}", "no XML"),
            ("", "no XML"),
        ] {
            let error = checked("list-type=2", xml).unwrap_err().to_string();
            assert!(error.contains(&format!(", found {found}")), "{error}");
        }
    }

    #[test]
    fn truncated_list_needs_another_token() {
        let page = |token: &str| {
            format!("<ListBucketResult><IsTruncated>true</IsTruncated>{token}</ListBucketResult>")
        };
        assert_eq!(checked("list-type=2", &page("")), Err(ListError::NoToken));
        for empty in [
            "<NextContinuationToken/>",
            "<NextContinuationToken></NextContinuationToken>",
        ] {
            assert_eq!(
                checked("list-type=2", &page(empty)),
                Err(ListError::NoToken)
            );
        }
        let again = page("<NextContinuationToken>1+/=</NextContinuationToken>");
        let query = "continuation-token=1%2B%2F%3D&list-type=2";
        assert_eq!(checked(query, &again), Err(ListError::SameToken));
        assert_eq!(checked("continuation-token=1&list-type=2", &again), Ok(()));
    }
}
