//! Killed loaders: readers see the old generation, and the next loader cleans up.

use super::*;

/// The step at which the loader is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Killed {
    WithTheLock,
    InAChunk,
    AfterSomeChunks,
    AfterAllChunks,
    InTheManifest,
    AfterTheManifest,
    InCurrent,
    AfterCurrent,
}

const STEPS: [Killed; 8] = [
    Killed::WithTheLock,
    Killed::InAChunk,
    Killed::AfterSomeChunks,
    Killed::AfterAllChunks,
    Killed::InTheManifest,
    Killed::AfterTheManifest,
    Killed::InCurrent,
    Killed::AfterCurrent,
];

/// Publishes `keys` up to a step. Staged files are half written.
async fn publish_until(fixture: &StoreFixture, keys: &[DeviceKey], killed: Killed) {
    let folder = fixture.audience_folder();
    let stage = |path: String, bytes: &[u8]| {
        std::fs::write(folder.join(path), &bytes[..bytes.len() / 2]).unwrap()
    };
    let base = fixture.writer.base(&audience()).await.unwrap();
    let sequence = base.current().unwrap().sequence + 1;
    let publication = fixture.writer.publish(base).await.unwrap();
    let generation = publication.generation();
    let (manifest, chunks) = build(generation, keys);
    for (index, chunk) in chunks.into_iter().enumerate() {
        if (killed == Killed::InAChunk && index == 0)
            || (killed == Killed::AfterSomeChunks && index == 5)
        {
            stage(
                format!("chunks/{}.chunk#1", chunk.entry.digest),
                &chunk.bytes,
            );
        }
        if killed > Killed::AfterSomeChunks || (killed == Killed::AfterSomeChunks && index < 5) {
            publication.put_chunk(chunk).await.unwrap();
        }
    }
    let manifest_bytes = manifest.to_bytes();
    let current = Current::new(sequence, generation, &manifest_bytes, None).to_bytes();
    match killed {
        Killed::InTheManifest => stage(format!("manifests/{generation}.json#1"), &manifest_bytes),
        Killed::AfterTheManifest | Killed::InCurrent => {
            fixture
                .write(
                    &format!("old_users/manifests/{generation}.json"),
                    manifest_bytes,
                )
                .await;
            if killed == Killed::InCurrent {
                stage("CURRENT#1".to_owned(), &current);
            }
        }
        Killed::AfterCurrent => {
            publication.commit(manifest).await.unwrap();
        }
        _ => {}
    }
}

/// Half-written files.
fn staged(folder: &FilePath) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(staged(&path));
        } else if path.to_str().unwrap().contains('#') {
            found.push(path);
        }
    }
    found
}

#[tokio::test]
async fn loader_killed_at_any_step_leaves_the_old_generation_live() {
    for killed in STEPS {
        let fixture = StoreFixture::directory();
        let [old, new, next] = ["old", "new", "next"].map(|seed| keys(seed, 100));
        fixture.publish(&old).await.unwrap();

        publish_until(&fixture, &new, killed).await;

        let (live, members) = if killed == Killed::AfterCurrent {
            (2, &new)
        } else {
            (1, &old)
        };
        fixture.assert_serves(live, members).await;
        let left = staged(&fixture.audience_folder());
        let unfinished = [
            Killed::InAChunk,
            Killed::AfterSomeChunks,
            Killed::InTheManifest,
            Killed::InCurrent,
        ];
        assert_eq!(
            left.len(),
            usize::from(unfinished.contains(&killed)),
            "{killed:?}: {left:?}"
        );

        // The next loader takes an unused number, and removes half-written files.
        let taken = if killed >= Killed::AfterTheManifest {
            3
        } else {
            2
        };
        assert_eq!(fixture.publish(&next).await.unwrap().0, taken, "{killed:?}");
        fixture.assert_serves(taken, &next).await;
        assert!(staged(&fixture.audience_folder()).is_empty(), "{killed:?}");
    }
}

#[tokio::test]
async fn restarted_loader_writes_only_missing_chunks() {
    let fixture = StoreFixture::directory();
    let [old, new] = ["old", "new"].map(|seed| keys(seed, 100));
    fixture.publish(&old).await.unwrap();
    publish_until(&fixture, &new, Killed::AfterSomeChunks).await;
    assert_eq!(fixture.publish(&new).await.unwrap(), (2, 11));
    fixture.assert_serves(2, &new).await;
}

#[tokio::test]
async fn abandoned_generation_number_is_skipped_in_memory() {
    let fixture = StoreFixture::memory();
    let members = keys("member", 30);
    fixture.publish(&members).await.unwrap();
    fixture
        .write(
            "old_users/manifests/2.json",
            build(2, &members).0.to_bytes(),
        )
        .await;
    fixture.assert_serves(1, &members).await;
    assert_eq!(fixture.publish(&members).await.unwrap().0, 3);
}
