//! Devices that get other answers than under another config, in words.

use std::fmt::{self, Display, Formatter};

use rtad::config::{Config, Difference, StrategyConfig, differences, experiments};
use rtad::replay::changes_answers;
use rtad::strategy::{Experiment, Slots};
use rtad_core::experiment::SLOTS;
use rtad_core::snapshot::AudienceName;
use toml::{Table, Value};

use super::{limit, rule_text};

/// A line for each change that gives devices other answers.
pub struct Changes<'c> {
    pub before: &'c Config,
    pub after: &'c Config,
}

impl Display for Changes<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut lines = Vec::new();
        self.add_strategies(&mut lines);
        self.add_experiments(&mut lines);
        self.add_caps(&mut lines);
        self.add_keys(&mut lines);
        if lines.is_empty() {
            lines.push("none: every device gets the same answers".to_owned());
        }
        for line in lines {
            writeln!(f, "change     {line}")?;
        }
        Ok(())
    }
}

impl Changes<'_> {
    /// Strategies that are new or gone, or whose rule is another.
    fn add_strategies(&self, lines: &mut Vec<String>) {
        for strategy in &self.after.strategies {
            let name = &strategy.name;
            let rule = rule_text(self.after, strategy);
            let Some(earlier) = strategy_named(self.before, name) else {
                lines.push(format!("strategy {name} is new: {rule}"));
                continue;
            };

            let is_same = strategy.when == earlier.when
                && strategy.shadow == earlier.shadow
                && strategy.cap == earlier.cap;
            if is_same {
                if let Some(members) = missing_names(&earlier.exclude, &strategy.exclude) {
                    lines.push(format!(
                        "strategy {name}: no more bids for members of {members}"
                    ));
                }
                if let Some(members) = missing_names(&strategy.exclude, &earlier.exclude) {
                    lines.push(format!(
                        "strategy {name}: members of {members} may get bids"
                    ));
                }
                continue;
            }

            let earlier_rule = rule_text(self.before, earlier);
            if rule != earlier_rule {
                lines.push(format!("strategy {name}: {rule}; before: {earlier_rule}"));
            }
        }

        for strategy in &self.before.strategies {
            let name = &strategy.name;
            if strategy_named(self.after, name).is_none() {
                lines.push(format!("strategy {name} is gone: no bid by it"));
            }
        }
    }

    /// Devices that get a bucket or lose theirs.
    fn add_experiments(&self, lines: &mut Vec<String>) {
        let before = experiments(&self.before.experiments);
        let after = experiments(&self.after.experiments);
        for experiment in &after {
            let name = &experiment.name;
            let Some(earlier) = before.iter().find(|it| it.name == *name) else {
                let share = percent(share_with_bucket(experiment, experiment));
                lines.push(format!(
                    "experiment {name} is new: {share} of devices have a bucket"
                ));
                continue;
            };

            let kept = share_with_bucket(experiment, earlier);
            let gained = share_with_bucket(experiment, experiment) - kept;
            let lost = share_with_bucket(earlier, earlier) - kept;
            if gained > 0.0 || lost > 0.0 {
                let gained = percent(gained);
                let lost = percent(lost);
                lines.push(format!(
                    "experiment {name}: {gained} of devices get a bucket, {lost} lose theirs"
                ));
            }
        }
        for experiment in &before {
            let name = &experiment.name;
            if !after.iter().any(|it| it.name == *name) {
                let share = percent(share_with_bucket(experiment, experiment));
                lines.push(format!(
                    "experiment {name} is gone: {share} of devices lose their bucket"
                ));
            }
        }
    }

    fn add_caps(&self, lines: &mut Vec<String>) {
        for cap in &self.after.caps {
            let name = &cap.name;
            let mut caps = self.before.caps.iter();
            match caps.find(|earlier| earlier.name == *name) {
                Some(earlier) if cap == earlier => {}
                Some(earlier) => {
                    let before = limit(earlier);
                    lines.push(format!("cap {name}: {}; before: {before}", limit(cap)));
                }
                None => lines.push(format!("cap {name} is new: {}", limit(cap))),
            }
        }

        for cap in &self.before.caps {
            let mut caps = self.after.caps.iter();
            if !caps.any(|later| later.name == cap.name) {
                lines.push(format!("cap {} is gone", cap.name));
            }
        }
    }

    /// The other keys that change answers, with their values.
    fn add_keys(&self, lines: &mut Vec<String>) {
        let before = self.before.to_table();
        let after = self.after.to_table();
        for difference in differences(&after, &before) {
            let key = difference.key.as_str();
            let is_shown = matches!(key, "strategy" | "strategy.exclude" | "strategy.shadow")
                || key.starts_with("strategy.when")
                || matches!(key, "strategy.cap" | "cap")
                || key.starts_with("cap.")
                || matches!(key, "experiment" | "experiment.traffic")
                || matches!(key, "experiment.buckets" | "experiment.buckets.slots");

            // An audience is read by rules, which are shown.
            if is_shown || key == "audience" || !changes_answers(key) {
                continue;
            }
            lines.push(key_line(&difference, &after, &before));
        }
    }
}

/// A key and its values.
fn key_line(difference: &Difference, after: &Table, before: &Table) -> String {
    let path = &difference.path;
    let new = value_at(after, path);
    let old = value_at(before, path);
    if difference.key == "platform" {
        let word = if new.is_some() { "new" } else { "gone" };
        let name = difference.names.concat();
        return format!("platform {name} is {word}");
    }

    let new_text = new.map_or("unset".to_owned(), Value::to_string);
    let old_text = old.map_or("unset".to_owned(), Value::to_string);
    format!("{path} = {new_text}; before: {old_text}")
}

/// The value at a path of keys and names.
fn value_at<'t>(table: &'t Table, path: &str) -> Option<&'t Value> {
    let (key, rest) = match path.split_once('.') {
        // A key of a map may have dots.
        Some(_) if table.contains_key(path) => (path, None),
        Some((key, rest)) => (key, Some(rest)),
        None => (path, None),
    };
    let value = table.get(key)?;
    let Some(rest) = rest else {
        return Some(value);
    };

    match value {
        Value::Table(inner) => value_at(inner, rest),
        Value::Array(list) => {
            let (name, rest) = match rest.split_once('.') {
                Some((name, rest)) => (name, Some(rest)),
                None => (rest, None),
            };
            let entry = list
                .iter()
                .find(|entry| entry.get("name").and_then(Value::as_str) == Some(name))?;
            match rest {
                Some(rest) => value_at(entry.as_table()?, rest),
                None => Some(entry),
            }
        }
        _ => None,
    }
}

/// The names that `before` lacks.
fn missing_names(before: &[AudienceName], after: &[AudienceName]) -> Option<String> {
    let mut missing = Vec::new();
    for name in after {
        if !before.contains(name) {
            missing.push(name.as_str());
        }
    }
    (!missing.is_empty()).then(|| missing.join(", "))
}

fn strategy_named<'c>(config: &'c Config, name: &str) -> Option<&'c StrategyConfig> {
    config.strategies.iter().find(|it| it.name == name)
}

/// Share of all devices that have the same bucket of both: slots of the layer and of buckets are
/// independent.
pub fn share_with_bucket(experiment: &Experiment, other: &Experiment) -> f64 {
    let mut buckets = 0.0;
    for bucket in &experiment.buckets {
        if let Some(same) = other.buckets.iter().find(|it| it.name == bucket.name) {
            buckets += common_share(&bucket.slots, &same.slots);
        }
    }
    buckets * common_share(&experiment.traffic, &other.traffic)
}

/// Share of the slots that are in both.
fn common_share(slots: &Slots, other: &Slots) -> f64 {
    let common = (0..SLOTS).filter(|slot| slots.contains(*slot) && other.contains(*slot));
    common.count() as f64 / f64::from(SLOTS)
}

/// A share in percent, such as `12.5 %`.
pub fn percent(share: f64) -> String {
    let rounded = (share * 1e4).round() / 1e2;
    format!("{rounded} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(before: &str, after: &str) -> Vec<String> {
        let read = |text: &str| toml::from_str::<Config>(text).unwrap();
        let (before, after) = (read(before), read(after));
        let changes = Changes {
            before: &before,
            after: &after,
        };
        let text = changes.to_string();
        let lines = text.lines().map(|line| line.strip_prefix("change     "));
        lines.map(|line| line.unwrap().to_owned()).collect()
    }

    const CONFIG: &str = "
[[audience]]
name = \"a\"
[[audience]]
name = \"b\"
[[strategy]]
name = \"s\"
exclude = [\"a\"]
cap = \"c\"
[[cap]]
name = \"c\"
limit = 30
period = \"day\"
time_zone = \"UTC\"
[[experiment]]
name = \"e\"
traffic = \"0..9000\"
buckets = [{ name = \"x\", slots = \"0..5000\" }]
[[platform]]
kind = \"tencent\"
name = \"p\"
path = \"/p\"
strategies = { T1 = \"s\" }
";

    #[test]
    fn keys_without_an_effect_are_no_change() {
        let none = ["none: every device gets the same answers"];
        assert_eq!(lines(CONFIG, CONFIG), none);
        let moved = format!("[server]\nlisten = \"0.0.0.0:80\"\n{CONFIG}");
        assert_eq!(lines(CONFIG, &moved), none);
    }

    #[test]
    fn change_is_told_by_who_gets_other_answers() {
        for (from, to, expected) in [
            (
                "exclude = [\"a\"]",
                "exclude = [\"b\", \"a\"]",
                "strategy s: no more bids for members of b",
            ),
            (
                "exclude = [\"a\"]",
                "exclude = [\"b\"]\nwhen = \"a\"",
                "strategy s: bid unless in b, if a, up to c; before: bid unless in a, up to c",
            ),
            (
                "exclude = [\"a\"]",
                "exclude = [\"a\"]\nunavailable = \"bid\"",
                "strategy.s.unavailable = \"bid\"; before: \"no_bid\"",
            ),
            (
                "limit = 30",
                "limit = 10",
                "cap c: 10 distinct devices per day in UTC; before: 30 distinct devices per \
                 day in UTC",
            ),
            (
                "\"0..5000\"",
                "\"0..6000\"",
                "experiment e: 9 % of devices get a bucket, 0 % lose theirs",
            ),
            (
                "T1 = \"s\"",
                "T1 = \"s\", \"T.2\" = \"s\"",
                "platform.p.strategies.T.2 = \"s\"; before: unset",
            ),
            (
                "path = \"/p\"",
                "path = \"/p\"\nbid_cache = \"1h\"",
                "platform.p.bid_cache = \"1h\"; before: unset",
            ),
            ("name = \"p\"", "name = \"q\"", "platform p is gone"),
        ] {
            let found = lines(CONFIG, &CONFIG.replacen(from, to, 1));
            assert_eq!(found[0], expected);
        }

        let wider = CONFIG.replace("0..9000", "0..9500");
        let expected = "experiment e: 2.5 % of devices get a bucket, 0 % lose theirs";
        assert_eq!(lines(CONFIG, &wider), [expected]);
        let fewer = CONFIG.replace("name = \"s\"\nexclude", "name = \"t\"\nexclude");
        assert_eq!(
            lines(CONFIG, &fewer),
            [
                "strategy t is new: bid unless in a, up to c",
                "strategy s is gone: no bid by it",
            ]
        );
    }
}
