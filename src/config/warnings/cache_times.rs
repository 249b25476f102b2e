//! Cache times that a platform does not keep to.

use rtad_config::values::Time;

use super::super::StrategyConfig;
use super::Protocol;

/// The warnings about a platform.
pub fn of_platform(protocol: &Protocol<'_>, strategies: &[StrategyConfig]) -> Vec<String> {
    let mut warnings = Vec::new();
    let name = &protocol.platform.name;
    let least = protocol.kind.least_cache;
    let bid_cache = protocol.platform.bid_cache;
    let no_bid_cache = protocol.platform.no_bid_cache;
    for (key, time) in [("bid_cache", bid_cache), ("no_bid_cache", no_bid_cache)] {
        if time.is_some_and(|time| time < least) {
            let time = Time(time.unwrap_or_default());
            let least = Time(least);
            warnings.push(format!(
                "{key} = {time} of the platform {name} is less than the {least} for which it keeps \
                 every answer"
            ));
        }
    }
    if !protocol.carries_cache() {
        return warnings;
    }

    let mut timed = Vec::new();
    for strategy in strategies {
        let is_timed = strategy.cap.is_some() || strategy.schedule().is_some();
        if is_timed && !strategy.shadow && protocol.platform.maps(strategy) {
            timed.push(strategy.name.as_str());
        }
    }
    if timed.is_empty() {
        return warnings;
    }
    let timed = timed.join(", ");
    if bid_cache.is_none() {
        warnings.push(format!(
            "bid_cache of the platform {name} is not set: it may keep bids of {timed} beyond the \
             end of a cap's period or of a schedule"
        ));
    }
    if no_bid_cache.is_none() {
        warnings.push(format!(
            "no_bid_cache of the platform {name} is not set: it keeps refusals by caps and \
             schedules of {timed} for an hour at most, and other answers without a bid as long as \
             it decides"
        ));
    }
    warnings
}
