//! The report of a [`day`](crate::day), in Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use crate::audience::HOME;
use crate::day::{BUILD, CHUNKS, DEMAND, FAR, LEAD, Measured, NEAR, REGIONS, Record, STAGE};
use crate::meter::Traffic;
use crate::network::Distance;

/// Chunks and bytes of a list of 1.5 billion ids: the page of performance.
const FULL_CHUNKS: u64 = 256;
const FULL_BYTES: f64 = 4.158e9;
/// Seconds to load 3.60 GB from an S3 server on the same cores: the page of performance.
const LOAD_SECONDS: f64 = 17.8;
/// CPU of a request, in seconds: the page of performance.
const REQUEST_CPU: f64 = 10e-6;

/// Dollars of S3 Standard in us-east-1.
const DOLLARS_PER_GET: f64 = 0.0004 / 1000.0;
const DOLLARS_PER_PUT: f64 = 0.005 / 1000.0;
const DOLLARS_PER_FAR_GB: f64 = 0.02;
const PRICES: &str = "\
| price of S3 Standard, us-east-1 | dollars |
|---|---|
| 1,000 GET, a 404 too | 0.0004 |
| 1,000 PUT or LIST | 0.005 |
| DELETE; bytes within a region | 0 |
| 1 GB between regions | 0.02 |

Sources: aws.amazon.com/s3/pricing for requests; AWS re:Post, \"Cost effective methods for accessing
S3 buckets cross-region\", verified by AWS in January 2026, for bytes. Storage is not included.
";

/// The report of a day, whose picture has a name.
pub fn markdown(day: &Measured, picture: &str) -> String {
    let mut report = String::from("# A simulated day\n\n");
    add_plan(&mut report, day);
    let _ = writeln!(report, "![The day, in four strips]({picture})\n");
    add_events(&mut report, day);
    add_bids(&mut report, day);
    add_generations(&mut report, day);
    add_lag(&mut report, day);
    add_requests(&mut report, day);
    add_dollars(&mut report, day);
    add_origins(&mut report);
    report
}

fn add_plan(report: &mut String, day: &Measured) {
    let plan = &day.plan;
    let _ = writeln!(
        report,
        "{} pods in {} regions, `poll_interval = \"{}s\"`, {} hours, seed {}. The first region \
         writes; the others have mirrors, copied every minute. Pods have no `cache_dir`.\n",
        plan.pods,
        REGIONS.len(),
        plan.poll_interval.as_secs(),
        plan.length.as_secs() / 3600,
        plan.seed,
    );
}

fn add_events(report: &mut String, day: &Measured) {
    report.push_str("## Events\n\n| time | event |\n|---|---|\n");
    for event in &day.events {
        let _ = writeln!(report, "| {} | {} |", clock(event.at), event.what);
    }
    report.push('\n');
}

fn add_bids(report: &mut String, day: &Measured) {
    report.push_str(
        "## Bids\n\n| region | requests/s, most | bids/s, most | bids/s, mean | share of requests | \
         cores busy, most |\n|---|---|---|---|---|---|\n",
    );
    for (region, of) in REGIONS.iter().enumerate() {
        let (mut requests, mut most_requests) = (0.0, 0.0_f64);
        let (mut bids, mut most_bids) = (0.0, 0.0_f64);
        for minute in &day.minutes {
            requests += minute.requests[region];
            bids += minute.bids[region];
            most_requests = most_requests.max(minute.requests[region]);
            most_bids = most_bids.max(minute.bids[region]);
        }
        let _ = writeln!(
            report,
            "| {} | {} | {} | {} | {:.1} % | {:.1} |",
            of.name,
            thousands(most_requests),
            thousands(most_bids),
            thousands(bids / day.minutes.len() as f64),
            bids / requests * 100.0,
            most_requests * REQUEST_CPU,
        );
    }
    report.push('\n');
}

/// The minutes of a generation.
#[derive(Default)]
struct Span {
    first: usize,
    last: usize,
    most_pods: u64,
    pods: u64,
    bid_shares: f64,
}

fn add_generations(report: &mut String, day: &Measured) {
    let mut spans = BTreeMap::<u64, Span>::new();
    for (number, minute) in day.minutes.iter().enumerate() {
        for (generation, group) in &minute.generations {
            let span = spans.entry(*generation).or_insert_with(|| Span {
                first: number,
                ..Span::default()
            });
            span.last = number;
            span.most_pods = span.most_pods.max(group.pods);
            span.pods += group.pods;
            span.bid_shares += group.bid_shares;
        }
    }
    report.push_str(
        "## Generations\n\n| generation | pods, most | first minute | last minute | share of \
         requests bid on |\n|---|---|---|---|---|\n",
    );
    for (generation, span) in &spans {
        let _ = writeln!(
            report,
            "| {generation} | {} | {} | {} | {:.1} % |",
            span.most_pods,
            clock(minutes(span.first)),
            clock(minutes(span.last)),
            span.bid_shares / span.pods as f64 * 100.0,
        );
    }
    let _ = writeln!(
        report,
        "\nDuring the list of the wrong people, its pods bid on all but those appended since: the difference \
         between two rows is what an operator sees of it.\n"
    );
}

fn add_lag(report: &mut String, day: &Measured) {
    report.push_str(
        "## Lag\n\nSeconds from a record to the last pod that serves it, looked at once a \
         second.\n\n| pods of | records | median | 99 % | worst | not yet at the end |\n\
         |---|---|---|---|---|---|\n",
    );
    for (region, of) in REGIONS.iter().enumerate() {
        add_lag_row(report, of.name, &day.records, |record| {
            record.seen_at[region]
        });
    }
    add_lag_row(report, "all regions", &day.records, |record| {
        // `None` is less than any time.
        let has_all = record.seen_at.iter().all(Option::is_some);
        record
            .seen_at
            .into_iter()
            .max()
            .flatten()
            .filter(|_| has_all)
    });
    report.push('\n');
}

fn add_lag_row(
    report: &mut String,
    name: &str,
    records: &[Record],
    seen_at: impl Fn(&Record) -> Option<Duration>,
) {
    let mut lags = Vec::new();
    for record in records {
        if let Some(seen_at) = seen_at(record) {
            lags.push(seen_at.saturating_sub(record.at).as_secs_f64());
        }
    }
    lags.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let index = (lags.len() as f64 * share) as usize;
        lags.get(index.min(lags.len().saturating_sub(1))).copied()
    };
    let _ = writeln!(
        report,
        "| {name} | {} | {:.0} | {:.0} | {:.0} | {} |",
        records.len(),
        at(0.5).unwrap_or_default(),
        at(0.99).unwrap_or_default(),
        at(1.0).unwrap_or_default(),
        records.len() - lags.len(),
    );
}

/// The minutes of the world in which the day is.
fn day_minutes(day: &Measured) -> Range<usize> {
    let first = (LEAD.as_secs() / 60) as usize;
    first..first + day.minutes.len()
}

/// Clients of a bucket: those of its region, or the others.
struct Route {
    bucket: &'static str,
    is_near: bool,
}

impl Route {
    /// Nobody asks the mirror of another region.
    fn all() -> Vec<Self> {
        let mut routes = vec![Self {
            bucket: HOME,
            is_near: false,
        }];
        for region in &REGIONS {
            routes.push(Self {
                bucket: region.bucket,
                is_near: true,
            });
        }
        routes
    }

    /// The traffic of some minutes.
    fn traffic(&self, day: &Measured, of: Range<usize>) -> Traffic {
        let mut sum = Traffic::default();
        for meter in &day.meters {
            if meter.bucket == self.bucket && meter.is_near == self.is_near {
                sum.add(&meter.between(of.start, of.end));
            }
        }
        sum
    }
}

fn add_requests(report: &mut String, day: &Measured) {
    report.push_str(
        "## Requests\n\nOf the day, with chunks as simulated:\n\n\
         | clients | bucket | distance | GET | of chunks | PUT | LIST | DELETE |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let all = day_minutes(day);
    for meter in &day.meters {
        let sum = meter.between(all.start, all.end);
        let _ = writeln!(
            report,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            meter.clients,
            meter.bucket,
            distance(meter.is_near),
            sum.gets,
            sum.chunk_gets,
            sum.puts,
            sum.lists,
            sum.deletes,
        );
    }

    report.push_str("\nEach hour, as GET/PUT/LIST/DELETE:\n\n| hour |");
    for route in Route::all() {
        let _ = write!(report, " {}, {} |", route.bucket, distance(route.is_near));
    }
    report.push_str("\n|---|---|---|---|---|\n");
    for (hour, start) in all.clone().step_by(60).enumerate() {
        let _ = write!(report, "| {hour:02} |");
        for route in Route::all() {
            let sum = route.traffic(day, start..all.end.min(start + 60));
            let _ = write!(
                report,
                " {}/{}/{}/{} |",
                sum.gets, sum.puts, sum.lists, sum.deletes
            );
        }
        report.push('\n');
    }
    report.push('\n');
}

/// The traffic of a list of 1.5 billion ids.
struct FullSize {
    gets: f64,
    puts: f64,
    bytes: f64,
}

impl FullSize {
    /// Each chunk of the simulation stands for as many of the larger list.
    fn of(sum: &Traffic) -> Self {
        let chunks = FULL_CHUNKS as f64 / f64::from(CHUNKS);
        let more = chunks - 1.0;
        let sent = (sum.chunk_gets + sum.chunk_puts) as f64;
        Self {
            gets: sum.gets as f64 + sum.chunk_gets as f64 * more,
            puts: (sum.puts + sum.lists) as f64 + sum.chunk_puts as f64 * more,
            bytes: sum.bytes as f64 + sent * FULL_BYTES / f64::from(CHUNKS),
        }
    }

    fn request_dollars(&self) -> f64 {
        self.gets * DOLLARS_PER_GET + self.puts * DOLLARS_PER_PUT
    }
}

fn add_dollars(report: &mut String, day: &Measured) {
    let _ = writeln!(report, "## Bytes and dollars\n\n{PRICES}");
    report.push_str(
        "Of the day, with chunks of 1.5 billion ids but in the column of the simulation:\n\n\
         | bucket | distance | MB, simulated | GB | requests, dollars | bytes, dollars |\n\
         |---|---|---|---|---|---|\n",
    );
    let all = day_minutes(day);
    let mut requests = 0.0;
    let mut transfers = 0.0;
    for route in Route::all() {
        let sum = route.traffic(day, all.clone());
        let full = FullSize::of(&sum);
        let gigabytes = full.bytes / 1e9;
        let transfer = if route.is_near {
            0.0
        } else {
            gigabytes * DOLLARS_PER_FAR_GB
        };
        requests += full.request_dollars();
        transfers += transfer;
        let _ = writeln!(
            report,
            "| {} | {} | {:.1} | {:.1} | {:.3} | {:.3} |",
            route.bucket,
            distance(route.is_near),
            (sum.bytes + sum.chunk_bytes) as f64 / 1e6,
            gigabytes,
            full.request_dollars(),
            transfer,
        );
    }
    let _ = writeln!(report, "| all | | | | {requests:.3} | {transfers:.3} |\n");
    add_poll(report, day);
}

/// Costs of a poll: the requests of pods, without those of chunks.
fn add_poll(report: &mut String, day: &Measured) {
    let all = day_minutes(day);
    let mut gets = 0;
    for meter in &day.meters {
        if meter.clients.starts_with("pods") {
            let sum = meter.between(all.start, all.end);
            gets += sum.gets - sum.chunk_gets;
        }
    }
    let seconds = day.plan.length.as_secs_f64();
    let polls = day.plan.pods as f64 * seconds / day.plan.poll_interval.as_secs_f64();
    let per_poll = gets as f64 / polls;
    let pod_day = gets as f64 / day.plan.pods as f64 * 86_400.0 / seconds * DOLLARS_PER_GET;
    let _ = writeln!(
        report,
        "Polls with what they read of records, deltas and manifests: {per_poll:.2} GETs for each \
         `poll_interval` of a pod, {pod_day:.4} dollars a pod and day.\n"
    );
}

fn add_origins(report: &mut String) {
    let _ = writeln!(
        report,
        "## Origin of the figures\n\n| figure | origin |\n|---|---|\n\
         | order of events, polls, loads, lag, number of requests, answers about devices | simulated: \
         the product's code, in virtual time |\n\
         | bytes of records, deltas and manifests | simulated, of 8,000 devices and a few per append; \
         measured are 17 kB for an append of 1,000 ids |\n\
         | bytes and requests of chunks at 1.5 billion ids | measured: {:.3} GB in {FULL_CHUNKS} \
         chunks, each of the simulation's {CHUNKS} for {} of them |\n\
         | time of a build, {} s; CPU of a request, {:.0} µs | measured, on the machine of \
         docs/explanation/performance.md |\n\
         | time to load a list | not simulated but for its requests: measured are {LOAD_SECONDS} s \
         for 3.60 GB from S3 on two cores, to add to the lag of a list |\n\
         | demand, from {:.0} to 100 % of the busiest hour; lists, appends, erasures, faults | \
         assumed |\n\
         | requests take {} ms within a region, {} ms between regions | assumed |\n\
         | {} % of the pods for a stage | as planned; a pod's name decides |\n\
         | dollars | simulated number of requests times the prices above |",
        FULL_BYTES / 1e9,
        FULL_CHUNKS / u64::from(CHUNKS),
        BUILD.as_secs(),
        REQUEST_CPU * 1e6,
        DEMAND.into_iter().fold(1.0, f64::min) * 100.0,
        there_and_back(NEAR),
        there_and_back(FAR),
        STAGE / 10_000,
    );
}

fn there_and_back(distance: Distance) -> String {
    format!("{} to {}", distance.least * 2 - 1, distance.most * 2 - 1)
}

const fn distance(is_near: bool) -> &'static str {
    if is_near { "near" } else { "far" }
}

fn minutes(number: usize) -> Duration {
    Duration::from_secs(number as u64 * 60)
}

fn clock(time: Duration) -> String {
    let minutes = time.as_secs() / 60;
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

/// A number with commas between thousands.
pub fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
