//! Flags of the ports, which override the config file.

use clap::Args;
use rtad::config::Flags;

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
