//! Artifacts and files: whole or not there, never more in memory than a chunk, and no orphan that somebody needs. Crashes are in `kauri-sim`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use kauri_disk::testing::{Call, TwistedDisk};
use kauri_disk::{Disk, File, MemoryDisk, Open};
use kauri_runtime::run::{Artifacts, Digest, Files, KeepError, KeptArtifact};
use kauri_wire::{RunId, Timestamp};

fn run_id(number: u8) -> RunId {
    RunId::from_parts(Timestamp(1_780_000_000_000), [number; 10])
}

fn opened(disk: &MemoryDisk) -> Artifacts {
    Artifacts::open(Arc::new(disk.clone())).unwrap()
}

fn put(artifacts: &Artifacts, bytes: &[u8]) -> KeptArtifact {
    let mut writer = artifacts.begin().unwrap();
    writer.write(bytes).unwrap();
    writer.finish().unwrap()
}

fn read(artifacts: &Artifacts, digest: Digest) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    artifacts.read(digest).unwrap()?.read_to_end(&mut bytes).unwrap();
    Some(bytes)
}

#[test]
fn bytes_come_back_as_they_were_written_under_their_sha_256() {
    let artifacts = opened(&MemoryDisk::new());
    let kept = put(&artifacts, b"abc");
    let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(kept.digest().to_string(), known);
    assert_eq!(read(&artifacts, kept.digest()), Some(b"abc".to_vec()));
    for other in ["", "BA7816", &known.to_uppercase(), &known[1..], &format!("{known}0"), "../../../etc/passwd"] {
        assert!(other.parse::<Digest>().is_err(), "{other}");
    }
    assert_eq!(put(&artifacts, b"").size_bytes(), 0);
}

#[test]
fn chunks_come_in_order_end_once_and_are_as_long_as_they_say() {
    type Step = fn(&Artifacts) -> Result<KeptArtifact, KeepError>;
    let steps: [(&str, Step); 7] = [
        ("expected chunk 1, found chunk 2", |it| {
            let mut writer = it.begin()?;
            writer.chunk(2, true, b"")?;
            writer.commit(0)
        }),
        ("expected chunk 2, found chunk 1", |it| {
            let mut writer = it.begin()?;
            writer.chunk(1, false, b"x")?;
            writer.chunk(1, true, b"x")?;
            writer.commit(2)
        }),
        ("expected nothing after the last chunk, found another", |it| {
            let mut writer = it.begin()?;
            writer.chunk(1, true, b"x")?;
            writer.chunk(2, true, b"x")?;
            writer.commit(2)
        }),
        ("expected the last chunk before the end, found none", |it| {
            let mut writer = it.begin()?;
            writer.chunk(1, false, b"x")?;
            writer.commit(1)
        }),
        ("expected 1024 bytes, found 25", |it| {
            let mut writer = it.begin()?;
            writer.chunk(1, true, &[7; 25])?;
            writer.commit(1024)
        }),
        ("expected 1000 bytes at most, found more", |it| {
            let mut writer = it.begin()?;
            writer.chunk(1, false, &[7; 1000])?;
            writer.chunk(2, true, b"x")?;
            writer.commit(1001)
        }),
        ("the disk failed: an earlier write of the artifact failed", |it| {
            let mut writer = it.begin()?;
            assert!(writer.write(&[7; 1001]).is_err());
            writer.finish()
        }),
    ];
    let disk = MemoryDisk::new();
    let artifacts = Artifacts::open_with(Arc::new(disk.clone()), 1000).unwrap();
    for (words, step) in steps {
        assert_eq!(step(&artifacts).unwrap_err().to_string(), words);
        assert!(disk.names().unwrap().is_empty(), "{words}: something is left");
    }
    // An empty artifact is one empty chunk.
    let mut writer = artifacts.begin().unwrap();
    writer.chunk(1, true, b"").unwrap();
    assert_eq!(writer.commit(0).unwrap().size_bytes(), 0);
}

#[test]
fn what_a_crash_left_half_written_is_cleared() {
    let disk = MemoryDisk::new();
    let artifacts = opened(&disk);
    let mut half = artifacts.begin().unwrap();
    half.write(b"half").unwrap();
    let whole = put(&artifacts, b"whole");
    std::mem::forget(half);
    assert_eq!(disk.names().unwrap().len(), 2);
    assert_eq!(read(&opened(&disk), whole.digest()), Some(b"whole".to_vec()));
    assert_eq!(disk.names().unwrap(), [whole.digest().to_string()]);
}

#[test]
fn orphans_are_collected_and_what_is_live_or_guarded_is_not() {
    let disk = MemoryDisk::new();
    let artifacts = opened(&disk);
    let (orphan, live, guarded) =
        (put(&artifacts, b"orphan").digest(), put(&artifacts, b"live").digest(), put(&artifacts, b"guard"));
    disk.open("not-ours", Open::CreateNew).unwrap();
    let mut asked = BTreeSet::new();
    let collected = artifacts.collect(|digest| {
        asked.insert(digest);
        Ok(digest == live)
    });
    assert_eq!((collected.unwrap(), asked), (1, BTreeSet::from([orphan, live])));
    assert_eq!(read(&artifacts, orphan), None);
    assert!(artifacts.is_whole(live).unwrap() && artifacts.is_whole(guarded.digest()).unwrap());
    let again = put(&artifacts, b"guard");
    drop(guarded);
    assert_eq!(artifacts.collect(|digest| Ok(digest == live)).unwrap(), 0, "it was guarded twice");
    drop(again);
    assert_eq!(artifacts.collect(|digest| Ok(digest == live)).unwrap(), 1);
    assert_eq!(disk.names().unwrap(), [live.to_string(), "not-ours".to_owned()]);
}

#[test]
fn artifact_whose_event_is_committed_while_orphans_are_collected_is_never_taken() {
    // The same bytes were an orphan; somebody writes them again and commits an event, in the very moment after the collection asked.
    let artifacts = opened(&MemoryDisk::new());
    let digest = put(&artifacts, b"bytes").digest();
    let mut committed = BTreeSet::new();
    let removed = artifacts.collect(|asked| {
        let answer = committed.contains(&asked);
        let guarded = put(&artifacts, b"bytes");
        committed.insert(guarded.digest());
        drop(guarded); // its event is committed
        Ok(answer)
    });
    assert_eq!((removed.unwrap(), committed.contains(&digest)), (0, true));
    assert!(artifacts.is_whole(digest).unwrap());
    // One collection at a time: a second would not know what the first has asked.
    let inner = artifacts.collect(|_| Ok(artifacts.collect(|_| Ok(true)).is_err()));
    assert_eq!(inner.unwrap(), 0);
}

#[test]
fn random_writes_guards_and_collections_agree_with_a_model() {
    for seed in 0..40_u64 {
        let disk = MemoryDisk::new();
        let mut artifacts = opened(&disk);
        let mut chance = seed;
        let mut below = |bound: u64| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (chance >> 33) % bound
        };
        let (mut there, mut live) = (BTreeMap::new(), BTreeSet::new());
        let mut guards: Vec<KeptArtifact> = Vec::new();
        for _ in 0..300 {
            match below(10) {
                0..=3 => {
                    let bytes = format!("artifact {}", below(12)).into_bytes();
                    let guarded = put(&artifacts, &bytes);
                    there.insert(guarded.digest(), bytes);
                    guards.push(guarded);
                }
                4 | 5 if !guards.is_empty() => {
                    let at = usize::try_from(below(guards.len() as u64)).unwrap();
                    live.insert(guards.swap_remove(at).digest());
                }
                6 if !guards.is_empty() => drop(guards.pop()),
                7 => drop(live.pop_first()),
                8 => {
                    let kept =
                        |digest: &Digest| live.contains(digest) || guards.iter().any(|guard| guard.digest() == *digest);
                    let before = there.len();
                    there.retain(|digest, _| kept(digest));
                    let removed = artifacts.collect(|digest| Ok(live.contains(&digest))).unwrap();
                    assert_eq!(removed, (before - there.len()) as u64, "seed {seed}");
                }
                9 => {
                    guards.clear();
                    artifacts = opened(&disk);
                }
                _ => {}
            }
            let names: Vec<String> = there.keys().map(Digest::to_string).collect();
            assert_eq!(disk.names().unwrap(), names, "seed {seed}");
        }
        for (digest, bytes) in there {
            assert_eq!(read(&artifacts, digest), Some(bytes), "seed {seed}");
        }
    }
}

#[test]
fn files_are_immutable_told_apart_by_name_and_keep_their_bytes_live() {
    let disk = MemoryDisk::new();
    let files = Files::new(opened(&disk));
    let (one, two) = (run_id(1), run_id(2));
    for name in ["a b/c", "a_b_c", "a%20b%2Fc", "..", "日本", "A", "a"] {
        files.put(one, name, "text/plain", name.as_bytes()).unwrap();
    }
    files.put(two, "a", "text/csv", b"other").unwrap();
    assert_eq!((files.list(one).unwrap().len(), files.list(two).unwrap().len()), (7, 1));
    let file = files.find(one, "a b/c").unwrap().unwrap();
    assert_eq!((file.filename.as_str(), file.content_type.as_str(), file.size_bytes), ("a b/c", "text/plain", 5));
    assert_eq!(read(files.artifacts(), file.digest), Some(b"a b/c".to_vec()));

    // The same again is no fault; anything else under the name is.
    assert_eq!(files.put(one, "a b/c", "text/plain", b"a b/c").unwrap(), file);
    for (content_type, bytes) in [("text/plain", &b"x"[..]), ("text/html", b"a b/c")] {
        assert!(matches!(files.put(one, "a b/c", content_type, bytes), Err(KeepError::Exists { .. })));
    }
    let live = files.live().unwrap();
    assert_eq!(live.len(), 8);
    assert_eq!(files.artifacts().collect(|digest| Ok(live.contains(&digest))).unwrap(), 1, "the x that was refused");
    assert_eq!((files.forget(one).unwrap(), files.list(one).unwrap().len()), (7, 0));
    let live = files.live().unwrap();
    assert_eq!(files.artifacts().collect(|digest| Ok(live.contains(&digest))).unwrap(), 7);
    assert_eq!(files.find(two, "a").unwrap().unwrap().size_bytes, 5);
}

#[test]
fn names_and_types_that_cannot_be_kept_are_refused() {
    let files = Files::new(opened(&MemoryDisk::new()));
    let most = "x".repeat(213);
    files.put(run_id(1), &most, "t", b"").unwrap();
    for name in ["", &format!("{most}x"), &"é".repeat(36)] {
        assert!(matches!(files.put(run_id(1), name, "t", b""), Err(KeepError::Name { .. })), "{name}");
    }
    for content_type in ["", &"t".repeat(256)] {
        assert!(matches!(files.put(run_id(1), "f", content_type, b""), Err(KeepError::Name { .. })));
    }
}

/// A disk of which one call fails: that before which so many are left.
fn failing(disk: MemoryDisk, left: Arc<AtomicU32>) -> TwistedDisk<MemoryDisk> {
    TwistedDisk::new(disk, move |call, go| match call {
        Call::Remove(_) | Call::Names | Call::Len(_) | Call::SetLen(..) => go(),
        _ if left.fetch_sub(1, Ordering::Relaxed) == 0 => Err(io::Error::other("ordered")),
        _ => go(),
    })
}

#[test]
fn put_that_fails_leaves_no_file_and_the_next_one_succeeds() {
    let mut failures = 0;
    for nth in 0..20 {
        let (disk, left) = (MemoryDisk::new(), Arc::new(AtomicU32::new(nth)));
        let files = Files::new(Artifacts::open(Arc::new(failing(disk.clone(), Arc::clone(&left)))).unwrap());
        let put = files.put(run_id(1), "f", "t", b"first");
        left.store(u32::MAX, Ordering::Relaxed);
        let found = files.find(run_id(1), "f").unwrap();
        assert_eq!(put.is_ok(), found.is_some(), "call {nth}: {put:?}");
        if put.is_err() {
            failures += 1;
            // Not even the same content: nothing of the first stands in the way.
            assert_eq!(files.put(run_id(1), "f", "t", b"second").unwrap().size_bytes, 6, "call {nth}");
            let live = files.live().unwrap();
            files.artifacts().collect(|digest| Ok(live.contains(&digest))).unwrap();
            assert_eq!(disk.names().unwrap().len(), 2, "call {nth}: {:?}", disk.names());
        }
    }
    assert!(failures >= 9, "{failures} calls can fail");
}

/// A disk that counts bytes and keeps none.
struct Hole;

#[derive(Debug, Default)]
struct HoleFile(Mutex<u64>);

impl Disk for Hole {
    fn open(&self, _: &str, _: Open) -> io::Result<Box<dyn File>> {
        Ok(Box::new(HoleFile::default()))
    }
    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Ok(())
    }
    fn remove(&self, _: &str) -> io::Result<()> {
        Ok(())
    }
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }
    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }
}

impl File for HoleFile {
    fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut len = self.0.lock().unwrap();
        assert_eq!(*len, at, "bytes are appended");
        *len += bytes.len() as u64;
        Ok(())
    }
    fn write_durable_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_at(at, bytes)
    }
    fn len(&self) -> io::Result<u64> {
        Ok(*self.0.lock().unwrap())
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn sync_name(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn artifact_of_any_length_needs_little_memory() {
    let artifacts = Artifacts::open(Arc::new(Hole)).unwrap();
    let chunk = vec![7; 1 << 20];
    let used = allocation_counter::measure(|| {
        let mut writer = artifacts.begin().unwrap();
        for seq in 1..=64 {
            writer.chunk(seq, seq == 64, &chunk).unwrap();
        }
        assert_eq!(writer.commit(64 << 20).unwrap().size_bytes(), 64 << 20);
    });
    assert!(used.bytes_max < 16 << 10, "{} bytes", used.bytes_max);
}
