//! Errors and panics of the `parquet` crate, which a corrupt file may cause, as one line of text.
//!
//! The panic message is not printed: it could contain data of the file.

use std::cell::Cell;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`. A reader used in it must be dropped after an error.
pub fn caught<T, E: Display>(work: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
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
        Ok(Err(error)) => Err(corrupt(&error.to_string())),
        Err(_) => Err("is corrupt".to_owned()),
    }
}

fn corrupt(text: &str) -> String {
    const KINDS: [&str; 5] = [
        "Parquet argument error: ",
        "Parquet error: ",
        "Arrow: ",
        "External: ",
        "EOF: ",
    ];
    let mut reason = text;
    for kind in KINDS {
        reason = reason.strip_prefix(kind).unwrap_or(reason);
    }
    let words: Vec<_> = reason.split_whitespace().collect();
    format!("is corrupt ({})", words.join(" ").trim_end_matches('.'))
}
