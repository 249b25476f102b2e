//! Sketches of a day as files: a JSON line each, which Python and Spark read.
//!
//! ```text
//! {"date": "2026-11-25", "time_zone": "Asia/Shanghai", "pod": "rtad-0", "strategy": "new-users",
//!  "experiment": "price-test", "bucket": "high", "devices": 1234567, "sketch": "CgEH…"}
//! ```
//!
//! `sketch` is Base64 of an HLL sketch of Apache DataSketches. `experiment` and `bucket` are null
//! for all devices of the strategy. Only a union adds up sketches: a device in two of them counts
//! once.

use std::fs::DirBuilder;
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use datasketches::hll::HllSketch;
use rtad_core::files::replace;
use serde::{Deserialize, Serialize};

use crate::telemetry::{PartLabels, ReachLabels, devices};

/// Devices of a strategy or a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReachCount {
    #[serde(flatten)]
    pub(super) labels: ReachLabels,
    pub(super) devices: u64,
}

/// The sketches of a day, in the days of a zone.
#[derive(Debug)]
pub struct DaySketches {
    pub(super) date: String,
    pub(super) time_zone: String,
    pub(super) sketches: Vec<(ReachLabels, HllSketch)>,
}

/// Each line has all fields, as Spark takes its columns from them.
#[derive(Serialize, Deserialize)]
struct SketchLine {
    date: String,
    time_zone: String,
    pod: String,
    strategy: String,
    experiment: Option<String>,
    bucket: Option<String>,
    devices: u64,
    sketch: String,
}

impl DaySketches {
    /// Estimated devices of each sketch.
    pub fn counts(&self) -> Vec<ReachCount> {
        let count = |(labels, sketch): &(ReachLabels, _)| ReachCount {
            labels: labels.clone(),
            devices: devices(sketch),
        };
        self.sketches.iter().map(count).collect()
    }

    pub fn to_lines(&self, pod: &str) -> Vec<u8> {
        let mut lines = Vec::new();
        for (labels, sketch) in &self.sketches {
            let part = labels.part.as_ref();
            let line = SketchLine {
                date: self.date.clone(),
                time_zone: self.time_zone.clone(),
                pod: pod.to_owned(),
                strategy: labels.strategy.clone(),
                experiment: part.map(|part| part.experiment.clone()),
                bucket: part.map(|part| part.bucket.clone()),
                devices: devices(sketch),
                sketch: BASE64_STANDARD.encode(sketch.serialize()),
            };
            serde_json::to_writer(&mut lines, &line).expect("plain values serialize");
            lines.push(b'\n');
        }
        lines
    }

    /// The sketches of a file of one day; `None` if it has no lines.
    pub fn read(lines: &[u8]) -> io::Result<Option<Self>> {
        let mut read: Option<Self> = None;
        for line in serde_json::Deserializer::from_slice(lines).into_iter::<SketchLine>() {
            let SketchLine {
                date,
                time_zone,
                strategy,
                experiment,
                bucket,
                sketch,
                ..
            } = line?;
            let sketch = BASE64_STANDARD.decode(sketch).map_err(io::Error::other)?;
            let sketch = HllSketch::deserialize(&sketch).map_err(io::Error::other)?;
            let day = Self {
                date,
                time_zone,
                sketches: Vec::new(),
            };
            let part = experiment.zip(bucket);
            let part = part.map(|(experiment, bucket)| PartLabels { experiment, bucket });
            read.get_or_insert(day)
                .sketches
                .push((ReachLabels { strategy, part }, sketch));
        }
        Ok(read)
    }

    /// Writes the file `day=DATE/NAME.jsonl` of a folder, whole or not at all. A name that no other
    /// process uses keeps its sketches apart. Blocks.
    pub fn write(&self, folder: &Path, pod: &str, name: &str) -> io::Result<()> {
        if self.sketches.is_empty() {
            return Ok(());
        }
        let folder = folder.join(format!("day={}", self.date));
        DirBuilder::new().recursive(true).create(&folder)?;
        // Readers of the folder skip names that begin with a dot.
        replace(
            &folder,
            &format!("{name}.jsonl"),
            &format!(".{name}.tmp"),
            &self.to_lines(pod),
        )
    }
}
