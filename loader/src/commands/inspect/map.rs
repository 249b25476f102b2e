//! `inspect --plot`: all 65,536 shards as a map of 256 × 256, with its scale and how often each figure comes.
//!
//! A row is the first byte of the keys, a column the second. Keys are hashes, so the map of a sound audience is noise and its histogram a
//! bell; a row, a block or a dot that stands out is an export that was cut, ids that are no hashes, or somebody's choice of keys.

use std::io;
use std::path::Path;

use clap::ValueEnum;
use indicatif::{HumanBytes, HumanCount};

use rtad::device::SHARDS;
use rtad::snapshot::Manifest;

use crate::plot::{Align, Canvas, Colour, Ticks, sequential};

/// What is drawn of each shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Figure {
    /// Distinct keys
    #[default]
    Keys,
    /// Fraction of its filter's bits that are set
    Fill,
    /// False-positive rate that follows from the fill
    Fpr,
}

impl Figure {
    const fn title(self) -> &'static str {
        match self {
            Self::Keys => "keys per shard",
            Self::Fill => "fill ratio per shard",
            Self::Fpr => "expected fpr per shard",
        }
    }
}

const BACKGROUND: Colour = [252, 252, 250];
const INK: Colour = [31, 36, 48];
const MUTED: Colour = [107, 114, 128];
const FAINT: Colour = [222, 224, 228];
/// Of a shard without keys: no colour of the scale.
const EMPTY: Colour = [236, 236, 238];

const SIDE: usize = 256;
/// Pixels of a shard, each way.
const DOT: usize = 3;
const MAP: (usize, usize) = (92, 120);
const MAP_SIDE: usize = SIDE * DOT;
const BAR_X: usize = MAP.0 + MAP_SIDE + 48;
const BAR_WIDTH: usize = 26;
const COUNTS_X: usize = BAR_X + BAR_WIDTH + 130;
const COUNTS_WIDTH: usize = 300;
const SIZE: (usize, usize) = (COUNTS_X + COUNTS_WIDTH + 60, MAP.1 + MAP_SIDE + 100);
/// Of the histogram: each as high as so many pixels of the scale.
const BIN_PIXELS: usize = 12;
const BINS: usize = MAP_SIDE / BIN_PIXELS;

/// One figure of every shard that has keys.
#[derive(Debug)]
pub(super) struct ShardMap {
    figure: Figure,
    shards: Vec<Option<f64>>,
}

impl ShardMap {
    pub(super) fn new(figure: Figure) -> Self {
        Self { figure, shards: vec![None; SHARDS] }
    }

    /// Notes a shard's figures.
    pub(super) fn set(&mut self, shard: u32, keys: u32, fill: f64, fpr: f64) {
        let figure = match self.figure {
            Figure::Keys => f64::from(keys),
            Figure::Fill => fill,
            Figure::Fpr => fpr,
        };
        if let Some(place) = self.shards.get_mut(shard as usize) {
            *place = Some(figure);
        }
    }

    /// Draws it.
    pub(super) fn write(&self, manifest: &Manifest, path: &Path) -> io::Result<()> {
        self.canvas(manifest).write(path)
    }

    fn canvas(&self, manifest: &Manifest) -> Canvas {
        let mut canvas = Canvas::new(SIZE.0, SIZE.1, BACKGROUND);
        let title = format!("{} generation {}", manifest.audience(), manifest.generation());
        canvas.words(&title, (MAP.0, 28), 3, INK, Align::Left);
        let (keys, size) = (HumanCount(manifest.keys()), HumanBytes(manifest.size_bytes()));
        let filter = manifest.filter();
        let bits = f64::from(filter.millibits_per_key()) / 1000.0;
        let (kind, hashes) = (filter.kind().as_str(), filter.hashes());
        let facts = format!("{keys} keys, {size}, {kind} with {hashes} hashes and {bits} bits per key");
        canvas.words(&facts, (MAP.0, 66), 2, MUTED, Align::Left);
        let range = self.range();
        self.draw_map(&mut canvas, range);
        draw_scale(&mut canvas, self.figure.title(), range);
        self.draw_counts(&mut canvas, range);
        canvas
    }

    fn figures(&self) -> impl Iterator<Item = f64> {
        self.shards.iter().flatten().copied()
    }

    /// The lowest figure and the highest, never the same.
    fn range(&self) -> (f64, f64) {
        let ends = |(low, high): (f64, f64), figure: f64| (low.min(figure), high.max(figure));
        match self.figures().fold((f64::INFINITY, f64::NEG_INFINITY), ends) {
            (low, high) if low < high => (low, high),
            (same, _) if same.is_finite() && same > 0.0 => (0.0, 2.0 * same),
            _ => (0.0, 1.0),
        }
    }

    fn draw_map(&self, canvas: &mut Canvas, (low, high): (f64, f64)) {
        canvas.rectangle((MAP.0 - 1, MAP.1 - 1), (MAP_SIDE + 2, MAP_SIDE + 2), FAINT);
        for (shard, figure) in self.shards.iter().enumerate() {
            let colour = figure.map_or(EMPTY, |figure| sequential((figure - low) / (high - low)));
            canvas.rectangle((MAP.0 + shard % SIDE * DOT, MAP.1 + shard / SIDE * DOT), (DOT, DOT), colour);
        }
        for byte in (0..SIDE).step_by(32).chain([SIDE - 1]) {
            let (along, label) = (byte * DOT + DOT / 2, format!("{byte:02x}"));
            canvas.rectangle((MAP.0 + along, MAP.1 + MAP_SIDE + 2), (1, 7), MUTED);
            canvas.words(&label, (MAP.0 + along, MAP.1 + MAP_SIDE + 16), 2, MUTED, Align::Centre);
            canvas.rectangle((MAP.0 - 9, MAP.1 + along), (7, 1), MUTED);
            canvas.words(&label, (MAP.0 - 14, (MAP.1 + along).saturating_sub(7)), 2, MUTED, Align::Right);
        }
        let middle = (MAP.0 + MAP_SIDE / 2, MAP.1 + MAP_SIDE / 2);
        canvas.words("second byte of the keys", (middle.0, MAP.1 + MAP_SIDE + 46), 2, INK, Align::Centre);
        canvas.words_upwards("first byte of the keys", (24, middle.1), 2, INK);
    }

    /// How many shards have each figure, beside the scale and in its colours.
    fn draw_counts(&self, canvas: &mut Canvas, (low, high): (f64, f64)) {
        let mut counts = [0_u32; BINS];
        let (mut shards, mut sum) = (0_u32, 0.0);
        for figure in self.figures() {
            let bin = ((figure - low) / (high - low) * BINS as f64) as usize;
            counts[bin.min(BINS - 1)] += 1;
            shards += 1;
            sum += figure;
        }
        let most = counts.iter().copied().max().unwrap_or(0).max(1);
        let long = |count: u32| f64::from(count) / f64::from(most) * COUNTS_WIDTH as f64;
        canvas.rectangle((COUNTS_X - 2, MAP.1), (1, MAP_SIDE), MUTED);
        for (count, label) in Ticks::new(0.0, f64::from(most), 4).words() {
            let x = COUNTS_X + long(count as u32) as usize;
            canvas.rectangle((x, MAP.1), (1, MAP_SIDE), FAINT);
            canvas.rectangle((x, MAP.1 + MAP_SIDE + 2), (1, 7), MUTED);
            canvas.words(&label, (x, MAP.1 + MAP_SIDE + 16), 2, MUTED, Align::Centre);
        }
        for (bin, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let y = MAP.1 + MAP_SIDE - (bin + 1) * BIN_PIXELS;
            let colour = sequential((bin as f64 + 0.5) / BINS as f64);
            // However few, they are seen.
            canvas.rectangle((COUNTS_X, y), (long(*count).ceil().max(2.0) as usize, BIN_PIXELS - 1), colour);
        }
        let empty = SHARDS as u32 - shards;
        let middle = COUNTS_X + COUNTS_WIDTH / 2;
        canvas.words("shards", (middle, MAP.1 + MAP_SIDE + 46), 2, INK, Align::Centre);
        let empty = format!("{} without keys", HumanCount(empty.into()));
        canvas.words(&empty, (middle, MAP.1 + MAP_SIDE + 70), 2, MUTED, Align::Centre);
        if shards > 0 {
            let mean = sum / f64::from(shards);
            let y = height_of(mean, (low, high));
            canvas.rectangle((COUNTS_X, y), (COUNTS_WIDTH, 1), INK);
            let label = format!("mean {}", self.in_words(mean));
            canvas.words(&label, (COUNTS_X + COUNTS_WIDTH, y.saturating_sub(18)), 2, INK, Align::Right);
        }
    }

    fn in_words(&self, figure: f64) -> String {
        match self.figure {
            Figure::Keys if figure >= 100.0 => HumanCount(figure.round() as u64).to_string(),
            Figure::Keys => format!("{figure:.2}"),
            Figure::Fill => format!("{figure:.4}"),
            Figure::Fpr => format!("{figure:.3e}"),
        }
    }
}

/// Where a figure stands on the scale.
fn height_of(figure: f64, (low, high): (f64, f64)) -> usize {
    let part = ((figure - low) / (high - low)).clamp(0.0, 1.0);
    MAP.1 + ((1.0 - part) * (MAP_SIDE - 1) as f64).round() as usize
}

fn draw_scale(canvas: &mut Canvas, title: &str, range: (f64, f64)) {
    for row in 0..MAP_SIDE {
        let part = 1.0 - row as f64 / (MAP_SIDE - 1) as f64;
        canvas.rectangle((BAR_X, MAP.1 + row), (BAR_WIDTH, 1), sequential(part));
    }
    for (figure, label) in Ticks::new(range.0, range.1, 10).words() {
        let y = height_of(figure, range);
        canvas.rectangle((BAR_X + BAR_WIDTH, y), (6, 1), MUTED);
        canvas.words(&label, (BAR_X + BAR_WIDTH + 12, y.saturating_sub(7)), 2, INK, Align::Left);
    }
    canvas.words(title, (BAR_X, MAP.1 - 28), 2, INK, Align::Left);
}
