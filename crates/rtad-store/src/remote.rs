//! Stores behind a network: S3, Google Cloud Storage, Azure Blob Storage, and any HTTP server.
//!
//! Credentials come from the environment, as each vendor's own tools read them (`AWS_…`, `GOOGLE_…`, `AZURE_…`), and are
//! in no error and no `Debug`.
//!
//! The HTTP client is ours, for three reasons. A redirect is followed only within the host that was configured: what
//! answers elsewhere is not the store. No time-out covers a whole body, as that would cut off a slow link however well it
//! goes on; what is bounded is the time without a byte. And the cryptography is `ring`, so that no second TLS stack comes in.
//!
//! Not done here: coming back after a failure. A request is tried three times within seconds, for what passes at once;
//! everything else is the caller's.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{HttpClient, HttpConnector};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};
use reqwest::redirect;

use super::client::Watched;
use super::url::BucketKind;

/// Until a connection stands, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Without a byte of the answer. A read asks for 1 MiB at most, and any byte of it starts the time anew. A write gets this
/// for its whole body, as its answer comes after it: 16 MiB, so a quarter of a MiB/s is enough.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_REDIRECTS: usize = 5;

/// A bucket, or the part of it below `prefix`.
pub(crate) fn bucket(
    kind: BucketKind,
    name: &str,
    prefix: &Path,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    let connector = SameHost::default();
    let bucket: Arc<dyn ObjectStore> = match kind {
        BucketKind::S3 => Arc::new(
            AmazonS3Builder::from_env()
                .with_bucket_name(name)
                .with_retry(retries())
                .with_http_connector(connector)
                .build()?,
        ),
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
    };
    Ok(match prefix.parts_count() {
        0 => bucket,
        _ => Arc::new(PrefixStore::new(bucket, prefix.clone())),
    })
}

/// Files below a URL.
pub(crate) fn http(url: &url::Url) -> object_store::Result<Arc<dyn ObjectStore>> {
    let options = ClientOptions::new().with_allow_http(url.scheme() == "http");
    let builder = HttpBuilder::new().with_url(url.as_str()).with_retry(retries());
    Ok(Arc::new(
        builder.with_client_options(options).with_http_connector(SameHost::default()).build()?,
    ))
}

fn retries() -> RetryConfig {
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_secs(1),
        ..BackoffConfig::default()
    };
    RetryConfig { backoff, max_retries: 2, retry_timeout: Duration::from_secs(10) }
}

/// Makes clients that stay with the host they were sent to.
#[derive(Debug, Default)]
struct SameHost {}

impl HttpConnector for SameHost {
    /// Of the options two count: whether plain HTTP is allowed, and a shorter time to connect, which is what object_store sets
    /// for the metadata services of clouds.
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let option = |key| options.get_config_value(&key);
        let plain = option(ClientConfigKey::AllowHttp).is_some_and(|allowed| allowed == "true");
        let asked = option(ClientConfigKey::ConnectTimeout);
        let asked =
            asked.and_then(|text| humantime::parse_duration(&text).ok()).unwrap_or(CONNECT_TIMEOUT);
        let failed = |source: reqwest::Error| object_store::Error::Generic {
            store: "HTTP client",
            source: source.into(),
        };
        // Fails if there is one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = || {
            reqwest::Client::builder()
                .user_agent(concat!("rtad/", env!("CARGO_PKG_VERSION")))
                .http1_only()
                .https_only(!plain)
                .connect_timeout(asked.min(CONNECT_TIMEOUT))
                .read_timeout(IDLE_TIMEOUT)
                .redirect(redirect::Policy::custom(same_host))
        };
        match client().build() {
            Ok(client) => Ok(HttpClient::new(Watched(client))),
            // An image without CA certificates: no TLS then, but plain HTTP needs none.
            Err(_) if plain => {
                Ok(HttpClient::new(Watched(client().tls_certs_only([]).build().map_err(failed)?)))
            }
            Err(error) => Err(failed(error)),
        }
    }
}

/// Follows a redirect to the same scheme, host and port only. So what answers is always what was configured, and
/// credentials go nowhere else.
fn same_host(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let previous = attempt.previous();
    let stays = previous.first().is_some_and(|first| first.origin() == attempt.url().origin());
    if previous.len() > MAX_REDIRECTS {
        attempt.error(RedirectError::TooMany)
    } else if stays {
        attempt.follow()
    } else {
        let to = attempt.url().origin().ascii_serialization();
        attempt.error(RedirectError::Elsewhere { to })
    }
}

/// A redirect that is not followed.
#[derive(Debug, thiserror::Error)]
enum RedirectError {
    #[error("redirects to {to}, which is not the store")]
    Elsewhere { to: String },
    #[error("redirects in a circle")]
    TooMany,
}
