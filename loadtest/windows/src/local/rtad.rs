//! rtad's own engine: a table of fingerprints.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rtad_window::{Seen, Window, WindowSpec};

use crate::engine::{Engine, Key, Outcome, Sizing};

/// Rate of 24-bit fingerprints at capacity, rounded up.
const NARROW_FPR: f64 = 1.44e-6;

/// The table of a window. A program gives it to one thread; a lock stands for that here.
pub(crate) struct Rtad(Mutex<Window>);

impl Rtad {
    /// An empty window; `is_narrow` takes the smallest slots, whose rate may be above that asked.
    pub(crate) fn new(sizing: &Sizing, is_narrow: bool) -> Outcome<(Self, String)> {
        let spec = WindowSpec {
            capacity: sizing.keys,
            fpr: if is_narrow { sizing.fpr.max(NARROW_FPR) } else { sizing.fpr },
            count: 1,
            whole_keys: false,
            lifetime: sizing.ticks as u16,
        };
        let parameters = format!("{:?} slots", spec.format()).to_lowercase();
        Ok((Self(Mutex::new(Window::new(spec, 0)?)), parameters))
    }
}

impl Rtad {
    fn window(&self) -> MutexGuard<'_, Window> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine for Rtad {
    fn observe(&self, keys: &[Key], out: &mut Vec<bool>) -> Outcome {
        out.clear();
        let seen = self.window().observe(keys);
        if seen.contains(&Seen::Full) {
            return Err("the window is full".into());
        }
        out.extend(seen.iter().map(|seen| *seen == Seen::New));
        Ok(())
    }

    fn advance(&self, tick: u64) -> Outcome {
        self.window().set_tick(tick);
        Ok(())
    }
}
