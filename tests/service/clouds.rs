//! Alibaba OSS and Tencent COS, by the programs as they run: the loader writes, a pod follows.

use std::time::Duration;

use rtad_core::device::DeviceKey;
use testkit::cloud::{Cloud, CloudServer};
use testkit::process::{Outcome, run};
use testkit::sandbox::{Sandbox, loader};
use testkit::store::{hex, keys};
use testkit::wait_until;

use crate::pod::Pod;

const AUDIENCE: &str = "old_users";

/// A bucket, and the folder of the programs.
struct Site {
    bucket: CloudServer,
    sandbox: Sandbox,
}

impl Site {
    fn start(cloud: Cloud) -> Self {
        Self {
            bucket: CloudServer::start(cloud),
            sandbox: Sandbox::new(),
        }
    }

    /// Runs the loader over the store in the bucket, with these keys on stdin.
    fn run(&self, command: &str, keys: &[DeviceKey]) -> Outcome {
        let url = self.bucket.url("rtad");
        let line = format!("{command} --store {url} --audience {AUDIENCE} --json");
        let mut loader = loader(self.sandbox.path(), &line);
        run(loader.envs(self.bucket.environment()), &input(keys))
    }

    /// Runs a task of a build on Spark over these keys.
    fn put_chunk(&self, url: &str, job: &str, keys: &[DeviceKey]) -> Outcome {
        let line = format!("chunk --store {url} --part 0/1 --json --job");
        let mut loader = loader(self.sandbox.path(), &line);
        let mut sorted = keys.to_vec();
        sorted.sort_unstable();
        let bytes: Vec<u8> = sorted.iter().flat_map(|key| *key.as_bytes()).collect();
        run(loader.arg(job).envs(self.bucket.environment()), &bytes)
    }

    /// Copies the audience between two prefixes, of this bucket or another.
    fn mirror(&self, from: &str, to: &str, other: &CloudServer) -> Outcome {
        let line = format!("mirror --from {from} --to {to} --json");
        let mut loader = loader(self.sandbox.path(), &line);
        loader.envs(self.bucket.environment());
        run(loader.envs(other.environment()), b"")
    }

    fn start_pod(&self, url: &str) -> Pod {
        let mut exports = String::new();
        for (name, value) in self.bucket.environment() {
            exports += &format!("export {name}={value}; ");
        }
        Pod::start(url, self.sandbox.path(), "", &exports)
    }
}

/// Lines of ids.
fn input(keys: &[DeviceKey]) -> Vec<u8> {
    let mut lines = String::new();
    for key in keys {
        lines += &hex(key);
        lines.push('\n');
    }
    lines.into_bytes()
}

/// Waits until the pod serves the generation with one device and without the other.
#[track_caller]
fn assert_serves(pod: &mut Pod, generation: u64, member: &DeviceKey, other: &DeviceKey) {
    let mut client = pod.connect();
    wait_until("the change is served", || {
        let found = client.members(AUDIENCE, &[*member, *other]);
        pod.generation() == generation && found == [true, false]
    });
}

/// A pod follows a build, appends that compete, a rollback, a gc and a mirror.
fn follows(cloud: Cloud) {
    let site = Site::start(cloud);
    site.bucket.set_page_names(5);
    if cloud == Cloud::Cos {
        // Both competing puts succeed.
        site.bucket.set_race(Duration::from_millis(100));
    }

    let all = keys(1, 2000, |shard| shard);
    let stranger = &keys(2, 1, |shard| shard)[0];
    let url = site.bucket.url("rtad");
    let build = |keys| site.run("build --max-change any -", keys).json()["generation"].clone();

    assert_eq!(build(&all[..1000]), 1);
    let mut pod = site.start_pod(&url);
    assert_serves(&mut pod, 1, &all[0], &all[1999]);

    std::thread::scope(|scope| {
        for key in &all[1998..] {
            let site = &site;
            scope.spawn(move || site.run("append -", &[*key]).json());
        }
    });
    for key in &all[1998..] {
        assert_serves(&mut pod, 1, key, stranger);
    }
    site.run("remove -", &all[..1]).json();
    assert_serves(&mut pod, 1, &all[1999], &all[0]);

    assert_eq!(build(&all[..1999]), 2);
    assert_serves(&mut pod, 2, &all[1998], stranger);
    assert_eq!(site.run("rollback", &[]).json()["generation"], 1);
    assert_serves(&mut pod, 1, &all[999], &all[1500]);
    assert_eq!(build(&all[1000..]), 3);
    assert_serves(&mut pod, 3, &all[1500], &all[500]);

    let collected = site.run("gc --keep 1 --min-age 0s", &[]).json();
    assert_eq!(collected["removed_generations"], serde_json::json!([1, 2]));
    assert_ne!(collected["removed_chunks"], 0);

    // By way of another cloud, and back under another prefix.
    let s3 = CloudServer::start(Cloud::S3);
    let standby = site.bucket.url("standby");
    site.mirror(&url, &s3.url("copy"), &s3).json();
    site.mirror(&s3.url("copy"), &standby, &s3).json();
    for url in [url, standby] {
        let mut pod = site.start_pod(&url);
        assert_serves(&mut pod, 3, &all[1500], &all[500]);
    }
    assert_eq!(pod.last_sync().1, "", "the first pod");
}

#[test]
fn pod_follows_a_store_in_oss() {
    follows(Cloud::Oss);
}

#[test]
fn pod_follows_a_store_in_cos() {
    follows(Cloud::Cos);
}

/// Its writers would overwrite each other: the clouds ignore the header that forbids it.
#[test]
fn bucket_with_versions_is_refused_before_files_are_written() {
    for cloud in [Cloud::Oss, Cloud::Cos] {
        let site = Site::start(cloud);
        let s3 = CloudServer::start(Cloud::S3);
        let members = keys(1, 100, |shard| shard);
        site.run("build -", &members[..50]).json();
        let (url, copy) = (site.bucket.url("rtad"), s3.url("copy"));
        site.mirror(&url, &copy, &s3).json();
        // Without reports of tasks, it fails after its first line.
        let spark = site.run("publish", &[]).stdout;
        let job = spark.lines().next().expect("the job");
        site.bucket.add_versions();
        site.bucket.take_requests();

        let standby = site.bucket.url("standby");
        let built = site.run("build --max-change any -", &members);
        let mirrored = site.mirror(&copy, &standby, &s3);
        let begun = site.run("publish", &[]);
        assert_eq!(begun.stdout.lines().count(), 1, "no job: {begun:?}");
        let chunk = site.put_chunk(&url, job, &members);
        let appended = site.run("append -", &members[50..]);
        let removed = site.run("remove -", &members[..1]);
        for (outcome, store) in [
            (built, &url),
            (mirrored, &standby),
            (begun, &url),
            (chunk, &url),
            (appended, &url),
            (removed, &url),
        ] {
            let refusal = "created an object twice that may be created once";
            outcome.fails(5, &format!("store {store:?} {refusal}"));
        }
        let requests = site.bucket.take_requests();
        let mut puts = requests.iter().filter(|line| line.starts_with("PUT"));
        assert!(puts.all(|line| line.contains("/probe-")), "{requests:?}");

        let mut pod = site.start_pod(&url);
        assert_serves(&mut pod, 1, &members[0], &members[99]);
    }
}
