//! A pod: the product's sync and cache, and what its answers may be.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rtad::catalog::Serving;
use rtad::serve::Assembly;
use rtad::sync::{Shared, Stores, SwapMode, Syncer};
use rtad_core::snapshot::Snapshot;
use rtad_store::Store;
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};

use crate::audience::{AUDIENCE, Ledger, key};
use crate::model::{KEYS, Keys, bit};
use crate::process::{Machine, Process};
use crate::random::Random;
use crate::store::Client;

/// A pod of the world.
pub struct Pod {
    pub name: String,
    machine: Rc<Machine>,
    /// In the order in which it reads them.
    stores: Vec<Client>,
    poll_interval: Duration,
    swap: SwapMode,
    cache: RefCell<TempDir>,
    process: RefCell<Option<Process>>,
    serving: RefCell<Option<Arc<Serving>>>,
    /// It has served this record: it never goes back.
    served: Cell<u64>,
    /// It was whole at this record.
    seen: Cell<u64>,
    /// It has applied the tombstones of this record, or of a later one.
    erased: Cell<u64>,
    starts: Cell<u64>,
    /// Address of the catalog that was checked last.
    checked: Cell<usize>,
}

fn config() -> String {
    format!(
        "store.url = \"/unused\"\n[[audience]]\nname = {AUDIENCE:?}\n[[strategy]]\nname = \"s\"\n\
         exclude = [{AUDIENCE:?}]\n"
    )
}

/// The sync of a pod, over stores in the order in which it reads them.
pub fn syncer(name: &str, stores: &[Client], poll_interval: Duration, swap: SwapMode) -> Syncer {
    let mut read = Vec::new();
    for client in stores {
        read.push(Store::over(Arc::new(client.clone()), client.bucket.name));
    }
    let config = config();
    let assembly = Assembly::read(Some(("config", &config)), |_| None, &Vec::new());
    let mut plan = assembly.expect("a config").plan();
    plan.poll_interval = poll_interval;
    plan.swap = swap;
    Syncer::new(Stores::new(read), plan, Shared::default()).with_pod(name.to_owned())
}

/// Runs a sync, without end.
pub async fn run(sync: Syncer) {
    let (_commands, receiver) = mpsc::channel(1);
    let (loaded, _) = oneshot::channel();
    Arc::new(sync).run(receiver, loaded).await;
}

impl Pod {
    pub fn new(name: &str, machine: Rc<Machine>, stores: Vec<Client>, random: &mut Random) -> Self {
        let swap = if random.is_one_of(2) {
            SwapMode::Rolling
        } else {
            SwapMode::Whole
        };
        Self {
            name: name.to_owned(),
            machine,
            stores,
            poll_interval: Duration::from_secs(random.between(30, 300)),
            swap,
            cache: RefCell::new(new_folder()),
            process: RefCell::default(),
            serving: RefCell::default(),
            served: Cell::new(0),
            seen: Cell::new(0),
            erased: Cell::new(0),
            starts: Cell::new(0),
            checked: Cell::new(0),
        }
    }

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Starts the process over the cache that its machine has.
    pub fn start(&self, seed: u64) {
        let cache: PathBuf = self.cache.borrow().path().to_owned();
        let sync =
            syncer(&self.name, &self.stores, self.poll_interval, self.swap).with_cache(Some(cache));
        *self.serving.borrow_mut() = Some(sync.serving());

        self.starts.set(self.starts.get() + 1);
        let random = Random::named(seed, &format!("{} start {}", self.name, self.starts.get()));
        *self.process.borrow_mut() = Some(Process::start(&self.machine, random, run(sync)));
    }

    /// Kills the process. Its cache stays, or its disk is lost.
    pub fn kill(&self, loses_disk: bool) {
        drop(self.process.take());
        drop(self.serving.take());
        if loses_disk {
            self.cache.replace(new_folder());
            self.served.set(0);
            self.seen.set(0);
            self.erased.set(0);
        }
    }

    /// Lets another process act on this one.
    pub fn process(&self) -> std::cell::Ref<'_, Option<Process>> {
        self.process.borrow()
    }

    /// Checks the answers of the pod against the history.
    ///
    /// # Errors
    ///
    /// A text with its answer, and with the allowed one.
    pub fn check(&self, ledger: &Ledger) -> Result<(), String> {
        let Some(serving) = self.serving.borrow().clone() else {
            return Ok(());
        };
        let catalog = serving.load_full();
        // An answer that was allowed once stays allowed.
        let address = Arc::as_ptr(&catalog) as usize;
        if self.checked.replace(address) == address {
            return Ok(());
        }
        let Some(snapshot) = catalog.audiences()[0].available() else {
            return Ok(());
        };
        let served = Answers::of(snapshot);
        ledger.look(|known| {
            let history = &known.history;
            if served.record < self.served.get() {
                let (record, before) = (served.record, self.served.get());
                return Err(format!("serves record {record} after it served {before}"));
            }
            self.served.set(served.record);
            self.erased.set(self.erased.get().max(served.record));

            for number in 0..KEYS {
                let is_member = served.members & bit(number) != 0;
                if !history.may_answer(number, is_member, self.seen.get(), self.erased.get()) {
                    return Err(format!(
                        "answers {is_member} for key {number}; it has generation {}, record {}, \
                         and was whole at record {}",
                        served.generation,
                        served.record,
                        self.seen.get()
                    ));
                }
            }

            let Some(state) = history.at(served.record) else {
                let record = served.record;
                return Err(format!("serves record {record}, which nobody created"));
            };
            let is_named =
                served.generation == state.generation || Some(served.generation) == state.staged;
            if served.is_mixed || !is_named {
                return Ok(());
            }
            // All of one record: only tombstones may be newer, which are applied at once.
            let keys = history.keys(served.generation, served.record);
            let fits = |later: &u64| {
                let tombstones = history.at(*later).map_or(0, |later| later.tombstones);
                served.members == keys & !tombstones
            };
            let Some(erased) = (self.erased.get()..=history.newest()).find(fits) else {
                return Err(format!(
                    "answers {:012b} at generation {}, record {}; expected {:012b}",
                    served.members,
                    served.generation,
                    served.record,
                    history.members(served.generation, served.record)
                ));
            };
            self.erased.set(erased);
            self.seen.set(served.record);
            Ok(())
        })
    }

    /// Checks that the pod has all of the newest record.
    ///
    /// # Errors
    ///
    /// A text with the record that it has.
    pub fn check_newest(&self, ledger: &Ledger) -> Result<(), String> {
        let Some(serving) = self.serving.borrow().clone() else {
            return Err("does not run".to_owned());
        };
        let catalog = serving.load_full();
        let audience = &catalog.audiences()[0];
        ledger.look(|known| {
            let history = &known.history;
            let Some(state) = history.at(history.newest()) else {
                return Ok(());
            };
            match audience.available() {
                None if state.is_served => Err("serves nothing".to_owned()),
                None => Ok(()),
                Some(_) if !state.is_served => Err("serves a disabled audience".to_owned()),
                Some(snapshot) => {
                    let served = Answers::of(snapshot);
                    let expected = history.members(served.generation, history.newest());
                    let is_newest = served.record == history.newest();
                    if is_newest && !served.is_mixed && served.members == expected {
                        return Ok(());
                    }
                    Err(format!(
                        "has generation {}, record {}; the newest record is {} of generation {}",
                        served.generation,
                        served.record,
                        history.newest(),
                        state.generation
                    ))
                }
            }
        })
    }
}

fn new_folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Answers of a snapshot to all keys of the model.
struct Answers {
    generation: u64,
    record: u64,
    is_mixed: bool,
    members: Keys,
}

impl Answers {
    fn of(snapshot: &Snapshot) -> Self {
        let mut members = 0;
        for number in 0..KEYS {
            if snapshot.contains(&key(number)) {
                members |= bit(number);
            }
        }
        Self {
            generation: snapshot.manifest().generation(),
            record: snapshot.overlay().sequence(),
            is_mixed: snapshot.is_mixed(),
            members,
        }
    }
}
