//! Alibaba OSS and Tencent COS: S3's protocol, with their own variables and endpoints.
//!
//! Both expect the bucket in the host name and refuse S3's conditions of puts with 501. Objects
//! are created with a header instead (`forbid.rs`).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::{ClientOptions, HeaderMap, HeaderValue};

use super::environment::{VariableError, check_endpoint, check_text};
use super::forbid::ForbidOverwrite;
use super::{Connector, retries};

/// The address of names below `localhost`, which few resolvers know (RFC 6761). The port is that
/// of the URL.
pub const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The differences between the two.
pub struct Cloud {
    /// Name in errors.
    name: &'static str,
    endpoint_variable: &'static str,
    region_variable: &'static str,
    /// Names of a variable, the first that is set counts.
    key_id_variables: &'static [&'static str],
    key_secret_variables: &'static [&'static str],
    token_variables: &'static [&'static str],
    /// Host of a region's public endpoint: text before and after the region.
    host_parts: (&'static str, &'static str),
    /// Header of puts that replace no object.
    forbid_header: &'static str,
    /// Time after which a created object is read back, see [`ForbidOverwrite`].
    settle_time: Option<Duration>,
}

pub static OSS: Cloud = Cloud {
    name: "OSS",
    endpoint_variable: "OSS_ENDPOINT",
    region_variable: "OSS_REGION",
    key_id_variables: &["OSS_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_ID"],
    key_secret_variables: &["OSS_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_ACCESS_KEY_SECRET"],
    token_variables: &["OSS_SESSION_TOKEN", "ALIBABA_CLOUD_SECURITY_TOKEN"],
    host_parts: ("s3.oss-", ".aliyuncs.com"),
    forbid_header: "x-oss-forbid-overwrite",
    settle_time: None,
};

pub static COS: Cloud = Cloud {
    name: "COS",
    endpoint_variable: "COS_ENDPOINT",
    region_variable: "COS_REGION",
    key_id_variables: &["COS_SECRET_ID", "TENCENTCLOUD_SECRET_ID"],
    key_secret_variables: &["COS_SECRET_KEY", "TENCENTCLOUD_SECRET_KEY"],
    token_variables: &["TENCENTCLOUD_TOKEN"],
    host_parts: ("cos.", ".myqcloud.com"),
    forbid_header: "x-cos-forbid-overwrite",
    // Of writers that create an object within milliseconds, several may succeed.
    settle_time: Some(Duration::from_secs(1)),
};

/// A client for a bucket. `variable` reads the environment.
pub fn bucket(
    cloud: &Cloud,
    name: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> object_store::Result<ForbidOverwrite> {
    let settings =
        Settings::read(cloud, variable).map_err(|source| object_store::Error::Generic {
            store: cloud.name,
            source: source.into(),
        })?;

    let host = settings.host_of(name);
    let port = settings.port.as_str();
    let is_plain = settings.scheme == "http";
    let builder = AmazonS3Builder::new()
        .with_bucket_name(name)
        .with_region(&settings.region)
        .with_endpoint(format!("{}://{host}{port}", settings.scheme))
        .with_virtual_hosted_style_request(true)
        .with_access_key_id(&settings.key_id)
        .with_secret_access_key(&settings.key_secret)
        .with_retry(retries())
        .with_http_connector(Connector {
            loopback: is_loopback(&host).then_some(host),
        });
    let builder = match &settings.token {
        Some(token) => builder.with_token(token),
        None => builder,
    };

    let options = ClientOptions::new().with_allow_http(is_plain);
    // These headers are part of the signature.
    let mut headers = HeaderMap::new();
    headers.insert(cloud.forbid_header, HeaderValue::from_static("true"));
    let forbidding = options.clone().with_default_headers(headers);
    Ok(ForbidOverwrite {
        creator: builder.clone().with_client_options(forbidding).build()?,
        objects: builder.with_client_options(options).build()?,
        settle_time: cloud.settle_time,
    })
}

/// The environment of a cloud's client.
#[derive(PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
struct Settings {
    scheme: String,
    host: String,
    /// With its colon, or empty.
    port: String,
    region: String,
    key_id: String,
    key_secret: String,
    token: Option<String>,
}

impl Settings {
    fn read(
        cloud: &Cloud,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, VariableError> {
        let region = variable(cloud.region_variable);
        if let Some(region) = &region {
            check_text(cloud.region_variable, region)?;
        }
        let endpoint = match (variable(cloud.endpoint_variable), &region) {
            (Some(endpoint), _) if endpoint.contains("://") => endpoint,
            (Some(endpoint), _) => format!("https://{endpoint}"),
            (None, Some(region)) => {
                format!(
                    "https://{}{region}{}",
                    cloud.host_parts.0, cloud.host_parts.1
                )
            }
            (None, None) => {
                let accepted = "the endpoint of the bucket's region, or the region in the \
                                variable that ends in _REGION";
                return Err(VariableError::new(
                    cloud.endpoint_variable,
                    accepted,
                    "nothing",
                ));
            }
        };
        check_endpoint(cloud.endpoint_variable, &endpoint)?;
        let url: url::Url = endpoint.parse().expect("it was checked");
        let host = url.host_str().expect("an http URL has a host").to_owned();
        let refuse = |accepted| {
            let found = format!("{endpoint:?}");
            Err(VariableError::new(
                cloud.endpoint_variable,
                accepted,
                &found,
            ))
        };
        if url.path() != "/" {
            return refuse("an endpoint without a path");
        }
        if url.scheme() == "http" && !is_loopback(&host) {
            return refuse("https://, as plain HTTP shows the data to the network");
        }

        let region = match region.or_else(|| region_of(&host)) {
            Some(region) => region,
            None => {
                let accepted = "the region of the bucket, as its endpoint names none";
                return Err(VariableError::new(
                    cloud.region_variable,
                    accepted,
                    "nothing",
                ));
            }
        };
        let key = |names: &[&'static str], accepted| match first(names, variable)? {
            Some(value) => Ok(value),
            None => Err(VariableError::new(names[0], accepted, "nothing")),
        };
        Ok(Self {
            scheme: url.scheme().to_owned(),
            host,
            port: url.port().map_or(String::new(), |port| format!(":{port}")),
            region,
            key_id: key(cloud.key_id_variables, "the id of an access key")?,
            key_secret: key(cloud.key_secret_variables, "the secret of the access key")?,
            token: first(cloud.token_variables, variable)?,
        })
    }

    /// The host of a bucket. An endpoint may name the bucket already, as the clouds' consoles do.
    fn host_of(&self, bucket: &str) -> String {
        let host = &self.host;
        match host.strip_prefix(bucket) {
            Some(rest) if rest.starts_with('.') => host.clone(),
            _ => format!("{bucket}.{host}"),
        }
    }
}

/// The first variable that is set.
fn first(
    names: &[&'static str],
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<String>, VariableError> {
    for name in names {
        if let Some(value) = variable(name) {
            check_text(name, &value)?;
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// The region in an endpoint such as `oss-cn-hangzhou-internal.aliyuncs.com` or
/// `cos.ap-guangzhou.myqcloud.com`.
fn region_of(host: &str) -> Option<String> {
    let mut labels = host.split('.');
    let label = labels.find(|label| label.starts_with("oss-") || label.starts_with("cos"))?;
    match label.strip_prefix("oss-") {
        Some(region) => Some(region.trim_end_matches("-internal").to_owned()),
        None => labels.next().map(str::to_owned),
    }
}

/// Whether a host is this machine by its name alone.
fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Instant;

    use bytes::Bytes;
    use futures_util::{StreamExt as _, TryStreamExt as _, stream};
    use object_store::path::Path;
    use object_store::prefix::PrefixStore;
    use object_store::{ObjectStore, ObjectStoreExt as _};
    use testkit::cloud::{self, CloudServer};

    use super::*;
    use crate::Store;
    use crate::backend::Backend;
    use crate::error::StoreError;
    use crate::write::{Change, StoreWriter, WindowFolder};
    use rtad_core::device::DeviceKey;
    use rtad_core::filter::{FilterKind, FilterSpec};
    use rtad_core::snapshot::{AudienceName, GenerationFacts};

    const CLOUDS: [(&Cloud, cloud::Cloud); 2] =
        [(&OSS, cloud::Cloud::Oss), (&COS, cloud::Cloud::Cos)];

    fn settings(cloud: &Cloud, variables: &[(&str, &str)]) -> Result<Settings, String> {
        let variables: BTreeMap<_, _> = variables.iter().copied().collect();
        Settings::read(cloud, &|name| {
            variables.get(name).map(|value| (*value).to_owned())
        })
        .map_err(|error| error.to_string())
    }

    fn client(cloud: &Cloud, server: &CloudServer) -> ForbidOverwrite {
        let variables: BTreeMap<_, _> = server.environment().into_iter().collect();
        bucket(cloud, cloud::BUCKET, &|name| variables.get(name).cloned()).unwrap()
    }

    fn backend(cloud: &Cloud, server: &CloudServer) -> Backend {
        let objects = PrefixStore::new(client(cloud, server), "rtad");
        Backend::over(Arc::new(objects), &server.url("rtad"))
    }

    #[test]
    fn region_and_endpoint_follow_from_each_other() {
        let keys = [
            ("OSS_ACCESS_KEY_ID", "id"),
            ("OSS_ACCESS_KEY_SECRET", "secret"),
        ];
        for (cloud, variable, host, region) in [
            (
                &OSS,
                ("OSS_REGION", "cn-hangzhou"),
                "s3.oss-cn-hangzhou.aliyuncs.com",
                "cn-hangzhou",
            ),
            (
                &OSS,
                (
                    "OSS_ENDPOINT",
                    "https://oss-cn-beijing-internal.aliyuncs.com",
                ),
                "oss-cn-beijing-internal.aliyuncs.com",
                "cn-beijing",
            ),
            (
                &OSS,
                ("OSS_ENDPOINT", "s3.oss-me-east-1.aliyuncs.com"),
                "s3.oss-me-east-1.aliyuncs.com",
                "me-east-1",
            ),
            (
                &COS,
                ("COS_REGION", "ap-shanghai"),
                "cos.ap-shanghai.myqcloud.com",
                "ap-shanghai",
            ),
            (
                &COS,
                (
                    "COS_ENDPOINT",
                    "https://ads-1.cos.ap-guangzhou.myqcloud.com",
                ),
                "ads-1.cos.ap-guangzhou.myqcloud.com",
                "ap-guangzhou",
            ),
            (
                &COS,
                (
                    "COS_ENDPOINT",
                    "https://cos-internal.ap-tokyo.tencentcos.cn/",
                ),
                "cos-internal.ap-tokyo.tencentcos.cn",
                "ap-tokyo",
            ),
        ] {
            let cos = [
                ("TENCENTCLOUD_SECRET_ID", "id"),
                ("TENCENTCLOUD_SECRET_KEY", "secret"),
            ];
            let found = settings(cloud, &[&keys[..], &cos, &[variable]].concat()).unwrap();
            assert_eq!((found.host.as_str(), found.region.as_str()), (host, region));
            assert_eq!(
                (found.key_id.as_str(), found.key_secret.as_str()),
                ("id", "secret")
            );
            let bucket_host = found.host_of("ads-1");
            assert_eq!(
                bucket_host,
                format!("ads-1.{}", host.trim_start_matches("ads-1."))
            );
        }
    }

    #[test]
    fn refused_variables_are_named_and_show_no_secret() {
        let region = ("OSS_REGION", "cn-hangzhou");
        let id = ("ALIBABA_CLOUD_ACCESS_KEY_ID", "id");
        for (variables, message) in [
            (
                &[id][..],
                "OSS_ENDPOINT: expected the endpoint of the bucket's region, or the region \
                         in the variable that ends in _REGION, found nothing",
            ),
            (
                &[region],
                "OSS_ACCESS_KEY_ID: expected the id of an access key, found nothing",
            ),
            (
                &[region, id],
                "OSS_ACCESS_KEY_SECRET: expected the secret of the access key, found \
                             nothing",
            ),
            (
                &[region, id, ("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "hush\n")],
                "ALIBABA_CLOUD_ACCESS_KEY_SECRET: expected no control character, found one, such \
                 as the newline at the end of a file",
            ),
            (
                &[id, ("OSS_ENDPOINT", "http://oss-cn-hangzhou.aliyuncs.com")],
                "OSS_ENDPOINT: expected https://, as plain HTTP shows the data to the network, \
                 found \"http://oss-cn-hangzhou.aliyuncs.com\"",
            ),
            (
                &[
                    id,
                    ("OSS_ENDPOINT", "https://oss-cn-hangzhou.aliyuncs.com/ads"),
                ],
                "OSS_ENDPOINT: expected an endpoint without a path, found \
                 \"https://oss-cn-hangzhou.aliyuncs.com/ads\"",
            ),
            (
                &[id, ("OSS_ENDPOINT", "https://storage.example.com")],
                "OSS_REGION: expected the region of the bucket, as its endpoint names none, found \
                 nothing",
            ),
        ] {
            assert_eq!(settings(&OSS, variables).unwrap_err(), message);
        }
    }

    #[tokio::test]
    async fn objects_are_written_listed_read_and_deleted() {
        for (cloud, kind) in CLOUDS {
            let server = CloudServer::start(kind);
            server.set_page_names(3);
            let objects = client(cloud, &server);
            for number in 0..7 {
                let path = Path::from(format!("dt=2026-11-28/part {number}&.csv"));
                objects
                    .put(&path, format!("row {number}").into())
                    .await
                    .unwrap();
            }
            server.put("elsewhere", "1");
            let listed: Vec<_> = objects
                .list(Some(&Path::from("dt=2026-11-28")))
                .try_collect()
                .await
                .unwrap();
            assert_eq!(listed.len(), 7, "{kind:?}: a list of three pages");
            let part = Path::from("dt=2026-11-28/part 5&.csv");
            assert_eq!(objects.get_range(&part, 4..5).await.unwrap(), "5");

            let all = stream::iter(listed).map(|meta| Ok(meta.location)).boxed();
            let deleted: Vec<_> = objects.delete_stream(all).try_collect().await.unwrap();
            assert_eq!(deleted.len(), 7);
            let listed: Vec<_> = objects.list(None).try_collect().await.unwrap();
            assert_eq!(listed.len(), 1, "{kind:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn one_of_many_writers_creates_also_in_a_race() {
        for (cloud, kind, race_millis) in [
            (&OSS, cloud::Cloud::Oss, 0),
            // All sixteen puts of a new object succeed.
            (&COS, cloud::Cloud::Cos, 200),
        ] {
            let server = CloudServer::start(kind);
            server.set_race(Duration::from_millis(race_millis));
            let backend = backend(cloud, &server);
            let mut writers = tokio::task::JoinSet::new();
            for writer in 0..16 {
                let backend = backend.clone();
                writers.spawn(async move {
                    let bytes = Bytes::from(format!("writer {writer}"));
                    let created = backend
                        .create(&Path::from("records/1"), bytes.clone())
                        .await;
                    created.unwrap().then_some(bytes)
                });
            }
            let creators: Vec<_> = writers.join_all().await.into_iter().flatten().collect();
            let held = server.object("rtad/records/1").unwrap();
            assert_eq!(creators, [Bytes::from(held)], "{kind:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn one_of_many_processes_creates_a_segment_also_in_a_race() {
        for (cloud, kind, race_millis) in
            [(&OSS, cloud::Cloud::Oss, 0), (&COS, cloud::Cloud::Cos, 200)]
        {
            let server = CloudServer::start(kind);
            server.set_race(Duration::from_millis(race_millis));
            let writer = StoreWriter::new(Store::new(backend(cloud, &server))).unwrap();
            let window = WindowFolder::new(writer, "w".parse().unwrap());
            let mut processes = tokio::task::JoinSet::new();
            for process in 0..8 {
                let window = window.clone();
                processes.spawn(async move {
                    let bytes = Bytes::from(format!("owner {process}"));
                    let created = window.create(1, bytes.clone()).await;
                    created.unwrap().then_some(bytes)
                });
            }
            let owners: Vec<_> = processes.join_all().await.into_iter().flatten().collect();
            let held = window.read(1).await.unwrap().unwrap();
            assert_eq!(owners, [Bytes::from(held)], "{kind:?}");

            let blocks = stream::iter([Ok(b"table".to_vec())]);
            window.put_table(2, blocks).await.unwrap();
            assert_eq!(window.newest_table().await.unwrap(), Some(2));
            window.remove_before(2).await.unwrap();
            assert_eq!(
                window.segments().await.unwrap(),
                [1],
                "the newest one stays"
            );
        }
    }

    #[tokio::test]
    async fn mirror_waits_for_its_newest_record_alone() {
        let audience: AudienceName = "a".parse().unwrap();
        let server = CloudServer::start(cloud::Cloud::Cos);
        let source = StoreWriter::new(Store::in_memory()).unwrap();
        let mirror = StoreWriter::new(Store::new(backend(&COS, &server))).unwrap();
        let base = source.base(&audience).await.unwrap();
        let facts = GenerationFacts::built_now_by("test");
        let publication = source.publish(base).await.unwrap();
        let filter = FilterSpec::for_fpr(FilterKind::Block512, 0.01).unwrap();
        let published = publication.commit_keys(Vec::new(), filter, 0.01, facts);
        published.await.unwrap();
        mirror.mirror_from(source.store(), &audience).await.unwrap();

        for n in 0..8_u64 {
            let mut change = Change::default();
            change.add(DeviceKey::of_canonical(&n.to_le_bytes()));
            let mut ledger = source.ledger(&audience).await.unwrap();
            ledger.append(change).await.unwrap();
        }
        let begun = Instant::now();
        let done = mirror.mirror_from(source.store(), &audience).await.unwrap();
        assert_eq!((done.sequence, done.records), (9, 8));
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{:?}",
            begun.elapsed()
        );
        let newest = mirror.store().live(&audience).await.unwrap().unwrap();
        assert_eq!(newest.current.sequence, 9);
    }

    #[tokio::test]
    async fn created_object_is_not_replaced_unless_the_bucket_has_versions() {
        for (cloud, kind) in CLOUDS {
            let server = CloudServer::start(kind);
            let backend = backend(cloud, &server);
            let path = Path::from("records/1");
            assert!(backend.create(&path, "first".into()).await.unwrap());
            assert!(!backend.create(&path, "second".into()).await.unwrap());
            assert!(
                backend.create(&path, "first".into()).await.unwrap(),
                "a lost answer"
            );
            assert_eq!(server.object("rtad/records/1").unwrap(), b"first");

            server.add_versions();
            assert!(
                backend.create(&path, "third".into()).await.unwrap(),
                "the probe finds it"
            );
            assert_eq!(server.object("rtad/records/1").unwrap(), b"third");
        }
    }

    #[tokio::test]
    async fn refusals_name_the_code_of_the_cloud() {
        for (cloud, kind, code) in [
            (&OSS, cloud::Cloud::Oss, "SecondLevelDomainForbidden"),
            (&COS, cloud::Cloud::Cos, "PathStyleDomainForbidden"),
        ] {
            let server = CloudServer::start(kind);
            let variables: BTreeMap<_, _> = server.environment().into_iter().collect();
            let other = bucket(cloud, "other", &|name| variables.get(name).cloned()).unwrap();
            let backend = Backend::over(Arc::new(other), "");
            let refused = backend.create(&Path::from("records/1"), "1".into()).await;
            let Err(StoreError::Backend { source, .. }) = refused else {
                panic!("{refused:?}")
            };
            assert!(source.to_string().contains(code), "{source}");
        }
    }
}
