//! `rtad doctor`: a support bundle of a pod, without secrets or device ids.

use std::error::Error;
use std::fmt::{self, Display, Formatter, Write as _};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use bytesize::ByteSize;
use clap::Args;
use http::header::HOST;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::handshake;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rtad::config::ServerConfig;
use rtad_core::error_chain::error_chain;
use rtad_core::headroom::Headroom;
use rustix::process::{Resource, getrlimit};
use tokio::net::TcpStream;

use super::config::read_config;
use super::failure::CommandFailure;

const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Args)]
pub struct Doctor {
    /// The config file of the pod
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Admin port of the pod [default: that of the config, or 127.0.0.1:9090 if it cannot be read]
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
}

/// Prints all parts, those that could not be had with the reason.
pub fn run(arguments: &Doctor) -> Result<(), CommandFailure> {
    let mut bundle = format!(
        "# rtad doctor, {}\n",
        humantime::format_rfc3339_seconds(SystemTime::now())
    );
    let mut missing = Vec::new();
    let _ = write!(bundle, "\n## Versions and limits\n\n{}", Machine);
    let config = read_config(arguments.config.as_ref(), &Vec::new()).map(|it| it.config);
    let title = "Config, with defaults and without secrets";
    match &config {
        Ok(config) => section(&mut bundle, title, "toml", &config.to_toml()),
        Err(mistakes) => {
            missing.push("the config");
            section(&mut bundle, title, "text", &error_chain(mistakes));
        }
    }
    let server = config.map_or_else(|_| ServerConfig::default(), |config| config.server);
    let address = arguments.admin.unwrap_or_else(|| admin_address(&server));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    for (title, path, part) in [
        ("Readiness", "/readyz", "the pod's readiness"),
        (
            "Status, with the last polls",
            "/v1/status",
            "the pod's status",
        ),
    ] {
        let answer = runtime.block_on(get(address, path));
        if answer.is_err() {
            missing.push(part);
        }
        let text = answer.unwrap_or_else(|error| format!("{address}{path}: {error}"));
        section(&mut bundle, title, "text", &text);
    }
    std::io::stdout().lock().write_all(bundle.as_bytes())?;
    match missing.is_empty() {
        true => Ok(()),
        false => Err(CommandFailure::Incomplete(missing.join(", "))),
    }
}

fn section(bundle: &mut String, title: &str, language: &str, text: &str) {
    let _ = writeln!(
        bundle,
        "\n## {title}\n\n```{language}\n{}\n```",
        text.trim_end()
    );
}

/// The admin port as this machine reaches it.
fn admin_address(server: &ServerConfig) -> SocketAddr {
    let mut address = server.admin_listen;
    match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

/// The body of an answer, JSON with indentation.
async fn get(address: SocketAddr, path: &str) -> Result<String, Box<dyn Error>> {
    let body = tokio::time::timeout(TIMEOUT, body_of(address, path)).await;
    let text =
        body.map_err(|_| format!("no answer in {}", humantime::format_duration(TIMEOUT)))??;
    let json = serde_json::from_str::<serde_json::Value>(&text);
    Ok(json.map_or(text, |json| format!("{json:#}")))
}

/// The body of a 200, or of a 503, with which `/readyz` says what it waits for.
async fn body_of(address: SocketAddr, path: &str) -> Result<String, Box<dyn Error>> {
    let stream = TcpStream::connect(address).await?;
    let (mut client, connection) = handshake(TokioIo::new(stream)).await?;
    let request = Request::get(path).header(HOST, address.to_string());
    let request = request.body(Empty::<Bytes>::new())?;
    let exchange = async {
        let response = client.send_request(request).await?;
        let status = response.status();
        Ok::<_, hyper::Error>((status, response.into_body().collect().await?.to_bytes()))
    };
    let (status, body) = tokio::select! {
        exchange = exchange => exchange?,
        Err(error) = connection => return Err(error.into()),
    };
    match status {
        StatusCode::OK | StatusCode::SERVICE_UNAVAILABLE => Ok(String::from_utf8(body.into())?),
        _ => Err(format!("status {status}").into()),
    }
}

/// This machine, as the process may use it.
struct Machine;

impl Display for Machine {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kernel = rustix::system::uname();
        let (system, release) = (kernel.sysname().to_string_lossy(), kernel.release());
        let (release, machine) = (
            release.to_string_lossy(),
            kernel.machine().to_string_lossy(),
        );
        let memory = rustix::system::sysinfo();
        let bytes = |units: u64| ByteSize(units * u64::from(memory.mem_unit)).to_string();
        let cgroup = Headroom::default().available_bytes();
        let cgroup = cgroup.map_or("no limit".to_owned(), |left| {
            format!("{} left", ByteSize(left))
        });
        let cpus = std::thread::available_parallelism();
        let cpus = cpus.map_or("unknown".to_owned(), |cpus| cpus.to_string());
        let pages = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        let files = getrlimit(Resource::Nofile);
        let limit = |limit: Option<u64>| limit.map_or("no limit".to_owned(), |it| it.to_string());
        for (name, value) in [
            ("rtad", env!("CARGO_PKG_VERSION").to_owned()),
            ("system", format!("{system} {release}, {machine}")),
            ("CPUs of the cgroup", cpus),
            (
                "memory",
                format!(
                    "{}, {} unused",
                    bytes(memory.totalram),
                    bytes(memory.freeram)
                ),
            ),
            ("memory of the cgroup", cgroup),
            (
                "open files",
                format!("{}, at most {}", limit(files.current), limit(files.maximum)),
            ),
            (
                "transparent huge pages",
                pages.map_or("unknown".to_owned(), |it| it.trim().into()),
            ),
            ("variables", variables()),
        ] {
            writeln!(f, "- {name}: {value}")?;
        }
        Ok(())
    }
}

/// Names of rtad's environment variables: a value may be a secret.
fn variables() -> String {
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let mut names: Vec<_> = names.filter(|name| name.starts_with("RTAD_")).collect();
    names.sort_unstable();
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}
