//! Parameters of query strings.

use percent_encoding::percent_decode_str;

use crate::request_error::RequestError;

/// The last value of a parameter, not decoded; empty if it has none. Its name may be
/// percent-encoded.
pub fn parameter<'query>(query: Option<&'query str>, wanted: &str) -> Option<&'query str> {
    let mut found = None;
    for pair in query?.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let is_wanted = name == wanted || percent_decode_str(name).eq(wanted.bytes());
        if is_wanted {
            found = Some(value);
        }
    }
    found
}

/// Refuses the kind of ids in the query: beside a JSON body another kind would win, and binary keys
/// have none.
///
/// # Errors
///
/// [`RequestError::BadBody`], if the query has a `kind`.
pub fn refuse_kind(query: Option<&str>) -> Result<(), RequestError> {
    match parameter(query, "kind") {
        None => Ok(()),
        Some(_) => Err(RequestError::BadBody(
            "query: kind: expected in a JSON body".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_value_of_a_parameter_counts() {
        let query = Some("kind=a&x=1&kind=b&flag");
        assert_eq!(parameter(query, "kind"), Some("b"));
        assert_eq!(parameter(query, "flag"), Some(""));
        assert_eq!(parameter(query, "kin"), None);
        assert_eq!(parameter(Some("%6Bind=a"), "kind"), Some("a"));
        assert_eq!(parameter(None, "kind"), None);
        assert!(refuse_kind(query).is_err() && refuse_kind(Some("x=1")).is_ok());
    }
}
