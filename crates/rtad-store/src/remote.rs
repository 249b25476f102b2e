//! Remote stores: S3, Google Cloud Storage, Azure Blob Storage, Alibaba OSS, Tencent COS, and any
//! HTTP server.
//!
//! Credentials come from the environment, as each vendor's tools read them (`AWS_…`, `GOOGLE_…`,
//! `AZURE_…`, `OSS_…`, `COS_…`). They are in no error and no `Debug`.
//!
//! The HTTP client differs from object_store's default in three ways:
//!
//! * redirects are refused: credentials go to no other server;
//! * the time without a byte is bounded, not the whole body: a slow link may make progress;
//! * TLS uses `ring`, so that no second TLS stack is linked.
//!
//! A request is tried three times within seconds. Later retries are up to the caller.

mod clouds;
mod environment;
mod forbid;

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{HttpClient, HttpConnector};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};
use reqwest::redirect;

pub use forbid::Uncontested;

use super::client::InspectingClient;
use super::url::BucketKind;

/// Time for connecting, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without a byte of the answer. A write's time covers the whole body of up to 16 MiB, so a
/// link needs about 0.27 MiB/s.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// A client for a bucket, or for the part below `prefix`.
pub fn bucket(
    kind: BucketKind,
    name: &str,
    prefix: &Path,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    environment::check(kind).map_err(|source| object_store::Error::Generic {
        store: "environment",
        source: source.into(),
    })?;

    let connector = Connector::default();
    let bucket: Arc<dyn ObjectStore> = match kind {
        BucketKind::S3 => {
            let builder = AmazonS3Builder::from_env().with_bucket_name(name);
            check_plain_http(&builder)?;
            Arc::new(
                builder
                    .with_retry(retries())
                    .with_http_connector(connector)
                    .build()?,
            )
        }
        BucketKind::Google => Arc::new(
            GoogleCloudStorageBuilder::from_env()
                .with_bucket_name(name)
                .with_retry(retries())
                .with_http_connector(connector)
                .build()?,
        ),
        BucketKind::Azure => Arc::new(
            MicrosoftAzureBuilder::from_env()
                .with_container_name(name)
                .with_retry(retries())
                .with_http_connector(connector)
                .build()?,
        ),
        BucketKind::Oss => Arc::new(clouds::bucket(&clouds::OSS, name, &variable)?),
        BucketKind::Cos => Arc::new(clouds::bucket(&clouds::COS, name, &variable)?),
    };

    Ok(match prefix.parts_count() {
        0 => bucket,
        _ => Arc::new(PrefixStore::new(bucket, prefix.clone())),
    })
}

/// An environment variable, unless it is not UTF-8.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Refuses an endpoint of plain HTTP unless it is allowed: the client's own error comes with the
/// first request, and names no variable.
fn check_plain_http(builder: &AmazonS3Builder) -> object_store::Result<()> {
    let allowed = builder.get_config_value(&AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
    // The endpoint of S3 alone precedes the other.
    let endpoint = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint]
        .iter()
        .find_map(|key| builder.get_config_value(key));
    let endpoint = endpoint.and_then(|endpoint| endpoint.parse::<url::Url>().ok());
    let is_plain = endpoint.is_some_and(|endpoint| endpoint.scheme() == "http");
    if !is_plain || allowed.is_some_and(|allowed| is_true(&allowed)) {
        return Ok(());
    }
    let source = "the endpoint in AWS_ENDPOINT_URL is plain HTTP, which shows the data to the \
                  network; accepted: https://, or AWS_ALLOW_HTTP=true";
    Err(object_store::Error::Generic {
        store: "S3",
        source: source.into(),
    })
}

/// Whether object_store takes the text of a variable for "true". It returns the text as it is.
fn is_true(text: &str) -> bool {
    ["1", "true", "on", "yes", "y"]
        .iter()
        .any(|word| text.eq_ignore_ascii_case(word))
}

/// A client for the files below a URL.
pub fn http(url: &url::Url) -> object_store::Result<Arc<dyn ObjectStore>> {
    let options = ClientOptions::new().with_allow_http(url.scheme() == "http");
    let builder = HttpBuilder::new()
        .with_url(url.as_str())
        .with_retry(retries());
    Ok(Arc::new(
        builder
            .with_client_options(options)
            .with_http_connector(Connector::default())
            .build()?,
    ))
}

fn retries() -> RetryConfig {
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_secs(1),
        ..BackoffConfig::default()
    };
    RetryConfig {
        backoff,
        max_retries: 2,
        retry_timeout: Duration::from_secs(10),
    }
}

/// Creates clients that follow no redirect.
#[derive(Debug, Default)]
struct Connector {
    /// A name of this machine that its resolver may not know.
    loopback: Option<String>,
}

impl HttpConnector for Connector {
    /// Honors two options: plain HTTP, and a shorter connect time-out, which object_store sets for
    /// the clouds' metadata services.
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let option = |key| options.get_config_value(&key);
        let plain = option(ClientConfigKey::AllowHttp).is_some_and(|allowed| is_true(&allowed));
        let connect_timeout = option(ClientConfigKey::ConnectTimeout)
            .and_then(|text| humantime::parse_duration(&text).ok())
            .map_or(CONNECT_TIMEOUT, |wanted| wanted.min(CONNECT_TIMEOUT));
        let failed = |source: reqwest::Error| object_store::Error::Generic {
            store: "HTTP client",
            source: source.into(),
        };

        // Fails if a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = || {
            let builder = match &self.loopback {
                Some(name) => reqwest::Client::builder().resolve(name, clouds::LOOPBACK),
                None => reqwest::Client::builder(),
            };
            builder
                .user_agent(concat!("rtad/", env!("CARGO_PKG_VERSION")))
                .http1_only()
                .https_only(!plain)
                .connect_timeout(connect_timeout)
                .read_timeout(IDLE_TIMEOUT)
                .redirect(redirect::Policy::custom(refuse_redirect))
        };

        match client().build() {
            Ok(client) => Ok(HttpClient::new(InspectingClient(client))),
            // An image without CA certificates: plain HTTP works without TLS.
            Err(_) if plain => Ok(HttpClient::new(InspectingClient(
                client().tls_certs_only([]).build().map_err(failed)?,
            ))),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Names the target without its query, which may be a credential.
fn refuse_redirect(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let mut to = attempt.url().clone();
    to.set_query(None);
    attempt.error(Redirected { to })
}

/// A redirect, which is not followed.
#[derive(Debug, thiserror::Error)]
#[error("redirects to {to}, expected no redirect")]
struct Redirected {
    to: url::Url,
}
