//! Every interleaving of few threads on one region: `cargo test --features model`.

use loom::thread;
use std::sync::Arc;

use rtad_window::{Key, Seen, Window, WindowSpec};

const SPEC: WindowSpec =
    WindowSpec { capacity: 1, fpr: 1e-5, count: 1, whole_keys: false, lifetime: 129 };

fn key(n: u8) -> Key {
    [n; 16]
}

fn news(seen: &[Seen]) -> usize {
    seen.iter().filter(|seen| **seen == Seen::New).count()
}

#[test]
fn one_of_two_equal_events_is_new() {
    loom::model(|| {
        let window = Arc::new(Window::with_fixed_secret(SPEC, 0));
        let other = Arc::clone(&window);
        let thread = thread::spawn(move || other.observe(&[key(1)]));
        let seen = window.observe(&[key(1)]);
        assert_eq!(news(&seen) + news(&thread.join().unwrap()), 1);
    });
}

#[test]
fn counts_of_two_threads_add_up() {
    loom::model(|| {
        let window = Arc::new(Window::with_fixed_secret(WindowSpec { count: 9, ..SPEC }, 0));
        let other = Arc::clone(&window);
        let thread = thread::spawn(move || other.observe(&[key(1)]));
        window.observe(&[key(1)]);
        thread.join().unwrap();
        assert_eq!(window.counts(&[key(1)]), [2]);
    });
}

#[test]
fn different_keys_do_not_lose_each_other() {
    loom::model(|| {
        let window = Arc::new(Window::with_fixed_secret(SPEC, 0));
        let other = Arc::clone(&window);
        let thread = thread::spawn(move || other.observe(&[key(1)]));
        assert_eq!(window.observe(&[key(2)]), [Seen::New]);
        assert_eq!(thread.join().unwrap(), [Seen::New]);
        assert_eq!(window.counts(&[key(1), key(2)]), [1, 1]);
    });
}

/// The clock moves past the wrap of stored ticks while an event is in flight: whichever tick the
/// event gets, the entry is live afterwards, because both threads use the region's latest tick.
#[test]
fn moving_clock_makes_no_key_new_twice() {
    loom::model(|| {
        let window = Arc::new(Window::with_fixed_secret(SPEC, 400));
        let other = Arc::clone(&window);
        let thread = thread::spawn(move || {
            other.set_tick(401);
            assert!(other.expire(|_, _| {}));
            other.observe(&[key(1)])
        });
        let seen = window.observe(&[key(1)]);
        assert_eq!(news(&seen) + news(&thread.join().unwrap()), 1);
        assert_eq!(window.observe(&[key(1)]), [Seen::Duplicate(1)]);
    });
}
