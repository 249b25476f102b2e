//! Golden snapshot files: rtad reads and writes the format as released.
//!
//! A program without rtad's code wrote the files, from `docs/reference/snapshot-format.md`. They
//! must never change. A failure means that rtad cannot read published snapshots.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rtad_core::device::DeviceKey;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{
    AudienceName, BuiltChunk, Digest, GenerationFacts, Manifest, ManifestBuilder, chunk_runs,
    shards_per_chunk,
};
use testkit::store::{Depot, files, manifest_file};

/// Filter kinds with the specs of their golden stores.
const SPECS: [(FilterKind, u32, u32); 1] = [(FilterKind::Block512, 10, 22_170)];

const NEAR_MISSES: usize = 4096;

/// Folders, and the SHA-256 over the names and digests of their files, to detect regenerated ones.
const FOLDERS: [(&str, &str); 2] = [
    (
        "v1",
        "4288ca50613605bf37f76c660122a87e0c03536f0d3f808b0409c7efb1316cc8",
    ),
    (
        "v1-ribbon",
        "06223d0a5e6e96b18a790f5b0eff084af1fd197230a2183284edd599e0e87fdf",
    ),
];

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1")
}

fn read(path: impl AsRef<Path>) -> Vec<u8> {
    let path = golden().join(path);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn read_json<T: serde::de::DeserializeOwned>(path: &str) -> T {
    serde_json::from_slice(&read(path)).unwrap()
}

fn audience() -> AudienceName {
    "golden".parse().unwrap()
}

/// The members in the file's order, which is not shard order.
fn keys() -> Vec<DeviceKey> {
    let file = String::from_utf8(read("keys.txt")).unwrap();
    file.lines()
        .map(|line| DeviceKey::from_hex(line.as_bytes()).expect("32 hex digits"))
        .collect()
}

/// Non-members that differ from a member by one bit, as those of `answers.json`.
fn near_misses(keys: &[DeviceKey]) -> impl Iterator<Item = DeviceKey> {
    (0..NEAR_MISSES).map(|number| {
        let mut key = *keys[number % keys.len()].as_bytes();
        let bit = (5 * number + number / keys.len()) % 128;
        key[bit / 8] ^= 1 << (bit % 8);
        DeviceKey::from_bytes(key)
    })
}

#[test]
fn golden_files_are_unchanged() {
    for (folder, expected) in FOLDERS {
        let folder = golden().with_file_name(folder);
        let lines = files(&folder)
            .into_iter()
            .map(|(name, bytes)| format!("{name} {}\n", Digest::of(&bytes)));
        let found = Digest::of(lines.collect::<String>().as_bytes()).to_string();
        assert_eq!(
            found, expected,
            "a new format version gets a folder of its own"
        );
    }
}

#[test]
fn same_keys_give_the_golden_files() {
    let mut keys = keys();
    keys.sort_unstable();
    for (kind, hashes, millibits_per_key) in SPECS {
        let spec = FilterSpec::new(kind, hashes, millibits_per_key).unwrap();
        let path = manifest_file(&golden().join(kind.as_str()).join("golden"), 1);
        let golden = Manifest::parse(&read(path), &audience(), 1).unwrap();

        let mut builder = ManifestBuilder::new(spec, 0.0001);
        for run in chunk_runs(&keys, shards_per_chunk(&spec, keys.len() as u64)) {
            let chunk = BuiltChunk::build(&spec, run);
            let path = format!(
                "{}/golden/chunks/{}.chunk",
                kind.as_str(),
                chunk.entry.digest
            );
            assert!(chunk.bytes == read(&path), "{path} differs");
            builder.add(&chunk);
        }
        let mut facts = GenerationFacts::built_now_by("make_golden.py");
        facts.build.rows = 713;
        let manifest = builder.finish(audience(), facts).unwrap();

        assert_eq!(manifest.chunks(), golden.chunks());
        assert_eq!(manifest.filter(), golden.filter());
        assert_eq!(
            (manifest.keys(), manifest.size_bytes(), manifest.build()),
            (golden.keys(), golden.size_bytes(), golden.build())
        );
        // Float sums depend on the order of terms: compare statistics approximately.
        let close =
            |a: f64, b: f64| assert!((a - b).abs() <= 1e-9 * b, "{kind:?}: {a}, {b} expected");
        close(manifest.target_fpr(), golden.target_fpr());
        close(manifest.expected_fpr(), golden.expected_fpr());
        let (found, golden) = (manifest.fill_ratio().unwrap(), golden.fill_ratio().unwrap());
        close(found.min, golden.min);
        close(found.mean, golden.mean);
        close(found.max, golden.max);
    }
}

#[test]
fn golden_stores_give_the_same_answers() {
    let keys = keys();
    let answers: BTreeMap<String, String> = read_json("answers.json");
    for (kind, ..) in SPECS {
        let store = golden().join(kind.as_str());
        let snapshot = Depot::over(store.to_str().unwrap()).read("golden").unwrap();
        for key in &keys {
            assert!(
                snapshot.contains(key),
                "a member is missing of the {kind:?} store"
            );
        }
        let mut found = vec![0_u8; NEAR_MISSES / 8];
        for (number, key) in near_misses(&keys).enumerate() {
            found[number / 8] |= u8::from(snapshot.contains(&key)) << (number % 8);
        }
        assert_eq!(
            const_hex::encode(found),
            answers[kind.as_str()],
            "answers of the {kind:?} store"
        );
    }
}

#[derive(serde::Deserialize)]
struct Probes {
    kind: FilterKind,
    size_bytes: usize,
    /// Bits per key, in the order of the hashes.
    bits: BTreeMap<String, Vec<usize>>,
}

#[test]
fn hashes_set_the_documented_bits() {
    let probes: Vec<Probes> = read_json("probes.json");
    assert_eq!(probes.len(), 4, "four sizes");
    for Probes {
        kind,
        size_bytes,
        bits,
    } in probes
    {
        for (key, bits) in bits {
            let key = DeviceKey::from_hex(key.as_bytes()).unwrap();
            for hashes in 1..=bits.len() {
                let spec = FilterSpec::new(kind, u32::try_from(hashes).unwrap(), 20_000).unwrap();
                let mut found = vec![0_u8; size_bytes];
                spec.insert(&mut found, &key);
                let mut expected = vec![0_u8; size_bytes];
                for bit in &bits[..hashes] {
                    expected[bit / 8] |= 1 << (bit % 8);
                }
                assert!(
                    found == expected,
                    "{kind:?}, {size_bytes} bytes, {hashes} hashes"
                );
                assert!(spec.contains(&found[..], &key));
            }
        }
    }
}

/// Ribbon filters, whose equations were solved in another way.
mod ribbon {
    use super::*;

    const SHARDS: [(u16, usize); 12] = [
        (0x0000, 1),
        (0x0001, 2),
        (0x0003, 31),
        (0x0004, 32),
        (0x0005, 33),
        (0x0006, 100),
        (0x0007, 2999),
        (0x0008, 3000),
        (0x0009, 9000),
        (0x000a, 40),
        (0x000b, 3100),
        (0xffff, 7),
    ];
    const MILLIBITS: [u32; 6] = [12_000, 13_000, 13_367, 14_000, 15_500, 16_000];
    const NON_MEMBERS: usize = 20_000;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1-ribbon")
    }

    /// A key of the shard with bytes of the md5 of a name.
    fn key(shard: u16, name: &str, shared: bool) -> DeviceKey {
        let mut key = *DeviceKey::of_canonical(name.as_bytes()).as_bytes();
        key[..2].copy_from_slice(&shard.to_be_bytes());
        if shared {
            key[2..10].fill(0xa5);
        }
        DeviceKey::from_bytes(key)
    }

    fn keys() -> Vec<DeviceKey> {
        let shards = SHARDS
            .iter()
            .flat_map(|(shard, count)| std::iter::repeat_n(*shard, *count));
        shards
            .enumerate()
            .map(|(n, shard)| key(shard, &format!("ribbon-{n}"), matches!(shard, 0xa | 0xb)))
            .collect()
    }

    #[test]
    fn same_keys_give_the_golden_files() {
        let mut keys = keys();
        keys.sort_unstable();
        for millibits in MILLIBITS {
            let store = root().join(millibits.to_string()).join("golden");
            let manifest = std::fs::read(manifest_file(&store, 1)).unwrap();
            let golden = Manifest::parse(&manifest, &audience(), 1).unwrap();
            let spec = FilterSpec::new(FilterKind::Ribbon, 2, millibits).unwrap();
            assert_eq!(golden.filter(), &spec);
            let mut builder = ManifestBuilder::new(spec, 0.0001);
            for run in chunk_runs(&keys, shards_per_chunk(&spec, keys.len() as u64)) {
                let chunk = BuiltChunk::build(&spec, run);
                let path = store.join(format!("chunks/{}.chunk", chunk.entry.digest));
                let file = std::fs::read(&path);
                assert!(
                    file.is_ok_and(|file| file == chunk.bytes),
                    "{} differs",
                    path.display()
                );
                builder.add(&chunk);
            }
            let check = builder.check();
            assert_eq!((check.members_missing, check.probes), (0, 12 * 64));
            let made = builder.finish(audience(), GenerationFacts::default());
            let made = made.unwrap();
            assert_eq!(made.chunks(), golden.chunks());
            assert_eq!(
                made.diverted_and_listed_keys(),
                golden.diverted_and_listed_keys()
            );
            let (found, expected) = (made.expected_fpr(), golden.expected_fpr());
            assert!(
                (found - expected).abs() <= 1e-9 * expected,
                "{found:e} {expected:e}"
            );
        }
    }

    #[test]
    fn golden_stores_give_the_same_answers() {
        let keys = keys();
        let answers = std::fs::read(root().join("answers.json")).unwrap();
        let answers: BTreeMap<String, String> = serde_json::from_slice(&answers).unwrap();
        let other = |n: usize| key(SHARDS[n % 12].0, &format!("other-{n}"), false);
        let near = |n: usize| {
            let mut key = *keys[3 * n % keys.len()].as_bytes();
            let bit = 5 * n % 128;
            key[bit / 8] ^= 1 << (bit % 8);
            DeviceKey::from_bytes(key)
        };
        let asked: Vec<DeviceKey> = (0..NON_MEMBERS)
            .map(other)
            .chain((0..NEAR_MISSES).map(near))
            .collect();
        for millibits in MILLIBITS {
            let store = root().join(millibits.to_string());
            let snapshot = Depot::over(store.to_str().unwrap()).read("golden").unwrap();
            assert!(keys.iter().all(|key| snapshot.contains(key)), "{millibits}");
            let mut members = vec![false; asked.len()];
            snapshot.contains_many(&asked, &mut members);
            let mut found = vec![0_u8; asked.len() / 8];
            for (number, (key, member)) in asked.iter().zip(members).enumerate() {
                assert_eq!(snapshot.contains(key), member);
                found[number / 8] |= u8::from(member) << (number % 8);
            }
            assert_eq!(
                const_hex::encode(found),
                answers[&millibits.to_string()],
                "{millibits}"
            );
        }
    }
}
