//! Pages of lists, checked before [`object_store`] parses them.
//!
//! The parser takes any XML, such as that of a console, for an empty list, and a truncated list
//! without a token for a complete one. A missing chunk would then be blamed on a gc.

use object_store::client::HttpRequest;

use super::excerpt::{self, element};

/// An answer that is not the next page of a list.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ListError {
    #[error(
        "the answer is no list: expected <ListBucketResult> or <EnumerationResults>, found \
         {found:?}; is the endpoint a console, a proxy or a login page?"
    )]
    Foreign { found: String },
    #[error(
        "the list is truncated: expected a NextContinuationToken, found none; the server must \
         support ListObjectsV2"
    )]
    NoToken,
}

/// Whether a request asks for a list, of S3's and Google's protocol or of Azure's.
pub fn is_list(request: &HttpRequest) -> bool {
    let query = request.uri().query().unwrap_or_default();
    request.method() == "GET" && (query.contains("list-type=2") || query.contains("comp=list"))
}

/// Checks a page. A key's own tags are escaped.
pub fn check(page: &[u8]) -> Result<(), ListError> {
    let page = String::from_utf8_lossy(page);
    if page.contains("<EnumerationResults") {
        return Ok(());
    }
    if !page.contains("<ListBucketResult") {
        let found = excerpt::of(&page);
        return Err(ListError::Foreign { found });
    }

    let is_truncated = element(&page, "IsTruncated").is_some_and(|text| text.trim() == "true");
    let token = element(&page, "NextContinuationToken").unwrap_or_default();
    if is_truncated && token.is_empty() {
        return Err(ListError::NoToken);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_pages_are_lists() {
        for page in [
            "\u{feff}<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com\"/>",
            "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>",
            "<ListBucketResult><NextContinuationToken>1+/=</NextContinuationToken>\
             <IsTruncated>true</IsTruncated></ListBucketResult>",
            "<EnumerationResults ContainerName=\"a\"><Blobs /><NextMarker /></EnumerationResults>",
        ] {
            assert_eq!(check(page.as_bytes()), Ok(()), "{page}");
        }
    }

    #[test]
    fn pages_of_other_content_are_refused() {
        for page in [
            "<html lang=\"en\"><body>Log in</body></html>",
            "<ListAllMyBucketsResult><Buckets/></ListAllMyBucketsResult>",
            "{\"items\": []}",
            "",
        ] {
            let error = check(page.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(&format!(", found {page:?}")), "{error}");
        }
    }

    #[test]
    fn truncated_list_needs_a_token() {
        for token in [
            "",
            "<NextContinuationToken/>",
            "<NextContinuationToken></NextContinuationToken>",
        ] {
            let page = format!(
                "<ListBucketResult><IsTruncated>true</IsTruncated>{token}</ListBucketResult>"
            );
            assert_eq!(check(page.as_bytes()), Err(ListError::NoToken), "{token}");
        }
    }
}
