//! The config file, and the flags that override it.

use std::path::Path;

use clap::Args;
use rtad::config::Flags;
use rtad::offline;
use rtad::serve::Assembly;

use super::failure::CommandFailure;

/// Flags of both serving commands.
#[derive(Args)]
pub struct Ports {
    /// Decision port [default: 127.0.0.1:8080] [env: RTAD_LISTEN]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Admin port [default: 127.0.0.1:9090] [env: RTAD_ADMIN_LISTEN]
    #[arg(long, value_name = "ADDR")]
    admin_listen: Option<String>,
}

impl Ports {
    pub fn flags(&self) -> Flags {
        let given = [
            ("server.listen", &self.listen),
            ("server.admin_listen", &self.admin_listen),
        ];
        given
            .into_iter()
            .filter_map(|(key, value)| Some((key, value.clone()?)))
            .collect()
    }
}

/// Reads the config and builds its platforms: flags over environment over file over defaults.
pub fn read_config(file: &Path, flags: &Flags) -> Result<Assembly, CommandFailure> {
    Ok(offline::read_config(file, flags)?)
}
