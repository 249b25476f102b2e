//! A table for which the system has no memory: a process of its own, as its limit stays.

#![cfg(target_os = "linux")]

use rtad_window::{SpecError, Window, WindowSpec};
use rustix::process::{Resource, Rlimit, setrlimit};

#[test]
fn table_beyond_the_address_space_is_an_error() {
    let limit = Rlimit {
        current: Some(1 << 30),
        maximum: Some(1 << 30),
    };
    setrlimit(Resource::As, limit).unwrap();
    let spec = |capacity| WindowSpec {
        capacity,
        fpr: 2e-6,
        count: 1,
        whole_keys: false,
        lifetime: 129,
    };
    let refused = Window::new(spec(1_000_000_000), 0).err().unwrap();
    assert!(
        matches!(
            refused,
            SpecError::Memory {
                bytes: 5_300_000_000..,
                ..
            }
        ),
        "{refused}"
    );
    assert!(
        refused
            .to_string()
            .starts_with("capacity: no memory for a table of 5"),
        "{refused}"
    );
    Window::new(spec(1_000_000), 0).unwrap();
}
