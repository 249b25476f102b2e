//! Signed audiences, and a new signing key without a restart.

use std::path::{Path, PathBuf};

use rtad_core::snapshot::AudienceName;
use rtad_store::{PublicKey, Store};
use testkit::sandbox::Sandbox;

use crate::process::Serve;

fn key_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/minisign")
        .join(name)
}

/// Whether the audience is signed by a public key.
fn is_signed_by(sandbox: &Sandbox, audience: &str, public_key: &str) -> bool {
    let keys = PublicKey::all_of(&std::fs::read_to_string(key_file(public_key)).unwrap()).unwrap();
    let url = sandbox.path().join("s").display().to_string();
    let store = Store::open(&url).unwrap().with_public_keys(keys);
    let name: AudienceName = audience.parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(store.live(&name)).is_ok_and(|live| {
        live.expect("it was created");
        true
    })
}

#[test]
fn replaced_signing_key_is_used_after_sighup() {
    let sandbox = Sandbox::with_store();
    let replace = |key: &str| std::fs::copy(key_file(key), sandbox.path().join("sign.key"));
    replace("a.key").unwrap();
    let keys = ["a.pub", "checked.pub"].map(|key| key_file(key).display().to_string());
    let flags = format!(
        "--sign-key {{}}/sign.key --public-key {} --public-key {}",
        keys[0], keys[1]
    );
    let serve = Serve::over(&sandbox, "{}/s", &flags);
    let mut api = serve.connect();
    api.ask("PUT", "/v1/audiences/a", "");
    assert!(is_signed_by(&sandbox, "a", "a.pub"));

    replace("checked.key").unwrap();
    serve.signal("HUP");
    serve.log("signing key reloaded", 1);
    api.ask("PUT", "/v1/audiences/b", "");
    assert!(is_signed_by(&sandbox, "b", "checked.pub") && !is_signed_by(&sandbox, "b", "a.pub"));

    sandbox.file("sign.key", "not a key");
    serve.signal("HUP");
    let refused = serve.log("signing key not reloaded; the old key stays", 1);
    assert!(
        refused["error"]
            .as_str()
            .unwrap()
            .contains("not a minisign secret key"),
        "{refused}"
    );
    api.ask("PUT", "/v1/audiences/c", "");
    assert!(is_signed_by(&sandbox, "c", "checked.pub"));
}
