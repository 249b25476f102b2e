//! The `parquet` crate, held at arm's length: on a corrupt file it may panic, which must be an error of that file.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use parquet::errors::ParquetError;

use super::PageFault;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Does the work. What it held is of no use after a failure.
pub(super) fn caught<T>(work: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, PageFault> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                before(panic);
            }
        }));
    });
    QUIET.set(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(false);
    match done {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(ParquetError::External(error))) => Err(match error.downcast() {
            Ok(fault) => *fault,
            Err(error) => PageFault::Corrupt(in_one_line(&error.to_string())),
        }),
        Ok(Err(error)) => Err(PageFault::Corrupt(in_one_line(&error.to_string()))),
        Err(_) => Err(PageFault::Corrupt("is corrupt".to_owned())),
    }
}

fn in_one_line(text: &str) -> String {
    let text = text.strip_prefix("Parquet error: ").unwrap_or(text);
    let words: Vec<_> = text.split_whitespace().collect();
    format!("is corrupt ({})", words.join(" ").trim_end_matches('.'))
}
