//! What was acknowledged, and what each durability promises of it.

use std::collections::BTreeMap;
use std::time::Duration;

use rtad_window::Seen;

/// An event that was acknowledged.
#[derive(Debug, Clone)]
struct Acknowledged {
    at: Duration,
    /// The disk of its owner: without it the event is lost, until the store has it.
    disk: u64,
    /// When the events of a start of the owner were written at the latest.
    written_by: Duration,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// On the disk of its owner, and perhaps in the store.
    Disk,
    Store,
    /// The window went on without the disk: it may be lost.
    Lost,
}

/// Events of one key.
#[derive(Debug, Default)]
struct KeyEvents {
    acknowledged: Vec<Acknowledged>,
    /// Requests whose events may be counted: without an answer, perhaps for good.
    unknown: Vec<u64>,
    /// Acknowledgements as the first one.
    new: Vec<u64>,
}

impl KeyEvents {
    /// Events that are counted for sure, acknowledged before a time.
    fn certain_before(&self, time: Duration) -> usize {
        let events = self.acknowledged.iter();
        events
            .filter(|event| event.place != Place::Lost && event.at < time)
            .count()
    }
}

/// A process, and its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ownership {
    pub process: u64,
    pub disk: u64,
}

pub struct Model {
    is_disk: bool,
    keys: BTreeMap<u64, KeyEvents>,
    /// The creator of the newest segment.
    owner: Option<Ownership>,
    /// Processes that have owned the window before.
    earlier: Vec<u64>,
    /// Number of acknowledged requests.
    pub answers: u64,
}

/// A request, as its client knows it.
#[derive(Debug, Clone)]
pub struct Request {
    pub number: u64,
    pub keys: Vec<u64>,
    pub first_sent: Duration,
}

impl Model {
    pub fn new(is_disk: bool) -> Self {
        Self {
            is_disk,
            keys: BTreeMap::new(),
            owner: None,
            earlier: Vec::new(),
            answers: 0,
        }
    }

    /// A process has created a segment. Returns whether it has taken the window over.
    ///
    /// # Errors
    ///
    /// Another process has created one since its last one.
    pub fn created(&mut self, by: Ownership, now: Duration) -> Result<bool, String> {
        if self.earlier.contains(&by.process) {
            let process = by.process;
            return Err(format!(
                "process {process} created a segment after its successor"
            ));
        }
        let is_new = self.owner != Some(by);
        if is_new {
            self.take_over(by, now);
        }
        Ok(is_new)
    }

    /// A process says that it owns the window; the store lacks events of an age.
    pub fn owned(&mut self, owner: Ownership, behind: Duration, now: Duration) {
        if self.owner != Some(owner) {
            // It does not know yet that it has lost the window.
            return;
        }
        let in_store_before = now.saturating_sub(behind);
        for events in self.keys.values_mut() {
            for event in &mut events.acknowledged {
                let is_of_disk = event.place == Place::Disk && event.disk == owner.disk;
                let is_in_store = behind.is_zero() || event.written_by < in_store_before;
                if is_of_disk && is_in_store {
                    event.place = Place::Store;
                }
            }
        }
    }

    fn take_over(&mut self, owner: Ownership, now: Duration) {
        let before = self.owner.replace(owner);
        let Some(before) = before else {
            return;
        };
        self.earlier.push(before.process);
        for events in self.keys.values_mut() {
            for event in &mut events.acknowledged {
                if event.place != Place::Disk {
                    continue;
                }
                if event.disk == owner.disk {
                    // The start takes it over, and writes it anew.
                    event.written_by = now;
                } else {
                    event.place = Place::Lost;
                }
            }
        }
    }

    /// A request was sent: it may be counted from now on.
    pub fn sent(&mut self, request: &Request) {
        for key in &request.keys {
            let events = self.keys.entry(*key).or_default();
            if !events.unknown.contains(&request.number) {
                events.unknown.push(request.number);
            }
        }
    }

    /// No process has counted the request.
    pub fn not_counted(&mut self, request: &Request) {
        for key in &request.keys {
            let events = self.keys.entry(*key).or_default();
            events.unknown.retain(|number| *number != request.number);
        }
    }

    /// An acknowledgement, which its owner gave at a time.
    pub fn acknowledged(
        &mut self,
        request: &Request,
        seen: &[Seen],
        by: Ownership,
        now: Duration,
    ) -> Result<(), String> {
        self.answers += 1;
        if self.is_disk && self.earlier.contains(&by.process) {
            return Err(format!(
                "process {} acknowledged after its successor began",
                by.process
            ));
        }
        if seen.len() != request.keys.len() {
            return Err(format!(
                "{} outcomes of {} events",
                seen.len(),
                request.keys.len()
            ));
        }
        for (key, seen) in request.keys.iter().zip(seen) {
            let events = self.keys.entry(*key).or_default();
            events.unknown.retain(|number| *number != request.number);
            let certain = events.certain_before(request.first_sent);
            let possible = events.acknowledged.len() + events.unknown.len();
            let count = match seen {
                Seen::New => 1,
                Seen::Duplicate(count) => usize::from(*count),
            };
            if !(certain + 1..=possible + 1).contains(&count) {
                return Err(format!(
                    "key {key}: event {count}, expected {} to {}",
                    certain + 1,
                    possible + 1
                ));
            }
            if *seen == Seen::New {
                events.new.push(request.number);
            }
            events.acknowledged.push(Acknowledged {
                at: now,
                disk: by.disk,
                written_by: now,
                place: if self.is_disk {
                    Place::Disk
                } else {
                    Place::Store
                },
            });
        }
        Ok(())
    }

    /// Compares the counts of all keys at the end, when no request is under way.
    pub fn check_end(&self, key: u64, count: u16) -> Result<(), String> {
        let Some(events) = self.keys.get(&key) else {
            return if count == 0 {
                Ok(())
            } else {
                Err(format!("key {key}: count {count} without an event"))
            };
        };
        let certain = events.certain_before(Duration::MAX);
        let possible = events.acknowledged.len() + events.unknown.len();
        if !(certain..=possible).contains(&usize::from(count)) {
            return Err(format!(
                "key {key}: count {count}, expected {certain} to {possible}"
            ));
        }
        let is_certain = certain == possible;
        let news = events.new.len();
        if is_certain && news != usize::from(certain > 0) {
            return Err(format!("key {key}: {news} answers of new"));
        }
        let has_lost = events
            .acknowledged
            .iter()
            .any(|event| event.place == Place::Lost);
        if !has_lost && news > 1 {
            return Err(format!("key {key}: {news} answers of new"));
        }
        Ok(())
    }
}
