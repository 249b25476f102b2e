//! Loaders and pods that are killed at random moments, over every kind of store: nothing that was
//! acknowledged is lost, all files of the live generation are there, and the cache of a pod is good
//! for a start without the store.
//!
//! `KILLS` sets the number of kills, `TEST_SEED` the moments.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Child;
use std::time::{Duration, Instant};

use rtad_core::device::DeviceKey;
use testkit::process::{outcome, spawn};
use testkit::random::SplitMix64;
use testkit::sandbox::{Sandbox, directory_or_bucket, loader};
use testkit::store::{Depot, hex, keys};
use testkit::wait_until;

use crate::pod::Pod;

const AUDIENCE: &str = "old_users";
/// Devices that the lists begin with.
const LISTED: usize = 1000;
/// Devices that each build has besides, so that all of its chunks are new.
const FILLERS: usize = 200;
/// A device that is no member is one by a filter in no run.
const FPR: &str = "--fpr 0.000001";
/// No store listens there.
const NOWHERE: &str = "http://127.0.0.1:9/";
const SIGKILL: i32 = 9;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Job {
    Build,
    Append,
    Remove,
    Erase,
    RollBack,
    Collect,
    Mirror,
}

const JOBS: [Job; 7] = [
    Job::Build,
    Job::Append,
    Job::Remove,
    Job::Erase,
    Job::RollBack,
    Job::Collect,
    Job::Mirror,
];

/// Whether each device is a member.
type Members = BTreeMap<DeviceKey, bool>;

/// A store with a mirror, a pod with a cache, and what was acknowledged.
struct Site {
    sandbox: Sandbox,
    url: String,
    mirror: String,
    random: SplitMix64,
    /// Acknowledged changes. The lists of builds have them.
    members: Members,
    /// The members at the last acknowledged mirror.
    mirrored: Option<Members>,
    /// Erased devices.
    erased: Vec<DeviceKey>,
    /// Time that each job took last.
    durations: BTreeMap<Job, Duration>,
    /// Kills of each job.
    kills: BTreeMap<Job, u32>,
    pod_kills: u32,
    next_seed: u64,
    /// The generation of the next rollback.
    rollback_to: u64,
}

impl Site {
    fn new(seed: u64) -> Self {
        let (sandbox, url) = directory_or_bucket("pod-kills");
        let mirror = format!("{url}-mirror");
        let mut members = Members::new();
        for key in keys(seed, LISTED, |shard| shard) {
            members.insert(key, true);
        }
        Self {
            sandbox,
            url,
            mirror,
            random: SplitMix64::new(seed),
            members,
            mirrored: None,
            erased: Vec::new(),
            durations: BTreeMap::new(),
            kills: BTreeMap::new(),
            pod_kills: 0,
            next_seed: seed + 1,
            rollback_to: 0,
        }
    }

    /// Keys that are in no list yet.
    fn new_keys(&mut self, count: usize) -> Vec<DeviceKey> {
        self.next_seed += 1;
        keys(self.next_seed, count, |shard| shard)
    }

    /// A member, for a change.
    fn member(&mut self) -> DeviceKey {
        let mut members = self.members.iter().filter(|(_, is_member)| **is_member);
        let index = self.random.below(LISTED / 2);
        *members.nth(index).expect("more members").0
    }

    /// The devices of a job.
    fn devices(&mut self, job: Job) -> Vec<DeviceKey> {
        match job {
            Job::Build => {
                let mut list = self.new_keys(FILLERS);
                let members = self.members.iter().filter(|(_, is_member)| **is_member);
                list.extend(members.map(|(key, _)| *key));
                list
            }
            Job::Append => self.new_keys(1),
            Job::Remove | Job::Erase => vec![self.member()],
            Job::RollBack | Job::Collect | Job::Mirror => Vec::new(),
        }
    }

    fn start(&self, job: Job, devices: &[DeviceKey]) -> Child {
        let (url, mirror) = (&self.url, &self.mirror);
        let target = format!("--store {url} --audience {AUDIENCE} --json");
        let line = match job {
            Job::Build => format!("build {target} {FPR} --max-change any -"),
            Job::Append => format!("append {target} -"),
            Job::Remove => format!("remove {target} -"),
            Job::Erase => format!("remove --tombstone {target} -"),
            Job::RollBack => format!("rollback {target} --to {}", self.rollback_to),
            Job::Collect => format!("gc {target} --keep 2 --min-age 0s"),
            Job::Mirror => format!("mirror --from {url} --to {mirror} --json"),
        };
        let mut child = spawn(&mut loader(self.sandbox.path(), &line));
        let mut lines = String::new();
        for key in devices {
            lines += &hex(key);
            lines.push('\n');
        }
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(lines.as_bytes()).unwrap();
        child
    }

    /// A moment of a job, or shortly after its end.
    fn moment(&mut self, job: Job) -> Duration {
        let duration = self.durations.get(&job).copied();
        let duration = duration.unwrap_or(Duration::from_millis(200));
        duration.mul_f64(self.random.below(1200) as f64 / 1000.0)
    }

    /// Runs a job to its end, and records what it acknowledged.
    fn finish(&mut self, job: Job, devices: &[DeviceKey], child: Child) {
        let outcome = outcome(child);
        assert_eq!(outcome.status, Some(0), "{job:?}: {outcome:?}");
        match job {
            Job::Append => _ = self.members.insert(devices[0], true),
            Job::Remove => _ = self.members.insert(devices[0], false),
            Job::Erase => {
                self.members.insert(devices[0], false);
                self.erased.push(devices[0]);
            }
            Job::Mirror => self.mirrored = Some(self.members.clone()),
            Job::Build | Job::RollBack | Job::Collect => {}
        }
    }

    fn run(&mut self, job: Job) {
        let devices = self.devices(job);
        let child = self.start(job, &devices);
        self.finish(job, &devices, child);
        self.check(&[]);
    }

    /// Kills a job, checks the store, and runs the job again.
    fn kill(&mut self, job: Job) {
        let devices = self.devices(job);
        let mut child = self.start(job, &devices);
        std::thread::sleep(self.moment(job));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        if status.signal() == Some(SIGKILL) {
            *self.kills.entry(job).or_default() += 1;
        } else {
            assert!(status.success(), "{job:?}: {:?}", outcome(child));
        }
        self.check(&devices);

        if job == Job::RollBack && self.is_rolled_back() {
            return;
        }
        // Another list: a build of the same one would wait for deletes of its chunks.
        let devices = match job {
            Job::Build => self.devices(job),
            _ => devices,
        };
        let begun = Instant::now();
        let child = self.start(job, &devices);
        self.finish(job, &devices, child);
        self.durations.insert(job, begun.elapsed());
        self.check(&[]);
    }

    /// Reads all files of the live generations, and compares all members but those in doubt.
    fn check(&self, doubtful: &[DeviceKey]) {
        let read = Depot::over(&self.url).read(AUDIENCE).unwrap();
        for (key, is_member) in &self.members {
            let is_sure = !doubtful.contains(key);
            assert!(
                !is_sure || read.contains(key) == *is_member,
                "{}",
                self.report()
            );
        }
        let Some(mirrored) = &self.mirrored else {
            return;
        };
        let read = Depot::over(&self.mirror).read(AUDIENCE).unwrap();
        for (key, is_member) in mirrored {
            // A mirror that was killed may have the changes since.
            let is_sure = self.members[key] == *is_member && !doubtful.contains(key);
            assert!(
                !is_sure || read.contains(key) == *is_member,
                "{}",
                self.report()
            );
        }
    }

    /// Kills a pod during a job, and starts it without the store, then with it.
    fn kill_pod(&mut self, pod: Pod, job: Job) -> Pod {
        self.wait_for(&pod);
        let mut certain = self.members.clone();
        certain.retain(|key, is_member| *is_member || self.erased.contains(key));

        let devices = self.devices(job);
        let child = self.start(job, &devices);
        std::thread::sleep(self.moment(job));
        drop(pod);
        self.pod_kills += 1;
        self.finish(job, &devices, child);
        self.check(&[]);

        certain.retain(|key, is_member| self.members[key] == *is_member);
        let mut alone = self.start_pod(NOWHERE);
        self.assert_answers(&alone, &certain);
        self.assert_accepts_cache(&mut alone);
        drop(alone);

        let mut pod = self.start_pod(&self.url);
        self.wait_for(&pod);
        self.assert_accepts_cache(&mut pod);
        pod
    }

    fn assert_answers(&self, pod: &Pod, expected: &Members) {
        let devices: Vec<DeviceKey> = expected.keys().copied().collect();
        let found = pod.connect().members(AUDIENCE, &devices);
        assert!(expected.values().eq(&found), "{}", self.report());
    }

    fn assert_accepts_cache(&self, pod: &mut Pod) {
        let errors = pod.metric("rtad_cache_errors_total");
        assert_eq!(errors, 0, "{}", self.report());
    }

    fn start_pod(&self, url: &str) -> Pod {
        let cache = self.sandbox.path().join("cache");
        let is_whole = self.pod_kills.is_multiple_of(2);
        let swap = if is_whole { "whole" } else { "rolling" };
        let lines = format!("swap = {swap:?}\ncache_dir = {cache:?}");
        Pod::start(url, self.sandbox.path(), &lines, "")
    }

    /// Waits until the pod has all that was acknowledged.
    fn wait_for(&self, pod: &Pod) {
        let mut client = pod.connect();
        let devices: Vec<DeviceKey> = self.members.keys().copied().collect();
        let expected: Vec<bool> = self.members.values().copied().collect();
        wait_until("the pod has all changes", || {
            client.members(AUDIENCE, &devices) == expected
        });
    }

    /// The next job. A rollback needs another generation.
    fn choose(&mut self) -> Job {
        let job = JOBS[self.random.below(JOBS.len())];
        if job != Job::RollBack {
            return job;
        }
        let current = Depot::over(&self.url).current(AUDIENCE).unwrap();
        let mut others = current.generations();
        others.retain(|entry| entry.generation != current.generation);
        if others.is_empty() {
            return Job::Build;
        }
        self.rollback_to = others[self.random.below(others.len())].generation;
        job
    }

    /// Whether a rollback took effect before it was killed.
    fn is_rolled_back(&self) -> bool {
        let current = Depot::over(&self.url).current(AUDIENCE).unwrap();
        current.generation == self.rollback_to
    }

    fn report(&self) -> String {
        format!("killed {:?}, and {} pods", self.kills, self.pod_kills)
    }

    fn kills(&self) -> u32 {
        self.kills.values().sum::<u32>() + self.pod_kills
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "the counts of a long run")]
fn kills_lose_nothing_in_every_store() {
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let kills = number("KILLS", 10);
    let seed = number("TEST_SEED", 1);
    let mut site = Site::new(seed);
    site.run(Job::Build);
    site.run(Job::Build);
    site.run(Job::Mirror);
    let mut pod = site.start_pod(&site.url);
    site.wait_for(&pod);

    while u64::from(site.kills()) < kills {
        let job = site.choose();
        if site.kills().is_multiple_of(2) {
            site.kill(job);
        } else {
            pod = site.kill_pod(pod, job);
        }
    }
    println!("seed {seed}: {}", site.report());
    site.wait_for(&pod);
}
