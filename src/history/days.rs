//! Decisions of today and yesterday by platform, strategy, outcome and reason, and the devices that
//! got a bid by strategy and bucket.

use std::collections::BTreeMap;
use std::io;
use std::time::SystemTime;

use datasketches::hll::HllSketch;
use rtad_core::clock::unix_seconds;
use rtad_core::period::{Calendar, Period, PeriodUnit};
use serde::{Deserialize, Serialize};

use super::reach::{DaySketches, ReachCount};
use crate::cap::MAX_SET_BACK;
use crate::telemetry::{DecisionLabels, ReachLabels, Telemetry};

/// Decisions by their labels.
type DecisionCounts = BTreeMap<DecisionLabels, u64>;

/// DecisionCounts of two days.
#[derive(Debug)]
pub struct Days {
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
    /// Devices, once the day has ended.
    reach: Vec<ReachCount>,
}

/// The counts of a day, as data.
#[derive(Debug, Serialize)]
pub struct DayCounts {
    date: String,
    start_unix_seconds: u64,
    end_unix_seconds: u64,
    decisions: Vec<Count>,
    /// Estimated distinct devices with a bid, by strategy and by bucket.
    reach: Vec<ReachCount>,
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
    reach: Vec<ReachCount>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Count {
    #[serde(flatten)]
    labels: DecisionLabels,
    count: u64,
}

impl Day {
    fn new(period: Period) -> Self {
        Self {
            period,
            counts: DecisionCounts::new(),
            reach: Vec::new(),
        }
    }

    fn add(&mut self, labels: DecisionLabels, count: u64) {
        if count > 0 {
            *self.counts.entry(labels).or_default() += count;
        }
    }

    fn decisions(&self) -> Vec<Count> {
        let counts = self.counts.iter();
        counts
            .map(|(labels, count)| Count {
                labels: labels.clone(),
                count: *count,
            })
            .collect()
    }

    fn report(&self, reach: Vec<ReachCount>) -> DayCounts {
        DayCounts {
            date: self.period.date(),
            start_unix_seconds: unix_seconds(self.period.start),
            end_unix_seconds: unix_seconds(self.period.end),
            decisions: self.decisions(),
            reach,
        }
    }
}

impl Days {
    /// No counts, in days of this zone.
    pub fn new(time_zone: &str, wall: SystemTime) -> Self {
        let calendar = Calendar::new(PeriodUnit::Day, Some(time_zone));
        let calendar = calendar.expect("reading the config checked the zone");
        let today = Day::new(calendar.at(wall));
        Self {
            calendar,
            today,
            yesterday: None,
            last: DecisionCounts::new(),
        }
    }

    pub fn time_zone(&self) -> &str {
        self.calendar.zone_name()
    }

    /// Whether today has ended, or was the day of a clock that is set back by days.
    pub fn is_over(&self, wall: SystemTime) -> bool {
        wall >= self.today.period.end || self.today.period.start > wall + MAX_SET_BACK
    }

    /// Adds what was counted since the last time. After the end of a day it belongs to that day: a
    /// second at most, while the clock is read every second. Returns the sketches of a day that
    /// ended.
    pub fn observe(&mut self, telemetry: &Telemetry, wall: SystemTime) -> Option<DaySketches> {
        let totals = telemetry.decision_totals();
        for (labels, total) in &totals {
            let before = self.last.get(labels).copied().unwrap_or(0);
            self.today.add(labels.clone(), total.saturating_sub(before));
        }
        self.last = totals;
        self.is_over(wall).then(|| {
            let sketches = self.sketches(telemetry.reach().take());
            self.today.reach = sketches.counts();
            let next = Day::new(self.calendar.at(wall));
            let ended = std::mem::replace(&mut self.today, next);
            let is_yesterday = ended.period.end == self.today.period.start;
            self.yesterday = is_yesterday.then_some(ended);
            sketches
        })
    }

    /// Whether the sketches are of today.
    pub fn is_today(&self, day: &DaySketches) -> bool {
        (&day.date, &*day.time_zone) == (&self.today.period.date(), self.time_zone())
    }

    /// Sketches as those of today.
    pub fn sketches(&self, sketches: Vec<(ReachLabels, HllSketch)>) -> DaySketches {
        let (date, time_zone) = (self.today.period.date(), self.time_zone().to_owned());
        DaySketches {
            date,
            time_zone,
            sketches,
        }
    }

    /// Today with these devices, and yesterday if there are counts of it.
    pub fn counts(&self, reach: Vec<ReachCount>) -> (DayCounts, Option<DayCounts>) {
        let yesterday = self
            .yesterday
            .as_ref()
            .map(|day| day.report(day.reach.clone()));
        (self.today.report(reach), yesterday)
    }

    /// The file, with the devices of today.
    pub fn to_json(&self, reach: Vec<ReachCount>) -> Vec<u8> {
        let saved = |day: &Day, reach| SavedDay {
            number: day.period.number,
            decisions: day.decisions(),
            reach,
        };
        let yesterday = self
            .yesterday
            .as_ref()
            .map(|day| saved(day, day.reach.clone()));
        let days = [Some(saved(&self.today, reach)), yesterday]
            .into_iter()
            .flatten()
            .collect();
        let saved = Saved {
            time_zone: self.time_zone().to_owned(),
            days,
        };
        serde_json::to_vec(&saved).expect("plain values serialize")
    }

    /// Adds the counts of the file that belong to these days. A file of another zone has none. The
    /// devices of today are in the file of sketches.
    pub fn restore(&mut self, text: &[u8], wall: SystemTime) -> io::Result<()> {
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
            target.reach = day.reach;
            for Count { labels, count } in day.decisions {
                target.add(labels, count);
            }
        }
        Ok(())
    }
}
