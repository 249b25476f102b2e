//! Operations on the devices of an audience.

use strum::VariantArray as _;

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Op {
    Add,
    Remove,
    /// Adds those that are not members, and returns which were added.
    AddIfAbsent,
    /// Keeps them out of all appends and builds.
    Tombstone,
    /// Removes their tombstones.
    Lift,
}

impl Op {
    pub const ALL: [Self; 5] = *Self::VARIANTS.as_array().expect("every variant");

    /// Name in requests and metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    pub const fn adds(self) -> bool {
        matches!(self, Self::Add | Self::AddIfAbsent)
    }

    pub const fn is_about_tombstones(self) -> bool {
        matches!(self, Self::Tombstone | Self::Lift)
    }
}
