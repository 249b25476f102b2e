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
    AudienceConfig, Config, ConfigError, ConfigUse, Flags, KindRules, Location, Mistake, PartNames,
    PlatformConfig, StrategyConfig, ValueConfig, Vocabulary, experiments,
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
                Err(found) => found.into_iter().for_each(|mistake| mistakes.add(mistake)),
            }
        }
        config.fingerprint = fingerprint.finish();
        mistakes.into_result(Self { config, platforms })
    }

    /// Whether the config's `file`, or one that it names, may still be being written.
    pub fn may_be_unfinished(&self, file: &Path) -> bool {
        let platforms = self.config.platforms.iter();
        let with_schema = platforms.filter(|platform| platform.proto.is_some());
        let mut schemas = with_schema.map(|platform| &platform.proto_path);
        may_be_unfinished(file)
            || self.config.files.iter().any(|file| may_be_unfinished(file))
            || schemas.any(|schema| may_be_unfinished(schema))
    }

    /// Consequences of valid settings that surprise: a sentence each. On Kubernetes a cache
    /// directory may be empty in a new pod.
    pub fn warnings(&self) -> Vec<String> {
        let is_on_kubernetes = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        self.config
            .warnings(is_on_kubernetes, &KINDS.map(|kind| kind.rules))
    }

    /// The plan for sync.
    pub fn plan(&self) -> CatalogPlan {
        let config = &self.config;
        let index = |name: &AudienceName| {
            config
                .audiences
                .iter()
                .position(|audience| audience.name == *name)
        };
        let indices = |names: &[AudienceName]| names.iter().filter_map(index).collect();
        let audience = |config: &AudienceConfig| {
            Audience::unloaded(config.name.clone(), config.required, config.max_age)
        };
        let cap_index = |name: &String| config.caps.iter().position(|cap| cap.name == *name);
        let parts = PartNames::of(&config.experiments);
        let value = |config: &ValueConfig| ValueEntry {
            audience: config.audience.as_ref().and_then(&index),
            tiers: config.tier,
            part: config.bucket.as_ref().and_then(|name| parts.find(name)),
            value: config.numbers(),
        };
        let strategy = |config: &StrategyConfig| {
            let rule = config.when.as_ref().map(|when| when.rule(&index, &parts));
            let values: Vec<_> = config.values.iter().map(value).collect();
            Strategy {
                name: config.name.clone(),
                exclude: indices(&config.exclude),
                experiments: read_experiments(rule.as_ref(), &values),
                rule,
                schedule: config.schedule().map(Scheduled::new),
                values,
                cap: config.cap.as_ref().and_then(&cap_index),
                is_shadow: config.shadow,
                no_device: config.no_device,
                unavailable: config.unavailable,
            }
        };
        let api = &config.server.api;
        let tokens = api
            .tokens
            .iter()
            .map(|token| (AUTHORIZATION, token.clone()));
        CatalogPlan {
            audiences: config.audiences.iter().map(audience).collect(),
            strategies: config.strategies.iter().map(strategy).collect(),
            experiments: experiments(&config.experiments),
            caps: config.caps.clone(),
            cap_leases: config.cap_leases.clone(),
            platforms: self.platforms.clone(),
            config_id: config.id.clone(),
            api: ApiAccess {
                is_public: api.public,
                tokens: Access::any_of(tokens.collect()),
            },
            poll_interval: config.store.poll_interval,
            max_snapshot_bytes: config.store.max_snapshot_size,
            swap: config.store.swap,
        }
    }
}

/// The experiments that a strategy reads, each once.
fn read_experiments(rule: Option<&Rule>, values: &[ValueEntry]) -> Vec<usize> {
    let mut parts = rule.map_or_else(Vec::new, Rule::buckets);
    parts.extend(values.iter().filter_map(|entry| entry.part));

    let mut experiments: Vec<_> = parts.into_iter().map(|(index, _)| index).collect();
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
    // An unknown strategy is a mistake: any index will do.
    let index = |name: &str| {
        strategies
            .iter()
            .position(|strategy| strategy.name == name)
            .unwrap_or(0)
    };
    let ids = config
        .strategies
        .iter()
        .map(|(id, name)| (id.clone(), index(name)))
        .collect();
    let numbers = |strategy: &StrategyConfig| {
        strategy
            .values
            .iter()
            .map(ValueConfig::numbers)
            .collect::<Vec<_>>()
    };
    let values: Vec<_> = strategies.iter().map(numbers).collect();
    let tags = config.tags(experiments, strategies);
    let access = config
        .headers
        .iter()
        .map(|header| (header.name.clone(), header.secret.clone()));
    Ok(Platform {
        name: config.name.clone(),
        path: config.path.clone(),
        access: Access::any_of(access.collect()),
        adapter: (kind.build)(config, ids, &values, &tags)?,
    })
}

#[cfg(test)]
mod tests;
