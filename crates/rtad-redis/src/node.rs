//! A server with at most one open connection, which is replaced after a failure.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Pipeline, Value};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::config::Address;
use crate::connection::{Connection, Connector};
use crate::error::RedisError;

/// Shortest interval between attempts to connect.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(20);

/// Limits of time of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connect: Duration,
    pub(crate) response: Duration,
}

/// A failed request.
pub(crate) struct RequestFailure {
    pub(crate) error: RedisError,
    /// Whether an open connection was lost. The server may be well, and have executed the request
    /// in part or as a whole.
    pub(crate) lost: bool,
}

impl From<RedisError> for RequestFailure {
    fn from(error: RedisError) -> Self {
        Self { error, lost: false }
    }
}

/// See the module's documentation.
pub(crate) struct Node {
    address: Address,
    server: String,
    connector: Arc<Connector>,
    limits: Limits,
    state: Mutex<NodeState>,
    /// Held while connecting: concurrent requests share the new connection.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct NodeState {
    connection: Option<Arc<Connection>>,
    failed: Option<(Instant, RedisError)>,
}

impl Node {
    pub(crate) fn new(address: Address, connector: Arc<Connector>, limits: Limits) -> Self {
        Self {
            server: address.to_string(),
            address,
            connector,
            limits,
            state: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// `host:port`.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Sends commands in one round trip; returns an answer for each, which may be an error.
    ///
    /// Connects first if there is no connection. Closes a connection that failed or did not answer
    /// in time: a later request opens another.
    pub(crate) async fn send(
        &self,
        pipeline: Pipeline,
        deadline: Instant,
    ) -> Result<Vec<Value>, RequestFailure> {
        let commands = pipeline.len();
        let connection = self.connection(deadline).await?;
        let until = deadline.min(Instant::now() + self.limits.response);
        match timeout_at(until, connection.send(pipeline)).await {
            Ok(Ok(answers)) if answers.len() == commands => {
                // A name of a primary may have moved to another server: resolve it again.
                if answers.iter().any(is_read_only) {
                    self.close(&connection);
                }
                Ok(answers)
            }
            Ok(Ok(_)) => {
                self.close(&connection);
                Err(RedisError::other(&self.server, "unexpected number of answers").into())
            }
            Ok(Err(error)) => {
                self.close(&connection);
                let lost = error.is_io_error();
                Err(RequestFailure {
                    error: RedisError::failed(&self.server, &error),
                    lost,
                })
            }
            Err(_) => {
                self.close(&connection);
                Err(RedisError::timeout(&self.server, "waiting for the answer").into())
            }
        }
    }

    /// The open connection, or a new one.
    async fn connection(&self, deadline: Instant) -> Result<Arc<Connection>, RedisError> {
        if let Some(connection) = self.state.lock().connection.clone() {
            return Ok(connection);
        }
        let begun = Instant::now();
        let timed_out = || RedisError::timeout(&self.server, "connecting");
        let connecting = timeout_at(deadline, self.connecting.lock());
        let _connecting = connecting.await.map_err(|_| timed_out())?;
        let resume = {
            let state = self.state.lock();
            if let Some(connection) = &state.connection {
                return Ok(Arc::clone(connection));
            }
            match &state.failed {
                // The attempt that this request has waited for.
                Some((at, error)) if *at >= begun => return Err(error.clone()),
                Some((at, _)) => *at + RECONNECT_INTERVAL,
                None => begun,
            }
        };
        sleep_until(resume.min(deadline)).await;
        let until = deadline.min(Instant::now() + self.limits.connect);
        let opened = timeout_at(until, self.connector.open(&self.address)).await;
        let opened = opened.unwrap_or_else(|_| Err(timed_out()));
        let mut state = self.state.lock();
        match opened {
            Ok(connection) => {
                let connection = Arc::new(connection);
                *state = NodeState {
                    connection: Some(Arc::clone(&connection)),
                    failed: None,
                };
                Ok(connection)
            }
            Err(error) => {
                state.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Gives up a connection, unless another request has replaced it already. Requests in flight
    /// keep it open until they end.
    fn close(&self, failed: &Arc<Connection>) {
        let mut state = self.state.lock();
        if state
            .connection
            .as_ref()
            .is_some_and(|open| Arc::ptr_eq(open, failed))
        {
            state.connection = None;
        }
    }
}

fn is_read_only(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.code() == "READONLY")
}
