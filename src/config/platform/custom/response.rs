//! `[platform.response]`: the fields of a custom platform's responses.

use serde::{Deserialize, Serialize};

use super::request::{PATH, RELATIVE_PATH, SEPARATOR};
use crate::config::mistake::{Location, Named};
use crate::config::reader::{Document, Section, not_empty};
use crate::config::values::word;

/// `[platform.response]`
#[derive(Debug, Clone, Default, Serialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct ResponseConfig {
    /// Location of the table.
    #[serde(skip)]
    pub location: Location,
    /// Whether the table has no mistakes so far; if not, missing keys are not reported.
    #[serde(skip)]
    pub is_whole: bool,
    /// Field of the request id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<Named>,
    /// One number for the whole answer, see `platform.response.code`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<CodeConfig>,
    /// Verdict for each strategy, see `platform.response.verdicts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdicts: Option<VerdictsConfig>,
    /// Field of the strategies that bid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Named>,
    /// Separator of strategies in one value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted_separator: Option<String>,
    /// Field of the seconds for which the platform may cache the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<Named>,
    /// JSON type of strategies in the response. Unknown for `protobuf`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategies_as: Option<StrategiesAs>,
}

/// JSON type of strategies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StrategiesAs {
    /// Strings.
    String,
    /// Numbers.
    Number,
}

/// One number for the whole answer.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct CodeConfig {
    /// Field of the number.
    pub field: Named,
    /// Number if a strategy bids.
    pub bid: i64,
    /// Number if no strategy bids.
    pub no_bid: i64,
    /// Number for an unreadable or unauthorized request; unset = the number of its decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<i64>,
}

/// A verdict for each strategy.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
pub struct VerdictsConfig {
    /// Field of the list.
    pub list: Named,
    /// Field of the strategy within a list entry.
    pub strategy: Named,
    /// Field of the verdict within a list entry: true for a bid.
    pub accepted: Named,
}

pub(super) fn read(d: &mut Document<'_>, mut section: Section, is_json: bool) -> ResponseConfig {
    let mistakes = d.mistakes();
    let request_id = section.read_named(d, "request_id", PATH);
    let example = "{ field = \"status\", bid = 0, no_bid = 1, error = 2 }";
    let code = section.section(d, "code", example).and_then(|table| read_code(d, table));
    let example = "{ list = \"results\", strategy = \"id\", accepted = \"accept\" }";
    let verdicts =
        section.section(d, "verdicts", example).and_then(|table| read_verdicts(d, table));
    let accepted = section.read_named(d, "accepted", PATH);
    let accepted_separator = section.read(d, "accepted_separator", SEPARATOR, not_empty);
    if accepted_separator.is_some() && !section.had("accepted") {
        let key = format!("{}.accepted_separator", section.path());
        d.mistake(section.line(), &key, "is given without accepted", "both, or accepted alone");
    }
    let cache = section.read_named(d, "cache", PATH);
    let mut strategies_as = None;
    if is_json {
        strategies_as = section.read(d, "strategies_as", "string or number", word);
    }
    let location = section.location();
    section.finish(d);
    ResponseConfig {
        location,
        is_whole: d.mistakes() == mistakes,
        request_id,
        code,
        verdicts,
        accepted,
        accepted_separator,
        cache,
        strategies_as,
    }
}

fn read_code(d: &mut Document<'_>, mut table: Section) -> Option<CodeConfig> {
    let field = table.read_required_named(d, "field", PATH);
    let number = |text: &str| text.parse::<i64>().ok();
    let bid = table.read_required(d, "bid", "a whole number", number);
    let no_bid = table.read_required(d, "no_bid", "a whole number", number);
    let error = table.read(d, "error", "a whole number", number);
    table.finish(d);
    Some(CodeConfig { field: field?, bid: bid?, no_bid: no_bid?, error })
}

fn read_verdicts(d: &mut Document<'_>, mut table: Section) -> Option<VerdictsConfig> {
    let list = table.read_required_named(d, "list", PATH);
    let strategy = table.read_required_named(d, "strategy", RELATIVE_PATH);
    let accepted = table.read_required_named(d, "accepted", RELATIVE_PATH);
    table.finish(d);
    Some(VerdictsConfig { list: list?, strategy: strategy?, accepted: accepted? })
}
