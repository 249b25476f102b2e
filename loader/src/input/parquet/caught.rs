//! Panics of the `parquet` crate, which a corrupt file may cause, converted to errors.
//!
//! The panic message is not printed: it could contain data of the file.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use parquet::errors::ParquetError;

use super::fault::PageFault;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`. A reader used in it must be dropped after an error.
pub fn caught<T>(work: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, PageFault> {
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
        Ok(Err(error)) => Err(fault(error)),
        Err(_) => Err(PageFault::Corrupt("is corrupt".to_owned())),
    }
}

/// Unwraps our own errors, which the crate returns wrapped, I/O errors inside an `io::Error`.
fn fault(error: ParquetError) -> PageFault {
    let text = in_one_line(&error.to_string());
    let ours = match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => error.downcast().ok(),
            Err(error) => error.downcast().ok().map(|fault| *fault),
        },
        _ => None,
    };
    ours.unwrap_or(PageFault::Corrupt(text))
}

fn in_one_line(text: &str) -> String {
    let kinds = ["Parquet error: ", "External: ", "EOF: "];
    let text = kinds
        .iter()
        .find_map(|kind| text.strip_prefix(kind))
        .unwrap_or(text);
    let words: Vec<_> = text.split_whitespace().collect();
    format!("is corrupt ({})", words.join(" ").trim_end_matches('.'))
}
