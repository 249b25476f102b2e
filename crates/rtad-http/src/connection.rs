//! State of one connection, and the loop that serves it until it ends or is ordered to end.
//!
//! ```text
//! serving ──END_AFTER_REQUEST──▶ first request ──begun or not in time──▶ closing ──▶ ended
//!    │                                                        answered, or END ▲
//!    └──END while idle─────────────────────────────────────────────────────────┘
//! ```
//!
//! A client that closes its side ends each state. An order is never withdrawn.

use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use hyper::body::{Body, Incoming};
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::HttpService;
use tokio::time::timeout;

/// Time for the first request of a connection that was just accepted, after an order.
const FIRST_REQUEST: Duration = Duration::from_millis(100);
/// Time for the rest of a head that has begun to arrive, after an order.
const REST_OF_HEAD: Duration = Duration::from_secs(1);

/// State of one connection. Only the task that serves it writes the counters.
#[derive(Debug, Default)]
pub struct Connection {
    pub(crate) started: AtomicU64,
    pub(crate) answered: AtomicU64,
    order: AtomicU8,
    waker: AtomicWaker,
}

/// Orders to end a connection, the stronger one last.
pub const END_AFTER_REQUEST: u8 = 1;
pub const END: u8 = 2;

impl Connection {
    pub fn give_order(&self, order: u8) {
        if self.order.fetch_max(order, Ordering::Relaxed) < order {
            self.waker.wake();
        }
    }

    pub fn has_order(&self, order: u8) -> bool {
        self.order.load(Ordering::Relaxed) >= order
    }

    /// Polls the connection until it has ended (true), or until `stop` holds.
    async fn serve_until(&self, mut http: Pin<&mut impl Future>, stop: impl Fn() -> bool) -> bool {
        poll_fn(|context| {
            self.waker.register(context.waker());
            // Poll before `stop`: a request that has arrived is answered.
            match http.as_mut().poll(context) {
                Poll::Ready(_) => Poll::Ready(true),
                Poll::Pending if stop() => Poll::Ready(false),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Serves requests until the connection has ended or an order ends it.
    pub async fn drive<I, B, S>(&self, http: &mut http1::Connection<I, S>)
    where
        S: HttpService<Incoming, ResBody = B>,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        I: Read + Write + Unpin,
        B: Body<Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
    {
        // Resets and timeouts are caused by clients and not logged.
        let mut http = Pin::new(http);
        let ended = || self.has_order(END_AFTER_REQUEST);
        if self.serve_until(http.as_mut(), ended).await {
            return;
        }
        if self.has_order(END) && self.answered_if_idle().is_some() {
            return;
        }
        // The first request of a connection that was just accepted may be in its socket: closing
        // now would reset it.
        let has_request = || self.started.load(Ordering::Relaxed) > 0;
        let first = self.serve_until(http.as_mut(), has_request);
        if let Ok(true) = timeout(FIRST_REQUEST, first).await {
            return;
        }
        http.as_mut().graceful_shutdown();
        let is_idle = || self.answered_if_idle().is_some();
        let is_over = || self.has_order(END) && is_idle();
        let served = self.serve_until(http.as_mut(), is_over);
        // An incomplete head would hold the shutdown until the idle timeout.
        if timeout(REST_OF_HEAD, served).await.is_err() && !is_idle() {
            self.serve_until(http.as_mut(), is_over).await;
        }
    }

    /// Increments a counter. It has one writer, so no locked instruction is needed.
    pub fn count(counter: &AtomicU64) {
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Requests answered so far; `None` while one is being answered.
    pub fn answered_if_idle(&self) -> Option<u64> {
        let answered = self.answered.load(Ordering::Relaxed);
        (self.started.load(Ordering::Relaxed) == answered).then_some(answered)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn stronger_order_arrives_after_a_weaker_one() {
        let connection = Arc::new(Connection::default());
        let served = tokio::spawn({
            let connection = Arc::clone(&connection);
            async move {
                let http = std::pin::pin!(std::future::pending::<()>());
                connection
                    .serve_until(http, || connection.has_order(END))
                    .await
            }
        });
        for order in [END_AFTER_REQUEST, END_AFTER_REQUEST, END] {
            tokio::task::yield_now().await;
            connection.give_order(order);
        }
        assert!(
            !timeout(Duration::from_secs(10), served)
                .await
                .unwrap()
                .unwrap()
        );
    }
}
