//! Filter kinds: their names, and the block size of `block512`.

/// Bits of a block of [`FilterKind::Block512`]: one cache line.
pub const BLOCK_BITS: u32 = 512;
pub const BLOCK_BYTES: usize = 64;

/// The rule that selects a key's bits. Manifests name it, so a new kind needs no new format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FilterKind {
    /// One cache line per key: the fastest, and as fast for members as for non-members.
    Block512,
    /// A static filter near the theoretical limit: two adjacent cache lines per key. Members cannot
    /// be added to it.
    Ribbon,
}

impl FilterKind {
    /// The name in manifests, reports and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Block512 => "block512",
            Self::Ribbon => "ribbon",
        }
    }
}

impl std::str::FromStr for FilterKind {
    type Err = ParseFilterKindError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "block512" => Ok(Self::Block512),
            "ribbon" => Ok(Self::Ribbon),
            _ => Err(ParseFilterKindError),
        }
    }
}

/// An unknown name of a filter kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown filter kind; the kinds are block512, ribbon")]
#[non_exhaustive]
pub struct ParseFilterKindError;
