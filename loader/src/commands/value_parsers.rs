//! Value parsers shared by the flags of several commands.

use std::path::PathBuf;

pub fn parse_ratio(text: &str) -> Result<f64, &'static str> {
    let ratio = text
        .parse()
        .ok()
        .filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or("accepted: a fraction from 0 to 1")
}

/// The name of a column.
pub fn parse_column(text: &str) -> Result<String, &'static str> {
    match text {
        "" => Err("accepted: the name of a column, which is not empty"),
        text => Ok(text.to_owned()),
    }
}

/// A file to write.
pub fn parse_output_file(text: &str) -> Result<PathBuf, &'static str> {
    match text {
        "-" => Err("accepted: a file; stdout is for the command's own data and report"),
        text => Ok(PathBuf::from(text)),
    }
}

/// Largest accepted size of memory, beyond any machine.
const MAX_MEMORY: u64 = 16 << 40;

pub fn parse_size(text: &str) -> Result<u64, &'static str> {
    let size = text
        .parse::<bytesize::ByteSize>()
        .ok()
        .map(|size| size.as_u64());
    size.filter(|size| *size <= MAX_MEMORY)
        .ok_or("accepted: a size up to 16TiB, such as 256MiB or 4GiB")
}
