//! A pod of a cap: the product's caps, and requests that ask them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rtad::cap::{Applicant, Cap, CapTables, Caps, Usage};
use rtad::config::CapConfig;
use rtad_core::clock::unix_seconds;
use rtad_core::device::DeviceKey;
use rtad_store::Store;
use rtad_store::write::StoreWriter;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::ledger::{CapLedger, Instance};
use crate::network::Network;
use crate::process::{Machine, Process};
use crate::random::Random;
use crate::store::{Bucket, Client};

/// Devices that ask.
const DEVICES: u64 = 5_000;

/// A pod of the world.
pub struct CapPod {
    pub name: String,
    pub machine: Rc<Machine>,
    network: Arc<Network>,
    bucket: Arc<Bucket>,
    ledger: Arc<CapLedger>,
    running: RefCell<Option<Running>>,
    starts: Cell<u64>,
}

/// A process that runs.
struct Running {
    process: Process,
    pod: Rc<Requests>,
}

/// An order for a process.
#[derive(Debug, Clone)]
pub enum Order {
    /// The cap has this configuration.
    Serve(CapConfig),
    /// There is no cap.
    Remove,
    /// The process ends, and gives back if it is idle.
    Drain { is_idle: bool },
}

/// Requests of a pod, and orders.
pub struct Requests {
    pub instance: Instance,
    ledger: Arc<CapLedger>,
    caps: Caps,
    served: RefCell<Option<Served>>,
    order: RefCell<Option<Order>>,
    has_order: Notify,
    is_draining: Cell<bool>,
    /// Requests in a minute.
    pub demand: Cell<u64>,
}

/// A cap in a catalog.
struct Served {
    cap: Arc<Cap>,
    /// The catalog follows them within seconds.
    tables: Arc<CapTables>,
    /// Devices that its tables have counted, each after the start of its period.
    counted: BTreeSet<(u64, u32)>,
    limit: u64,
}

impl CapPod {
    pub fn new(
        name: &str,
        machine: Rc<Machine>,
        network: &Arc<Network>,
        bucket: &Arc<Bucket>,
        ledger: &Arc<CapLedger>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            machine,
            network: Arc::clone(network),
            bucket: Arc::clone(bucket),
            ledger: Arc::clone(ledger),
            running: RefCell::default(),
            starts: Cell::new(0),
        }
    }

    /// Starts the process.
    pub fn start(&self, seed: u64, config: CapConfig, demand: u64) {
        let instance = self.ledger.add_instance(config.limit);
        let client = Client::new(&self.network, &self.bucket, &self.name);
        client.set_work(Some(Arc::new(instance)));
        let store = StoreWriter::new(Store::over(Arc::new(client), self.bucket.name));
        let store = store.expect("a writable store");
        let pod = Rc::new(Requests {
            instance,
            ledger: Arc::clone(&self.ledger),
            caps: Caps::granted_by(Some(store), self.name.clone()),
            served: RefCell::default(),
            order: RefCell::new(Some(Order::Serve(config))),
            has_order: Notify::new(),
            is_draining: Cell::new(false),
            demand: Cell::new(demand),
        });

        self.starts.set(self.starts.get() + 1);
        let name = format!("{} start {}", self.name, self.starts.get());
        let choices = Random::named(seed, &format!("requests of {name}"));
        let process = Rc::clone(&pod).run(choices);
        *self.running.borrow_mut() = Some(Running {
            process: Process::start(&self.machine, Random::named(seed, &name), process),
            pod,
        });
    }

    /// Kills the process.
    pub fn kill(&self) {
        drop(self.running.take());
    }

    pub fn is_running(&self) -> bool {
        self.running.borrow().is_some()
    }

    /// Whether the process has ended by itself.
    pub fn has_drained(&self) -> bool {
        let running = self.running.borrow();
        running.as_ref().is_some_and(|it| it.process.has_ended())
    }

    pub fn pause(&self) {
        if let Some(running) = &*self.running.borrow() {
            running.process.pause();
        }
    }

    pub fn resume(&self) {
        if let Some(running) = &*self.running.borrow() {
            running.process.resume();
        }
    }

    /// The requests of its process.
    pub fn requests(&self) -> Option<Rc<Requests>> {
        let running = self.running.borrow();
        running.as_ref().map(|running| Rc::clone(&running.pod))
    }

    /// Checks its table.
    pub fn check(&self) {
        if let Some(running) = &*self.running.borrow()
            && let Some(served) = &*running.pod.served.borrow()
        {
            let Usage { limit, period, .. } = served.cap.usage();
            self.ledger.check_table(period, running.pod.instance, limit);
        }
    }
}

impl Requests {
    /// Gives the process an order.
    pub fn order(&self, order: Order) {
        *self.order.borrow_mut() = Some(order);
        self.has_order.notify_one();
    }

    /// The devices of the current period; `None` without a cap.
    pub fn usage(&self) -> Option<Usage> {
        let served = self.served.borrow();
        served.as_ref().map(|served| served.cap.usage())
    }

    async fn run(self: Rc<Self>, mut random: Random) {
        tokio::select! {
            biased;
            () = self.obey() => {}
            () = self.caps.run() => {}
            () = self.ask_always(&mut random) => {}
        }
    }

    /// Follows orders until it has drained.
    async fn obey(&self) {
        loop {
            let order = self.order.take();
            match order {
                Some(Order::Serve(config)) => self.serve(&config),
                Some(Order::Remove) => {
                    drop(self.served.take());
                    self.caps.serve(&[]);
                }
                Some(Order::Drain { is_idle }) => {
                    self.is_draining.set(true);
                    return self.caps.close(is_idle).await;
                }
                None => {}
            }
            self.has_order.notified().await;
        }
    }

    fn serve(&self, config: &CapConfig) {
        let limit = config.limit;
        self.ledger.note_limit(self.instance, limit);
        let caps = self.caps.serve(std::slice::from_ref(config));
        let cap = Arc::clone(&caps[0]);
        let mut served = Served {
            tables: cap.tables(),
            cap,
            counted: BTreeSet::new(),
            limit,
        };
        // A larger table counts its devices again.
        let before = self.served.take();
        if let Some(before) = before.filter(|it| it.limit >= limit) {
            served.counted = before.counted;
        }
        *self.served.borrow_mut() = Some(served);
    }

    async fn ask_always(&self, random: &mut Random) {
        loop {
            let pause = random.between(200, 1_800);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let requests = random.below(2 * self.demand.get() * pause / 60_000 + 2);
            if self.is_draining.get() || self.demand.get() == 0 {
                continue;
            }
            if let Some(served) = &mut *self.served.borrow_mut() {
                if !random.is_one_of(3) {
                    served.tables = served.cap.tables();
                }
                for _ in 0..requests {
                    self.ask(served, random.below(DEVICES) as u32);
                }
            }
        }
    }

    /// A device asks for a bid.
    fn ask(&self, served: &mut Served, device: u32) {
        let now = Instant::now();
        let period = served.tables.usage(now).period;
        let counted = (unix_seconds(period.start), device);
        let key = [DeviceKey::of_canonical(&device.to_le_bytes())];
        let applicant = served.tables.seek(&key, now);
        if matches!(applicant, Applicant::TooLate) {
            served.tables.refuse(now);
        } else if applicant.admit() {
            served.counted.insert(counted);
            self.ledger.admitted(period, self.instance, device);
        } else {
            served.tables.refuse(now);
            if served.counted.contains(&counted) {
                let instance = self.instance;
                self.ledger
                    .violate(|| format!("process {instance} refused a device that it had counted"));
            }
        }
    }
}
