//! The signed text of a request: the config's template, resolved when the platform is built.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;

use super::form;
use super::plan::Planner;
use super::reading::Reading;
use crate::config::{Mistake, Named};
use crate::platform::adapter::RequestHead;
use crate::platform::read::Digits;

/// The source of a value in a request.
#[derive(Debug)]
pub enum Source {
    /// A field of the body, by its slot.
    Body {
        slot: usize,
        path: String,
    },
    Header(HeaderName),
    /// A query parameter, percent-decoded.
    Query(String),
}

/// A part of the signed text.
#[derive(Debug)]
pub enum Part {
    Literal(String),
    Secret,
    /// All bytes of the body.
    Body,
    /// The names and values of all parameters of a form, sorted by name, but for the signature.
    Parameters,
    Value(Source),
}

/// Placeholders that are not fields of the body, for messages.
const PLACEHOLDERS: &str =
    "{secret}, {body}, {parameters} of a form, {header:NAME}, {query:NAME} or a field's path";

/// Names that mean a part of the request elsewhere. As fields of the body they would sign an empty
/// text, so they need `body:`.
const OF_REQUESTS: [&str; 10] = [
    "header",
    "headers",
    "host",
    "method",
    "parameters",
    "path",
    "query",
    "query_string",
    "uri",
    "url",
];

const SOURCES: &str = "a field's path, body:PATH, header:NAME or query:NAME";

impl Source {
    pub fn compile(planner: &mut Planner<'_>, named: &Named) -> Option<Self> {
        if let Some(name) = named.text.strip_prefix("header:") {
            return match HeaderName::from_bytes(name.as_bytes()) {
                Ok(name) => Some(Self::Header(name)),
                Err(_) => {
                    planner.mistake(named.mistake("is not a header name", SOURCES));
                    None
                }
            };
        }

        if let Some(name) = named.text.strip_prefix("query:") {
            if name.is_empty() {
                planner.mistake(named.mistake("is not a parameter name", SOURCES));
                return None;
            }
            return Some(Self::Query(name.to_owned()));
        }

        let path = named
            .text
            .strip_prefix("body:")
            .unwrap_or(&named.text)
            .to_owned();
        let slot = planner.single(&Named {
            text: path.clone(),
            location: named.location.clone(),
        })?;
        Some(Self::Body { slot, path })
    }

    /// Whether both name the same value.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Body { path, .. }, Self::Body { path: other, .. }) => path == other,
            (Self::Header(name), Self::Header(other)) => name == other,
            (Self::Query(name), Self::Query(other)) => name == other,
            _ => false,
        }
    }

    /// Whether these headers and this query may hold the value. A body always may.
    pub fn is_in(&self, head: &RequestHead<'_>) -> bool {
        match self {
            Self::Body { .. } => true,
            Self::Header(name) => head.headers.contains_key(name),
            Self::Query(_) => head.query.is_some(),
        }
    }

    /// Passes the value to `use_it`; empty if absent.
    pub fn with<R>(
        &self,
        reading: &Reading<'_, '_>,
        head: &RequestHead<'_>,
        use_it: impl FnOnce(&[u8]) -> R,
    ) -> R {
        match self {
            Self::Body { slot, .. } => use_it(reading.values[*slot].text(&mut Digits::new())),
            Self::Header(name) => use_it(header(head.headers, name)),
            Self::Query(name) => use_it(&parameter(head.query, name)),
        }
    }
}

/// Passes the names and values of all parameters to `update`, sorted by name, without those of this
/// source and those without a value.
pub fn feed_parameters(
    source: &Source,
    head: &RequestHead<'_>,
    body: &[u8],
    update: &mut dyn FnMut(&[u8]),
) {
    let own = match source {
        Source::Body { path: name, .. } | Source::Query(name) => Some(name),
        Source::Header(_) => None,
    };

    let all = form::parameters(head.query.unwrap_or_default().as_bytes(), body);
    let mut signed: Vec<_> = all
        .filter(|(name, value)| Some(&**name) != own.map(String::as_str) && !value.is_empty())
        .collect();
    signed.sort();

    for (name, value) in signed {
        update(name.as_bytes());
        update(value.as_bytes());
    }
}

/// The last header of this name.
fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a [u8] {
    headers
        .get_all(name)
        .iter()
        .next_back()
        .map_or(b"", |value| value.as_bytes())
}

/// The last parameter of this name.
fn parameter<'a>(query: Option<&'a str>, name: &str) -> Cow<'a, [u8]> {
    let mut pairs = query
        .unwrap_or_default()
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let last = pairs.rfind(|(key, _)| percent_decode_str(key).eq(name.bytes()));
    last.map_or(Cow::Borrowed(b""), |(_, value)| {
        percent_decode_str(value).into()
    })
}

/// Compiles a template of `{field.path}`, `{secret}`, `{body}`, `{parameters}`, `{header:NAME}` and
/// `{query:NAME}`; `{{` and `}}` are braces. Only a form has parameters.
pub fn compile(planner: &mut Planner<'_>, template: &Named, is_form: bool) -> Option<Vec<Part>> {
    let words = match split(&template.text) {
        Ok(words) => words,
        Err(why) => {
            planner.mistake(unquoted(template, why, "{name}, and {{ or }} for a brace"));
            return None;
        }
    };

    // Collected first, so that every mistake is reported.
    let mut parts: Vec<Option<Part>> = Vec::with_capacity(words.len());
    for (is_name, text) in words {
        parts.push(match text.as_str() {
            _ if !is_name => Some(Part::Literal(text)),
            "secret" => Some(Part::Secret),
            "body" => Some(Part::Body),
            "parameters" if is_form => Some(Part::Parameters),
            name if OF_REQUESTS.contains(&name) => {
                let found = format!("{{{name}}} is no part of a request that can be signed");
                let accepted = format!("{PLACEHOLDERS}; {{body:{name}}} is a field of the body");
                planner.mistake(unquoted(template, &found, &accepted));
                None
            }
            _ => {
                let named = Named {
                    location: template.location.clone(),
                    text,
                };
                Source::compile(planner, &named).map(Part::Value)
            }
        });
    }
    parts.into_iter().collect()
}

/// The parts of a template, and whether each is a name.
fn split(template: &str) -> Result<Vec<(bool, String)>, &'static str> {
    let mut words = Vec::new();
    let mut literal = String::new();
    let mut rest = template;

    while let Some(index) = rest.find(['{', '}']) {
        literal.push_str(&rest[..index]);
        let brace = &rest[index..=index];
        rest = &rest[index + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            literal.push_str(brace);
            rest = after;
        } else if brace == "}" {
            return Err("has a } without a {");
        } else {
            let (name, after) = rest.split_once('}').ok_or("has a { without a }")?;
            if !literal.is_empty() {
                words.push((false, std::mem::take(&mut literal)));
            }
            words.push((true, name.to_owned()));
            rest = after;
        }
    }

    literal.push_str(rest);
    if !literal.is_empty() {
        words.push((false, literal));
    }
    Ok(words)
}

/// Whether a template contains the secret.
pub fn has_secret(parts: &[Part]) -> bool {
    parts.iter().any(|part| matches!(part, Part::Secret))
}

/// The mistake of a template without a secret.
pub fn without_secret(template: &Named) -> Mistake {
    unquoted(
        template,
        "has no {secret}: any sender could sign",
        "a template with {secret}, or algorithm = \"hmac-sha256\"",
    )
}

/// A mistake that does not show the template, which may contain a secret by error.
fn unquoted(template: &Named, found: &str, accepted: &str) -> Mistake {
    Mistake {
        location: template.location.clone(),
        found: found.to_owned(),
        accepted: accepted.to_owned(),
    }
}

/// Whether a template covers this source.
pub fn signs(parts: &[Part], source: &Source) -> bool {
    let is_parameter = !matches!(source, Source::Header(_));
    let has_parameters = parts.iter().any(|part| matches!(part, Part::Parameters));
    has_parameters && is_parameter || signs_itself(parts, source).is_some()
}

/// The reason why a signature in this source can never match, as it would sign itself.
pub fn signs_itself(parts: &[Part], source: &Source) -> Option<&'static str> {
    parts.iter().find_map(|part| match part {
        Part::Body if matches!(source, Source::Body { .. }) => {
            Some("the template has {body}, which contains it")
        }
        // A parameter of its own is left out of them.
        Part::Parameters if matches!(source, Source::Body { path, .. } if path.contains('.')) => {
            Some("the template has {parameters}, one of which contains it")
        }
        Part::Value(value) if value.is_same(source) => Some("the template contains it"),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_is_split_into_literals_and_names() {
        let words = |text| {
            let show = |(is_name, text)| if is_name { format!("<{text}>") } else { text };
            split(text).map(|words| words.into_iter().map(show).collect::<Vec<_>>())
        };
        assert_eq!(words("").unwrap(), [""; 0]);
        assert_eq!(
            words("{a}{b.c}-{secret}").unwrap(),
            ["<a>", "<b.c>", "-", "<secret>"]
        );
        assert_eq!(words("k={a}&{{x}}").unwrap(), ["k=", "<a>", "&{x}"]);
        assert_eq!(words("{a}{{{b}}}").unwrap(), ["<a>", "{", "<b>", "}"]);
        assert_eq!(words("{a"), Err("has a { without a }"));
        assert_eq!(words("a}"), Err("has a } without a {"));
    }

    #[test]
    fn last_query_parameter_is_decoded() {
        let query = Some("a=1&sign=x%2By&b&sign=%41%42");
        assert_eq!(*parameter(query, "sign"), *b"AB");
        assert_eq!(*parameter(query, "a"), *b"1");
        assert_eq!(*parameter(query, "b"), *b"");
        assert_eq!(*parameter(query, "c"), *b"");
        assert_eq!(*parameter(None, "a"), *b"");
    }
}
