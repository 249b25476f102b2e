//! Assembly: from a configuration to what is served.
//!
//! Reading the configuration and building its platforms are one step, so that mistakes of either
//! kind are reported together, and nothing is served before there are none.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use strum::VariantNames as _;

use crate::catalog::{ApiAccess, Audience};
use crate::config::{
    Config, ConfigError, ConfigUse, Flags, KindRules, Location, Mistake, PartNames, PlatformConfig,
    StrategyConfig, ValueConfig, Vocabulary, experiments,
};
use crate::platform::{Access, Failure, KINDS, Platform};
use crate::strategy::{Rule, Scheduled, Strategy, ValueEntry};
use crate::sync::CatalogPlan;
use crate::telemetry::Route;
use rtad_core::files::may_be_unfinished;
use rtad_core::snapshot::AudienceName;

/// A configuration without mistakes, and the platforms that were built from it.
#[derive(Debug, Clone)]
pub struct Assembly {
    /// The configuration.
    pub config: Config,
    /// Its platforms, in its order.
    pub platforms: Vec<Arc<Platform>>,
}

impl Assembly {
    /// Reads a configuration and builds its platforms; the arguments are those of [`Config::read`].
    /// May read files: secrets, public keys and schemas.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with every mistake.
    pub fn read(
        file: Option<(&str, &str)>,
        environment: impl Fn(&str) -> Option<String>,
        flags: &Flags,
    ) -> Result<Self, ConfigError> {
        Self::read_for(ConfigUse::All, file, environment, flags)
    }

    /// As [`Self::read`], for some use.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with every mistake.
    pub fn read_for(
        uses: ConfigUse,
        file: Option<(&str, &str)>,
        environment: impl Fn(&str) -> Option<String>,
        flags: &Flags,
    ) -> Result<Self, ConfigError> {
        let kinds = KINDS.map(|kind| kind.rules);
        let (mut config, mut mistakes) =
            Config::read(file, environment, flags, &vocabulary(&kinds), uses)?;

        // After another mistake, such as one of syntax, they may be missing only because of it.
        let is_sound = mistakes.list().is_empty();
        if is_sound && config.audiences.is_empty() && config.strategies.is_empty() {
            mistakes.add(Mistake {
                location: Location::Key("audience".to_owned()),
                found: "is missing".to_owned(),
                accepted: "an [[audience]] or a [[strategy]]: there is nothing to serve".to_owned(),
            });
        }

        let mut fingerprint = DefaultHasher::new();
        config.fingerprint.hash(&mut fingerprint);
        let mut platforms = Vec::with_capacity(config.platforms.len());
        for platform in &config.platforms {
            match build(platform, &config) {
                Ok(platform) => {
                    platform.adapter.schema_fingerprint().hash(&mut fingerprint);
                    platforms.push(Arc::new(platform));
                }
                Err(found) => {
                    for mistake in found {
                        mistakes.add(mistake);
                    }
                }
            }
        }
        config.fingerprint = fingerprint.finish();
        mistakes.into_result(Self { config, platforms })
    }

    /// Whether the config's `file`, or one that it names, may still be being written.
    pub fn may_be_unfinished(&self, file: &Path) -> bool {
        for platform in &self.config.platforms {
            if platform.proto.is_some() && may_be_unfinished(&platform.proto_path) {
                return true;
            }
        }
        may_be_unfinished(file) || self.config.files.iter().any(|file| may_be_unfinished(file))
    }

    /// Consequences of valid settings that surprise: a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        self.config.warnings(&KINDS.map(|kind| kind.rules))
    }

    /// The plan for sync.
    pub fn plan(&self) -> CatalogPlan {
        let config = &self.config;
        let parts = PartNames::of(&config.experiments);

        let mut audiences = Vec::with_capacity(config.audiences.len());
        for audience in &config.audiences {
            let name = audience.name.clone();
            audiences.push(Audience::unloaded(
                name,
                audience.required,
                audience.max_age,
            ));
        }
        let mut strategies = Vec::with_capacity(config.strategies.len());
        for strategy in &config.strategies {
            strategies.push(strategy_of(config, strategy, &parts));
        }

        let api = &config.server.api;
        let mut tokens = Vec::with_capacity(api.tokens.len());
        for token in &api.tokens {
            tokens.push((AUTHORIZATION, token.clone()));
        }

        CatalogPlan {
            audiences,
            strategies,
            experiments: experiments(&config.experiments),
            caps: config.caps.clone(),
            platforms: self.platforms.clone(),
            config_id: config.id.clone(),
            api: ApiAccess {
                is_public: api.public,
                tokens: Access::any_of(tokens),
            },
            poll_interval: config.store.poll_interval,
            max_snapshot_bytes: config.store.max_snapshot_size,
            swap: config.store.swap,
        }
    }
}

/// The strategy of an entry, with indexes of the audiences and the cap.
fn strategy_of(config: &Config, strategy: &StrategyConfig, parts: &PartNames) -> Strategy {
    let when = strategy.when.as_ref();
    let rule = when.map(|when| when.rule(&|name| audience_index(config, name), parts));
    let excluded = strategy.exclude.iter();
    let caps = &config.caps;
    let cap = strategy.cap.as_ref();

    let mut values = Vec::with_capacity(strategy.values.len());
    for value in &strategy.values {
        let audience = value.audience.as_ref();
        values.push(ValueEntry {
            audience: audience.and_then(|name| audience_index(config, name)),
            tiers: value.tier,
            part: value.bucket.as_ref().and_then(|name| parts.find(name)),
            value: value.numbers(),
        });
    }

    Strategy {
        name: strategy.name.clone(),
        exclude: excluded
            .filter_map(|name| audience_index(config, name))
            .collect(),
        experiments: read_experiments(rule.as_ref(), &values),
        rule,
        schedule: strategy.schedule().map(Scheduled::new),
        values,
        cap: cap.and_then(|name| caps.iter().position(|it| it.name == *name)),
        is_shadow: strategy.shadow,
        no_device: strategy.no_device,
        unavailable: strategy.unavailable,
    }
}

fn audience_index(config: &Config, name: &AudienceName) -> Option<usize> {
    config.audiences.iter().position(|it| it.name == *name)
}

/// The experiments that a strategy reads, each once.
fn read_experiments(rule: Option<&Rule>, values: &[ValueEntry]) -> Vec<usize> {
    let mut experiments = Vec::new();
    if let Some(rule) = rule {
        for (index, _) in rule.buckets() {
            experiments.push(index);
        }
    }
    for entry in values {
        if let Some((index, _)) = entry.part {
            experiments.push(index);
        }
    }

    experiments.sort_unstable();
    experiments.dedup();
    experiments
}

/// Platform kinds and reserved names, for reading the config.
fn vocabulary(kinds: &[KindRules]) -> Vocabulary<'_> {
    const ROUTES: [&str; Route::ALL.len() + 1] = {
        let [check_one, check_many, decide, unknown] = Route::ALL;
        [
            "api",
            check_one.as_str(),
            check_many.as_str(),
            decide.as_str(),
            unknown.as_str(),
        ]
    };

    Vocabulary {
        kinds,
        reserved_names: &ROUTES,
        failures: Failure::VARIANTS,
    }
}

fn build(
    config: &PlatformConfig,
    Config {
        strategies,
        experiments,
        ..
    }: &Config,
) -> Result<Platform, Vec<Mistake>> {
    let kind = KINDS
        .into_iter()
        .find(|kind| kind.rules.word == config.kind);
    let kind = kind.expect("reading lets only known kinds through");

    let mut ids = Vec::with_capacity(config.strategies.len());
    for (id, name) in &config.strategies {
        // An unknown strategy is a mistake: any index will do.
        let index = strategies.iter().position(|it| it.name == *name);
        ids.push((id.clone(), index.unwrap_or(0)));
    }
    let mut values: Vec<Vec<_>> = Vec::with_capacity(strategies.len());
    for strategy in strategies {
        values.push(strategy.values.iter().map(ValueConfig::numbers).collect());
    }
    let tags = config.tags(experiments, strategies);

    let mut accepted = Vec::with_capacity(config.headers.len());
    for header in &config.headers {
        accepted.push((header.name.clone(), header.secret.clone()));
    }
    Ok(Platform {
        name: config.name.clone(),
        path: config.path.clone(),
        access: Access::any_of(accepted),
        adapter: (kind.build)(config, ids, &values, &tags)?,
    })
}

#[cfg(test)]
mod tests;
