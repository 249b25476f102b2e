//! Commands for one key, and which of them may be repeated.

use redis::Pipeline;

/// Commands for one key.
pub enum KeyCommand {
    /// `SET key token NX PX millis`, `GET key`.
    Observe { token: String, millis: u64 },
    /// `EXISTS key`.
    Exists,
    /// `DEL key`.
    Delete,
    /// `SET key 1 PX 1000`.
    Probe,
    /// `HINCRBY key field units` for each field, in their order, and `EXPIRE key seconds`.
    Lease {
        fields: Vec<String>,
        units: i64,
        seconds: u64,
    },
}

impl KeyCommand {
    /// Number of answers for each key.
    pub fn answers(&self) -> usize {
        match self {
            Self::Observe { .. } => 2,
            Self::Lease { fields, .. } => fields.len() + 1,
            Self::Exists | Self::Delete | Self::Probe => 1,
        }
    }

    /// Whether a repetition of commands that were executed does no harm. Units that are leased
    /// twice are wasted, and units that are given back twice would be leased twice.
    pub fn may_repeat(&self) -> bool {
        !matches!(self, Self::Lease { units, .. } if *units != 0)
    }

    /// Adds the commands for a key, each after `ASKING` while its slot moves to the node.
    pub fn append(&self, pipeline: &mut Pipeline, name: &[u8], asking: bool) {
        match self {
            Self::Observe { token, millis } => {
                let set = keyed(pipeline, "SET", name, asking).arg(token);
                set.arg("NX").arg("PX").arg(*millis);
                keyed(pipeline, "GET", name, asking);
            }
            Self::Exists => drop(keyed(pipeline, "EXISTS", name, asking)),
            Self::Delete => drop(keyed(pipeline, "DEL", name, asking)),
            Self::Probe => {
                keyed(pipeline, "SET", name, asking)
                    .arg("1")
                    .arg("PX")
                    .arg(1000);
            }
            Self::Lease {
                fields,
                units,
                seconds,
            } => {
                for field in fields {
                    keyed(pipeline, "HINCRBY", name, asking)
                        .arg(field)
                        .arg(*units);
                }
                keyed(pipeline, "EXPIRE", name, asking).arg(*seconds);
            }
        }
    }
}

fn keyed<'p>(
    pipeline: &'p mut Pipeline,
    command: &str,
    name: &[u8],
    asking: bool,
) -> &'p mut Pipeline {
    if asking {
        pipeline.cmd("ASKING");
    }
    pipeline.cmd(command).arg(name)
}
