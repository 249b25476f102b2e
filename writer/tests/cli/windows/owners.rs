//! Owners and standbys: kills of owners and their disks under load, pauses, stops, copies of disks.
//!
//! `OWNER_KILLS` sets the number of kills of each place and durability, `OWNER_STOPS` that of
//! stops. Each test prints its figures.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rtad_core::device::DeviceKey;
use serde_json::json;
use testkit::cloud::{Cloud, CloudServer};
use testkit::sandbox::{Sandbox, command, directory_or_bucket, make_old};
use testkit::store::files;
use testkit::wait_until;

use super::{WINDOW, flags, info, keys, path};
use crate::process::{AUDIENCE, Api, Serve, TOKEN};

/// Clients of the load: a batch of each four times a second makes 20,000 events per second.
const CLIENTS: u64 = 20;
/// Events of a batch.
const BATCH: u64 = 250;
/// Time from a batch of a client to its next one.
const INTERVAL: Duration = Duration::from_millis(250);
/// Time before a kill whose events may be lost with `"disk"`, as run-a-writer.md states it. A
/// single kill runs beside other tests: a busy machine adds to it.
const LAST_MOMENT: Duration = Duration::from_secs(1);
const BUSY_MOMENT: Duration = Duration::from_secs(4);

/// Processes with one configuration over one store.
struct Place {
    sandbox: Sandbox,
    url: String,
    environment: Vec<(&'static str, String)>,
    /// Keys of the window.
    capacity: usize,
    _bucket: Option<CloudServer>,
}

impl Place {
    fn directory() -> Self {
        let sandbox = Sandbox::with_store();
        let url = sandbox.store_path();
        Self {
            sandbox,
            url,
            environment: Vec::new(),
            capacity: 5_000_000,
            _bucket: None,
        }
    }

    /// A bucket whose puts take 80 ms.
    fn slow_bucket() -> Self {
        let bucket = CloudServer::start(Cloud::S3);
        bucket.set_put_delay(Duration::from_millis(80));
        Self {
            sandbox: Sandbox::new(),
            url: bucket.url("rtad"),
            environment: bucket.environment(),
            capacity: 5_000_000,
            _bucket: Some(bucket),
        }
    }

    /// Starts a process with a directory of this name, as far as it needs one.
    fn serve(&self, name: &str, durability: &str) -> Serve {
        let state = self.state(name).display().to_string();
        let window = WINDOW.replace("5_000_000", &self.capacity.to_string());
        let config = format!("state_dir = {state:?}\n{window}durability = {durability:?}\n");
        make_old(&self.sandbox.file(&format!("{name}.toml"), config));
        make_old(&self.sandbox.file("tokens", format!("{TOKEN}\n")));
        let arguments = format!(
            "--store {} --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --token-file {{}}/tokens \
             --config {{}}/{name}.toml",
            self.url
        );
        let mut command = command(self.sandbox.path(), &arguments);
        command.envs(self.environment.iter().cloned());
        Serve::spawn(&mut command)
    }

    fn state(&self, name: &str) -> PathBuf {
        self.sandbox.path().join(name)
    }
}

/// Number of keys that are new.
fn send(api: &mut Api, range: std::ops::Range<u64>) -> usize {
    let keys = keys(range);
    let flags = flags(&api.binary(&path("w", "events"), &keys), keys.len());
    flags.iter().filter(|is_new| **is_new).count()
}

/// Waits until a standby has all events of the owner.
fn until_followed(owner: &Serve, standby: &Serve) {
    wait_until("the standby has the segments", || {
        let sent = info(&mut owner.connect(), "w");
        let had = info(&mut standby.connect(), "w");
        sent["behind_seconds"] == 0.0 && sent["segment"] == had["segment"]
    });
}

/// Answer to a request on a connection of its own; `None` if the process ended meanwhile.
fn ask_once(address: SocketAddr, request: &[u8]) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).ok()?;
    let timeout = Some(Duration::from_secs(20));
    stream.set_read_timeout(timeout).ok()?;
    stream.write_all(request).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;

    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8(answer[..end].to_vec()).ok()?;
    let length = head.to_lowercase();
    let length = length.split_once("content-length: ")?.1.lines().next()?;
    let body = answer.split_off(end + 4);
    let is_whole = length.parse() == Ok(body.len());
    let status = head.split(' ').nth(1)?.parse().ok()?;
    is_whole.then_some(Answer { status, body })
}

/// Status and body.
struct Answer {
    status: u16,
    body: Vec<u8>,
}

/// The owner of two processes; ports of both, for clients.
struct Fleet<'a> {
    place: &'a Place,
    durability: &'static str,
    /// The process that was started last is the last one.
    processes: Vec<(String, Serve)>,
    started: usize,
}

impl<'a> Fleet<'a> {
    fn start(place: &'a Place, durability: &'static str) -> Self {
        let mut fleet = Self {
            place,
            durability,
            processes: Vec::new(),
            started: 0,
        };
        fleet.add();
        wait_until("the first owner", || fleet.processes[0].1.is_ready());
        fleet.add();
        fleet
    }

    /// Adds a process with an empty disk.
    fn add(&mut self) {
        self.started += 1;
        let name = format!("state-{}", self.started);
        let serve = self.place.serve(&name, self.durability);
        self.processes.push((name, serve));
    }

    /// Waits until the newest process has read the window.
    fn until_followed(&self) {
        let (_, newest) = self.processes.last().unwrap();
        newest.log("standby has the window", 1);
    }

    fn owner(&self) -> Option<usize> {
        (0..self.processes.len()).find(|index| self.processes[*index].1.is_ready())
    }

    fn api(&self) -> Api {
        let owner = wait_until("an owner", || self.owner());
        self.processes[owner].1.connect()
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        let processes = self.processes.iter();
        processes
            .map(|(_, serve)| serve.address("address"))
            .collect()
    }

    /// Ends the owner and removes its disk.
    fn end_owner(&mut self, end: End) -> Ended {
        let owner = wait_until("an owner", || self.owner());
        let (name, serve) = self.processes.remove(owner);
        let address = serve.address("address");
        let begun_at = Instant::now();
        match end {
            End::Kill => serve.kill(),
            End::Stop => serve.stop(),
        }
        let ended_at = Instant::now();
        let _ = std::fs::remove_dir_all(self.place.state(&name));
        Ended {
            address,
            begun_at,
            ended_at,
        }
    }
}

/// How an owner ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Kill,
    Stop,
}

/// An owner that has ended.
struct Ended {
    address: SocketAddr,
    /// When the signal was sent.
    begun_at: Instant,
    ended_at: Instant,
}

/// A batch that was acknowledged.
#[derive(Clone, Copy)]
struct Acknowledged {
    first: u64,
    /// The owner.
    by: SocketAddr,
    at: Instant,
    new: u32,
}

impl Acknowledged {
    fn keys(&self) -> Vec<DeviceKey> {
        keys(self.first..self.first + BATCH)
    }
}

/// Clients that send batches to whichever process answers, each until it is acknowledged.
struct Load {
    has_ended: AtomicBool,
    addresses: Mutex<Vec<SocketAddr>>,
    acknowledged: Mutex<Vec<Acknowledged>>,
}

impl Load {
    fn new(addresses: Vec<SocketAddr>) -> Self {
        Self {
            has_ended: AtomicBool::new(false),
            addresses: Mutex::new(addresses),
            acknowledged: Mutex::default(),
        }
    }

    /// Sends the batches of one client, at their times as far as they are answered.
    fn run(&self, client: u64) {
        let mut due = Instant::now() + INTERVAL * client as u32 / CLIENTS as u32;
        for batch in 0.. {
            due = due.max(Instant::now());
            std::thread::sleep(due - Instant::now());
            due += INTERVAL;

            let first = (batch * CLIENTS + client) * BATCH;
            let acknowledged = loop {
                if self.has_ended.load(Ordering::Relaxed) {
                    return;
                }
                match self.send(first) {
                    Some(acknowledged) => break acknowledged,
                    None => std::thread::sleep(Duration::from_millis(100)),
                }
            };
            self.acknowledged.lock().unwrap().push(acknowledged);
        }
    }

    /// Sends a batch to one process after the other; `None` if none acknowledges it.
    fn send(&self, first: u64) -> Option<Acknowledged> {
        let keys = keys(first..first + BATCH);
        let body: Vec<u8> = keys.iter().flat_map(DeviceKey::as_bytes).copied().collect();
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: rtad\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: \
             application/octet-stream\r\nIdempotency-Key: {first}\r\nConnection: \
             close\r\nContent-Length: {}\r\n\r\n",
            path("w", "events"),
            body.len()
        );
        let request = [head.as_bytes(), &body].concat();
        let addresses = self.addresses.lock().unwrap().clone();
        addresses.into_iter().find_map(|address| {
            let answer = ask_once(address, &request)?;
            let at = Instant::now();
            let new = answer.body.iter().map(|byte| byte.count_ones()).sum();
            (answer.status == 200).then_some(Acknowledged {
                first,
                by: address,
                at,
                new,
            })
        })
    }

    fn count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    /// When another process acknowledged a batch first.
    fn accepted_after(&self, ended: &Ended) -> Option<Instant> {
        let acknowledged = self.acknowledged.lock().unwrap();
        let newest = acknowledged.iter().rev();
        let newer = newest.take_while(|one| one.at > ended.begun_at);
        let others = newer.filter(|one| one.by != ended.address);
        others.map(|one| one.at).min()
    }

    fn acknowledged_from(&self, index: usize) -> Vec<Acknowledged> {
        self.acknowledged.lock().unwrap()[index..].to_vec()
    }
}

/// Ends the clients.
struct EndLoad<'a>(&'a Load);

impl Drop for EndLoad<'_> {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Relaxed);
    }
}

/// Figures of owners that ended under load.
#[derive(Default)]
struct Figures {
    /// Times until events were accepted again.
    accepted: Vec<f64>,
    /// Events per second before each end.
    rates: Vec<f64>,
    /// Events lost with each owner.
    lost: Vec<f64>,
    /// Ages of the oldest ones at the end of their owner.
    ages: Vec<f64>,
}

impl Figures {
    #[allow(clippy::print_stdout, reason = "the figures of a long run")]
    fn report(self, name: &str) {
        let count = self.accepted.len();
        let rows = [
            ("seconds until events were accepted", self.accepted),
            ("events per second before", self.rates),
            ("events lost", self.lost),
            ("age of the oldest one, seconds", self.ages),
        ];
        for (what, mut values) in rows {
            values.sort_unstable_by(f64::total_cmp);
            if let (Some(least), Some(most)) = (values.first(), values.last()) {
                let median = values[values.len() / 2];
                println!("{name}, {count}: {what}: {least:.2}, {median:.2}, {most:.2}");
            }
        }
    }
}

/// Ends owners with their disks under load.
fn end_owners(place: &Place, durability: &'static str, end: End, ends: usize) -> Figures {
    let may_lose = durability == "disk" && end == End::Kill;
    let last_moment = if ends > 1 { LAST_MOMENT } else { BUSY_MOMENT };
    let mut fleet = Fleet::start(place, durability);
    let load = Load::new(fleet.addresses());
    let mut figures = Figures::default();
    let mut lost = Vec::new();
    let mut checked = 0;
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let load = &load;
            scope.spawn(move || load.run(client));
        }
        // Also if an assertion fails.
        let _end = EndLoad(&load);
        for round in 0..ends {
            let first = load.count();
            wait_until("events", || load.count() > first);
            fleet.until_followed();
            let begun = Instant::now();
            let first = load.count();
            // A moment that differs from round to round.
            std::thread::sleep(Duration::from_millis(1500 + round as u64 * 37 % 700));
            let events = (load.count() - first) as u64 * BATCH;
            figures
                .rates
                .push(events as f64 / begun.elapsed().as_secs_f64());

            let ended = fleet.end_owner(end);
            let accepted_at =
                wait_until("events are accepted again", || load.accepted_after(&ended));
            let waited = accepted_at - ended.begun_at;
            figures.accepted.push(waited.as_secs_f64());

            let acknowledged = load.acknowledged_from(checked);
            checked += acknowledged.len();
            let missed = missed(&mut fleet.api(), &acknowledged);
            figures.lost.push((missed.len() as u64 * BATCH) as f64);
            let mut oldest = Duration::ZERO;
            for batch in &missed {
                assert!(may_lose, "round {round}, keys from {}", batch.first);
                assert_eq!(batch.by, ended.address, "round {round}");
                oldest = oldest.max(ended.ended_at.saturating_duration_since(batch.at));
            }
            figures.ages.push(oldest.as_secs_f64());
            assert!(oldest <= last_moment, "round {round}: {oldest:?}");
            lost.extend(missed.iter().map(|batch| batch.first));

            fleet.add();
            *load.addresses.lock().unwrap() = fleet.addresses();
        }
    });

    // Each key was sent in one batch, and repeated with its request key: it was new once, and is
    // there, whoever owned the window since.
    let mut acknowledged = load.acknowledged_from(0);
    for batch in &acknowledged {
        assert_eq!(batch.new, BATCH as u32, "keys from {}", batch.first);
    }
    acknowledged.retain(|batch| !lost.contains(&batch.first));
    assert!(missed(&mut fleet.api(), &acknowledged).is_empty());
    figures
}

/// The batches of which the window lacks a key.
fn missed(api: &mut Api, batches: &[Acknowledged]) -> Vec<Acknowledged> {
    let mut missed = Vec::new();
    for batches in batches.chunks(40) {
        let keys: Vec<DeviceKey> = batches.iter().flat_map(Acknowledged::keys).collect();
        let seen = flags(&api.binary(&path("w", "check"), &keys), keys.len());
        for (batch, seen) in batches.iter().zip(seen.chunks(BATCH as usize)) {
            if seen.contains(&false) {
                missed.push(*batch);
            }
        }
    }
    missed
}

/// Number of ends of a long run, or one.
fn number_of(variable: &str) -> usize {
    std::env::var(variable).map_or(1, |text| text.parse().unwrap())
}

/// Kills owners, and stops others.
fn kill_and_stop_owners(name: &str, place: fn() -> Place, durability: &'static str) {
    for (end, what, variable) in [
        (End::Kill, "kills", "OWNER_KILLS"),
        (End::Stop, "stops", "OWNER_STOPS"),
    ] {
        let ends = number_of(variable);
        let mut place = place();
        // Ten seconds of events each.
        place.capacity += ends * 200_000;
        end_owners(&place, durability, end, ends).report(&format!("{name}, {what}"));
    }
}

#[test]
fn no_acknowledged_event_is_lost_with_a_killed_owner_of_a_directory() {
    kill_and_stop_owners("directory, store", Place::directory, "store");
}

#[test]
fn no_acknowledged_event_is_lost_with_a_killed_owner_of_a_slow_bucket() {
    kill_and_stop_owners("bucket, store", Place::slow_bucket, "store");
}

#[test]
fn lost_disk_of_an_owner_of_a_directory_costs_its_last_moment() {
    kill_and_stop_owners("directory, disk", Place::directory, "disk");
}

#[test]
fn lost_disk_of_an_owner_of_a_slow_bucket_costs_its_last_moment() {
    kill_and_stop_owners("bucket, disk", Place::slow_bucket, "disk");
}

#[test]
fn standby_takes_over_after_a_stop_in_every_store() {
    for durability in ["disk", "store"] {
        let (sandbox, url) = directory_or_bucket(&format!("windows-{durability}"));
        let place = Place {
            sandbox,
            url,
            environment: Vec::new(),
            capacity: 5_000_000,
            _bucket: None,
        };
        let one = place.serve("one", durability).until_owner();
        assert_eq!(send(&mut one.connect(), 0..1000), 1000);
        let two = place.serve("two", durability);
        let mut standby = two.connect();
        for route in ["events", "check", "forget"] {
            standby
                .binary(&path("w", route), &keys(0..1))
                .problem(503, "not_owner");
        }
        let ready = two.admin().get("/readyz");
        let expected = (503, "standby: this process does not own its windows\n");
        assert_eq!((ready.status, ready.text().as_str()), expected);
        until_followed(&one, &two);
        assert_eq!(info(&mut standby, "w")["role"], "standby");
        assert_eq!(info(&mut one.connect(), "w")["role"], "owner");

        one.stop();
        let two = two.until_owner();
        assert_eq!(send(&mut two.connect(), 0..1010), 10);
        assert_eq!(info(&mut two.connect(), "w")["role"], "owner");
        // It stops and starts again, with its files or without.
        two.stop();
        let two = place.serve("two", durability).until_owner();
        assert_eq!(send(&mut two.connect(), 0..1020), 10);
    }
}

/// A stopped process does not know that it is not the owner any more.
#[test]
fn owner_that_was_paused_acknowledges_nothing_after_a_take_over() {
    for durability in ["store", "disk"] {
        let place = Place::directory();
        let one = place.serve("one", durability).until_owner();
        assert_eq!(send(&mut one.connect(), 0..1000), 1000);
        let two = place.serve("two", durability);
        until_followed(&one, &two);

        let mut earlier = one.connect();
        one.signal("STOP");
        let two = two.until_owner();
        // It waits in the socket until the process goes on.
        earlier.send_binary(&path("w", "events"), &keys(5000..5050));
        one.signal("CONT");
        if let Some(answer) = earlier.0.next() {
            answer.problem(503, "not_durable");
        }
        let ended = one.wait();
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert!(ended.stderr.contains("it owns the window"), "{ended:?}");
        assert_eq!(send(&mut two.connect(), 0..1000), 0);
        assert_eq!(send(&mut two.connect(), 5000..5050), 50);
    }
}

/// A killed owner's disk, copied to another machine: both may take over at once.
#[test]
fn one_of_two_processes_with_copies_of_a_disk_owns_the_window() {
    let place = Place::directory();
    let one = place.serve("one", "disk").until_owner();
    assert_eq!(send(&mut one.connect(), 0..1000), 1000);
    one.kill();
    for (name, bytes) in files(&place.state("one")) {
        let copy = place.state("two").join(name);
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::write(copy, bytes).unwrap();
    }

    let begun = Instant::now();
    let processes = [place.serve("one", "disk"), place.serve("two", "disk")];
    wait_until("an owner", || processes.iter().any(Serve::is_ready));
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "it need not wait"
    );
    std::thread::sleep(Duration::from_secs(3));
    let owners: Vec<&Serve> = processes.iter().filter(|serve| serve.is_ready()).collect();
    let [owner] = owners[..] else {
        panic!("{} owners", owners.len())
    };
    // Events that were not in the store yet are of the disk.
    assert_eq!(send(&mut owner.connect(), 0..1001), 1);
}

#[test]
fn second_signal_gives_the_window_up_and_says_so() {
    let place = Place::directory();
    let one = place.serve("one", "store").until_owner();
    assert_eq!(send(&mut one.connect(), 0..1000), 1000);
    // A request whose body does not end keeps the drain waiting.
    let Api(mut open) = one.connect();
    open.send(format!(
        "POST {} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 100\r\n\r\n{{",
        path("w", "events")
    ));
    // It is in progress.
    std::thread::sleep(Duration::from_millis(500));
    one.signal("TERM");
    one.log("stop requested; finishing accepted writes", 1);
    one.signal("TERM");
    let outcome = one.wait();
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    for words in ["window not given back", "stopped by a second signal"] {
        assert!(outcome.stderr.contains(words), "{outcome:?}");
    }
}

/// The message of a process that ends.
fn ended(place: &Place, name: &str, windows: &str) -> String {
    let state = place.state(name).display().to_string();
    let config = format!("state_dir = {state:?}\n{windows}");
    make_old(&place.sandbox.file(&format!("{name}.toml"), config));
    make_old(&place.sandbox.file("tokens", format!("{TOKEN}\n")));
    let outcome = place.sandbox.run(&format!(
        "--store {} --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --token-file {{}}/tokens \
         --config {{}}/{name}.toml",
        place.url
    ));
    assert_ne!(outcome.status, Some(0), "{outcome:?}");
    outcome.stderr
}

#[test]
fn content_that_is_not_the_windows_ends_the_start_and_leaves_it_to_its_owner() {
    let place = Place::directory();
    let one = place.serve("one", "store").until_owner();
    assert_eq!(send(&mut one.connect(), 0..1000), 1000);

    let larger = WINDOW.replace("5_000_000", "200_000");
    let message = ended(&place, "two", &larger);
    assert!(message.contains("a window of another shape"), "{message}");
    assert!(message.contains("capacity 200000"), "{message}");
    let follower = "[[audience]]\nname = \"a\"\nfrom_window = \"w\"\n";
    let message = ended(&place, "two", &format!("{WINDOW}{follower}"));
    assert!(message.contains("whole slots, found"), "{message}");
    assert_eq!(send(&mut one.connect(), 0..1001), 1);
    one.stop();

    let segment = place
        .sandbox
        .path()
        .join("s/.windows/w/log")
        .join(format!("{:020}", 2));
    let sound = std::fs::read(&segment).unwrap();
    let mut flipped = sound.clone();
    *flipped.last_mut().unwrap() ^= 1;
    for damaged in [&flipped[..], &sound[..sound.len() - 1]] {
        std::fs::write(&segment, damaged).unwrap();
        let message = ended(&place, "two", WINDOW);
        assert!(message.contains("segment 2: damaged"), "{message}");
    }
    std::fs::remove_file(&segment).unwrap();
    let message = ended(&place, "two", WINDOW);
    assert!(message.contains("expected segment 2"), "{message}");
    std::fs::write(&segment, &sound).unwrap();
    let two = place.serve("two", "store").until_owner();
    assert_eq!(send(&mut two.connect(), 0..1002), 1);
}

#[test]
fn start_without_the_mounted_store_changes_nothing() {
    let place = Place::directory();
    let store = place.sandbox.path().join("s");
    let one = place.serve("one", "disk").until_owner();
    assert_eq!(send(&mut one.connect(), 0..1000), 1000);
    one.kill();
    let mounted = place.sandbox.path().join("mounted");
    std::fs::rename(&store, &mounted).unwrap();
    let message = ended(&place, "one", WINDOW);
    assert!(
        message.contains("check the path and the mount"),
        "{message}"
    );
    assert!(!store.exists());

    std::fs::rename(&mounted, &store).unwrap();
    let one = place.serve("one", "disk").until_owner();
    assert_eq!(send(&mut one.connect(), 0..1001), 1);
}

/// Only windows have an owner.
#[test]
fn standby_writes_audiences() {
    let place = Place::directory();
    let _one = place.serve("one", "store").until_owner();
    let two = place.serve("two", "store");
    let mut standby = two.connect();
    standby.create();
    let added = standby.write("add", &["0123456789abcdef0123456789abcdef".to_owned()]);
    assert_eq!(added["accepted"], 1);
    assert_eq!(standby.get(AUDIENCE).ok()["state"], json!("live"));
}
