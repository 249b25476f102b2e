//! Ad platforms' protocols: request bytes to data, decisions to response bytes. One file per
//! platform.
//!
//! An [`Adapter`] reads a body into a [`Read`], and writes an answer from it and the [`Verdict`]s
//! about it. The same code serves a request, explains a captured one, and runs in a test. A new
//! platform needs a file that implements the trait, and an entry of [`KINDS`].
//!
//! Each file uses only those below it in the table.
//!
//! | file | job |
//! |---|---|
//! | `respond` | a configured platform: access by secrets, and an answer to every request |
//! | `tencent`, `ocean` | protocols of these platforms, from the files in `proto/` |
//! | `custom` | protocols that the config maps |
//! | [`mod@api`] | rtad's own protocol, of `/v1/decide` |
//! | `adapter` | the trait of all protocols; verdicts, cache times and values for their answers |
//! | `describe` | answers as text |
//! | `read` | a request as data; causes of answers without decisions |
//! | `ids` | ids to keys |

mod adapter;
pub mod api;
pub mod custom;
mod describe;
pub mod ids;
pub mod ocean;
mod read;
mod respond;
pub mod tencent;

pub use adapter::{
    Adapter, Admission, CacheTimes, Kind, Request, RequestHead, StrategyValues, Verdict, Verdicts,
};
pub use custom::Custom;
pub use ids::{API, IdCounts, IdReader, Keys, MAX_IDS, MAX_READ_IDS};
pub use ocean::Ocean;
pub use read::{
    Asked, AskedList, Digits, Failure, Id, IdIndex, Known, Note, Purpose, Read, ReadError,
    SkippedId, StrategyIds, Value,
};
pub use respond::{Access, Answered, Platform};
pub use tencent::Tencent;

pub use crate::config::{MAX_STRATEGIES, Secret};
pub use rtad_core::device::IdField;

/// All kinds of platforms, in the order of messages that list them.
pub const KINDS: [Kind; 3] = [tencent::KIND, ocean::KIND, custom::KIND];

#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::testing::{Script, bid_with, reply, value};
    use super::*;
    use crate::strategy::ValueKey;

    /// The check of a config warns of numbers that no platform carries.
    #[test]
    fn rules_name_the_numbers_that_answers_carry() {
        for key in ValueKey::ALL {
            let values = [vec![value(&[(key, 2.0)])]];
            let tencent = || Tencent::new(vec![("1".to_owned(), 0)], CacheTimes::default());
            let ocean = || Ocean::new(vec![(1, 0)], CacheTimes::default());
            let carries = |without: &dyn Adapter, with: &dyn Adapter, body: Vec<u8>| {
                let answers = [without, with].map(|adapter| {
                    let mut script = Script::deciding(&[bid_with(0)]);
                    reply(adapter, body.clone().into(), &mut script).unwrap()
                });
                answers[0] != answers[1]
            };
            let body = tencent::RtaRequest {
                id: Some("1".into()),
                ..Default::default()
            };
            let is_carried = carries(
                &tencent(),
                &tencent().with_values(&values),
                body.encode_to_vec(),
            );
            assert_eq!(
                (tencent::KIND.rules.carries)(key),
                is_carried,
                "tencent: {key:?}"
            );
            let body = ocean::Req {
                rta_ids: vec![1],
                ..Default::default()
            };
            let is_carried = carries(
                &ocean(),
                &ocean().with_values(&values),
                body.encode_to_vec(),
            );
            assert_eq!(
                (ocean::KIND.rules.carries)(key),
                is_carried,
                "ocean: {key:?}"
            );
        }
    }
}
