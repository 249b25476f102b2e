//! Image of a table: what the store has under `tables/`.
//!
//! ```text
//! head (see `head`), then for each region: tick u64, swept u64, bytes u32, crc u32, zstd frame;
//! then parts: bytes u32, crc u32, frames of kept answers; a part of no bytes is the last
//! ```
//!
//! The image is not of one moment: it is taken region by region beside traffic. Image n holds at
//! least the changes before segment n; segments n, n + 1, … complete it.

use std::io::{self, Read};

use serde::{Deserialize, Serialize};

use crate::answers::Answers;
use crate::error::OpenError;
use crate::head::{self, HeadError, Identity, Shape};
use crate::log::{Frame, take_frame};
use crate::table::RegionClock;
use crate::window::Window;

const MAGIC: [u8; 8] = *b"RTADWTAB";
const REGION_HEADER: usize = 24;
const PART_HEADER: usize = 8;
/// Largest part: a damaged length asks for no more memory.
const MAX_PART: u32 = 256 << 20;
/// Fingerprints do not compress; empty slots and ticks do. Level 1 finds both.
const LEVEL: i32 = 1;

/// Head of an image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TableHead {
    /// First segment to replay.
    pub number: u64,
    /// Owner that made the image, and the segment before that one.
    pub owner: u64,
    /// Number of the first group to replay.
    pub first_group: u64,
    /// Tick when the image began.
    pub tick: u64,
    /// Number of regions.
    pub regions: u64,
    pub window: Identity,
}

/// A piece of an image, in their order.
#[derive(Debug)]
pub enum Piece {
    Head(TableHead),
    Region(RegionClock, Vec<u8>),
    /// Frames of kept answers.
    Answers(Vec<u8>),
    /// Every change in the image is in a created segment.
    End,
}

impl Piece {
    /// Bytes of the piece in the object.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match self {
            Self::Head(head) => head::encode(MAGIC, head, &mut bytes),
            Self::Region(clock, copy) => {
                let packed = zstd::bulk::compress(copy, LEVEL)?;
                bytes.reserve(REGION_HEADER + packed.len());
                bytes.extend_from_slice(&clock.tick.to_le_bytes());
                bytes.extend_from_slice(&clock.swept.to_le_bytes());
                add_checked(&packed, bytes.len(), &mut bytes);
            }
            Self::Answers(frames) => add_checked(frames, 0, &mut bytes),
            Self::End => add_checked(&[], 0, &mut bytes),
        }
        Ok(bytes)
    }
}

/// Appends the length and the checksum of a content, and the content. The checksum is also that of
/// the last `header_bytes` bytes before.
fn add_checked(content: &[u8], header_bytes: usize, into: &mut Vec<u8>) {
    let start = into.len() - header_bytes;
    into.extend_from_slice(&(content.len() as u32).to_le_bytes());
    let crc = crc_of(&into[start..], content);
    into.extend_from_slice(&crc.to_le_bytes());
    into.extend_from_slice(content);
}

fn crc_of(header: &[u8], content: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(header);
    crc.update(content);
    crc.finalize()
}

/// An image that is read.
pub struct Image {
    pub head: TableHead,
    pub window: Window,
    pub answers: Answers,
}

/// Reads an image to its end.
pub fn read(shape: &Shape, mut from: impl Read) -> Result<Image, OpenError> {
    let head: TableHead = head::read(MAGIC, &mut from).map_err(|error| match error {
        HeadError::Read(source) => OpenError::Read {
            object: "table".to_owned(),
            source,
        },
        HeadError::Damaged(what) => OpenError::damaged("table", what),
    })?;
    let object = format!("table {}", head.number);
    head.window.check(&object, shape)?;

    let mut reader = Reader { object, from };
    let mut window = Window::with_secret(shape.spec, head.tick, head.window.secret)?;
    if head.regions != window.regions() as u64 {
        return Err(reader.damaged("a number of regions that does not fit the spec"));
    }
    for region in 0..window.regions() {
        reader.read_region(region, &mut window)?;
    }

    let mut answers = Answers::new(shape.answers);
    reader.read_answers(window.lanes(), &mut answers)?;
    Ok(Image {
        head,
        window,
        answers,
    })
}

struct Reader<R> {
    object: String,
    from: R,
}

impl<R: Read> Reader<R> {
    fn damaged(&self, what: &'static str) -> OpenError {
        OpenError::damaged(&self.object, what)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), OpenError> {
        let read = self.from.read_exact(bytes);
        read.map_err(|source| OpenError::Read {
            object: self.object.clone(),
            source,
        })
    }

    fn read_region(&mut self, region: usize, window: &mut Window) -> Result<(), OpenError> {
        let bound = window.region_bytes();
        let mut header = [0; REGION_HEADER];
        self.fill(&mut header)?;
        let bytes = u32_at(&header, 16) as usize;
        if bytes > zstd::zstd_safe::compress_bound(bound) {
            return Err(self.damaged("a region of impossible size"));
        }
        let mut packed = vec![0; bytes];
        self.fill(&mut packed)?;
        if u32_at(&header, 20) != crc_of(&header[..20], &packed) {
            return Err(self.damaged("a region with a wrong checksum"));
        }

        let copy = zstd::bulk::decompress(&packed, bound)
            .map_err(|_| self.damaged("a region that does not unpack"))?;
        if copy.len() != bound {
            return Err(self.damaged("a region of wrong size"));
        }
        let clock = RegionClock {
            tick: u64_at(&header, 0),
            swept: u64_at(&header, 8),
        };
        if clock.swept > clock.tick {
            return Err(self.damaged("a region swept in the future"));
        }
        window.load_region(region, clock, &copy);
        Ok(())
    }

    fn read_answers(&mut self, lanes: usize, answers: &mut Answers) -> Result<(), OpenError> {
        loop {
            let mut header = [0; PART_HEADER];
            self.fill(&mut header)?;
            let bytes = u32_at(&header, 0);
            if bytes > MAX_PART {
                return Err(self.damaged("answers of impossible size"));
            }
            let mut frames = vec![0; bytes as usize];
            self.fill(&mut frames)?;
            if u32_at(&header, 4) != crc_of(&header[..4], &frames) {
                return Err(self.damaged("answers with a wrong checksum"));
            }
            if frames.is_empty() {
                return self.check_end();
            }

            let mut rest = frames.as_slice();
            while !rest.is_empty() {
                match take_frame(&mut rest, lanes) {
                    Some(Frame::Answered {
                        request_key,
                        answer,
                    }) => answers.insert(request_key, answer),
                    _ => return Err(self.damaged("answers with unknown content")),
                }
            }
        }
    }

    fn check_end(&mut self) -> Result<(), OpenError> {
        let mut further = Vec::new();
        let read = self.from.by_ref().take(1).read_to_end(&mut further);
        read.map_err(|source| OpenError::Read {
            object: self.object.clone(),
            source,
        })?;
        if further.is_empty() {
            Ok(())
        } else {
            Err(self.damaged("content after the end"))
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
