//! Properties of arbitrary snapshots and mutated files.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// Keys in a few shards, spread over the shard space.
pub fn any_keys(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<DeviceKey>> {
    let key = any::<[u8; 16]>().prop_map(|mut key| {
        key[0] &= 0xc0;
        key[1] &= 0x83;
        DeviceKey::from_bytes(key)
    });
    vec(key, count)
}

pub fn any_spec() -> impl Strategy<Value = FilterSpec> {
    let numbers = prop_oneof![
        (
            Just(FilterKind::Block512),
            1..=10_u32,
            1000..60_000_u32,
            Just(false)
        ),
        (
            Just(FilterKind::Ribbon),
            Just(2_u32),
            12_000..=16_000_u32,
            any::<bool>()
        ),
    ];
    numbers.prop_map(|(kind, hashes, millibits, has_values)| {
        let spec = FilterSpec::new(kind, hashes, millibits).unwrap();
        if has_values {
            spec.with_value_bits(4).unwrap()
        } else {
            spec
        }
    })
}

pub fn sorted(mut keys: Vec<DeviceKey>) -> Vec<DeviceKey> {
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// One change to a file's bytes.
#[derive(Debug, Clone)]
enum Mutation {
    Set(Index, u8),
    Cut(Index),
    Append(Vec<u8>),
    Remove(Index),
}

fn any_mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let mutation = prop_oneof![
        6 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        1 => any::<Index>().prop_map(Mutation::Cut),
        1 => vec(any::<u8>(), 1..100).prop_map(Mutation::Append),
        1 => any::<Index>().prop_map(Mutation::Remove),
    ];
    vec(mutation, 1..6)
}

fn mutate(file: &mut Vec<u8>, mutations: &[Mutation]) {
    for mutation in mutations {
        match mutation {
            Mutation::Append(bytes) => file.extend_from_slice(bytes),
            _ if file.is_empty() => {}
            Mutation::Set(at, byte) => {
                let at = at.index(file.len());
                file[at] = *byte;
            }
            Mutation::Cut(at) => file.truncate(at.index(file.len())),
            Mutation::Remove(at) => drop(file.remove(at.index(file.len()))),
        }
    }
}

fn snapshot(manifest: &Manifest, files: &[Vec<u8>], piece_bytes: usize) -> Snapshot {
    let chunks = manifest.chunks().iter().zip(files);
    let chunks =
        chunks.map(|(entry, file)| decode(manifest, entry, file, piece_bytes).unwrap().into());
    Snapshot::assemble(manifest.clone(), chunks.collect())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 96,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn built_snapshot_reads_back_equal(
        spec in any_spec(),
        keys in any_keys(0..300),
        others in any_keys(0..300),
        piece_bytes in 1..3000_usize,
    ) {
        let keys = sorted(keys);
        let (manifest, files) = build(&spec, 3, &keys);
        prop_assert_eq!(&Manifest::parse(&manifest.to_bytes(), &audience(), 3).unwrap(), &manifest);
        let whole = snapshot(&manifest, &files, usize::MAX);
        let pieces = snapshot(&manifest, &files, piece_bytes);
        for key in &keys {
            prop_assert!(whole.contains(key));
        }
        for key in keys.iter().chain(&others) {
            prop_assert_eq!(whole.contains(key), pieces.contains(key));
        }
        for (whole, pieces) in whole.chunks().iter().zip(pieces.chunks()) {
            prop_assert_eq!(whole.digest(), pieces.digest());
            prop_assert!(whole.filters() == pieces.filters());
            prop_assert!(whole.shards().eq(pieces.shards()));
        }
        // Each filter equals one built by inserting the shard's keys.
        for shard in keys.chunk_by(|a, b| a.shard() == b.shard()) {
            if spec.kind() != FilterKind::Block512 {
                continue;
            }
            let mut filter = vec![0; spec.filter_bytes(shard.len() as u32) as usize];
            shard.iter().for_each(|key| spec.insert(&mut filter, key));
            prop_assert!(whole.filter(shard[0].shard()) == filter.as_slice().into());
        }
    }

    #[test]
    fn files_do_not_depend_on_key_order(
        spec in any_spec(),
        (keys, shuffled) in any_keys(1..200)
            .prop_flat_map(|keys| (Just(keys.clone()), Just(keys).prop_shuffle())),
    ) {
        let (manifest, files) = build(&spec, 1, &sorted(keys));
        let (other_manifest, other_files) = build(&spec, 1, &sorted(shuffled));
        prop_assert_eq!(manifest.to_bytes(), other_manifest.to_bytes());
        prop_assert!(files == other_files);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        file in vec(any::<u8>(), 0..400),
        piece_bytes in 1..400_usize,
    ) {
        let (manifest, _) = build(&spec(FilterKind::Block512), 1, &keys("device", 40));
        prop_assert!(decode(&manifest, &manifest.chunks()[0], &file, piece_bytes).is_err());
        prop_assert!(Manifest::parse(&file, &audience(), 1).is_err());
        prop_assert!(Current::parse(&file).is_err());
    }

    #[test]
    fn mutated_files_never_panic(
        kind in proptest::sample::select(KINDS.to_vec()),
        mutations in any_mutations(),
        piece_bytes in 1..400_usize,
    ) {
        let (manifest, files) = build(&spec(kind), 1, &keys("device", 60));
        let mut file = files[0].clone();
        mutate(&mut file, &mutations);
        let read = decode(&manifest, &manifest.chunks()[0], &file, piece_bytes);
        prop_assert_eq!(read.is_ok(), file == files[0], "only the published bytes are accepted");

        let mut bytes = manifest.to_bytes();
        mutate(&mut bytes, &mutations);
        // Mutations of informational fields are accepted: write and read those again.
        if let Ok(parsed) = Manifest::parse(&bytes, &audience(), 1) {
            prop_assert_eq!(Manifest::parse(&parsed.to_bytes(), &audience(), 1).unwrap(), parsed);
        }
        let mut bytes = Current::new(9, 7, b"manifest", Some(8)).to_bytes();
        mutate(&mut bytes, &mutations);
        if let Ok(parsed) = Current::parse(&bytes) {
            prop_assert_eq!(Current::parse(&parsed.to_bytes()).unwrap(), parsed);
        }
    }

    #[test]
    fn mutated_files_with_repaired_checksums_never_panic(
        kind in proptest::sample::select(KINDS.to_vec()),
        mutations in any_mutations(),
        others in any_keys(1..50),
    ) {
        let mut files = Files::new(kind);
        mutate(&mut files.chunks[0], &mutations);
        files.repair_manifest();
        if let Ok(snapshot) = files.read() {
            for key in &others {
                snapshot.contains(key);
            }
        }
    }
}
