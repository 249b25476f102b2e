//! A picture: coloured rectangles and words on a canvas, written as PNG.
//!
//! Does *not* know what it shows.

mod font;
mod png;
mod scale;

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

pub(crate) use scale::{Ticks, sequential};

/// Red, green, blue.
pub(crate) type Colour = [u8; 3];

/// Where a word stands by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Centre,
    Right,
}

/// Pixels, the first in the upper left corner.
#[derive(Debug)]
pub(crate) struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<Colour>,
}

impl Canvas {
    pub(crate) fn new(width: usize, height: usize, background: Colour) -> Self {
        Self { width, height, pixels: vec![background; width * height] }
    }

    /// Fills a rectangle, as far as it is on the canvas.
    pub(crate) fn rectangle(
        &mut self,
        (x, y): (usize, usize),
        (width, height): (usize, usize),
        colour: Colour,
    ) {
        let columns = x.min(self.width)..(x + width).min(self.width);
        for y in y.min(self.height)..(y + height).min(self.height) {
            self.pixels[y * self.width..][columns.clone()].fill(colour);
        }
    }

    /// Writes words: dots of `size` pixels, 6 dots a letter, the line at `y + 7 · size`. Corners are rounded.
    pub(crate) fn words(
        &mut self,
        text: &str,
        (x, y): (usize, usize),
        size: usize,
        colour: Colour,
        align: Align,
    ) {
        let width = Self::width(text, size);
        let start = match align {
            Align::Left => x,
            Align::Centre => x.saturating_sub(width / 2),
            Align::Right => x.saturating_sub(width),
        };
        for (index, letter) in text.chars().enumerate() {
            self.letter(letter, start + index * 6 * size, size, |dx, dy| (dx, y + dy), colour);
        }
    }

    /// The same from below upwards, centred on `y`.
    pub(crate) fn words_upwards(&mut self, text: &str, (x, y): (usize, usize), size: usize, colour: Colour) {
        let end = y + Self::width(text, size) / 2;
        for (index, letter) in text.chars().enumerate() {
            self.letter(letter, index * 6 * size, size, |dx, dy| (x + dy, end.saturating_sub(dx)), colour);
        }
    }

    /// How wide words are, in pixels.
    pub(crate) fn width(text: &str, size: usize) -> usize {
        (text.chars().count() * 6 * size).saturating_sub(size)
    }

    /// Draws a letter `from` pixels along its line; `place` says where a pixel of the line goes.
    fn letter(
        &mut self,
        letter: char,
        from: usize,
        size: usize,
        place: impl Fn(usize, usize) -> (usize, usize),
        colour: Colour,
    ) {
        let rows = font::glyph(letter);
        let dot = |column: i32, row: i32| match (usize::try_from(column), usize::try_from(row)) {
            (Ok(column), Ok(row)) if column < font::COLUMNS && row < font::ROWS => {
                f32::from(rows[row] >> (font::COLUMNS - 1 - column) & 1)
            }
            _ => 0.0,
        };
        // A pixel is covered as its place between four dots says: straight lines stay sharp, steps become slopes.
        for dy in 0..(font::ROWS + 1) * size {
            for dx in 0..(font::COLUMNS + 1) * size {
                let at = |pixel: usize| (pixel as f32 + 0.5) / size as f32 - 0.5;
                let (column, row) = (at(dx), at(dy));
                let (left, top) = (column.floor(), row.floor());
                let (right, below) = (column - left, row - top);
                let (left, top) = (left as i32, top as i32);
                let mix = |a: f32, b: f32, part: f32| a + (b - a) * part;
                let upper = mix(dot(left, top), dot(left + 1, top), right);
                let lower = mix(dot(left, top + 1), dot(left + 1, top + 1), right);
                let covered = ((mix(upper, lower, below) - 0.5) * 3.0 + 0.5).clamp(0.0, 1.0);
                if covered > 0.0 {
                    let (x, y) = place(from + dx, dy);
                    self.blend(x, y, colour, covered);
                }
            }
        }
    }

    fn blend(&mut self, x: usize, y: usize, colour: Colour, covered: f32) {
        if x < self.width && y < self.height {
            let pixel = &mut self.pixels[y * self.width + x];
            for (held, new) in pixel.iter_mut().zip(colour) {
                *held = (f32::from(*held) + (f32::from(new) - f32::from(*held)) * covered).round() as u8;
            }
        }
    }

    /// Writes the picture.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        png::write(BufWriter::new(File::create(path)?), self.width, &self.pixels)
    }
}
