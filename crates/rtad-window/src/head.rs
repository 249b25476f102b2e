//! Heads of segments and tables: JSON between a magic and a checksum.
//!
//! ```text
//! magic 8 bytes, version u32, length of the JSON u32, JSON, crc of all before u32
//! ```
//!
//! Every segment and every table says the shape of its window, and the secret of the hash.

use std::io::{self, Read};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::answers::AnswerLimits;
use crate::error::OpenError;
use crate::position::Secret;
use crate::spec::WindowSpec;

const VERSION: u32 = 1;
/// Bytes before the JSON.
const FIXED: usize = 16;
/// Bytes of the checksum.
const CRC: usize = 4;
const MAX_JSON: usize = 1 << 16;

/// Shape of a window, and the bounds of what is kept beside its table.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Size and precision.
    pub spec: WindowSpec,
    /// Meaning of the ticks, in the caller's words; a window of another clock is refused.
    pub clock: String,
    /// Bounds of the kept answers.
    pub answers: AnswerLimits,
}

/// The window that an object belongs to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// Random number of the window.
    pub id: u64,
    pub spec: WindowSpec,
    pub secret: Secret,
    /// Meaning of the ticks; the caller's words.
    pub clock: String,
}

impl Identity {
    /// Refuses a window of another shape.
    pub fn check(&self, object: &str, shape: &Shape) -> Result<(), OpenError> {
        // Small capacities have the same layout.
        let is_same = self.spec.layout() == shape.spec.layout()
            && self.spec.capacity == shape.spec.capacity
            && self.spec.lifetime == shape.spec.lifetime
            && self.clock == shape.clock;
        if is_same {
            return Ok(());
        }
        Err(OpenError::Other {
            object: object.to_owned(),
            expected: describe(&shape.spec, &shape.clock),
            found: describe(&self.spec, &self.clock),
        })
    }
}

fn describe(spec: &WindowSpec, clock: &str) -> String {
    format!(
        "{clock}, capacity {}, {:?} slots",
        spec.capacity,
        spec.format()
    )
    .to_lowercase()
}

/// Appends a head.
pub fn encode(magic: [u8; 8], head: &impl Serialize, into: &mut Vec<u8>) {
    let start = into.len();
    let json = serde_json::to_vec(head).expect("a head is JSON");
    into.extend_from_slice(&magic);
    into.extend_from_slice(&VERSION.to_le_bytes());
    into.extend_from_slice(&(json.len() as u32).to_le_bytes());
    into.extend_from_slice(&json);
    let crc = crc32fast::hash(&into[start..]);
    into.extend_from_slice(&crc.to_le_bytes());
}

/// Takes a head off its object; the error is the fault.
pub fn decode<T: DeserializeOwned>(magic: [u8; 8], bytes: &mut &[u8]) -> Result<T, &'static str> {
    read(magic, bytes).map_err(|error| match error {
        HeadError::Read(_) => "a head that is cut",
        HeadError::Damaged(what) => what,
    })
}

/// A head that cannot be read.
pub enum HeadError {
    Read(io::Error),
    Damaged(&'static str),
}

/// Reads a head.
pub fn read<T: DeserializeOwned>(magic: [u8; 8], from: &mut impl Read) -> Result<T, HeadError> {
    let mut bytes = vec![0; FIXED];
    from.read_exact(&mut bytes).map_err(HeadError::Read)?;
    if bytes[..8] != magic {
        return Err(HeadError::Damaged("another kind of object"));
    }
    if bytes[8..12] != VERSION.to_le_bytes() {
        return Err(HeadError::Damaged(
            "a version of the format that this program does not know",
        ));
    }

    let length = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]) as usize;
    if length > MAX_JSON {
        return Err(HeadError::Damaged("a head of more than 64 KiB"));
    }
    let end = FIXED + length;
    bytes.resize(end + CRC, 0);
    from.read_exact(&mut bytes[FIXED..])
        .map_err(HeadError::Read)?;

    if crc32fast::hash(&bytes[..end]).to_le_bytes() != bytes[end..] {
        return Err(HeadError::Damaged("a head with a wrong checksum"));
    }
    serde_json::from_slice(&bytes[FIXED..end])
        .map_err(|_| HeadError::Damaged("a head with unknown content"))
}
