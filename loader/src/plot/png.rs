//! The least of PNG (ISO 15948): eight bits of red, green and blue, no filters, one chunk of pixels.

use std::io::{self, Write};

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

use super::Colour;

const SIGNATURE: [u8; 8] = *b"\x89PNG\r\n\x1a\n";
/// Eight bits, colour type 2 (RGB), then the only compression, filtering and no interlacing.
const RGB8: [u8; 5] = [8, 2, 0, 0, 0];

/// Writes rows of `width` pixels.
pub(super) fn write(mut out: impl Write, width: usize, pixels: &[Colour]) -> io::Result<()> {
    let side = |pixels: usize| u32::try_from(pixels).expect("a picture of some pixels").to_be_bytes();
    out.write_all(&SIGNATURE)?;
    let header = [&side(width)[..], &side(pixels.len() / width), &RGB8].concat();
    write_chunk(&mut out, *b"IHDR", &header)?;
    let mut body = ZlibEncoder::new(Vec::new(), Compression::default());
    for row in pixels.chunks_exact(width) {
        // Before each row which filter it went through: none.
        body.write_all(&[0])?;
        body.write_all(row.as_flattened())?;
    }
    write_chunk(&mut out, *b"IDAT", &body.finish()?)?;
    write_chunk(&mut out, *b"IEND", &[])?;
    out.flush()
}

fn write_chunk(out: &mut impl Write, name: [u8; 4], body: &[u8]) -> io::Result<()> {
    let mut sum = Crc::new();
    sum.update(&name);
    sum.update(body);
    out.write_all(&u32::try_from(body.len()).expect("a picture of some pixels").to_be_bytes())?;
    out.write_all(&name)?;
    out.write_all(body)?;
    out.write_all(&sum.sum().to_be_bytes())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn the_pixels_come_back() {
        let pixels = [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12], [13, 14, 15], [16, 17, 18]];
        let mut file = Vec::new();
        write(&mut file, 3, &pixels).unwrap();
        assert_eq!(file[..8], SIGNATURE);
        let (mut at, mut names, mut body) = (8, Vec::new(), Vec::new());
        while at < file.len() {
            let len = u32::from_be_bytes(file[at..at + 4].try_into().unwrap()) as usize;
            names.push(String::from_utf8(file[at + 4..at + 8].to_vec()).unwrap());
            if names.last().unwrap() == "IDAT" {
                let packed = &file[at + 8..at + 8 + len];
                flate2::read::ZlibDecoder::new(packed).read_to_end(&mut body).unwrap();
            }
            at += 12 + len;
        }
        assert_eq!(names, ["IHDR", "IDAT", "IEND"]);
        // The checksum of IEND is the same in every file there is.
        assert_eq!(file[file.len() - 4..], [0xae, 0x42, 0x60, 0x82]);
        assert_eq!(file[16..24], [0, 0, 0, 3, 0, 0, 0, 2]);
        let expected = [&[0][..], pixels[..3].as_flattened(), &[0], pixels[3..].as_flattened()].concat();
        assert_eq!(body, expected);
    }
}
