//! Operations on the devices of an audience.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    pub const ALL: [Self; 5] = [
        Self::Add,
        Self::Remove,
        Self::AddIfAbsent,
        Self::Tombstone,
        Self::Lift,
    ];

    /// Name in requests and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Remove => "remove",
            Self::AddIfAbsent => "add_if_absent",
            Self::Tombstone => "tombstone",
            Self::Lift => "lift",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.as_str() == word)
    }

    pub const fn adds(self) -> bool {
        matches!(self, Self::Add | Self::AddIfAbsent)
    }

    pub const fn is_about_tombstones(self) -> bool {
        matches!(self, Self::Tombstone | Self::Lift)
    }
}
