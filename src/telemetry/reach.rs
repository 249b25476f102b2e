//! Reach: distinct devices that got a bid of a strategy, by HyperLogLog sketches.
//!
//! A sketch has a slot of registers per worker, so that workers share no cache line: a bid costs a
//! hash per request and a read per sketch, and seldom a write. Readers take the largest value of
//! the slots for each register, which is the sketch of all devices, while workers go on.
//!
//! Sketches count a day: [`Reach::take`] ends it. Those of a catalog that a reload replaced keep
//! their devices until then, in one slot.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use datasketches::hll::{HllSketch, HllType, HllUnion};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::coupon::{LG_REGISTERS, REGISTERS, ReachedDevice};
use super::sharded_counter::{slot_of, slots};

/// Most sketches of a catalog: 4 MiB for each worker.
pub const MAX_SKETCHES: usize = 256;
/// Most sketches of a pod, with those of replaced catalogs.
const MOST: usize = 2 * MAX_SKETCHES;

/// Bytes before the registers: size of the preamble, version, family, `LG_REGISTERS`, unused, flag
/// of a union, smallest value, and a byte per register; then sums that the library computes anew.
const PREAMBLE_BYTES: usize = 40;
const PREAMBLE: [u8; 8] = [10, 1, 7, LG_REGISTERS, 0, 16, 0, 10];

/// The devices of a sketch: those of a strategy, or of a bucket among them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ReachLabels {
    /// Name of the strategy.
    pub strategy: String,
    /// Name of the experiment, and of the device's part in it.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub part: Option<PartLabels>,
}

/// A part of an experiment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PartLabels {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the bucket; `none` and `holdout` are parts too.
    pub bucket: String,
}

impl ReachLabels {
    /// All devices of a strategy.
    pub fn of(strategy: &str) -> Self {
        Self {
            strategy: strategy.to_owned(),
            part: None,
        }
    }
}

type Registers = Box<[AtomicU8; REGISTERS]>;

/// Registers of a sketch, with a slot per worker that is allocated at its first device.
#[derive(Debug, Clone)]
pub struct ReachSketch(Arc<[OnceLock<Registers>]>);

impl ReachSketch {
    fn new() -> Self {
        Self((0..slots()).map(|_| OnceLock::new()).collect())
    }

    /// Counts a device. A device without a key counts nowhere.
    #[inline]
    pub fn count(&self, device: &ReachedDevice<'_>) {
        if let Some(coupon) = device.coupon() {
            let registers = self.slot(slot_of(self.0.len()));
            let register = &registers[usize::from(coupon.register) % REGISTERS];
            if coupon.value > register.load(Relaxed) {
                register.fetch_max(coupon.value, Relaxed);
            }
        }
    }

    #[inline]
    fn slot(&self, index: usize) -> &Registers {
        let new = || -> Registers {
            let zeros: Box<[_]> = (0..REGISTERS).map(|_| AtomicU8::new(0)).collect();
            zeros.try_into().expect("as many as there are registers")
        };
        self.0[index].get_or_init(new)
    }

    /// The largest values of the slots; `None` if there are no devices.
    fn merged(&self, read: impl Fn(&AtomicU8) -> u8) -> Option<HllSketch> {
        let mut bytes = [0; PREAMBLE_BYTES + REGISTERS];
        let (preamble, merged) = bytes.split_at_mut(PREAMBLE_BYTES);
        preamble[..PREAMBLE.len()].copy_from_slice(&PREAMBLE);
        for registers in self.0.iter().filter_map(OnceLock::get) {
            for (largest, register) in merged.iter_mut().zip(registers.iter()) {
                *largest = read(register).max(*largest);
            }
        }
        let has_devices = merged.iter().any(|value| *value > 0);
        has_devices.then(|| {
            let sketch = HllSketch::deserialize(&bytes).expect("a sketch of the format");
            whole(&sketch)
        })
    }

    /// Whether a catalog holds it.
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Merges the slots into one if no catalog holds the sketch: no worker counts into it again.
    fn compact(&mut self) {
        let Some(slots) = Arc::get_mut(&mut self.0) else {
            return;
        };
        let mut taken = slots.iter_mut().filter_map(OnceLock::take);
        let Some(mut merged) = taken.next() else {
            return;
        };
        for registers in taken {
            for (largest, register) in merged.iter_mut().zip(registers.iter()) {
                *largest.get_mut() = register.load(Relaxed).max(*largest.get_mut());
            }
        }
        slots[0] = OnceLock::from(merged);
    }

    /// Adds the devices of a sketch.
    fn add(&self, sketch: &HllSketch) {
        let bytes = whole(sketch).serialize();
        let values = &bytes[bytes.len().saturating_sub(REGISTERS)..];
        for (register, value) in self.slot(0).iter().zip(values) {
            register.fetch_max(*value, Relaxed);
        }
    }
}

/// The sketch with its sums computed, and a byte per register.
fn whole(sketch: &HllSketch) -> HllSketch {
    let mut union = HllUnion::new(LG_REGISTERS).expect("a valid size");
    union.update(sketch);
    union.to_sketch(HllType::Hll8)
}

fn with_devices<L>((labels, sketch): (L, Option<HllSketch>)) -> Option<(L, HllSketch)> {
    Some((labels, sketch?))
}

/// Estimated number of devices.
pub fn devices(sketch: &HllSketch) -> u64 {
    sketch.estimate().round() as u64
}

/// The sketches of a pod. Equal labels share a sketch, so that a reload goes on counting.
#[derive(Debug, Default)]
pub struct Reach(Mutex<BTreeMap<ReachLabels, ReachSketch>>);

impl Reach {
    /// The sketch of these labels. A catalog asks for [`MAX_SKETCHES`] at most: those of replaced
    /// catalogs take no room from it. Of these, as many are kept.
    pub fn sketch(&self, labels: ReachLabels) -> ReachSketch {
        let mut sketches = self.0.lock();
        while sketches.len() >= MOST
            && !sketches.contains_key(&labels)
            && let Some((unused, _)) = sketches.iter().find(|(_, sketch)| !sketch.is_used())
        {
            let unused = unused.clone();
            sketches.remove(&unused);
        }
        sketches
            .entry(labels)
            .or_insert_with(ReachSketch::new)
            .clone()
    }

    /// Copies of the sketches with devices.
    pub fn sketches(&self) -> Vec<(ReachLabels, HllSketch)> {
        self.merged(|register| register.load(Relaxed))
            .filter_map(with_devices)
            .collect()
    }

    /// Estimated devices of each sketch.
    pub fn counts(&self) -> Vec<(ReachLabels, u64)> {
        let count = |(labels, sketch): (_, Option<_>)| (labels, sketch.as_ref().map_or(0, devices));
        self.merged(|register| register.load(Relaxed))
            .map(count)
            .collect()
    }

    /// Takes the devices out of the sketches, and drops those that no catalog uses.
    pub fn take(&self) -> Vec<(ReachLabels, HllSketch)> {
        let taken = self.merged(|register| match register.load(Relaxed) {
            0 => 0,
            _ => register.swap(0, Relaxed),
        });
        let taken = taken.filter_map(with_devices).collect();
        self.0.lock().retain(|_, sketch| sketch.is_used());
        taken
    }

    fn merged(
        &self,
        read: impl Fn(&AtomicU8) -> u8,
    ) -> impl Iterator<Item = (ReachLabels, Option<HllSketch>)> {
        let all = {
            let mut sketches = self.0.lock();
            sketches.values_mut().for_each(ReachSketch::compact);
            sketches.clone()
        };
        // The lock is not held meanwhile: a reload needs it.
        all.into_iter()
            .map(move |(labels, sketch)| (labels, sketch.merged(&read)))
    }

    /// Adds devices that were counted before.
    pub fn restore(&self, labels: ReachLabels, devices: &HllSketch) {
        self.sketch(labels).add(devices);
    }

    /// Gauges in Prometheus' text format: the exporter cannot drop those of ended strategies. Names
    /// come from the config, which allows no characters to escape.
    pub(super) fn render(&self, text: &mut String) {
        let all = self.counts();
        let (parts, strategies): (Vec<_>, Vec<_>) =
            all.iter().partition(|(labels, _)| labels.part.is_some());
        let gauges = [
            ("rtad_reach_devices", "by strategy", strategies),
            (
                "rtad_bucket_reach_devices",
                "by strategy, experiment and bucket",
                parts,
            ),
        ];
        for (name, by, counts) in gauges {
            let _ = write!(
                text,
                "# HELP {name} Distinct devices with a bid today, estimated, {by}\n\
                 # TYPE {name} gauge\n"
            );
            for (ReachLabels { strategy, part }, devices) in counts {
                let _ = write!(text, "{name}{{strategy=\"{strategy}\"");
                if let Some(PartLabels { experiment, bucket }) = part {
                    let _ = write!(text, ",experiment=\"{experiment}\",bucket=\"{bucket}\"");
                }
                let _ = writeln!(text, "}} {devices}");
            }
            text.push('\n');
        }
    }
}

#[cfg(test)]
mod tests;
