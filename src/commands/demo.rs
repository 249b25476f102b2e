//! `rtad demo`: publishes synthetic devices, and serves them as `rtad serve` does.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use prost::Message as _;
use rtad::offline::OfflineError;
use rtad::platform::tencent;
use rtad::serve::Assembly;
use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_core::device::{DeviceKey, IdKind};
use rtad_core::filter::{FilterKind, FilterSpec, SizingError};
use rtad_core::snapshot::{AudienceName, GenerationFacts};
use rtad_core::synth::Synth;
use rtad_http::signals::Signals;
use rtad_store::StoreError;
use rtad_store::write::StoreWriter;

use super::ports::Ports;
use super::process;

const AUDIENCE: &str = "old_users";
const TARGET_FPR: f64 = 1e-4;
const SEED: u64 = 0;
const TOOL: &str = concat!("rtad ", env!("CARGO_PKG_VERSION"), " demo");
/// The config, without the store.
const CONFIG: &str = r#"
[server.api]
public = true

[[audience]]
name = "old_users"

[[strategy]]
name = "new-users"
exclude = ["old_users"]

[[platform]]
kind = "tencent"
name = "tencent"
path = "/rta/tencent"
strategies = { "new-users" = "new-users" }
"#;

#[derive(Args)]
pub struct Demo {
    /// Number of synthetic devices in the audience
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u64).range(1..=100_000_000)
    )]
    devices: u64,
    /// Directory of the published snapshot
    #[arg(long, value_name = "DIR", default_value = "demo")]
    dir: PathBuf,
    #[command(flatten)]
    ports: Ports,
}

/// An error while preparing the demo.
#[derive(Debug, thiserror::Error)]
enum DemoError {
    #[error("could not create the demo directory {}", dir.display())]
    Directory {
        dir: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Sizing(#[from] SizingError),
}

impl CommandFailure for DemoError {
    fn exit(&self) -> ExitStatus {
        ExitStatus::Unexpected
    }
}

pub async fn demo(arguments: Demo) -> Result<(), CommandError> {
    let Demo {
        devices,
        dir,
        ports,
    } = arguments;

    let url = dir.display().to_string();
    std::fs::create_dir_all(&dir).map_err(|source| DemoError::Directory { dir, source })?;
    let writer = StoreWriter::open(&url).map_err(DemoError::Store)?;
    publish(&writer, devices).await?;

    let mut flags = ports.flags();
    flags.push(("store.url", url));
    let assembly = Assembly::read(
        Some(("demo", CONFIG)),
        |name| std::env::var(name).ok(),
        &flags,
    )
    .map_err(OfflineError::from)?;
    let unchanged = assembly.clone();

    let mut signals = Signals::listen().map_err(CommandError::runtime)?;
    let reread = Box::new(move || Ok(unchanged.clone()));
    let Some(running) = process::start(&mut signals, assembly, reread).await? else {
        return Ok(());
    };

    let synth = Synth::new(IdKind::Idfa, SEED);
    let catalog = running.serving().load_full();
    let snapshot = catalog
        .audience(AUDIENCE)
        .and_then(|audience| audience.available());
    // The first further device that is not a false positive.
    let new_user_key = (devices..)
        .map(|index| key_of(&synth, index))
        .find(|key| snapshot.is_none_or(|snapshot| !snapshot.contains(key)))
        .expect("no filter contains every key");
    drop(catalog);

    let decisions = running.decision_address;
    let admin = running.admin_address;
    let member = const_hex::encode(key_of(&synth, 0).as_bytes());
    let new_user = const_hex::encode(new_user_key.as_bytes());
    let rejected = tencent_request(&member);
    let accepted = tencent_request(&new_user);
    let raw = synth.id(1);
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(
        stdout,
        "\n{devices} synthetic devices are served as audience {AUDIENCE}. Paste:\n\n\
         # an old user, by the md5 of its IDFA\n\
         curl http://{decisions}/v1/check/{AUDIENCE}/{member}\n\n\
         # a new user\n\
         curl http://{decisions}/v1/check/{AUDIENCE}/{new_user}\n\n\
         # a decision: bid for this device?\n\
         curl http://{decisions}/v1/decide -d '{{\"request_id\":\"r1\",\
         \"strategies\":[\"new-users\"],\"device\":{{\"idfa\":\"{raw}\"}}}}'\n\n\
         # the same from Tencent Ads, protobuf in and out: code 1 rejects the old user\n\
         printf '{rejected}' | curl -s http://{decisions}/rta/tencent --data-binary @- \
         | od -An -tx1\n\n\
         # code 0 accepts the new user for the strategy new-users\n\
         printf '{accepted}' | curl -s http://{decisions}/rta/tencent --data-binary @- \
         | od -An -tx1\n\n\
         # the reason: every id, audience and decision\n\
         printf '{rejected}' | curl -s http://{admin}/v1/explain/tencent --data-binary @-\n\n\
         # status and metrics\n\
         curl http://{admin}/v1/status\n\
         curl http://{admin}/metrics\n\n\
         # the console, to open in a browser\n\
         http://{admin}/\n\n\
         Stop with Ctrl-C."
    );
    let _ = stdout.flush();
    drop(stdout);

    process::serve_until_stopped(&mut signals, running).await;
    Ok(())
}

fn name() -> AudienceName {
    AUDIENCE.parse().expect("a valid name")
}

/// The key of a synthetic device.
fn key_of(synth: &Synth, index: u64) -> DeviceKey {
    DeviceKey::of_canonical(synth.id(index).as_bytes())
}

/// A request of Tencent for the device with this IDFA, for `printf`: POSIX has octal escapes only.
fn tencent_request(idfa_md5: &str) -> String {
    let device = tencent::Device {
        idfa_md5sum: Some(idfa_md5.to_owned().into()),
        ..Default::default()
    };
    let request = tencent::RtaRequest {
        id: Some("r1".into()),
        device: Some(device),
        ..Default::default()
    };

    let mut escaped = String::new();
    for byte in request.encode_to_vec() {
        if byte.is_ascii_alphanumeric() {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("\\{byte:03o}"));
        }
    }
    escaped
}

/// Publishes the audience, unless the directory already has one of the same size.
async fn publish(writer: &StoreWriter, devices: u64) -> Result<(), DemoError> {
    let base = writer.base(&name()).await?;
    if let Some(current) = base.current()
        && writer
            .store()
            .manifest(&name(), &current.live_entry())
            .await?
            .keys()
            == devices
    {
        return Ok(());
    }
    let synth = Synth::new(IdKind::Idfa, SEED);
    let keys = (0..devices)
        .map(|index| DeviceKey::of_canonical(synth.id(index).as_bytes()))
        .collect();
    let filter = FilterSpec::for_fpr(FilterKind::Block512, TARGET_FPR)?;
    let mut facts = GenerationFacts::built_now_by(TOOL);
    facts.build.rows = devices;

    let publication = writer.publish(base).await?;
    publication
        .commit_keys(keys, filter, TARGET_FPR, facts)
        .await?;
    Ok(())
}
