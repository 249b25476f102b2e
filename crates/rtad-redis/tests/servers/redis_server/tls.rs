//! TLS: certificates are verified against the configured CA.

use std::fs;
use std::path::{Path, PathBuf};

use rtad_redis::{RedisConfig, RedisError, RedisWindow, Seen};
use tempfile::TempDir;
use testkit::port::free_port;
use testkit::tls::Authority;

use crate::redis_server::server::Server;
use crate::redis_server::{HOUR, all, config, keys};

/// A certificate authority with its files.
struct Files {
    authority: Authority,
    folder: TempDir,
}

impl Files {
    fn new(name: &str) -> Self {
        let (authority, folder) = (Authority::new(name), tempfile::tempdir().unwrap());
        fs::write(folder.path().join("ca.pem"), &authority.pem).unwrap();
        Self { authority, folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts Redis with a certificate for this host; returns its TLS port too.
    fn server(&self, host: &str) -> (Server, u16) {
        let (certificate, key) = self.authority.certificate(host, 2100);
        let files = [
            self.file("server.pem"),
            self.file("server.key"),
            self.file("ca.pem"),
        ];
        fs::write(&files[0], certificate.pem()).unwrap();
        fs::write(&files[1], key.serialize_pem()).unwrap();
        let [certificate, key, ca] = files.each_ref().map(|path| path.to_str().unwrap());
        let port = free_port();
        let tls_port = port.to_string();
        let server = Server::redis(&[
            "--tls-port",
            &tls_port,
            "--tls-cert-file",
            certificate,
            "--tls-key-file",
            key,
            "--tls-ca-cert-file",
            ca,
            "--tls-auth-clients",
            "no",
            "--requirepass",
            "secret",
        ]);
        (server, port)
    }
}

fn window(url: &str, ca: &Path) -> RedisWindow {
    let mut config = config(url);
    config.ca_file = Some(ca.to_owned());
    RedisWindow::connect(&config).unwrap()
}

#[tokio::test]
async fn server_with_a_certificate_of_the_ca_is_used() {
    let ours = Files::new("ours");
    let (mut server, port) = ours.server("127.0.0.1");
    let url = format!("rediss://:secret@127.0.0.1:{port}");
    let window = window(&url, &ours.file("ca.pem"));
    all(
        &window.observe(&keys(1, 1000), HOUR, 1).await.unwrap(),
        Seen::New,
    );
    all(
        &window.observe(&keys(1, 1000), HOUR, 2).await.unwrap(),
        Seen::Duplicate,
    );
    server.kill();
    server.start_again();
    all(
        &window.observe(&keys(1, 1000), HOUR, 3).await.unwrap(),
        Seen::New,
    );
}

#[tokio::test]
async fn other_certificates_are_rejected() {
    let (ours, other) = (Files::new("ours"), Files::new("other"));
    let (_server, port) = ours.server("127.0.0.1");
    let (_named, named_port) = ours.server("redis.example.com");
    let system = config(&format!("rediss://:secret@127.0.0.1:{port}"));
    let rejecting = [
        (window(&system.url, &other.file("ca.pem")), "UnknownIssuer"),
        (
            window(
                &format!("rediss://:secret@127.0.0.1:{named_port}"),
                &ours.file("ca.pem"),
            ),
            "not valid for name",
        ),
    ];
    for (window, words) in rejecting {
        let error = window.observe(&keys(1, 1), HOUR, 1).await.unwrap_err();
        let RedisError::Unreachable { cause, .. } = &error else {
            panic!("{error:?}")
        };
        assert!(cause.contains(words), "{cause}");
    }
    // The CAs of the system do not include ours; a system without any is a config error.
    let error = match RedisWindow::connect(&system) {
        Ok(window) => window.observe(&keys(1, 1), HOUR, 1).await.unwrap_err(),
        Err(error) => error,
    };
    assert!(
        matches!(error.cause(), "unreachable" | "config"),
        "{error:?}"
    );
}

#[tokio::test]
async fn tls_is_not_spoken_to_a_plain_port_and_the_reverse() {
    let ours = Files::new("ours");
    let (server, port) = ours.server("127.0.0.1");
    let tls = window(
        &format!("rediss://:secret@{}", server.address()),
        &ours.file("ca.pem"),
    );
    let plain = RedisWindow::connect(&config(&format!("redis://127.0.0.1:{port}")));
    for window in [tls, plain.unwrap()] {
        let error = window.observe(&keys(1, 1), HOUR, 1).await.unwrap_err();
        assert!(
            matches!(
                error,
                RedisError::Unreachable { .. } | RedisError::Timeout { .. }
            ),
            "{error:?}"
        );
    }
}

#[test]
fn unusable_ca_files_are_config_errors() {
    let ours = Files::new("ours");
    fs::write(ours.file("empty.pem"), "no certificate").unwrap();
    for (url, file) in [
        ("rediss://127.0.0.1", "missing.pem"),
        ("rediss://127.0.0.1", "empty.pem"),
        ("redis://127.0.0.1", "ca.pem"),
    ] {
        let mut config = RedisConfig::new(url, "day");
        config.ca_file = Some(ours.file(file));
        let error = RedisWindow::connect(&config).unwrap_err();
        assert!(
            matches!(error, RedisError::Config(_)),
            "{url} {file}: {error:?}"
        );
    }
}
