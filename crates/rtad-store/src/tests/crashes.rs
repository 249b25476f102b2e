//! Killed loaders: readers see the old generation, and a gc removes what is left behind.

use super::*;
use crate::write::{MIN_AGE, Retention};

/// The step at which the loader is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Killed {
    InAChunk,
    AfterSomeChunks,
    AfterAllChunks,
    InTheManifest,
    AfterTheManifest,
    InTheRecord,
    AfterTheRecord,
    InTheHint,
}

const STEPS: [Killed; 8] = [
    Killed::InAChunk,
    Killed::AfterSomeChunks,
    Killed::AfterAllChunks,
    Killed::InTheManifest,
    Killed::AfterTheManifest,
    Killed::InTheRecord,
    Killed::AfterTheRecord,
    Killed::InTheHint,
];

/// Publishes `keys` up to a step. Staged files are half written.
async fn publish_until(fixture: &StoreFixture, keys: &[DeviceKey], killed: Killed) {
    let folder = fixture.audience_folder();
    let stage = |path: &str, bytes: &[u8]| {
        let staged = folder.parent().unwrap().join(format!("{path}#1"));
        std::fs::write(staged, &bytes[..bytes.len() / 2]).unwrap()
    };
    let base = fixture.writer.base(&audience()).await.unwrap();
    let live = base.current().unwrap().clone();
    let publication = fixture.writer.publish(base).await.unwrap();
    let (manifest, chunks) = build(2, keys);
    for (index, chunk) in chunks.into_iter().enumerate() {
        if killed <= Killed::AfterSomeChunks && index == 5 {
            if killed == Killed::InAChunk {
                stage(chunk_path(&audience(), &chunk.entry).as_ref(), &chunk.bytes);
            }
            return;
        }
        publication.put_chunk(chunk).await.unwrap();
    }
    if killed >= Killed::AfterTheRecord {
        publication.commit(manifest).await.unwrap();
        fixture.write("old_users/LATEST", b"1\n".to_vec()).await;
        if killed == Killed::InTheHint {
            stage("old_users/LATEST", b"2\n");
        }
        return;
    }

    let manifest = manifest.over_generation(1).to_bytes();
    let path = manifest_path(&audience(), &GenerationEntry::of(2, &manifest)).to_string();
    match killed {
        Killed::InTheManifest => stage(&path, &manifest),
        Killed::AfterTheManifest | Killed::InTheRecord => {
            fixture.write(&path, manifest.clone()).await;
            if killed == Killed::InTheRecord {
                let next = Current::new(live.sequence + 1, 2, &manifest, None);
                stage(&record(2), &next.to_bytes());
            }
        }
        _ => {}
    }
}

/// All files of a folder, also half-written ones.
fn files_below(folder: &FilePath) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found
}

fn staged_below(folder: &FilePath) -> usize {
    let mut files = files_below(folder);
    files.retain(|path| path.to_str().unwrap().contains('#'));
    files.len()
}

#[tokio::test]
async fn loader_killed_at_any_step_leaves_a_whole_generation_live() {
    for killed in STEPS {
        let fixture = StoreFixture::directory();
        let [old, new, next] = ["old", "new", "next"].map(|seed| keys(seed, 100));
        fixture.publish(&old).await.unwrap();

        publish_until(&fixture, &new, killed).await;

        let (live, members) = if killed >= Killed::AfterTheRecord {
            (2, &new)
        } else {
            (1, &old)
        };
        fixture.assert_serves(live, members).await;
        let folder = fixture.audience_folder();
        let unfinished = [
            Killed::InAChunk,
            Killed::InTheManifest,
            Killed::InTheRecord,
            Killed::InTheHint,
        ];
        let staged = usize::from(unfinished.contains(&killed));
        assert_eq!(staged_below(&folder), staged, "{killed:?}");

        // The next loader is not disturbed. A gc removes what is old, and only that.
        let published = fixture.publish(&next).await.unwrap().0;
        assert_eq!(published, live + 1, "{killed:?}");
        let retention = Retention {
            keep: 1,
            min_age: MIN_AGE,
        };
        let name = audience();
        let collect = || fixture.writer.collect(&name, retention, false);
        let young = files_below(&folder);
        collect().await.unwrap();
        assert_eq!(files_below(&folder).len(), young.len(), "{killed:?}");
        for path in files_below(&folder) {
            make_older(&path, MIN_AGE);
        }
        collect().await.unwrap();
        assert_eq!(staged_below(&folder), 0, "{killed:?}");
        let left = fixture.files().await;
        let named: Vec<_> = left
            .keys()
            .filter(|path| !path.contains("/records/"))
            .collect();
        assert_eq!(named.len(), 1 + 1 + 16, "{killed:?}: {named:?}");
        fixture.assert_serves(published, &next).await;
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
