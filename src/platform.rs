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
//! | `respond` | a configured platform, and an answer to every request |
//! | `tencent`, `ocean` | protocols of these platforms, from the files in `proto/` |
//! | `custom` | protocols that the config maps |
//! | `adapter` | the trait of all protocols |
//! | `describe` | answers as text |
//! | `verdict` | decisions about a request, and the cache time of its answer |
//! | `read` | a request as data |
//! | `failure` | causes of answers without decisions |
//! | `fields` | fields of a protobuf message |
//! | `value` | a value of a request |
//! | `ids` | ids to keys |
//! | `access` | access by secrets in headers |

pub mod access;
mod adapter;
pub mod custom;
mod describe;
mod failure;
mod fields;
pub mod ids;
pub mod ocean;
mod read;
mod respond;
pub mod tencent;
mod value;
mod verdict;

pub use access::Access;
pub use adapter::{Adapter, Admission, Kind, Request, RequestHead};
pub use custom::Custom;
pub use failure::{Failure, ReadError};
pub use ids::{IdReader, Keys, MAX_IDS, MAX_READ_IDS};
pub use ocean::Ocean;
pub use read::{Asked, AskedList, Attribute, Id, Known, Purpose, Read, SkippedId, StrategyIds};
pub use respond::{Answered, Platform};
pub use tencent::Tencent;
pub use value::{Digits, Value};
pub use verdict::{CacheTimes, Verdict, Verdicts};

pub use crate::config::{MAX_STRATEGIES, Secret};
pub use rtad_core::device::IdField;

/// All kinds of platforms, in the order of messages that list them.
pub const KINDS: [Kind; 3] = [tencent::KIND, ocean::KIND, custom::KIND];

#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The files of the table in CONTRIBUTING that do not name a kind.
    fn missing(word: &str) -> Vec<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let page = std::fs::read_to_string(root.join("CONTRIBUTING.md")).unwrap();
        let (_, section) = page.split_once("## Add a platform").expect("the section");
        let (section, _) = section.split_once("\n## ").expect("a next section");
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let files = rows.map(|(file, _)| file.replace("NAME", word));
        let is_missing = |file: &String| {
            let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
            !text.to_lowercase().contains(word)
        };
        files.filter(is_missing).collect()
    }

    #[test]
    fn every_place_of_a_platform_names_every_kind() {
        for kind in KINDS {
            assert_eq!(missing(kind.rules.word), [""; 0], "{}", kind.rules.word);
        }
        let made_up = missing("made-up");
        assert_eq!(made_up.len(), 5, "a made-up platform is in no place: {made_up:?}");
        assert!(made_up.contains(&"src/platform/made-up.rs".to_owned()));
    }
}
