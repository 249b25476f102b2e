//! One connection to a server: TCP, TLS, authentication, and pipelined requests.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Pipeline, RedisConnectionInfo, Value};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::config::{Address, Target};
use crate::error::RedisError;

/// Interval between probes of an idle connection.
const KEEPALIVE: Duration = Duration::from_secs(30);

trait Stream: AsyncRead + AsyncWrite + Send {}
impl<S: AsyncRead + AsyncWrite + Send> Stream for S {}

/// Opens connections with the credentials and the TLS settings of a config.
pub(crate) struct Connector {
    tls: Option<TlsConnector>,
    username: Option<String>,
    password: Option<String>,
    database: u32,
}

impl Connector {
    /// Reads the CA certificates.
    pub(crate) fn new(target: &Target, ca_file: Option<&Path>) -> Result<Self, RedisError> {
        let tls = if target.tls {
            Some(tls_connector(ca_file)?)
        } else {
            None
        };
        Ok(Self {
            tls,
            username: target.username.clone(),
            password: target.password.clone(),
            database: target.database,
        })
    }

    /// Opens a connection and authenticates. Has no limit of time.
    pub(crate) async fn open(&self, address: &Address) -> Result<Connection, RedisError> {
        let server = address.to_string();
        let failed = |error: std::io::Error| RedisError::unreachable(&server, error);
        let found = lookup_host((address.host.as_str(), address.port))
            .await
            .map_err(failed)?;
        let tcp = connect(found).await.map_err(failed)?;
        // A request is one write, which must not wait for the acknowledgment of the one before.
        tcp.set_nodelay(true).map_err(failed)?;
        // Load balancers drop idle connections without a word.
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE)
            .with_interval(KEEPALIVE);
        SockRef::from(&tcp)
            .set_tcp_keepalive(&keepalive)
            .map_err(failed)?;
        let stream: Pin<Box<dyn Stream>> = match &self.tls {
            None => Box::pin(tcp),
            Some(connector) => {
                let name = ServerName::try_from(address.host.clone())
                    .map_err(|error| RedisError::Config(format!("server {server}: {error}")))?;
                Box::pin(connector.connect(name, tcp).await.map_err(failed)?)
            }
        };
        // Callers have their own limits of time. No CLIENT SETINFO: an ACL may deny it.
        let info = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let (requests, driver) = MultiplexedConnection::new_with_config(&info, stream, config)
            .await
            .map_err(|error| RedisError::failed(&server, &error))?;
        let connection = Connection {
            requests,
            driver: tokio::spawn(driver),
        };
        self.log_in(&connection, &server).await?;
        Ok(connection)
    }

    async fn log_in(&self, connection: &Connection, server: &str) -> Result<(), RedisError> {
        let mut pipeline = Pipeline::new();
        if let Some(password) = &self.password {
            pipeline.cmd("AUTH");
            if let Some(username) = &self.username {
                pipeline.arg(username);
            }
            pipeline.arg(password);
        }
        if self.database != 0 {
            pipeline.cmd("SELECT").arg(self.database);
        }
        if pipeline.is_empty() {
            return Ok(());
        }
        let answers = connection.send(pipeline).await;
        for answer in answers.map_err(|error| RedisError::failed(server, &error))? {
            if let Value::ServerError(error) = answer {
                return Err(RedisError::answered(server, &error));
            }
        }
        Ok(())
    }
}

/// Connects to all addresses of a name at once; the first connection is used. One after the other,
/// a dead address would take the time of the living ones.
async fn connect(addresses: impl Iterator<Item = SocketAddr>) -> std::io::Result<TcpStream> {
    let attempts: Vec<_> = addresses
        .map(|address| Box::pin(TcpStream::connect(address)))
        .collect();
    if attempts.is_empty() {
        return Err(std::io::Error::other("the name has no address"));
    }
    select_ok(attempts).await.map(|(connected, _)| connected)
}

/// TLS 1.2 or 1.3 with ring, and the CA certificates of the file, or else those of the system.
fn tls_connector(ca_file: Option<&Path>) -> Result<TlsConnector, RedisError> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(file) => {
            let invalid = |what: &dyn std::fmt::Display| {
                RedisError::Config(format!("ca_file {}: {what}", file.display()))
            };
            let pem = fs::read(file).map_err(|error| invalid(&error))?;
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                let certificate = certificate.map_err(|error| invalid(&error))?;
                roots.add(certificate).map_err(|error| invalid(&error))?;
            }
            if roots.is_empty() {
                return Err(invalid(&"expected a PEM certificate, found none"));
            }
        }
        None => {
            // One unreadable certificate of the system does not matter.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(RedisError::Config(
                    "rediss://: the system has no CA certificates: set ca_file".to_owned(),
                ));
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| RedisError::Config(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// A connection that carries concurrent requests. Closed on drop, with requests in flight.
pub(crate) struct Connection {
    requests: MultiplexedConnection,
    driver: JoinHandle<()>,
}

impl Connection {
    /// Sends commands in one write; returns an answer for each, which may be an error.
    pub(crate) async fn send(&self, mut pipeline: Pipeline) -> redis::RedisResult<Vec<Value>> {
        pipeline
            .ignore_errors()
            .query_async(&mut self.requests.clone())
            .await
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The driver would otherwise wait for answers of a server that hangs.
        self.driver.abort();
    }
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, Socket, Type};

    use super::*;

    #[tokio::test]
    async fn dead_address_of_a_name_does_not_delay_the_others() {
        // Its queue is full: it drops further connections, without an answer.
        let dead = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        dead.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into())
            .unwrap();
        dead.listen(0).unwrap();
        let dead_address = dead.local_addr().unwrap().as_socket().unwrap();
        let mut queued = Vec::new();
        let limit = Duration::from_millis(200);
        while let Ok(stream) = tokio::time::timeout(limit, TcpStream::connect(dead_address)).await {
            queued.push(stream.unwrap());
        }
        let alive = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = alive.local_addr().unwrap();
        let connected = connect([dead_address, address].into_iter());
        let connected = tokio::time::timeout(Duration::from_secs(60), connected).await;
        assert_eq!(connected.unwrap().unwrap().peer_addr().unwrap(), address);
        // Nobody listens any more.
        drop((alive, dead));
        connect([dead_address, address].into_iter())
            .await
            .unwrap_err();
        connect([].into_iter()).await.unwrap_err();
    }
}
