//! The picture of a [`day`](crate::day): four strips over its hours, as SVG.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::day::{LEAD, Measured, REGIONS};
use crate::meter::Traffic;
use crate::report::thousands;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 190.0;
const HEIGHT: f64 = 150.0;
/// Between strips: the title of the next one, and the hours.
const GAP: f64 = 60.0;
/// Points of a line, at most.
const POINTS: usize = 288;
const COLORS: [&str; 6] = [
    "#2b6cb0", "#dd6b20", "#2f855a", "#805ad5", "#b83280", "#718096",
];

/// Values of each minute.
struct Series {
    name: String,
    values: Vec<f64>,
}

/// How values become heights.
#[derive(Clone, Copy)]
enum Scale {
    /// Areas, one on the other.
    Stacked,
    /// Lines. Each mark is ten times the one below; what is less than 1 is at the bottom.
    Logarithmic,
}

struct Strip {
    title: &'static str,
    scale: Scale,
    series: Vec<Series>,
}

/// Draws a day.
pub fn svg(day: &Measured) -> String {
    let strips = [bids(day), pods(day), lag(day), requests(day)];
    let height = GAP + strips.len() as f64 * (HEIGHT + GAP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    let hours = day.plan.length.as_secs_f64() / 3600.0;
    for (index, strip) in strips.iter().enumerate() {
        let top = GAP + index as f64 * (HEIGHT + GAP);
        strip.draw(&mut svg, top, hours);
    }
    svg.push_str("</svg>\n");
    svg
}

fn bids(day: &Measured) -> Strip {
    let mut series = Vec::new();
    for (region, of) in REGIONS.iter().enumerate() {
        series.push(Series {
            name: of.name.to_owned(),
            values: day
                .minutes
                .iter()
                .map(|minute| minute.bids[region])
                .collect(),
        });
    }
    Strip {
        title: "Bids per second, by region",
        scale: Scale::Stacked,
        series,
    }
}

fn pods(day: &Measured) -> Strip {
    let mut generations = BTreeSet::new();
    for minute in &day.minutes {
        generations.extend(minute.generations.keys().copied());
    }
    let mut series = Vec::new();
    for generation in generations {
        let mut values = Vec::new();
        for minute in &day.minutes {
            let group = minute.generations.get(&generation);
            values.push(group.map_or(0.0, |group| group.pods as f64));
        }
        series.push(Series {
            name: format!("generation {generation}"),
            values,
        });
    }
    Strip {
        title: "Pods, by generation",
        scale: Scale::Stacked,
        series,
    }
}

fn lag(day: &Measured) -> Strip {
    let mut series = Vec::new();
    for (region, of) in REGIONS.iter().enumerate() {
        let mut values = Vec::new();
        for minute in &day.minutes {
            values.push(minute.lag[region] as f64);
        }
        series.push(Series {
            name: of.name.to_owned(),
            values,
        });
    }
    Strip {
        title: "Lag: seconds since the oldest record that a pod lacks, most in a minute",
        scale: Scale::Logarithmic,
        series,
    }
}

fn requests(day: &Measured) -> Strip {
    let first = (LEAD.as_secs() / 60) as usize;
    let mut near = Vec::new();
    let mut far = Vec::new();
    let mut others = Vec::new();
    for minute in first..first + day.minutes.len() {
        let mut all = Traffic::default();
        let mut far_gets = 0;
        for meter in &day.meters {
            let traffic = meter.between(minute, minute + 1);
            all.add(&traffic);
            if !meter.is_near {
                far_gets += traffic.gets;
            }
        }
        near.push((all.gets - far_gets) as f64);
        far.push(far_gets as f64);
        others.push((all.requests() - all.gets) as f64);
    }
    let series = |name: &str, values| Series {
        name: name.to_owned(),
        values,
    };
    Strip {
        title: "Requests per minute to all stores",
        scale: Scale::Logarithmic,
        series: vec![
            series("GET, near", near),
            series("GET, far", far),
            series("PUT, LIST, DELETE", others),
        ],
    }
}

impl Strip {
    fn draw(&self, svg: &mut String, top: f64, hours: f64) {
        let bottom = top + HEIGHT;
        let right = WIDTH - RIGHT;
        let _ = writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{}</text>",
            top - 10.0,
            self.title
        );
        let highest = self.highest();
        for mark in self.marks(highest) {
            let y = bottom - self.height(mark, highest);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#ddd\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                thousands(mark)
            );
        }
        for part in 0..=12 {
            let x = LEFT + (right - LEFT) * f64::from(part) / 12.0;
            let minutes = (hours * 60.0 * f64::from(part) / 12.0) as u64;
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.1} {bottom}v5\" stroke=\"#666\"/>\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{:02}:{:02}</text>",
                bottom + 19.0,
                minutes / 60,
                minutes % 60
            );
        }
        match self.scale {
            Scale::Stacked => self.draw_areas(svg, bottom, highest),
            Scale::Logarithmic => self.draw_lines(svg, bottom, highest),
        }
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"#666\"/>"
        );
        for (index, series) in self.series.iter().enumerate() {
            let y = top + 12.0 + index as f64 * 20.0;
            let _ = writeln!(
                svg,
                "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/>\
                 <text x=\"{}\" y=\"{y}\">{}</text>",
                right + 16.0,
                y - 10.0,
                color(index),
                right + 34.0,
                series.name
            );
        }
    }

    /// The end of the axis.
    fn highest(&self) -> f64 {
        let count = self.series.first().map_or(0, |series| series.values.len());
        let mut most = 1.0_f64;
        for minute in 0..count {
            let values = self.series.iter().map(|series| series.values[minute]);
            most = match self.scale {
                Scale::Stacked => most.max(values.sum()),
                Scale::Logarithmic => values.fold(most, f64::max),
            };
        }
        match self.scale {
            Scale::Stacked => round(most),
            Scale::Logarithmic => 10_f64.powf(most.log10().ceil()).max(10.0),
        }
    }

    fn marks(&self, highest: f64) -> Vec<f64> {
        match self.scale {
            Scale::Stacked => vec![0.0, highest / 2.0, highest],
            Scale::Logarithmic => {
                let mut marks = vec![1.0];
                while marks[marks.len() - 1] < highest {
                    marks.push(marks[marks.len() - 1] * 10.0);
                }
                marks
            }
        }
    }

    fn height(&self, value: f64, highest: f64) -> f64 {
        match self.scale {
            Scale::Stacked => value / highest * HEIGHT,
            Scale::Logarithmic => value.max(1.0).log10() / highest.log10() * HEIGHT,
        }
    }

    fn draw_areas(&self, svg: &mut String, bottom: f64, highest: f64) {
        let count = self.series.first().map_or(0, |series| series.values.len());
        let mut below = vec![0.0; count];
        for (index, series) in self.series.iter().enumerate() {
            let mut above = below.clone();
            for (sum, value) in above.iter_mut().zip(&series.values) {
                *sum += value;
            }
            let mut path = String::from("M");
            for point in self.points(&above, bottom, highest) {
                path.push_str(&point);
            }
            for point in self.points(&below, bottom, highest).iter().rev() {
                path.push_str(point);
            }
            let _ = writeln!(
                svg,
                "<path d=\"{}Z\" fill=\"{}\" fill-opacity=\"0.8\"/>",
                path.trim_end(),
                color(index)
            );
            below = above;
        }
    }

    fn draw_lines(&self, svg: &mut String, bottom: f64, highest: f64) {
        for (index, series) in self.series.iter().enumerate() {
            // Of a long day, the most of some minutes: a point for each would be a blot.
            let mut values = Vec::new();
            for some in series
                .values
                .chunks(series.values.len().div_ceil(POINTS).max(1))
            {
                values.push(some.iter().copied().fold(0.0, f64::max));
            }
            let path = self.points(&values, bottom, highest).concat();
            let _ = writeln!(
                svg,
                "<path d=\"M{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.2\"/>",
                path.trim_end(),
                color(index)
            );
        }
    }

    /// The points of a line, without those between two of their height.
    fn points(&self, values: &[f64], bottom: f64, highest: f64) -> Vec<String> {
        let step = (WIDTH - LEFT - RIGHT) / values.len() as f64;
        let mut points = Vec::new();
        for (index, value) in values.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| values[before]);
            if before == Some(*value) && values.get(index + 1) == Some(value) {
                continue;
            }
            let x = LEFT + (index as f64 + 0.5) * step;
            let y = bottom - self.height(*value, highest);
            points.push(format!("{x:.1} {y:.1} "));
        }
        points
    }
}

/// The next number of one or two digits and zeros.
fn round(number: f64) -> f64 {
    let unit = 10_f64.powf(number.log10().floor() - 1.0);
    (number / unit).ceil() * unit
}

const fn color(index: usize) -> &'static str {
    COLORS[index % COLORS.len()]
}
