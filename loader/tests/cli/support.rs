//! Chunks of a store, and compressed inputs.

use std::io::Write;

use testkit::store::Files;

/// The program under test.
pub const LOADER: &str = env!("CARGO_BIN_EXE_rtad-loader");

/// The chunks of a store, by name: the name is the digest of the content.
pub fn chunks(store: &Files) -> Vec<&String> {
    store
        .keys()
        .filter(|name| name.ends_with(".chunk"))
        .collect()
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder
        .write_all(bytes)
        .expect("a Vec takes what is written");
    encoder.finish().expect("a Vec takes what is written")
}

/// The frame has a checksum, as `zstd` writes it.
pub fn zst(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("level 1 exists");
    encoder
        .include_checksum(true)
        .expect("the frame has not begun");
    encoder
        .write_all(bytes)
        .expect("a Vec takes what is written");
    encoder.finish().expect("a Vec takes what is written")
}
