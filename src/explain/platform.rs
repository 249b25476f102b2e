//! Decisions about a captured request of a platform, and its answer.

use std::collections::BTreeSet;
use std::time::SystemTime;

use super::capture::{Captured, Outcome, access_by_headers};
use super::explainer::Explainer;
use super::parts::{ExplainedDevice, explain_strategies};
use super::report::{AccessChecked, ExplainedAnswer, FailureExplained, StrategyExplained};
use super::trace::Trace;
use crate::catalog::Catalog;
use crate::platform::{Admission, Failure, MAX_IDS, Platform, Purpose, Read, ReadError, Verdicts};
use crate::strategy::Strategy;
use tokio::time::Instant;

/// Decides about a captured request as the platform's route does, and counts nothing.
pub fn decide(explainer: &Explainer<'_>, platform: &Platform, captured: &Captured<'_>) -> Outcome {
    let Explainer { catalog, ids, .. } = *explainer;
    let head = captured.head;
    let admission = if captured.has_headers {
        Admission::ByHeaders
    } else {
        Admission::Granted
    };
    let body = if captured.body.len() > captured.max_body {
        Err(Failure::TooLarge)
    } else {
        Ok(captured.body.clone())
    };

    let mut read = Read::default();
    let at = Instant::now();
    // Several if each id is a device of its own.
    let mut decided: Vec<(Trace, Verdicts)> = Vec::new();
    let answered = platform.respond(admission, head, &body, &mut read, |read, answered| {
        let trace = Trace::of(read, ids);
        let mut facts = catalog.no_facts(&trace.keys);
        catalog.add_facts(&trace.keys, read, &mut facts);
        if let Some(time) = captured.at {
            // A strategy that is paused now was not looked up.
            catalog.complete(&trace.keys, &mut facts);
            catalog.pause_at(time, &mut facts);
        }
        catalog.decide(read.strategies(), &facts, answered);
        catalog.would_admit(&trace.keys, at, captured.at, answered);
        decided.push((trace, answered.clone()));
        catalog.remove_shadow(answered);
    });

    let is_batch = read.purpose == Purpose::Devices;
    let mut trace = Trace::of(&read, ids);
    let are_too_many = if is_batch {
        read.ids.len() > MAX_IDS
    } else {
        trace.keys.has_too_many_ids()
    };
    let too_many = are_too_many.then_some(Failure::TooManyIds);
    let detail = answered.error.as_ref().and_then(|error| match error {
        ReadError::Failed(_) => None,
        unreadable => Some(unreadable.to_string()),
    });
    let cause = answered.failure().or(too_many);
    let failure = cause.map(|failure| FailureExplained {
        cause: failure.as_str(),
        detail,
    });

    let strategies = if is_batch {
        explain_devices(explainer, platform, &read, captured.at, &mut trace, decided)
    } else {
        let verdicts = match decided.pop() {
            Some((_, verdicts)) => verdicts,
            None => Verdicts::new(),
        };
        explain_device(catalog, platform, &read, captured.at, &trace, &verdicts)
    };
    let answer = ExplainedAnswer {
        status: 200,
        content_type: platform.content_type(),
        size_bytes: answered.bytes.len(),
        hex: const_hex::encode(&answered.bytes),
        text: platform.describe_answer(&answered.bytes),
    };
    Outcome {
        access: access_of(platform, captured),
        trace,
        is_batch,
        audiences: audiences(catalog, platform),
        strategies,
        failure,
        answer,
    }
}

fn access_of(platform: &Platform, captured: &Captured<'_>) -> AccessChecked {
    let headers = captured.head.headers;
    match access_by_headers(&platform.access, headers, captured.has_headers) {
        AccessChecked::Open if platform.adapter.requires_signature() => AccessChecked::BySignature,
        access => access,
    }
}

/// The indexes of the audiences that the platform's strategies read.
pub fn audiences(catalog: &Catalog, platform: &Platform) -> BTreeSet<usize> {
    let strategies = platform.strategies().map(|index| catalog.strategy(index));
    strategies.flat_map(Strategy::audiences).collect()
}

/// The requested strategies, in the request's order; every deciding strategy if it names none.
fn explain_device(
    catalog: &Catalog,
    platform: &Platform,
    read: &Read<'_>,
    at: Option<SystemTime>,
    trace: &Trace,
    verdicts: &Verdicts,
) -> Vec<StrategyExplained> {
    let device = ExplainedDevice::new(catalog, &trace.keys, read.attributes(), at);
    let mut asked = trace.asked.clone();
    if asked.is_empty() {
        for (id, index) in platform.strategy_ids() {
            asked.push((id, Some(index)));
        }
    }

    explain_strategies(catalog, asked, &device, verdicts)
}

/// The strategies' decisions about each id as a device of its own. The trace gets the results of
/// its ids.
fn explain_devices(
    explainer: &Explainer<'_>,
    platform: &Platform,
    read: &Read<'_>,
    at: Option<SystemTime>,
    trace: &mut Trace,
    decided: Vec<(Trace, Verdicts)>,
) -> Vec<StrategyExplained> {
    let mut explained = Vec::new();
    let listed = trace.ids.len();
    trace.ids.clear();
    for (mut device, verdicts) in decided.into_iter().take(listed) {
        let catalog = explainer.catalog;
        let mut strategies = explain_device(catalog, platform, read, at, &device, &verdicts);
        let Some(mut id) = device.ids.pop() else {
            continue;
        };

        id.log_device = explainer.log_device(&device.keys);
        for one in &mut strategies {
            one.device = Some(id.value.clone());
        }
        explained.append(&mut strategies);
        trace.ids.push(id);
    }
    explained
}
