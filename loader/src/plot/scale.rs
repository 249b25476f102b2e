//! From figures to colours, and to the few round figures that stand beside a scale.

use super::Colour;

/// From dark to light, equally far apart for the eye and in black and white too: nine points of the map viridis (Smith and van der
/// Walt 2015, CC0), and straight lines between them.
const VIRIDIS: [Colour; 9] = [
    [68, 1, 84],
    [71, 44, 122],
    [59, 81, 139],
    [44, 113, 142],
    [33, 144, 141],
    [39, 173, 129],
    [92, 200, 99],
    [170, 220, 50],
    [253, 231, 37],
];

/// The colour of a part from 0 to 1.
pub(crate) fn sequential(part: f64) -> Colour {
    let place = part.clamp(0.0, 1.0) * (VIRIDIS.len() - 1) as f64;
    let below = (place as usize).min(VIRIDIS.len() - 2);
    let rest = place - below as f64;
    let mix = |channel: usize| {
        let (a, b) = (f64::from(VIRIDIS[below][channel]), f64::from(VIRIDIS[below + 1][channel]));
        (a + (b - a) * rest).round() as u8
    };
    [mix(0), mix(1), mix(2)]
}

/// Round figures within a range: 1, 2 or 5 times a power of ten apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticks {
    low: f64,
    high: f64,
    step: f64,
}

impl Ticks {
    /// At most `count` of them, at least two if the range is not a point.
    pub(crate) fn new(low: f64, high: f64, count: usize) -> Self {
        let least = (high - low) / count as f64;
        let power = 10_f64.powf(least.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= least);
        Self { low, high, step: step.unwrap_or(power) }
    }

    /// The figures, each with its words.
    pub(crate) fn words(self) -> impl Iterator<Item = (f64, String)> {
        let first = (self.low / self.step - 1e-9).ceil() as i64;
        let last = (self.high / self.step + 1e-9).floor() as i64;
        (first..=last).map(move |index| {
            let figure = index as f64 * self.step;
            (figure, self.text(figure))
        })
    }

    /// As many digits as tell neighbours apart.
    fn text(self, figure: f64) -> String {
        let largest = self.low.abs().max(self.high.abs());
        let digits = -self.step.log10().floor();
        if figure == 0.0 {
            "0".to_owned()
        } else if largest < 1e-3 {
            let exponent = largest.log10().floor();
            let mantissa = (digits + exponent).max(0.0) as usize;
            format!("{:.mantissa$}e{exponent}", figure / 10_f64.powf(exponent))
        } else if self.step >= 1.0 {
            indicatif::HumanCount(figure as u64).to_string()
        } else {
            format!("{figure:.*}", digits as usize)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_run_from_end_to_end() {
        assert_eq!((sequential(0.0), sequential(1.0)), (VIRIDIS[0], VIRIDIS[8]));
        assert_eq!((sequential(0.5), sequential(7.0)), (VIRIDIS[4], VIRIDIS[8]));
    }

    #[test]
    fn ticks_are_round_and_told_apart() {
        let words = |low, high| Ticks::new(low, high, 6).words().map(|(_, text)| text).collect::<Vec<_>>();
        assert_eq!(words(22_400.0, 23_400.0), ["22,400", "22,600", "22,800", "23,000", "23,200", "23,400"]);
        assert_eq!(words(0.3, 0.42), ["0.30", "0.32", "0.34", "0.36", "0.38", "0.40", "0.42"][..7].to_vec());
        assert_eq!(words(0.0, 9.0), ["0", "2", "4", "6", "8"]);
        assert_eq!(words(9.1e-5, 1.13e-4), ["0.95e-4", "1.00e-4", "1.05e-4", "1.10e-4"]);
    }
}
