//! `[platform.response]`: where things go in a custom platform's responses.

use serde::Serialize;

use super::{Document, PATH, SEPARATOR, Section, not_empty, optional, required, text};
use crate::platform::custom::{CodeMapping, Place, ResponseMapping, VerdictsMapping};

/// `[platform.response]`
#[derive(Debug, Clone, Serialize)]
pub(super) struct ResponseConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<CodeConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdicts: Option<VerdictsConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted_separator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strategies_as: Option<&'static str>,
}

#[derive(Debug, Clone, Serialize)]
struct CodeConfig {
    field: String,
    bid: i64,
    no_bid: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<i64>,
}

#[derive(Debug, Clone, Serialize)]
struct VerdictsConfig {
    list: String,
    strategy: String,
    accepted: String,
}

pub(super) fn read(
    d: &mut Document<'_>,
    mut section: Section,
    is_json: bool,
) -> (ResponseConfig, ResponseMapping) {
    let mistakes = d.mistakes();
    let place = Place { line: section.line(), key: section.path().to_owned() };
    let request_id = optional(d, &mut section, "request_id", PATH);
    let example = "{ field = \"status\", bid = 0, no_bid = 1, error = 2 }";
    let code = section.section(d, "code", example).and_then(|table| read_code(d, table));
    let example = "{ list = \"results\", strategy = \"id\", accepted = \"accept\" }";
    let verdicts = section.section(d, "verdicts", example).and_then(|table| read_verdicts(d, table));
    let accepted = optional(d, &mut section, "accepted", PATH);
    let accepted_separator = section.read(d, "accepted_separator", SEPARATOR, not_empty);
    if accepted_separator.is_some() && !section.had("accepted") {
        let key = format!("{}.accepted_separator", section.path());
        d.mistake(section.line(), &key, "is given without accepted", "both, or accepted alone");
    }
    let cache = optional(d, &mut section, "cache", PATH);
    let strategies_as = is_json.then(|| {
        section.read(d, "strategies_as", "string or number", |text| match text {
            "string" => Some("string"),
            "number" => Some("number"),
            _ => None,
        })
    });
    section.finish(d);
    let strategies_as = strategies_as.flatten();
    let config = ResponseConfig {
        request_id: text(request_id.as_ref()),
        code: code.as_ref().map(|code| CodeConfig {
            field: code.field.text.clone(),
            bid: code.bid,
            no_bid: code.no_bid,
            error: code.error,
        }),
        verdicts: verdicts.as_ref().map(|verdicts| VerdictsConfig {
            list: verdicts.list.text.clone(),
            strategy: verdicts.strategy.text.clone(),
            accepted: verdicts.accepted.text.clone(),
        }),
        accepted: text(accepted.as_ref()),
        accepted_separator: accepted_separator.clone(),
        cache: text(cache.as_ref()),
        strategies_as,
    };
    let mapping = ResponseMapping {
        place,
        is_whole: d.mistakes() == mistakes,
        request_id,
        code,
        verdicts,
        accepted,
        accepted_separator,
        cache,
        strategies_are_numbers: strategies_as == Some("number"),
    };
    (config, mapping)
}

fn read_code(d: &mut Document<'_>, mut table: Section) -> Option<CodeMapping> {
    let field = required(d, &mut table, "field", PATH);
    let number = |text: &str| text.parse::<i64>().ok();
    let bid = table.read_required(d, "bid", "a whole number", number);
    let no_bid = table.read_required(d, "no_bid", "a whole number", number);
    let error = table.read(d, "error", "a whole number", number);
    table.finish(d);
    Some(CodeMapping { field: field?, bid: bid?, no_bid: no_bid?, error })
}

fn read_verdicts(d: &mut Document<'_>, mut table: Section) -> Option<VerdictsMapping> {
    const RELATIVE: &str = "a path of field names, from the list on";
    let list = required(d, &mut table, "list", PATH);
    let strategy = required(d, &mut table, "strategy", RELATIVE);
    let accepted = required(d, &mut table, "accepted", RELATIVE);
    table.finish(d);
    Some(VerdictsMapping { list: list?, strategy: strategy?, accepted: accepted? })
}
