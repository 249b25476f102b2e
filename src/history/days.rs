//! Decisions of today and yesterday by platform, strategy, outcome and reason.

use std::collections::BTreeMap;
use std::io;
use std::time::SystemTime;

use rtad_core::clock::unix_seconds;
use rtad_core::period::{Calendar, Period, PeriodUnit};
use serde::{Deserialize, Serialize};

use crate::telemetry::DecisionLabels;

/// Decisions by their labels.
type DecisionCounts = BTreeMap<DecisionLabels, u64>;

/// DecisionCounts of two days.
#[derive(Debug)]
pub(super) struct Days {
    calendar: Calendar,
    today: Day,
    yesterday: Option<Day>,
    /// The counters at the last observation.
    last: DecisionCounts,
}

#[derive(Debug, Clone)]
struct Day {
    period: Period,
    counts: DecisionCounts,
}

/// The counts of a day, as data.
#[derive(Debug, Serialize)]
pub struct DayCounts {
    date: String,
    start_unix_seconds: u64,
    end_unix_seconds: u64,
    decisions: Vec<Count>,
}

/// The file.
#[derive(Serialize, Deserialize)]
struct Saved {
    time_zone: String,
    days: Vec<SavedDay>,
}

#[derive(Serialize, Deserialize)]
struct SavedDay {
    number: u64,
    decisions: Vec<Count>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Count {
    #[serde(flatten)]
    labels: DecisionLabels,
    count: u64,
}

impl Day {
    fn new(period: Period) -> Self {
        Self { period, counts: DecisionCounts::new() }
    }

    fn add(&mut self, labels: DecisionLabels, count: u64) {
        if count > 0 {
            *self.counts.entry(labels).or_default() += count;
        }
    }

    fn decisions(&self) -> Vec<Count> {
        let counts = self.counts.iter();
        counts.map(|(labels, count)| Count { labels: labels.clone(), count: *count }).collect()
    }

    fn report(&self) -> DayCounts {
        DayCounts {
            date: self.period.date(),
            start_unix_seconds: unix_seconds(self.period.start),
            end_unix_seconds: unix_seconds(self.period.end),
            decisions: self.decisions(),
        }
    }
}

impl Days {
    /// No counts, in days of this zone.
    pub(super) fn new(time_zone: &str, wall: SystemTime) -> Self {
        let calendar = Calendar::new(PeriodUnit::Day, Some(time_zone));
        let calendar = calendar.expect("reading the config checked the zone");
        let today = Day::new(calendar.at(wall));
        Self { calendar, today, yesterday: None, last: DecisionCounts::new() }
    }

    pub(super) fn time_zone(&self) -> &str {
        self.calendar.zone_name()
    }

    /// Whether today has ended.
    pub(super) fn is_over(&self, wall: SystemTime) -> bool {
        wall >= self.today.period.end
    }

    /// Adds what was counted since the last time. After the end of a day it belongs to that day: a
    /// second at most, while the clock is read every second.
    pub(super) fn observe(&mut self, totals: DecisionCounts, wall: SystemTime) {
        for (labels, total) in &totals {
            let before = self.last.get(labels).copied().unwrap_or(0);
            self.today.add(labels.clone(), total.saturating_sub(before));
        }
        self.last = totals;
        if self.is_over(wall) {
            let next = Day::new(self.calendar.at(wall));
            let ended = std::mem::replace(&mut self.today, next);
            let is_yesterday = ended.period.end == self.today.period.start;
            self.yesterday = is_yesterday.then_some(ended);
        }
    }

    /// Today, and yesterday if there are counts of it.
    pub(super) fn counts(&self) -> (DayCounts, Option<DayCounts>) {
        (self.today.report(), self.yesterday.as_ref().map(Day::report))
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        let days = [Some(&self.today), self.yesterday.as_ref()].into_iter().flatten();
        let saved = |day: &Day| SavedDay { number: day.period.number, decisions: day.decisions() };
        let saved =
            Saved { time_zone: self.time_zone().to_owned(), days: days.map(saved).collect() };
        serde_json::to_vec(&saved).expect("plain values serialize")
    }

    /// Adds the counts of the file that belong to these days. A file of another zone has none.
    pub(super) fn restore(&mut self, text: &[u8], wall: SystemTime) -> io::Result<()> {
        let saved: Saved = serde_json::from_slice(text)?;
        if saved.time_zone != self.time_zone() {
            return Ok(());
        }
        let today = self.calendar.at(wall);
        let before = today.start.checked_sub(std::time::Duration::from_secs(1));
        let yesterday = before.map(|before| self.calendar.at(before));
        for day in saved.days {
            let target = if day.number == self.today.period.number {
                &mut self.today
            } else if let Some(period) = yesterday.filter(|it| it.number == day.number) {
                self.yesterday.get_or_insert_with(|| Day::new(period))
            } else {
                continue;
            };
            for Count { labels, count } in day.decisions {
                target.add(labels, count);
            }
        }
        Ok(())
    }
}
