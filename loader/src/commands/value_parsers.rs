//! Value parsers shared by the flags of several commands.

pub(super) fn parse_ratio(text: &str) -> Result<f64, &'static str> {
    let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or("accepted: a fraction from 0 to 1")
}
