//! `inspect --plot`: all 65,536 shards as a map of 256 × 256, with its scale and how often each figure comes.
//!
//! A row is the first byte of the keys, a column the second. Keys are hashes, so the map of a sound audience is noise and its histogram a
//! bell; a row, a block or a dot that stands out is an export that was cut, ids that are no hashes, or somebody's choice of keys.

use std::io;
use std::path::Path;

use clap::ValueEnum;
use indicatif::{HumanBytes, HumanCount};

use rtad_core::device::SHARDS;
use rtad_core::snapshot::Manifest;

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
const MAP: (usize, usize) = (92, 136);
const MAP_SIDE: usize = SIDE * DOT;
const BAR_X: usize = MAP.0 + MAP_SIDE + 48;
const BAR_WIDTH: usize = 26;
const COUNTS_X: usize = BAR_X + BAR_WIDTH + 130;
const COUNTS_WIDTH: usize = 300;
const SIZE: (usize, usize) = (COUNTS_X + COUNTS_WIDTH + 60, MAP.1 + MAP_SIDE + 100);
/// Of the histogram, at most: each as high as a dozen pixels of the scale.
const BINS: u32 = MAP_SIDE as u32 / 12;

/// One figure of every shard that has keys.
#[derive(Debug)]
pub(super) struct ShardMap {
    figure: Figure,
    /// Rates by their logarithms.
    shards: Vec<Option<f64>>,
}

/// The ends of the scale, and how many bars stand beside it.
#[derive(Debug, Clone, Copy)]
struct Span {
    low: f64,
    high: f64,
    bins: u32,
}

impl Span {
    fn part(self, figure: f64) -> f64 {
        (figure - self.low) / (self.high - self.low)
    }

    /// Where a figure stands on the picture.
    fn height(self, figure: f64) -> usize {
        let part = self.part(figure).clamp(0.0, 1.0);
        MAP.1 + ((1.0 - part) * (MAP_SIDE - 1) as f64).round() as usize
    }
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
            // Of small shards these are powers of ten apart.
            Figure::Fpr => fpr.max(f64::MIN_POSITIVE).log10(),
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
        let span = self.span();
        self.draw_map(&mut canvas, span);
        self.draw_scale(&mut canvas, span);
        self.draw_counts(&mut canvas, span);
        canvas
    }

    fn figures(&self) -> impl Iterator<Item = f64> {
        self.shards.iter().flatten().copied()
    }

    fn ends(&self) -> (f64, f64) {
        let ends = |(low, high): (f64, f64), figure: f64| (low.min(figure), high.max(figure));
        self.figures().fold((f64::INFINITY, f64::NEG_INFINITY), ends)
    }

    /// From the lowest figure to the highest; never a point.
    fn span(&self) -> Span {
        let (low, high) = self.ends();
        if low > high {
            return Span { low: 0.0, high: 1.0, bins: BINS };
        }
        if self.figure == Figure::Keys {
            // Bars of whole keys: as wide as each other in keys, or some would stand for more of them.
            let counts = high - low + 1.0;
            let wide = (counts / f64::from(BINS)).ceil();
            let bins = (counts / wide).ceil();
            return Span { low: low - 0.5, high: low - 0.5 + bins * wide, bins: bins as u32 };
        }
        let margin = if low < high { 0.0 } else { low.abs().max(1e-6) / 10.0 };
        Span { low: low - margin, high: high + margin, bins: BINS }
    }

    fn draw_map(&self, canvas: &mut Canvas, span: Span) {
        canvas.rectangle((MAP.0 - 1, MAP.1 - 1), (MAP_SIDE + 2, MAP_SIDE + 2), FAINT);
        for (shard, figure) in self.shards.iter().enumerate() {
            let colour = figure.map_or(EMPTY, |figure| sequential(span.part(figure)));
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

    fn draw_scale(&self, canvas: &mut Canvas, span: Span) {
        for row in 0..MAP_SIDE {
            let part = 1.0 - row as f64 / (MAP_SIDE - 1) as f64;
            canvas.rectangle((BAR_X, MAP.1 + row), (BAR_WIDTH, 1), sequential(part));
        }
        let ticks: Vec<_> = match self.figure {
            Figure::Fpr => log_ticks(span.low, span.high),
            _ => Ticks::new(span.low, span.high, 10).words().collect(),
        };
        for (figure, label) in ticks {
            let y = span.height(figure);
            canvas.rectangle((BAR_X + BAR_WIDTH, y), (6, 1), MUTED);
            canvas.words(&label, (BAR_X + BAR_WIDTH + 12, y.saturating_sub(7)), 2, INK, Align::Left);
        }
        canvas.words(self.figure.title(), (BAR_X, MAP.1 - 28), 2, INK, Align::Left);
    }

    /// How many shards have each figure, beside the scale and in its colours.
    fn draw_counts(&self, canvas: &mut Canvas, span: Span) {
        let mut counts = vec![0_u32; span.bins as usize];
        let (mut shards, mut sum) = (0_u32, 0.0);
        for figure in self.figures() {
            let bin = (span.part(figure) * f64::from(span.bins)) as usize;
            counts[bin.min(span.bins as usize - 1)] += 1;
            shards += 1;
            sum += self.plain(figure);
        }
        let most = counts.iter().copied().max().unwrap_or(0).max(1);
        let long = |count: u32| f64::from(count) / f64::from(most) * COUNTS_WIDTH as f64;
        for (count, label) in Ticks::new(0.0, f64::from(most), 3).words() {
            let x = COUNTS_X + long(count as u32) as usize;
            canvas.rectangle((x, MAP.1), (1, MAP_SIDE), FAINT);
            canvas.rectangle((x, MAP.1 + MAP_SIDE + 2), (1, 7), MUTED);
            canvas.words(&label, (x, MAP.1 + MAP_SIDE + 16), 2, MUTED, Align::Centre);
        }
        let edge = |bin: usize| span.low + (span.high - span.low) * bin as f64 / f64::from(span.bins);
        for (bin, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (top, bottom) = (span.height(edge(bin + 1)), span.height(edge(bin)));
            let colour = sequential((bin as f64 + 0.5) / f64::from(span.bins));
            // However few, they are seen.
            let size = (long(*count).ceil().max(2.0) as usize, (bottom - top).saturating_sub(1).max(1));
            canvas.rectangle((COUNTS_X, top + 1), size, colour);
        }
        canvas.rectangle((COUNTS_X - 2, MAP.1), (1, MAP_SIDE), MUTED);
        let middle = COUNTS_X + COUNTS_WIDTH / 2;
        let empty = HumanCount((SHARDS as u32 - shards).into());
        let caption = format!("shards ({empty} without keys)");
        canvas.words(&caption, (middle, MAP.1 + MAP_SIDE + 46), 2, INK, Align::Centre);
        if shards > 0 {
            let mean = sum / f64::from(shards);
            let (low, high) = self.ends();
            let facts = [("min", self.plain(low)), ("mean", mean), ("max", self.plain(high))];
            let facts = facts.map(|(name, figure)| format!("{name} {}", self.in_words(figure)));
            canvas.words(&facts.join("   "), (SIZE.0 - 60, MAP.1 + MAP_SIDE + 74), 2, MUTED, Align::Right);
        }
    }

    /// As it was before its logarithm was taken.
    fn plain(&self, figure: f64) -> f64 {
        if self.figure == Figure::Fpr { 10_f64.powf(figure) } else { figure }
    }

    fn in_words(&self, figure: f64) -> String {
        match self.figure {
            Figure::Keys if figure >= 100.0 || figure.fract() == 0.0 => {
                HumanCount(figure.round() as u64).to_string()
            }
            Figure::Keys => format!("{figure:.1}"),
            Figure::Fill => format!("{figure:.3}"),
            Figure::Fpr => format!("{figure:.1e}"),
        }
    }
}

/// The powers of ten on a logarithmic scale; if there are few, also what lies between.
fn log_ticks(low: f64, high: f64) -> Vec<(f64, String)> {
    let factors: &[f64] = match high - low {
        decades if decades > 4.0 => &[1.0],
        decades if decades > 1.0 => &[1.0, 2.0, 5.0],
        _ => &[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0],
    };
    let powers = low.floor() as i32..=high.ceil() as i32;
    let tick = |power: i32, factor: f64| (f64::from(power) + factor.log10(), format!("{factor}e{power}"));
    let ticks = powers.flat_map(|power| factors.iter().map(move |factor| tick(power, *factor)));
    ticks.filter(|(figure, _)| (low..=high).contains(figure)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_stand_for_as_many_keys_each() {
        let mut map = ShardMap::new(Figure::Keys);
        assert_eq!(map.span().bins, BINS);
        for keys in [20, 75, 300] {
            map.set(keys, keys, 0.3, 1e-4);
        }
        let Span { low, high, bins } = map.span();
        let wide = (high - low) / f64::from(bins);
        assert!(bins <= BINS && wide.fract() == 0.0 && low == 19.5 && high > 300.0, "{low} {high} {bins}");
        let mut one = ShardMap::new(Figure::Fpr);
        one.set(7, 20, 0.3, 1e-4);
        let Span { low, high, .. } = one.span();
        assert!(low < -4.0 && high > -4.0);
    }

    #[test]
    fn rates_have_round_figures_at_any_range() {
        let words = |low, high| log_ticks(low, high).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        assert_eq!(words(-7.0, -2.0), ["1e-7", "1e-6", "1e-5", "1e-4", "1e-3", "1e-2"]);
        assert_eq!(words(-6.1, -4.5), ["1e-6", "2e-6", "5e-6", "1e-5", "2e-5"]);
        assert_eq!(words(-4.05, -3.9), ["1e-4", "1.2e-4"]);
    }
}
