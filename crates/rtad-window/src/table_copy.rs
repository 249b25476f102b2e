//! Copy of a table beside traffic: the window's engine copies one region between two groups, the
//! caller compresses and uploads it.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::answers::Answers;
use crate::image::{Piece, TableHead};
use crate::log::encode_answer;
use crate::replica::LogSize;
use crate::window::Window;

/// Pieces that wait for the caller.
const WAITING: usize = 2;
/// Bytes of kept answers in a piece, apart from the last answer.
const ANSWER_BYTES: usize = 256 << 10;

/// Wakes the window's engine.
type Nudge = Arc<dyn Fn() + Send + Sync>;

/// Segments of the log, for the end of a copy.
#[derive(Debug, Clone, Copy)]
pub struct LogEnd {
    /// Number of the segment that has the last group.
    pub last_with_groups: u64,
    /// Number of the newest created segment.
    pub created: u64,
}

/// A copy that ended before it was complete: the window has ended, or is being closed.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The window has ended, or is being closed.
    #[error("the window ended before its table was copied")]
    Ended,
    /// A piece could not be compressed.
    #[error("a piece of the table was not compressed: {0}")]
    Compression(#[from] io::Error),
}

/// A table on its way to the store, block by block. Dropped before `completed`, it changes nothing.
pub struct TableCopy {
    number: u64,
    pieces: mpsc::Receiver<Piece>,
    /// The piece that is being compressed.
    encoding: Option<JoinHandle<io::Result<Vec<u8>>>>,
    is_complete: bool,
    completed: oneshot::Sender<()>,
    nudge: Nudge,
}

impl TableCopy {
    /// Number of the object: that of the first segment to replay after it.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The next block of the object; `None` after the last one. The last one comes once every change
    /// in the blocks before is in a created segment: only then may the object become visible.
    /// Nothing is lost if the future is dropped.
    ///
    /// # Errors
    ///
    /// The window has ended. The object must not become visible.
    pub async fn next_block(&mut self) -> Result<Option<Vec<u8>>, TableError> {
        let encoding = match &mut self.encoding {
            Some(encoding) => encoding,
            None if self.is_complete => return Ok(None),
            None => {
                let piece = self.pieces.recv().await.ok_or(TableError::Ended)?;
                self.note(&piece);
                let encode = tokio::task::spawn_blocking(move || piece.encode());
                self.encoding.insert(encode)
            }
        };
        let encoded = encoding.await.map_err(io::Error::other);
        self.encoding = None;
        Ok(Some(encoded??))
    }

    fn note(&mut self, piece: &Piece) {
        self.is_complete = matches!(piece, Piece::End);
        // There is room for another one.
        (self.nudge)();
    }

    /// The object is visible: it is the window's newest table.
    pub fn completed(self) {
        // The window may have ended.
        let _ = self.completed.send(());
        (self.nudge)();
    }

    /// The next piece, if it is there.
    #[cfg(test)]
    pub(crate) fn try_piece(&mut self) -> Option<Piece> {
        let piece = self.pieces.try_recv().ok()?;
        self.note(&piece);
        Some(piece)
    }
}

/// The copy, for the window's engine.
pub struct RunningCopy {
    number: u64,
    pieces: mpsc::Sender<Piece>,
    /// A piece for which there was no room.
    held: Option<Piece>,
    next_region: usize,
    /// Numbers of the answers that are to be copied.
    answers: Range<u64>,
    /// Segment whose creation the end waits for.
    ends_after: Option<u64>,
    is_sent: bool,
    completed: oneshot::Receiver<()>,
    /// The log before it.
    before: LogSize,
}

/// Progress of a copy after `advance`.
#[derive(Debug, PartialEq, Eq)]
pub enum CopyProgress {
    /// The caller has no room, or segments are not created yet.
    Waiting,
    /// There is more to copy.
    Copied,
    /// The table is complete; the log before it is as large.
    Completed(LogSize),
    /// The caller has dropped it.
    Dropped,
}

impl RunningCopy {
    /// Begins a copy, at the beginning of the segment that the head names.
    pub fn begin(
        head: TableHead,
        answers: Range<u64>,
        before: LogSize,
        nudge: Nudge,
    ) -> (Self, TableCopy) {
        let (pieces, received) = mpsc::channel(WAITING);
        let (completed, is_completed) = oneshot::channel();
        let table = TableCopy {
            number: head.number,
            pieces: received,
            encoding: None,
            is_complete: false,
            completed,
            nudge,
        };
        let running = Self {
            number: table.number,
            pieces,
            held: Some(Piece::Head(head)),
            next_region: 0,
            answers,
            ends_after: None,
            is_sent: false,
            completed: is_completed,
            before,
        };
        (running, table)
    }

    pub fn advance(&mut self, window: &mut Window, answers: &Answers, log: LogEnd) -> CopyProgress {
        match self.completed.try_recv() {
            Ok(()) => return CopyProgress::Completed(self.before),
            Err(oneshot::error::TryRecvError::Closed) => return CopyProgress::Dropped,
            Err(oneshot::error::TryRecvError::Empty) => {}
        }
        let piece = match self.held.take() {
            Some(piece) => Some(piece),
            None => self.next_piece(window, answers, log),
        };
        let Some(piece) = piece else {
            return CopyProgress::Waiting;
        };
        match self.pieces.try_send(piece) {
            Ok(()) => CopyProgress::Copied,
            Err(mpsc::error::TrySendError::Full(piece)) => {
                self.held = Some(piece);
                CopyProgress::Waiting
            }
            Err(mpsc::error::TrySendError::Closed(_)) => CopyProgress::Dropped,
        }
    }

    fn next_piece(&mut self, window: &mut Window, answers: &Answers, log: LogEnd) -> Option<Piece> {
        if self.next_region < window.regions() {
            let mut copy = Vec::new();
            let clock = window.copy_region(self.next_region, &mut copy);
            self.next_region += 1;
            return Some(Piece::Region(clock, copy));
        }
        if let Some(frames) = self.next_answers(answers) {
            return Some(Piece::Answers(frames));
        }

        // Changes up to here may be in the copy. It continues the segment before its number, which
        // may have no groups.
        let copied = log.last_with_groups.max(self.number - 1);
        let ends_after = *self.ends_after.get_or_insert(copied);
        if self.is_sent || log.created < ends_after {
            return None;
        }
        self.is_sent = true;
        Some(Piece::End)
    }

    /// Frames of the next answers.
    fn next_answers(&mut self, answers: &Answers) -> Option<Vec<u8>> {
        let mut frames = Vec::new();
        while frames.len() < ANSWER_BYTES
            && let Some(number) = self.answers.next()
        {
            if let Some((request_key, answer)) = answers.numbered(number) {
                encode_answer(request_key, answer, &mut frames);
            }
        }
        (!frames.is_empty()).then_some(frames)
    }
}
