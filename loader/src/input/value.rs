//! Values: the number of a row from 0 to 15, for audiences that have a value per device.

use rtad_core::device::trim;

/// The number that a cell's text is; `None` if it is none from 0 to 15.
pub fn parse(text: &[u8]) -> Option<u8> {
    match trim(text) {
        [digit @ b'0'..=b'9'] => Some(digit - b'0'),
        [b'1', digit @ b'0'..=b'5'] => Some(10 + digit - b'0'),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_numbers_from_0_to_15_are_values() {
        for value in 0..16 {
            assert_eq!(parse(format!(" {value}\t").as_bytes()), Some(value));
        }
        for text in [
            "", "16", "-1", "+1", "07", "1.0", "1e1", "1 5", "null", "a", "\u{ff11}",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
