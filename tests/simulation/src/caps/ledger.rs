//! The ledger of a cap: what was granted to each process, and what each has admitted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;
use rtad_core::clock::unix_seconds;
use rtad_core::period::Period;

use crate::schedule::Schedule;
use crate::store::{Objects, Watch, Work};

/// Name of the cap.
pub const CAP: &str = "daily";
/// Records of a period stay for a day after its end, less what clocks differ.
const KEPT: Duration = Duration::from_secs(23 * 3600);

/// Number of a process, from its start to its end.
pub type Instance = usize;

/// A process's part of a period.
#[derive(Debug, Default, Clone)]
pub struct Part {
    /// Devices that were granted, less those that were given back.
    pub granted: u64,
    /// Devices that got a bid.
    devices: BTreeSet<u32>,
}

/// A period, by its records.
#[derive(Debug, Default)]
struct PeriodLedger {
    /// Number of records.
    records: u64,
    /// Devices that all processes have.
    granted: u64,
    /// Devices that got a bid anywhere.
    devices: BTreeSet<u32>,
    parts: BTreeMap<Instance, Part>,
}

#[derive(Debug, Default)]
struct Known {
    /// By the start of the period, in Unix seconds.
    periods: BTreeMap<u64, PeriodLedger>,
    /// The highest limit that each process has had.
    limits: Vec<u64>,
    violation: Option<String>,
}

/// All that is known of the cap.
pub struct CapLedger {
    schedule: Arc<Schedule>,
    known: Mutex<Known>,
}

/// The number of a record, and its period in Unix seconds.
struct RecordPath {
    start: u64,
    end: u64,
    number: u64,
}

impl RecordPath {
    /// Of `.caps/{cap}/{unit}-{start}/records/{number}.json`; `None` for other objects.
    fn of(path: &str) -> Option<Self> {
        let (folder, name) = path.rsplit_once("/records/")?;
        let (unit, start) = folder.rsplit_once('-')?;
        let start: u64 = start.parse().ok()?;
        let hours = if unit.ends_with("/day") { 24 } else { 1 };
        Some(Self {
            start,
            end: start + hours * 3600,
            number: name.strip_suffix(".json")?.parse().ok()?,
        })
    }
}

impl CapLedger {
    pub fn new(schedule: &Arc<Schedule>) -> Arc<Self> {
        Arc::new(Self {
            schedule: Arc::clone(schedule),
            known: Mutex::default(),
        })
    }

    /// Notes a violation of an invariant. The first one counts.
    pub fn violate(&self, what: impl FnOnce() -> String) {
        self.known.lock().violation.get_or_insert_with(what);
    }

    pub fn violation(&self) -> Option<String> {
        self.known.lock().violation.clone()
    }

    pub fn is_violated(&self) -> bool {
        self.known.lock().violation.is_some()
    }

    /// A process that starts with a limit.
    pub fn add_instance(&self, limit: u64) -> Instance {
        let mut known = self.known.lock();
        known.limits.push(limit);
        known.limits.len() - 1
    }

    /// A process has this limit, too.
    pub fn note_limit(&self, instance: Instance, limit: u64) {
        let highest = &mut self.known.lock().limits[instance];
        *highest = limit.max(*highest);
    }

    /// A process's part of a period.
    pub fn part(&self, period: Period, instance: Instance) -> Part {
        let known = self.known.lock();
        let ledger = known.periods.get(&unix_seconds(period.start));
        let part = ledger.and_then(|ledger| ledger.parts.get(&instance));
        part.cloned().unwrap_or_default()
    }

    /// Devices of a period that all processes have.
    pub fn granted(&self, period: Period) -> u64 {
        let known = self.known.lock();
        let ledger = known.periods.get(&unix_seconds(period.start));
        ledger.map_or(0, |ledger| ledger.granted)
    }

    /// Records of all periods.
    pub fn records(&self) -> u64 {
        let known = self.known.lock();
        known.periods.values().map(|ledger| ledger.records).sum()
    }

    /// A device got a bid of a process.
    pub fn admitted(&self, period: Period, instance: Instance, device: u32) {
        let mut known = self.known.lock();
        let known = &mut *known;
        let ledger = known.periods.entry(unix_seconds(period.start)).or_default();
        let part = ledger.parts.entry(instance).or_default();
        part.devices.insert(device);
        let admitted = part.devices.len() as u64;
        if admitted > part.granted {
            let granted = part.granted;
            known.violation.get_or_insert(format!(
                "process {instance} admitted {admitted} devices, of {granted} that it was granted"
            ));
        }

        ledger.devices.insert(device);
        let admitted = ledger.devices.len() as u64;
        let highest = known.limits.iter().max().copied().unwrap_or_default();
        if admitted > highest {
            known.violation.get_or_insert(format!(
                "{admitted} devices were admitted, and no limit was above {highest}"
            ));
        }
    }

    /// The table of a process admits so many devices.
    pub fn check_table(&self, period: Period, instance: Instance, table_limit: u64) {
        let known = self.known.lock();
        let ledger = known.periods.get(&unix_seconds(period.start));
        let part = ledger.and_then(|ledger| ledger.parts.get(&instance));
        let granted = part.map_or(0, |part| part.granted);
        drop(known);
        if table_limit > granted {
            self.violate(|| {
                format!(
                    "process {instance} would admit {table_limit} devices, of {granted} that it \
                     was granted"
                )
            });
        }
    }
}

impl Known {
    /// Adds a record to a period.
    fn add(&mut self, path: &RecordPath, bytes: &Bytes, instance: Instance) -> Result<(), String> {
        let grant: serde_json::Value =
            serde_json::from_slice(bytes).map_err(|it| it.to_string())?;
        let sum = grant["granted"].as_u64().ok_or("a record without a sum")?;
        let amount = grant["amount"].as_i64().ok_or("a record of no amount")?;
        let ledger = self.periods.entry(path.start).or_default();
        if path.number != ledger.records + 1 {
            let records = ledger.records;
            return Err(format!("the record follows {records} others"));
        }
        if ledger.granted.checked_add_signed(amount) != Some(sum) || amount == 0 {
            let granted = ledger.granted;
            return Err(format!("{granted} and {amount} do not make {sum}"));
        }
        let limit = self.limits[instance];
        if amount > 0 && sum > limit {
            return Err(format!("{sum} exceeds the limit of {limit}"));
        }

        ledger.records += 1;
        ledger.granted = sum;
        let part = ledger.parts.entry(instance).or_default();
        let admitted = part.devices.len() as u64;
        match part.granted.checked_add_signed(amount) {
            Some(granted) if granted >= admitted => {
                part.granted = granted;
                Ok(())
            }
            _ => Err(format!(
                "process {instance} had {}, admitted {admitted}, and gives back {}",
                part.granted, -amount
            )),
        }
    }
}

impl Watch for CapLedger {
    fn written(&self, _: &Objects, path: &str, bytes: &Bytes, by: &str, work: Option<Work>) {
        let Some(record) = RecordPath::of(path) else {
            return;
        };
        let work = work.and_then(|work| work.downcast::<Instance>().ok());
        let instance = work.expect("each process says which one it is");
        let added = self.known.lock().add(&record, bytes, *instance);
        if let Err(wrong) = added {
            self.violate(|| format!("{by} wrote {path}: {wrong}"));
        }
    }

    fn removed(&self, bucket: &Objects, path: &str, by: &str) {
        let Some(record) = RecordPath::of(path) else {
            return;
        };
        let ended = Duration::from_secs(record.end);
        let now = crate::process::EPOCH + self.schedule.now();
        if now < ended + KEPT {
            self.violate(|| format!("{by} removed {path} of {} at {now:?}", bucket.name));
        }
    }
}

/// The wall clock of the world.
pub fn wall(schedule: &Schedule) -> SystemTime {
    SystemTime::UNIX_EPOCH + crate::process::EPOCH + schedule.now()
}
