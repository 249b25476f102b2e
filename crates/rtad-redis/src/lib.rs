//! Event windows in Redis or Valkey: "was this key seen within the window?", shared by several
//! processes; and leases of units of a quota, of which all processes together get no more than its
//! total.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use rtad_redis::{Lifetime, RedisConfig, RedisError, RedisWindow, Seen};
//! # async fn example() -> Result<(), RedisError> {
//! let window = RedisWindow::connect(&RedisConfig::new("redis://cache.example", "day"))?;
//! let lifetime = Lifetime::For(Duration::from_secs(86_400));
//! let token = 0x5eed; // one for each request
//! let seen = window.observe(&[[1; 16], [2; 16]], lifetime, token).await?;
//! assert_eq!(seen, [Seen::New, Seen::New]);
//! # Ok(())
//! # }
//! ```
//!
//! | module | job |
//! |---|---|
//! | `error` | typed errors, without keys and tokens |
//! | `config` | URL, names, limits |
//! | `name` | names of keys, hash slots |
//! | `connection` | TCP, TLS, authentication |
//! | `node` | a server and its connection, replaced after a failure |
//! | `slots` | slot map of a cluster |
//! | `cluster` | nodes of a cluster, reads of its slot map |
//! | `command` | commands for one key |
//! | `router` | commands for many keys: split by node, redirects, retries |
//! | `eviction` | eviction policy of a server |
//! | `window` | [`RedisWindow`] |
//! | `lease` | [`RedisLeases`] |
//!
//! Each module uses only those above it in the table.
//!
//! # Algorithm
//!
//! A batch is one pipeline per server: `SET key token NX PX lifetime` and `GET key` for each key. A
//! key is new if `SET` succeeded, or if `GET` returns the token of this request. The second case is
//! a repetition after a lost answer: the first attempt wrote the key. A key without a value has
//! expired between the commands; it existed, and is a duplicate.
//!
//! No command needs a transaction or a script: `SET NX` decides alone, and only the request that
//! wrote a value knows its token. Requests may be repeated any number of times, by any owner.
//!
//! # Servers
//!
//! | command | since Redis | for |
//! |---|---|---|
//! | `SET key value NX PX` | 2.6.12 | `observe`, `probe` |
//! | `GET`, `EXISTS`, `DEL` of one key | 1.0 | `observe`, `check`, `forget` |
//! | `CLUSTER SLOTS`, `ASKING` | 3.0 | clusters |
//! | `AUTH`, `SELECT` | 1.0; with a user 6.0 | if the URL has them |
//! | `HINCRBY`, `EXPIRE` | 2.0 | leases |
//! | `INFO`, `CONFIG GET` | 1.0, 2.0; may be denied | `eviction` |
//!
//! Any Redis from 2.6.12 serves, and servers with the same commands: Valkey, Kvrocks, Dragonfly,
//! managed ones. The tests run Redis 7.0 and Valkey 9.1; Kvrocks and Dragonfly are not tested. A
//! sufficient ACL, of which a single server needs neither the last two commands nor, without a
//! database in the URL, `select`:
//!
//! ```text
//! ACL SETUSER rtad on >… ~rtad:* -@all +set +get +exists +del +select +asking +cluster|slots
//! ```
//!
//! # Guarantee and its limits
//!
//! Exactly one event of a key in a window is [`Seen::New`], as long as the server keeps its data
//! and the request that wrote the key gets its answer, if need be by a repetition. The limits:
//!
//! - **Requests given up.** If a failed request is not repeated, its keys may be recorded although
//!   no caller got `New`. A hanging server executes requests later than their time-out.
//! - **Eviction.** `maxmemory-policy` must be `noeviction`: then a full server refuses new keys
//!   ([`RedisError::OutOfMemory`]). A server with any other policy, also a `volatile-` one, deletes
//!   keys, whose next event is new again. [`RedisWindow::eviction`] has a warning.
//! - **Failover.** Replication is asynchronous: the replica that takes over may lack the last
//!   writes, whose keys are new again. `min-replicas-to-write` and `min-replicas-max-lag` bound the
//!   loss to some seconds: the primary refuses writes without replicas (`NOREPLICAS`).
//! - **Restart.** A server without persistence loses all keys. `appendfsync everysec` may lose the
//!   last second, `appendfsync always` nothing.
//! - **Replicas** are never read.
//!
//! # Clusters
//!
//! The slot map is read from any node, and again after a redirect or a failure. Names have no hash
//! tag, so that keys spread over all slots. A batch of 1,000 keys is one request per node. It fails
//! as a whole if one node fails: a repetition with the same token completes it.
//!
//! TLS needs certificates that are valid for the names that nodes announce:
//! `cluster-preferred-endpoint-type hostname`.
//!
//! Sentinels are not asked. Use the name of the primary that a service or a proxy follows; after
//! [`RedisError::ReadOnly`] and lost connections it is resolved again.
//!
//! # Leases
//!
//! A quota is one hash: field `all` counts the units of all members, and a field per member its
//! own. `HINCRBY` answers with the sum, so each member knows which units of the order are its own:
//! those beyond the total are given back.
//!
//! - The units of a lost answer are granted or given back by the next answer. A member that dies
//!   wastes its units: the quota is used less, never more.
//! - Each call compares the member's field with what it was before. If it is less, the server has
//!   lost data: the units are added again, and the call grants none. Members that died before, and
//!   units that members lease until the others have called too, are not accounted for.
//! - Units are given back at most once: a repetition might add units that do not exist.
//!
//! The ACL of a pod that only leases: `~rtad:* -@all +hincrby +expire`, with `select` for a
//! database, and `asking` and `cluster|slots` for a cluster.
//!
//! # Cost
//!
//! Medians of 3 rounds of 1,000,000 keys, in batches of 1,000, 4 batches in flight: `cargo run
//! --release -p rtad-redis --example measure`. Server and client shared two cores of an AMD
//! EPYC with other work.
//!
//! | events | Redis 7.0: events/s | server CPU per event | memory per key | Valkey 9.1: events/s | server CPU | memory |
//! |---|---|---|---|---|---|---|
//! | `observe`, names of 30 bytes, all new | 175,000 | 2.56 µs | 129 bytes | 177,000 | 2.57 µs | 117 bytes |
//! | `observe`, the same again, all duplicates | 256,000 | 1.44 µs | | 247,000 | 1.64 µs | |
//! | `observe`, names of 40 bytes | 156,000 | 3.10 µs | 145 bytes | 166,000 | 2.77 µs | 117 bytes |
//! | `SET NX EX` alone, names of 30 bytes, value of 19 digits | 256,000 | 2.05 µs | 129 bytes | 258,000 | 2.07 µs | 117 bytes |
//! | `SET NX EX` alone, value of 8 bytes | 231,000 | 2.17 µs | 145 bytes | 272,000 | 1.94 µs | 117 bytes |
//!
//! `GET` adds a quarter to the server's CPU time for `SET` alone. One core serves about 390,000 new
//! events per second.
//!
//! A name of at most 30 bytes (namespace, window, period, two colons, 16 bytes of the key) takes 32
//! bytes of Redis 7.0, a longer one 48. The token is a decimal number, which Redis stores inside
//! its object: 16 bytes less than 8 arbitrary bytes. Hash tables grow by doubling: plan 16 bytes
//! per key more than measured.
//!
//! # Windows that count
//!
//! Windows with a count above one are out of scope. `INCR` cannot tell a repetition of a request
//! from a second event: after a lost answer, it counts twice. Exact counts need a record of each
//! event, not of each key.

mod cluster;
mod command;
mod config;
mod connection;
mod error;
mod eviction;
mod lease;
mod name;
mod node;
mod router;
mod slots;
mod window;

pub use config::{RedisConfig, redacted};
pub use error::RedisError;
pub use eviction::Eviction;
pub use lease::{Lease, Member, Quota, RedisLeases};
pub use window::{Lifetime, RedisWindow, Seen};
