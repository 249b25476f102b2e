//! Jobs over the store: the loader's builds, rollbacks, stages and gcs, online writes, a mirror.
//!
//! A job that fails is tried again later, from its beginning, as a scheduler does.

use std::sync::Arc;
use std::time::Duration;

use rtad_core::device::DeviceKey;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{BuiltChunk, GenerationFacts, ManifestBuilder, State, chunk_runs};
use rtad_store::write::{Base, Change, Ledger as Log, MIN_AGE, Published, Retention, StoreWriter};
use rtad_store::{Store, StoreError};

use crate::audience::{Ledger, audience, key};
use crate::model::{ALL, Intent, KEYS, Keys, Kind, bit};
use crate::random::Random;
use crate::store::Client;

/// Chunks of a snapshot.
const CHUNKS: u32 = 4;
/// Attempts of an append until its client gives up.
const ATTEMPTS: u32 = 8;
/// The longest wait between two attempts, in seconds.
const PAUSE: u64 = 20;

/// A process that writes to a store.
pub struct Job {
    pub client: Client,
    pub ledger: Arc<Ledger>,
    pub random: Random,
    /// Whether it must end soon.
    pub is_urgent: bool,
}

impl Job {
    fn writer(&self) -> StoreWriter {
        let store = Store::over(Arc::new(self.client.clone()), self.client.bucket.name);
        StoreWriter::new(store).expect("a writable store")
    }

    fn begin(&self, intent: Intent) -> Arc<Intent> {
        let intent = Arc::new(intent);
        self.client.set_work(Some(Arc::clone(&intent) as _));
        intent
    }

    fn say(&self, what: &str) {
        let now = self.client.network.schedule.now();
        self.client.network.trace.add(now, &self.client.actor, what);
    }

    async fn pause(&mut self, least: u64, most: u64) {
        let seconds = self.random.between(least, most);
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// Checks a job that was acknowledged.
    fn check_acknowledged(&self, intent: &Arc<Intent>, what: &str, sequence: u64) {
        if !self.ledger.has_created(intent, sequence) {
            let actor = &self.client.actor;
            self.ledger.violate(|| {
                format!(
                    "{actor}: {what} was acknowledged at record {sequence}, which has nothing of it"
                )
            });
        }
    }

    /// The loader: builds every few hours, and what operators do between them.
    pub async fn load(mut self) {
        loop {
            let result = match self.random.below(10) {
                0..=4 => self.build(None).await,
                5 => {
                    let share = self.random.between(1, 999_999) as u32;
                    self.build(Some(share)).await
                }
                6 => self.promote().await,
                7 => self.drop_stage().await,
                8 => self.roll_back().await,
                _ => self.disable().await,
            };
            let said = match result {
                Ok(what) => what,
                Err(error) => format!("failed: {error}"),
            };
            self.say(&said);
            self.client.set_work(None);
            self.pause(60, 4 * 3600).await;
        }
    }

    /// A gc that runs beside the loader.
    pub async fn collect_garbage(mut self) {
        loop {
            self.pause(60, 3 * 3600).await;
            let said = match self.collect().await {
                Ok(what) => what,
                Err(error) => format!("failed: {error}"),
            };
            self.say(&said);
        }
    }

    /// A build that must succeed: the world is well.
    pub async fn build_at_last(mut self) -> Result<(), StoreError> {
        self.build(None).await.map(drop)
    }

    async fn build(&mut self, stage: Option<u32>) -> Result<String, StoreError> {
        let writer = self.writer();
        let base = writer.base(&audience()).await?;
        let through = base.current().map_or(0, |current| current.sequence);
        let input = self.random.number() as Keys & ALL;
        let keys = self.with_deltas(&writer, &base, input).await?;
        // Hours between a chunk and its record, as of a large list.
        let is_slow = !self.is_urgent && self.random.is_one_of(4);
        // The first generation cannot be staged.
        let stage = stage.filter(|_| base.current().is_some_and(|it| it.state != State::Deleted));
        let intent = self.begin(Intent::Publish { keys, through });

        let facts = GenerationFacts {
            folded: base.folded(),
            ..GenerationFacts::default()
        };
        let publication = writer.publish(base).await?;
        let mut all: Vec<DeviceKey> = Vec::new();
        for number in 0..KEYS {
            if keys & bit(number) != 0 {
                all.push(key(number));
            }
        }
        all.sort_unstable();
        let spec = FilterSpec::for_fpr(FilterKind::Block512, 1e-6).expect("a rate");
        let mut builder = ManifestBuilder::new(spec, 1e-6);
        for run in chunk_runs(&all, (1 << 16) / CHUNKS) {
            let chunk = BuiltChunk::build(&spec, run);
            builder.add(&chunk);
            publication.put_chunk(chunk).await?;
            if is_slow {
                self.pause(60, 3600).await;
            }
        }
        let manifest = builder.finish(audience(), facts).expect("a manifest");
        let Published { current, .. } = match stage {
            None => publication.commit(manifest).await?,
            Some(share) => publication.commit_staged(manifest, share).await?,
        };
        self.check_acknowledged(&intent, "a build", current.sequence);
        let record = current.sequence;
        let generation = current.highest_generation();
        Ok(format!(
            "published generation {generation} at record {record}"
        ))
    }

    /// The keys of a build: its input, changed by the deltas of its base.
    async fn with_deltas(
        &self,
        writer: &StoreWriter,
        base: &Base,
        input: Keys,
    ) -> Result<Keys, StoreError> {
        let mut keys = input;
        let Some(current) = base.with_generation() else {
            return Ok(keys);
        };
        let mut log = writer.ledger(&audience()).await?;
        for entry in &current.deltas {
            let delta = log.delta(entry).await?;
            for number in 0..KEYS {
                match delta.membership(&key(number)) {
                    Some(true) => keys |= bit(number),
                    Some(false) => keys &= !bit(number),
                    None => {}
                }
            }
        }
        self.ledger
            .look(|known| {
                let decided = known.history.decided(current.generation, current.sequence);
                for (number, is_member) in decided {
                    let found = keys & bit(number) != 0;
                    if found != is_member {
                        return Err(format!(
                            "{}: a build over record {} has {found} for key {number}, appended as \
                         {is_member}",
                            self.client.actor, current.sequence
                        ));
                    }
                }
                Ok(())
            })
            .unwrap_or_else(|wrong| self.ledger.violate(|| wrong));
        Ok(keys)
    }

    async fn promote(&mut self) -> Result<String, StoreError> {
        let writer = self.writer();
        let base = writer.base(&audience()).await?;
        self.begin(Intent::Other);
        let share = Some(self.random.between(1, 999_999) as u32);
        let share = share.filter(|_| self.random.is_one_of(3));
        let current = writer.promote(&base, share).await?;
        Ok(format!("promoted at record {}", current.sequence))
    }

    async fn drop_stage(&mut self) -> Result<String, StoreError> {
        let writer = self.writer();
        let base = writer.base(&audience()).await?;
        self.begin(Intent::Other);
        let current = writer.drop_stage(&base).await?;
        Ok(format!("dropped the stage at record {}", current.sequence))
    }

    async fn roll_back(&mut self) -> Result<String, StoreError> {
        let writer = self.writer();
        let base = writer.base(&audience()).await?;
        let Some(current) = base.with_generation() else {
            return Ok("has nothing to roll back".to_owned());
        };
        let mut others = Vec::new();
        for entry in current.generations() {
            let is_staged = current.staged.is_some_and(|it| it.entry == entry);
            if entry.generation != current.generation && !is_staged {
                others.push(entry.generation);
            }
        }
        if others.is_empty() {
            return Ok("has nothing to roll back".to_owned());
        }
        let generation = *self.random.pick(&others);
        self.begin(Intent::Other);
        let published = writer.publish(base).await?.roll_back(generation).await?;
        let record = published.current.sequence;
        Ok(format!(
            "rolled back to generation {generation} at record {record}"
        ))
    }

    /// Disables the audience for a while.
    async fn disable(&mut self) -> Result<String, StoreError> {
        let writer = self.writer();
        let mut log = writer.ledger(&audience()).await?;
        if log.current().state == State::Deleted {
            return Ok("has nothing to disable".to_owned());
        }
        self.begin(Intent::Other);
        let state = if log.current().state == State::Disabled || self.random.is_one_of(2) {
            State::Live
        } else {
            State::Disabled
        };
        log.set(state, None).await?;
        Ok(format!(
            "set {state:?} at record {}",
            log.current().sequence
        ))
    }

    /// Enables the audience at last.
    pub async fn enable(mut self) -> Result<(), StoreError> {
        let writer = self.writer();
        let mut log = writer.ledger(&audience()).await?;
        self.begin(Intent::Other);
        self.random.number();
        log.set(State::Live, None).await
    }

    async fn collect(&mut self) -> Result<String, StoreError> {
        let retention = Retention {
            keep: self.random.between(1, 4) as usize,
            min_age: MIN_AGE,
        };
        self.begin(Intent::Other);
        let collected = self.writer().collect(&audience(), retention, false).await?;
        Ok(format!(
            "removed {} chunks, {} manifests, {} deltas, {} records",
            collected.removed_chunks,
            collected.removed_manifests,
            collected.removed_deltas,
            collected.removed_records
        ))
    }

    /// Online writes.
    pub async fn write(mut self) {
        let mut log = None;
        loop {
            self.pause(30, 3600).await;
            let mut changes = Vec::new();
            for _ in 0..self.random.between(1, 4) {
                let number = self.random.below(u64::from(KEYS)) as u8;
                let kinds = [
                    Kind::Add,
                    Kind::Add,
                    Kind::Remove,
                    Kind::Remove,
                    Kind::Entomb,
                    Kind::Lift,
                ];
                changes.push((number, *self.random.pick(&kinds)));
            }
            self.append(&mut log, changes).await;
            self.client.set_work(None);
        }
    }

    /// An append that must succeed: the world is well.
    pub async fn append_at_last(mut self) -> bool {
        self.append(&mut None, vec![(0, Kind::Add)]).await
    }

    /// Appends over the state that it knows, and again over a newer one after a failure. Returns
    /// whether it was acknowledged.
    async fn append(&mut self, log: &mut Option<Log>, changes: Vec<(u8, Kind)>) -> bool {
        let said = format!("{changes:?}");
        let intent = self.begin(Intent::Append(changes));
        let Intent::Append(changes) = &*intent else {
            unreachable!("made above")
        };
        for _ in 0..ATTEMPTS {
            match self.try_append(log, changes).await {
                Ok(sequence) => {
                    self.check_append(&intent, changes, sequence);
                    self.say(&format!("appended {said} at record {sequence}"));
                    return true;
                }
                Err(error) => {
                    self.say(&format!("append of {said} failed: {error}"));
                    let refreshed = match log {
                        Some(log) => log.refresh().await.map(drop),
                        None => Ok(()),
                    };
                    if refreshed.is_err() {
                        *log = None;
                    }
                }
            }
            self.pause(1, PAUSE).await;
        }
        false
    }

    async fn try_append(
        &self,
        log: &mut Option<Log>,
        changes: &[(u8, Kind)],
    ) -> Result<u64, StoreError> {
        let log = match log {
            Some(log) => log,
            None => log.insert(self.writer().ledger(&audience()).await?),
        };
        let mut change = Change::default();
        for (number, kind) in changes {
            match kind {
                Kind::Add => change.add(key(*number)),
                Kind::Remove => change.remove(key(*number)),
                Kind::Entomb => change.entomb(key(*number)),
                Kind::Lift => change.lift(key(*number)),
            }
        }
        Ok(log.append(change).await?.sequence)
    }

    /// An acknowledged append is in a record, or changed nothing at the one that it names.
    fn check_append(&self, intent: &Arc<Intent>, changes: &[(u8, Kind)], sequence: u64) {
        if self.ledger.has_created(intent, sequence) {
            return;
        }
        let holds = self
            .ledger
            .look(|known| known.history.holds(changes, sequence));
        if !holds {
            self.check_acknowledged(intent, "an append", sequence);
        }
    }

    /// Copies the audience from another store, again and again.
    pub async fn mirror(mut self, source: Client) {
        loop {
            self.pause(300, 3600).await;
            let from = Store::over(Arc::new(source.clone()), source.bucket.name);
            let mirrored = self.writer().mirror_from(&from, &audience()).await;
            let said = match mirrored {
                Ok(mirrored) => format!("mirrored up to record {}", mirrored.sequence),
                Err(error) => format!("failed: {error}"),
            };
            self.say(&said);
        }
    }

    /// Copies the audience at last.
    pub async fn mirror_at_last(self, source: Client) -> Result<(), StoreError> {
        let from = Store::over(Arc::new(source.clone()), source.bucket.name);
        self.writer()
            .mirror_from(&from, &audience())
            .await
            .map(drop)
    }
}
