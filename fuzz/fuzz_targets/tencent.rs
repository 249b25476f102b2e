//! Fuzz target: Tencent's requests.
#![no_main]

use std::sync::LazyLock;

use bytes::Bytes;
use rtad_fuzz::{Protocol, World};

static WORLD: LazyLock<World> = LazyLock::new(World::new);

libfuzzer_sys::fuzz_target!(|body: &[u8]| {
    WORLD.answer_and_check(Protocol::Tencent, Bytes::copy_from_slice(body))
});
