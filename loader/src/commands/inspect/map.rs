//! `inspect --plot`: a map of all 65,536 shards, 256 × 256, and the histogram of their figures.
//!
//! The row is the first byte of the keys, the column the second. Keys are hashes, so the map of a
//! sound audience is noise and its histogram a bell curve. A visible row, block or dot means a
//! truncated export, ids that are not hashes, or manipulated keys.

use std::io;
use std::ops::Range;

use clap::ValueEnum;
use indicatif::{HumanBytes, HumanCount};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use rtad_core::device::SHARDS;
use rtad_core::filter::FilterKind;
use rtad_core::snapshot::Manifest;

use super::super::verify::ShardFigures;

/// The figure drawn for each shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// Distinct keys
    #[default]
    Keys,
    /// Fraction of its filter's bits that are set; not of ribbon filters
    Fill,
    /// Fraction of its keys outside the first tier; only of ribbon filters
    Diverted,
    /// Expected false-positive rate
    Fpr,
}

impl Figure {
    /// Whether filters of the kind have it.
    pub const fn is_of(self, kind: FilterKind) -> bool {
        match self {
            Self::Keys | Self::Fpr => true,
            Self::Fill => !matches!(kind, FilterKind::Ribbon),
            Self::Diverted => matches!(kind, FilterKind::Ribbon),
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Keys => "keys per shard",
            Self::Fill => "fill ratio per shard",
            Self::Diverted => "diverted keys per shard",
            Self::Fpr => "expected fpr per shard",
        }
    }

    /// Text of a value on the scale. Rates are logarithms.
    fn label(self, value: f64) -> String {
        match self {
            Self::Keys if value >= 100.0 || value.fract() == 0.0 => {
                HumanCount(value.max(0.0).round() as u64).to_string()
            }
            Self::Keys => format!("{value:.1}"),
            Self::Fill | Self::Diverted => format!("{value:.3}"),
            Self::Fpr => format!("{:.1e}", 10_f64.powf(value)),
        }
    }
}

/// Shards in a row of the map.
const SIDE: usize = 256;
/// Size of the picture in pixels.
const SIZE: (u32, u32) = (1340, 980);
const MAP_WIDTH: u32 = 900;
const HEADER_HEIGHT: u32 = 96;
/// Maximum number of histogram bars.
const BINS: u32 = 64;
/// Color of a shard without keys, not on the scale.
const EMPTY: RGBColor = RGBColor(236, 236, 238);
const MUTED: RGBColor = RGBColor(107, 114, 128);
const FONT: &str = "sans-serif";

/// One figure for every shard with keys.
#[derive(Debug)]
pub struct ShardMap {
    figure: Figure,
    /// Rates are logarithms.
    shards: Vec<Option<f64>>,
}

/// The scale, divided into the bars of the histogram.
#[derive(Debug, Clone, Copy)]
struct Scale {
    low: f64,
    high: f64,
    bins: u32,
}

impl Scale {
    fn range(self) -> Range<f64> {
        self.low..self.high
    }

    fn edge(self, bin: usize) -> f64 {
        self.low + (self.high - self.low) * bin as f64 / f64::from(self.bins)
    }

    fn bin(self, value: f64) -> usize {
        let part = (value - self.low) / (self.high - self.low);
        ((part * f64::from(self.bins)) as usize).min(self.bins as usize - 1)
    }

    fn color(self, value: f64) -> RGBColor {
        ViridisRGB.get_color_normalized(value, self.low, self.high)
    }
}

impl ShardMap {
    pub fn new(figure: Figure) -> Self {
        Self {
            figure,
            shards: vec![None; SHARDS],
        }
    }

    pub fn set(&mut self, shard: u16, keys: u32, figures: &ShardFigures) {
        self.shards[usize::from(shard)] = match self.figure {
            Figure::Keys => Some(f64::from(keys)),
            Figure::Fill => figures.fill,
            Figure::Diverted => figures.diverted,
            // Rates of small shards are powers of ten apart.
            Figure::Fpr => Some(figures.expected_fpr.max(f64::MIN_POSITIVE).log10()),
        };
    }

    pub fn svg(&self, manifest: &Manifest) -> io::Result<String> {
        let mut svg = String::new();
        self.draw(manifest, &mut svg).map_err(io::Error::other)?;
        // plotters-svg 0.3.7 names half of the media type, which no viewer has to accept.
        Ok(svg.replacen("\"data:png;", "\"data:image/png;", 1))
    }

    fn draw(&self, manifest: &Manifest, svg: &mut String) -> Result<(), DrawError> {
        let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (header, charts) = root.split_vertically(HEADER_HEIGHT);
        draw_header(&header, manifest)?;
        let style = TextStyle::from((FONT, 18).into_font()).color(&MUTED);
        header.draw(&Text::new(
            self.extremes(),
            (MAP_WIDTH as i32 + 110, 60),
            style,
        ))?;
        let (left, right) = charts.split_horizontally(MAP_WIDTH);
        let scale = self.scale();
        self.draw_map(&left, scale)?;
        self.draw_histogram(&right, scale)?;
        root.present()
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        self.shards.iter().flatten().copied()
    }

    /// The scale from the lowest to the highest figure; never empty.
    fn scale(&self) -> Scale {
        let ends = |(low, high): (f64, f64), value: f64| (low.min(value), high.max(value));
        let (low, high) = self.values().fold((f64::INFINITY, f64::NEG_INFINITY), ends);
        if low > high {
            return Scale {
                low: 0.0,
                high: 1.0,
                bins: BINS,
            };
        }
        if self.figure == Figure::Keys {
            // A whole number of keys per bar; otherwise bars would cover unequal numbers of counts.
            let counts = high - low + 1.0;
            let width = (counts / f64::from(BINS)).ceil();
            let bins = (counts / width).ceil();
            return Scale {
                low: low - 0.5,
                high: low - 0.5 + bins * width,
                bins: bins as u32,
            };
        }
        let margin = if low < high {
            0.0
        } else {
            low.abs().max(1e-6) / 10.0
        };
        Scale {
            low: low - margin,
            high: high + margin,
            bins: BINS,
        }
    }

    fn draw_map(&self, area: &Area<'_>, scale: Scale) -> Result<(), DrawError> {
        let end = SIDE as i32;
        let labels = || (0..end).step_by(32).chain([end - 1]).collect();
        let mut chart = ChartBuilder::on(area)
            .margin(20)
            .x_label_area_size(60)
            .y_label_area_size(70)
            .build_cartesian_2d(
                (0..end).with_key_points(labels()),
                (end..0).with_key_points(labels()),
            )?;
        let hex = |byte: &i32| format!("{byte:02x}");
        let (width, height) = chart.plotting_area().dim_in_pixel();
        // A bitmap: 65,536 rectangles would take megabytes of SVG.
        let mut pixels = Vec::with_capacity(3 * (width * height) as usize);
        for y in 0..height {
            for x in 0..width {
                let row = y as usize * SIDE / height as usize;
                let shard = row * SIDE + x as usize * SIDE / width as usize;
                let RGBColor(r, g, b) =
                    self.shards[shard].map_or(EMPTY, |value| scale.color(value));
                pixels.extend([r, g, b]);
            }
        }
        let bitmap = BitMapElement::with_owned_buffer((0, 0), (width, height), pixels);
        chart.draw_series(bitmap)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .label_style((FONT, 16))
            .axis_desc_style((FONT, 18))
            .x_label_formatter(&hex)
            .y_label_formatter(&hex)
            .x_desc("second byte of the keys")
            .y_desc("first byte of the keys")
            .draw()
    }

    /// The number of shards for each figure, in the colors of the map.
    fn draw_histogram(&self, area: &Area<'_>, scale: Scale) -> Result<(), DrawError> {
        let mut counts = vec![0_u32; scale.bins as usize];
        self.values()
            .for_each(|value| counts[scale.bin(value)] += 1);
        let most = f64::from(counts.iter().copied().max().unwrap_or(0).max(1));
        // A strip left of zero shows the colors of the scale.
        let strip = most / 12.0;
        let mut chart = ChartBuilder::on(area)
            .margin(20)
            .x_label_area_size(60)
            .y_label_area_size(90)
            .build_cartesian_2d(-strip..most, scale.range())?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .x_labels(4)
            .label_style((FONT, 16))
            .axis_desc_style((FONT, 18))
            .x_label_formatter(&|count| HumanCount(count.max(0.0) as u64).to_string())
            .y_label_formatter(&|value| self.figure.label(*value))
            .x_desc(self.counts_caption())
            .y_desc(self.figure.title())
            .draw()?;
        for (bin, count) in counts.into_iter().enumerate() {
            let (low, high) = (scale.edge(bin), scale.edge(bin + 1));
            let color = scale.color(f64::midpoint(low, high));
            // Keep bars of few shards visible.
            let length = if count == 0 {
                0.0
            } else {
                f64::from(count).max(most / 150.0)
            };
            let bars = [(-strip, -strip / 4.0), (0.0, length)];
            chart.draw_series(
                bars.map(|(from, to)| Rectangle::new([(from, low), (to, high)], color.filled())),
            )?;
        }
        Ok(())
    }

    fn extremes(&self) -> String {
        let count = self.values().count();
        if count == 0 {
            return String::new();
        }
        let is_log = self.figure == Figure::Fpr;
        let plain = |value: f64| if is_log { 10_f64.powf(value) } else { value };
        let mean = self.values().map(plain).sum::<f64>() / count as f64;
        let mean = if is_log { mean.log10() } else { mean };
        let low = self.values().fold(f64::INFINITY, f64::min);
        let high = self.values().fold(f64::NEG_INFINITY, f64::max);
        let [low, mean, high] = [low, mean, high].map(|value| self.figure.label(value));
        format!("min {low}, mean {mean}, max {high}")
    }

    fn counts_caption(&self) -> String {
        let shards = self.values().count();
        format!(
            "shards ({} without keys)",
            HumanCount((SHARDS - shards) as u64)
        )
    }
}

/// A part of the picture.
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
/// A failed drawing. Drawing into memory does not fail.
type DrawError = DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>;

fn draw_header(area: &Area<'_>, manifest: &Manifest) -> Result<(), DrawError> {
    let anchor = Pos::new(HPos::Left, VPos::Top);
    let style = |size: i32, color: &'static RGBColor| {
        TextStyle::from((FONT, size).into_font())
            .color(color)
            .pos(anchor)
    };
    let title = format!(
        "{} generation {}",
        manifest.audience(),
        manifest.generation()
    );
    area.draw(&Text::new(title, (90, 20), style(28, &BLACK)))?;
    let (keys, size) = (
        HumanCount(manifest.keys()),
        HumanBytes(manifest.size_bytes()),
    );
    let filter = manifest.filter();
    let bits = f64::from(filter.millibits_per_key()) / 1000.0;
    let (kind, hashes) = (filter.kind().as_str(), filter.hashes());
    let facts = match filter.kind() {
        FilterKind::Ribbon => format!("{keys} keys, {size}, {kind} with {bits} fingerprint bits"),
        _ => format!("{keys} keys, {size}, {kind} with {hashes} hashes and {bits} bits per key"),
    };
    area.draw(&Text::new(facts, (90, 60), style(18, &MUTED)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURES: ShardFigures = ShardFigures {
        fill: Some(0.3),
        diverted: None,
        expected_fpr: 1e-4,
    };

    #[test]
    fn bars_cover_equal_numbers_of_keys() {
        let mut map = ShardMap::new(Figure::Keys);
        assert_eq!(map.scale().bins, BINS);
        for keys in [20, 75, 300] {
            map.set(keys as u16, keys, &FIGURES);
        }
        let Scale { low, high, bins } = map.scale();
        let width = (high - low) / f64::from(bins);
        let is_whole = width.fract() == 0.0;
        assert!(
            bins <= BINS && is_whole && low == 19.5 && high > 300.0,
            "{low} {high} {bins}"
        );
        let mut one = ShardMap::new(Figure::Fpr);
        one.set(7, 20, &FIGURES);
        let Scale { low, high, .. } = one.scale();
        assert!(low < -4.0 && high > -4.0);
    }
}
