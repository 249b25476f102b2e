//! `--follow`: publishes ids from stdin at intervals, until stdin ends.
//!
//! ```text
//! stdin ── thread: lines to keys ──▶ short channel ──▶ unpublished keys ──▶ store
//! ```
//!
//! While the store fails, keys wait, the channel fills and the pipe blocks: nothing is dropped, and
//! the producer slows down. Each publish reports the number of durable rows in one line, so that a
//! client can commit its offset.

use std::io::{self, BufRead};
use std::time::Duration;

use indicatif::HumanCount;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{self, CommandFailure, ExitStatus};
use rtad_core::device::{DeviceKey, KeyMaker};
use rtad_store::StoreError;

use super::super::context::Output;
use super::super::reject_args::RejectLimit;
use super::writer::AppendWriter;
use crate::input::{Counts, Input, Layout, Reason};

/// Capacity of the channel, in batches of one read of stdin each.
const WAITING_BATCHES: usize = 16;
/// Longest line; longer ones are malformed.
const MAX_LINE_BYTES: usize = 64 << 10;
const BUFFER_BYTES: usize = 64 << 10;
/// Longest delay between retries; the first is one second.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
/// Values of a stream from which on the limits of an input end it. Its end is always checked.
const LEAST_CHECKED: u64 = 1000;
/// Time limit of retries after stdin has ended.
const FINAL_RETRIES: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct LineBatch {
    keys: Vec<DeviceKey>,
    counts: Counts,
    failed: Option<io::Error>,
}

/// One line of output per publish.
#[derive(Debug, Serialize)]
struct Published {
    sequence: u64,
    /// Durable rows of stdin, counted from the first.
    rows: u64,
    keys: u64,
    blank: u64,
    malformed: u64,
    deltas: u64,
    delta_keys: u64,
}

#[derive(Debug, Default)]
struct Totals {
    counts: Counts,
    /// Rows already reported as durable.
    reported_rows: u64,
}

/// A follower that was used wrongly or could not read.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    #[error("--follow reads stdin only: expected no INPUT, or `-`")]
    Inputs,
    #[error(
        "--follow reads the stdin of the command rtad-loader: expected none in another program"
    )]
    Hosted,
    #[error("could not read stdin; all earlier rows are published")]
    Stdin(#[source] io::Error),
}

impl CommandFailure for FollowError {
    fn exit(&self) -> ExitStatus {
        match self {
            Self::Inputs | Self::Hosted => ExitStatus::Usage,
            Self::Stdin(_) => ExitStatus::BadInput,
        }
    }
}

pub async fn run(
    mut writer: AppendWriter,
    input: &Input,
    limit: RejectLimit,
    (every, max_ids): (Duration, usize),
    output: &Output,
) -> Result<(), CommandError> {
    let Layout::Lines { kinds } = input.layout.clone() else {
        unreachable!("--follow conflicts with --format")
    };
    let (case, keys) = (input.case, input.keys.clone());
    let (sender, mut batches) = mpsc::channel(WAITING_BATCHES);
    // Not joined: a read of stdin may block forever.
    std::thread::spawn(move || {
        let parse = |line: &[u8], batch: &mut LineBatch| {
            let key: &KeyMaker = &keys;
            let kind = kinds.of(line);
            let case = case.unwrap_or(kind.canonical_case());
            match key.keys(kind, case, line, &mut batch.keys) {
                Ok(()) => batch.counts.accept(kind, None, line),
                Err(unusable) => batch.counts.reject(unusable.into(), None, line),
            }
        };
        read_lines(io::stdin().lock(), parse, |batch| {
            sender.blocking_send(batch).is_ok()
        });
    });
    let mut ends = signal(SignalKind::terminate()).map_err(CommandError::runtime)?;
    let mut interrupts = signal(SignalKind::interrupt()).map_err(CommandError::runtime)?;
    let mut ticks = tokio::time::interval(every.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut waiting, mut totals, mut failed) = (Vec::new(), Totals::default(), None);
    loop {
        let is_last = tokio::select! {
            batch = batches.recv() => match batch {
                None => true,
                Some(batch) => {
                    totals.add(&batch);
                    waiting.extend(batch.keys);
                    failed = batch.failed;
                    if waiting.len() < max_ids {
                        continue;
                    }
                    false
                }
            },
            _ = ticks.tick() => false,
            _ = ends.recv() => true,
            _ = interrupts.recv() => true,
        };
        // A signal also publishes the batches read so far.
        if is_last {
            failed = failed.or(drain(&mut batches, &mut totals, &mut waiting));
        }
        let mut is_last = is_last;
        let end = async {
            tokio::select! {
                _ = ends.recv() => {}
                _ = interrupts.recv() => {}
            }
        };
        let was_last = is_last;
        publish(
            &mut writer,
            &mut waiting,
            &mut totals,
            &mut is_last,
            end,
            output,
        )
        .await?;
        if is_last && !was_last {
            // Stopped during retries: take the batches read meanwhile.
            failed = failed.or(drain(&mut batches, &mut totals, &mut waiting));
            let end = std::future::pending();
            publish(
                &mut writer,
                &mut waiting,
                &mut totals,
                &mut is_last,
                end,
                output,
            )
            .await?;
        }
        // Checked after the publish: usable ids are kept, whatever the others are.
        if is_last || totals.counts.values >= LEAST_CHECKED {
            limit.check_one("-", &totals.counts, true)?;
        }
        if is_last {
            return match failed {
                Some(source) => Err(FollowError::Stdin(source).into()),
                None => Ok(()),
            };
        }
    }
}

/// Takes all batches read so far. Returns the read error that ended them, if there is one.
fn drain(
    batches: &mut mpsc::Receiver<LineBatch>,
    totals: &mut Totals,
    waiting: &mut Vec<DeviceKey>,
) -> Option<io::Error> {
    let mut failed = None;
    while let Ok(batch) = batches.try_recv() {
        totals.add(&batch);
        waiting.extend(batch.keys);
        failed = batch.failed;
    }
    failed
}

impl Totals {
    fn add(&mut self, batch: &LineBatch) {
        self.counts.add(&batch.counts);
        self.counts.keys += batch.keys.len() as u64;
    }
}

/// Publishes the waiting keys, with unlimited retries; at most a minute of retries for the last
/// keys, or after `end`.
async fn publish(
    writer: &mut AppendWriter,
    waiting: &mut Vec<DeviceKey>,
    totals: &mut Totals,
    is_last: &mut bool,
    end: impl Future<Output = ()>,
    output: &Output,
) -> Result<(), CommandError> {
    // Rows without ids write nothing to the store, but are still reported as durable.
    if waiting.is_empty() && totals.counts.rows == totals.reported_rows {
        return Ok(());
    }
    let mut end = std::pin::pin!(end);
    let (mut begun, mut delay) = (Instant::now(), Duration::from_secs(1));
    let appended = loop {
        match writer.publish(waiting, &[]).await {
            Ok(appended) => break appended,
            Err(
                error @ (StoreError::Backend { .. }
                | StoreError::Stalled { .. }
                | StoreError::Conflict { .. }),
            ) if !*is_last || begun.elapsed() < FINAL_RETRIES => {
                exit::write_error(&error);
                tokio::select! {
                    () = tokio::time::sleep(delay) => {}
                    () = &mut end, if !*is_last => {
                        (*is_last, begun) = (true, Instant::now());
                    }
                }
                delay = (delay * 2).min(MAX_RETRY_DELAY);
            }
            Err(error) => return Err(error.into()),
        }
    };
    let published = Published {
        sequence: appended.sequence,
        rows: totals.counts.rows,
        keys: waiting.len() as u64,
        blank: totals.counts.of(Reason::Blank),
        malformed: totals.counts.malformed(),
        deltas: appended.deltas,
        delta_keys: appended.delta_keys,
    };
    waiting.clear();
    totals.reported_rows = totals.counts.rows;
    let reported = output.report(&published, |published, out| {
        let Published {
            sequence,
            rows,
            keys,
            malformed,
            ..
        } = published;
        let [rows, keys, malformed] = [rows, keys, malformed].map(|n| HumanCount(*n));
        writeln!(
            out,
            "sequence {sequence}: {keys} keys; {rows} rows are durable, {malformed} malformed"
        )
    });
    match reported {
        // An error, not a normal end: stdin has more ids.
        Err(error) if error.exit() == ExitStatus::Ok => Err(CommandError::output(
            io::Error::other("the reader of the durable row counts is gone"),
        )),
        reported => reported,
    }
}

/// Sends the keys of each read of `input` without waiting for more. Stops when `send` fails.
fn read_lines(
    input: impl io::Read,
    parse: impl Fn(&[u8], &mut LineBatch),
    mut send: impl FnMut(LineBatch) -> bool,
) {
    let mut reader = io::BufReader::with_capacity(BUFFER_BYTES, input);
    // The start of a line that the last read cut.
    let (mut begun, mut is_too_long) = (Vec::new(), false);
    loop {
        let mut batch = LineBatch::default();
        let read = match reader.fill_buf() {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                batch.failed = Some(error);
                send(batch);
                return;
            }
        };
        let (length, is_end) = (read.len(), read.is_empty());
        let line =
            |line: &[u8], begun: &mut Vec<u8>, is_too_long: &mut bool, batch: &mut LineBatch| {
                begun.extend_from_slice(line);
                batch.counts.rows += 1;
                batch.counts.values += 1;
                if std::mem::take(is_too_long) {
                    batch.counts.reject(Reason::TooLong, None, b"");
                } else {
                    parse(begun.strip_suffix(b"\r").unwrap_or(begun), batch);
                }
                begun.clear();
            };
        let mut rest = read;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            line(&rest[..end], &mut begun, &mut is_too_long, &mut batch);
            rest = &rest[end + 1..];
        }
        begun.extend_from_slice(rest);
        if begun.len() > MAX_LINE_BYTES {
            begun.clear();
            is_too_long = true;
        }
        if is_end && (!begun.is_empty() || is_too_long) {
            line(&[], &mut begun, &mut is_too_long, &mut batch);
        }
        reader.consume(length);
        if (batch.counts.rows > 0 && !send(batch)) || is_end {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns one piece per read, as a pipe does.
    struct Pieces(Vec<&'static [u8]>);

    impl io::Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let piece = self.0.remove(0);
            buffer[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    fn lines(pieces: Vec<&'static [u8]>) -> (Vec<Vec<u8>>, u64, u64) {
        let seen = std::cell::RefCell::new(Vec::new());
        let (mut rows, mut malformed) = (0, 0);
        let parse = |line: &[u8], _: &mut LineBatch| seen.borrow_mut().push(line.to_vec());
        read_lines(Pieces(pieces), parse, |batch| {
            rows += batch.counts.rows;
            malformed += batch.counts.malformed();
            true
        });
        (seen.into_inner(), rows, malformed)
    }

    #[test]
    fn lines_do_not_depend_on_read_boundaries() {
        let expected: Vec<&[u8]> = vec![b"one", b"", b"two", b"three"];
        for pieces in [
            vec![&b"one\n\ntwo\r\nthree\n"[..]],
            vec![b"on", b"e\n\ntw", b"o\r", b"\nthr", b"ee"],
            vec![b"one\n", b"\n", b"two\r\n", b"three"],
        ] {
            let (seen, rows, malformed) = lines(pieces);
            assert_eq!(
                (seen, rows, malformed),
                (expected.iter().map(|line| line.to_vec()).collect(), 4, 0)
            );
        }
        assert_eq!(lines(Vec::new()), (Vec::new(), 0, 0));
    }

    #[test]
    fn overlong_line_is_one_malformed_row() {
        static PIECE: [u8; 1 << 15] = [b'a'; 1 << 15];
        let mut pieces = vec![&PIECE[..]; 100];
        pieces.push(b"end\nnext\n");
        let (seen, rows, malformed) = lines(pieces);
        assert_eq!((seen, rows, malformed), (vec![b"next".to_vec()], 2, 1));
    }
}
