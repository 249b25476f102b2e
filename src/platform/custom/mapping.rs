//! What an operator maps, by name: the config's words, before anything is looked up in a schema.
//!
//! Plain data. Every name carries the place where the config says it, so that whatever is wrong with it can be told there.
//! What the names mean, [`super::Custom::compile`] finds out.

use std::time::Duration;

use super::schema::Schema;
use super::signature::{Algorithm, HexCase, TimestampUnit};
use crate::platform::Secret;

/// Where the config says something.
#[derive(Debug, Clone)]
pub struct Place {
    /// The line, if it is known.
    pub line: Option<usize>,
    /// The whole key, such as `platform[0].request.ids.imei`.
    pub key: String,
}

/// Words of the config and where they stand: a path of field names with dots between, a template, a source.
#[derive(Debug, Clone)]
pub struct Named {
    /// Where it stands.
    pub place: Place,
    /// What it says.
    pub text: String,
}

impl Named {
    /// A mistake about it: what comes after its text.
    pub(super) fn mistake(&self, why: &str, accepted: &str) -> Mistake {
        let found = format!("is {:?}: {why}", self.text);
        Mistake { place: self.place.clone(), found, accepted: accepted.to_owned() }
    }
}

/// Something that the config says and that cannot be.
#[derive(Debug, Clone)]
pub struct Mistake {
    /// Where.
    pub place: Place,
    /// What was found there, as what follows on the key.
    pub found: String,
    /// What would have been accepted.
    pub accepted: String,
}

/// All that a custom platform's config says of its bodies.
#[derive(Debug)]
pub struct Mapping {
    /// What the bodies are.
    pub schema: Schema,
    /// `request`
    pub request: RequestMapping,
    /// `response`
    pub response: ResponseMapping,
    /// `signature`, unless it is off.
    pub signature: Option<SignatureMapping>,
}

/// Where things stand in a request.
#[derive(Debug, Default)]
pub struct RequestMapping {
    /// What is echoed.
    pub request_id: Option<Named>,
    /// The strategies asked about.
    pub strategies: Option<Named>,
    /// What stands between strategies in one value.
    pub strategies_separator: Option<String>,
    /// True for a probe.
    pub ping: Option<Named>,
    /// Places in [`crate::platform::IdField::ALL`], and the paths of such ids.
    pub ids: Vec<(usize, Named)>,
    /// Ids that say themselves what they are.
    pub id_list: Option<IdListMapping>,
}

/// A list of ids, each beside what it is.
#[derive(Debug)]
pub struct IdListMapping {
    /// The list; without one the rest stands at the top of the request.
    pub list: Option<Named>,
    /// The id, from the list on.
    pub value: Named,
    /// What it is, from the list on.
    pub kind: Named,
    /// More of what it is, such as how it was hashed.
    pub secure: Option<Named>,
    /// Values of `kind`, or of `kind` and `secure` with a slash between, and places in [`crate::platform::IdField::ALL`].
    pub kinds: Vec<(Named, usize)>,
}

/// Where things go in a response.
#[derive(Debug)]
pub struct ResponseMapping {
    /// Where it stands itself.
    pub place: Place,
    /// Whether all that is written there could be read: if not, nothing is said of what is missing.
    pub is_whole: bool,
    /// The request's id.
    pub request_id: Option<Named>,
    /// One number for the whole answer.
    pub code: Option<CodeMapping>,
    /// A verdict for each strategy.
    pub verdicts: Option<VerdictsMapping>,
    /// The strategies that bid.
    pub accepted: Option<Named>,
    /// What stands between them, if they go into one value.
    pub accepted_separator: Option<String>,
    /// Seconds that the platform may keep the answer.
    pub cache: Option<Named>,
    /// Whether JSON has strategies as numbers.
    pub strategies_are_numbers: bool,
}

/// One number for the whole answer.
#[derive(Debug)]
pub struct CodeMapping {
    /// Where it goes.
    pub field: Named,
    /// If any strategy bids.
    pub bid: i64,
    /// If none does.
    pub no_bid: i64,
    /// If the request could not be read, or not be believed; without one it is as for decisions.
    pub error: Option<i64>,
}

/// A verdict for each strategy.
#[derive(Debug)]
pub struct VerdictsMapping {
    /// The list.
    pub list: Named,
    /// The strategy, from the list on.
    pub strategy: Named,
    /// Whether it bids, from the list on.
    pub accepted: Named,
}

/// How requests are signed.
#[derive(Debug)]
pub struct SignatureMapping {
    /// Whether a wrong one is only counted.
    pub is_observed: bool,
    /// How the signed text becomes a digest.
    pub algorithm: Algorithm,
    /// What is signed.
    pub template: Named,
    /// How the digest is written.
    pub encoding: HexCase,
    /// Where the signature stands.
    pub source: Named,
    /// Where the request's time stands.
    pub timestamp: Option<Named>,
    /// What that counts.
    pub timestamp_unit: TimestampUnit,
    /// How far it may be from now.
    pub max_skew: Option<Duration>,
    /// Any one of them signs.
    pub secrets: Vec<Secret>,
}
