//! TLS: a store with an invalid certificate is rejected, the old generation is served, and the new
//! one after the certificate is fixed. The valid one is from a private CA in the config.

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use testkit::server::Request;
use testkit::tls::Authority;

use super::*;
use crate::pod::Pod;

/// A server config with a certificate for `host`, valid until the end of `year`.
fn server_config(authority: &Authority, host: &str, year: i32) -> Arc<ServerConfig> {
    let (certificate, key) = authority.certificate(host, year);
    let private = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = config
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private);
    Arc::new(config.unwrap())
}

/// A directory served over TLS. Its threads end with the test process.
struct Behind {
    address: SocketAddr,
    shown: Arc<Mutex<Arc<ServerConfig>>>,
}

impl Behind {
    fn serve(root: &Path, config: Arc<ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shown = Arc::new(Mutex::new(config));
        let (root, configs): (PathBuf, _) = (root.to_owned(), Arc::clone(&shown));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (root, config) = (root.clone(), Arc::clone(&configs.lock().unwrap()));
                // A client that rejects the certificate ends only its thread.
                std::thread::spawn(move || drop(answer(stream, &root, config)));
            }
        });
        Self { address, shown }
    }

    fn show(&self, config: &Arc<ServerConfig>) {
        *self.shown.lock().unwrap() = Arc::clone(config);
    }
}

/// Answers one request per connection, so that the next one gets the current certificate.
fn answer(stream: TcpStream, root: &Path, config: Arc<ServerConfig>) -> std::io::Result<()> {
    let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut reader = BufReader::new(StreamOwned::new(connection, stream));
    let Some(request) = Request::read(&mut reader) else {
        return Ok(());
    };
    let (head, body) = request.answer(root);
    let stream = reader.get_mut();
    stream.write_all(
        head.replacen("\r\n", "\r\nConnection: close\r\n", 1)
            .as_bytes(),
    )?;
    if request.method == "GET" {
        stream.write_all(&body)?;
    }
    stream.conn.send_close_notify();
    stream.flush()
}

#[test]
fn invalid_certificate_is_rejected_until_replaced() {
    const FOREVER: i32 = 2100;
    let (ours, unknown) = (Authority::new("ours"), Authority::new("unknown"));
    let good = server_config(&ours, "127.0.0.1", FOREVER);
    let depot = Depot::new();
    let sets = [1, 2].map(members);
    depot.publish(AUDIENCE, &sets[0], &Spec::small());
    let store = Behind::serve(&depot.root, Arc::clone(&good));
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("ca.pem");
    std::fs::write(&bundle, &ours.pem).unwrap();
    let url = format!("https://{}", store.address);
    let trusting = format!("SSL_CERT_FILE={:?}; export SSL_CERT_FILE;", bundle);
    let mut pod = Pod::start(&url, folder.path(), "", &trusting);
    assert_eq!(pod.generation(), 1);

    let failed = "rtad_sync_total{audience=\"old_users\",result=\"store\"}";
    let mut generation = 1;
    for (name, bad, words) in [
        (
            "expired",
            server_config(&ours, "127.0.0.1", 2001),
            "expired",
        ),
        (
            "of another host",
            server_config(&ours, "store.example.com", FOREVER),
            "not valid for name",
        ),
        (
            "of an unknown CA",
            server_config(&unknown, "127.0.0.1", FOREVER),
            "UnknownIssuer",
        ),
    ] {
        store.show(&bad);
        let before = pod.metric(failed);
        depot.publish(AUDIENCE, &sets[generation % 2], &Spec::small());
        wait_until(name, || pod.metric(failed) >= before + 2);
        let (result, error) = pod.last_sync();
        assert!(
            result == "store" && error.contains(words),
            "{name}: {result}: {error}"
        );
        assert_eq!(pod.generation(), generation as u64, "{name}");
        let members = &sets[(generation + 1) % 2];
        assert!(
            pod.connect()
                .members(AUDIENCE, members)
                .iter()
                .all(|member| *member),
            "{name}"
        );
        assert_eq!(pod.admin.get("/readyz").status, 200, "{name}");

        store.show(&good);
        generation += 1;
        wait_until("the certificate is good again", || {
            pod.generation() == generation as u64
        });
        let members = &sets[(generation + 1) % 2];
        assert!(
            pod.connect()
                .members(AUDIENCE, members)
                .iter()
                .all(|member| *member),
            "{name}"
        );
    }

    // A pod without our CA rejects it.
    drop(pod);
    let mut pod = Pod::start(&url, folder.path(), "", "");
    assert_eq!(
        (pod.generation(), pod.admin.get("/readyz").status),
        (0, 503)
    );
    assert!(pod.metric(failed) >= 1);
}
