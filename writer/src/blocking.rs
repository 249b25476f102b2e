//! Work that would keep other tasks waiting, off the threads of the runtime.
//!
//! A runtime of one thread runs it as a step of its own: then the order of all steps is the
//! runtime's, which tests repeat.

use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio::sync::oneshot;
use tokio::task::{block_in_place, spawn_blocking};

fn has_one_thread() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread
}

/// Computes for long, or uses the disk. Other tasks go on meanwhile.
pub fn in_place<T>(work: impl FnOnce() -> T) -> T {
    if has_one_thread() {
        return work();
    }
    block_in_place(work)
}

/// Runs a task that computes most of the time, or uses the disk, on a thread of its own. Dropped,
/// the task ends at its next wait.
pub async fn apart<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> T {
    if has_one_thread() {
        return task.await;
    }

    // Dropped with this future.
    let (_owner, owner_is_gone) = oneshot::channel::<()>();
    let owned = async {
        tokio::select! {
            biased;
            done = task => Some(done),
            _ = owner_is_gone => None,
        }
    };
    let run = move || {
        // Not the runtime around it, which may end before the task.
        let runtime = Builder::new_current_thread().enable_time().build();
        runtime.expect("it opens no file").block_on(owned)
    };
    match spawn_blocking(run).await {
        Ok(done) => done.expect("this future has not been dropped"),
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}

#[cfg(test)]
mod tests {
    use std::thread::current;
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn task_has_a_thread_of_its_own_and_ends_with_its_owner() {
        let here = current().id();
        assert_ne!(apart(async { current().id() }).await, here);

        let (ended, mut has_ended) = oneshot::channel::<()>();
        let endless = apart(async move {
            let _ended = ended;
            std::future::pending::<()>().await;
        });
        let waited = tokio::time::timeout(Duration::from_millis(50), endless).await;
        assert!(waited.is_err());
        assert!((&mut has_ended).await.is_err(), "it was dropped");
    }

    #[tokio::test]
    async fn runtime_of_one_thread_runs_everything_on_it() {
        let here = current().id();
        assert_eq!(apart(async { current().id() }).await, here);
        assert_eq!(in_place(|| current().id()), here);
    }
}
