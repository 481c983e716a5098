//! One program on both sides of the runtime: the simulator answers as the kernel does.

use super::{filled, DIR_SITE, SITE};
use crate::runtime::sim::{SimRng, World};
use crate::runtime::{native, IoError, OpenMode, Queue, Rt};
use bytes::Bytes;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Runs a program on the kernel and on three simulated worlds; what it notes down is
/// the same.
fn same_on_both_sides<F>(program: fn(Rt, PathBuf) -> F)
where
    F: Future<Output = Vec<String>> + 'static,
{
    let target = concat!(env!("CARGO_MANIFEST_DIR"), "/target");
    let temp = tempfile::tempdir_in(target).expect("target/ exists while tests run");
    let path = temp.path().to_owned();
    let real = native::run(move |rt| program(rt, path)).unwrap();
    assert!(!real.is_empty());
    for seed in 0..3 {
        let world = World::new(seed);
        let node = world.node("a");
        node.disk().write_raw("/data/x", b"");
        node.disk().remove_raw("/data/x");
        let rt = node.rt();
        let simulated = world.block_on(&rt, program(rt.clone(), "/data".into()));
        for (step, (real, simulated)) in real.iter().zip(&simulated).enumerate() {
            assert_eq!(real, simulated, "step {step}, seed {seed}");
        }
        assert_eq!(real.len(), simulated.len(), "seed {seed}");
    }
}

fn note<T: std::fmt::Debug>(result: Result<T, IoError>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("{:?}", error.kind),
    }
}

fn gist(bytes: &[u8]) -> String {
    let sum = bytes.iter().fold(17_u64, |h, b| {
        h.wrapping_mul(31).wrapping_add(u64::from(*b))
    });
    format!("{} bytes {sum:x}", bytes.len())
}

#[test]
fn names() {
    same_on_both_sides(|rt, root| async move {
        let mut out = Vec::new();
        let dir = rt.dir(root.join("topic-0"));
        out.push(note(dir.exists().await));
        out.push(note(dir.list().await));
        out.push(note(dir.sync(DIR_SITE).await));
        out.push(note(dir.open("f", OpenMode::CreateNew).await.map(|_| ())));
        out.push(note(dir.lock("lock").await.map(|_| ())));
        out.push(note(dir.replace_small("s", vec![1], SITE).await));
        out.push(note(dir.subdir("deep").create_all(DIR_SITE).await));
        out.push(note(dir.create_all(DIR_SITE).await));
        out.push(note(dir.exists().await));
        for mode in [OpenMode::Read, OpenMode::ReadWrite, OpenMode::CreateNew] {
            out.push(note(dir.open("f", mode).await.map(|_| ())));
        }
        out.push(note(dir.open("f", OpenMode::CreateNew).await.map(|_| ())));
        out.push(note(
            dir.open("deep", OpenMode::CreateNew).await.map(|_| ()),
        ));
        out.push(note(dir.subdir("f").exists().await));
        out.push(note(dir.subdir("f").list().await));
        out.push(note(dir.subdir("f").create_all(DIR_SITE).await));
        out.push(note(dir.subdir("f").subdir("g").create_all(DIR_SITE).await));
        out.push(note(
            dir.subdir("f").open("g", OpenMode::Read).await.map(|_| ()),
        ));
        out.push(note(dir.read_small("none", 10).await));
        out.push(note(dir.read_small("f", 0).await));
        for content in [vec![7; 5000], vec![], vec![9; 10]] {
            out.push(note(dir.replace_small("s", content, SITE).await));
            out.push(note(dir.read_small("s", 5000).await));
        }
        out.push(note(dir.read_small("s", 9).await));
        out.push(note(dir.read_small("deep", 9).await));
        out.push(note(dir.rename("none", "x").await));
        out.push(note(dir.rename("f", "deep").await));
        out.push(note(dir.rename("s", "f").await));
        out.push(note(dir.rename("f", "f").await));
        out.push(note(dir.rename("deep", "deeper").await));
        out.push(note(dir.remove_file("none").await));
        out.push(note(dir.remove_dir_all("none").await));
        let first = dir.lock("lock").await;
        out.push(note(dir.lock("lock").await.map(|_| ())));
        drop(first);
        out.push(note(dir.lock("lock").await.map(|_| ())));
        let entries = dir.list().await.unwrap();
        out.extend(
            entries
                .iter()
                .map(|e| format!("{} {} {}", e.name, e.is_dir, e.len)),
        );
        let measured = dir.list_measuring(|name| name == "f").await.unwrap();
        out.extend(
            measured
                .iter()
                .map(|e| format!("{} {} {} {}", e.name, e.is_dir, e.is_file, e.len)),
        );
        let others = measured.iter().filter(|e| e.name != "f");
        assert!(others.clone().count() > 1 && others.clone().all(|e| e.modified_ms == 0));
        out.push(note(dir.sync(DIR_SITE).await));
        out.push(note(rt.dir(&root).remove_dir_all("topic-0").await));
        out.push(note(dir.exists().await));
        out
    });
}

/// Draws the same operations on both sides and notes what each shows.
async fn draw_operations(rt: Rt, root: PathBuf) -> Vec<String> {
    let rng = SimRng::new(4711);
    let dir = rt.dir(&root);
    let mut out = Vec::new();
    for round in 0..4 {
        let name = format!("f{round}");
        let file = dir.open(&name, OpenMode::CreateNew).await.unwrap();
        for step in 0..40_u8 {
            out.push(match rng.below(7) {
                0 | 1 => {
                    let blocks = 1 + rng.below(4) as usize;
                    let pos = rng.below(12) * 4096;
                    note(file.write_at(&filled(&rt, blocks, 1 + step), pos).await)
                }
                2 => note(file.truncate(rng.below(50_000)).await),
                3 => note(file.pre_allocate(1 + rng.below(50_000)).await),
                4 => note(file.sync_data(SITE).await),
                _ => {
                    let (pos, len) = (rng.below(60_000), rng.below(20_000) as usize);
                    note(file.read_at(pos, len).await.map(|b| gist(&b)))
                }
            });
            out.push(note(file.size().await));
        }
        let reader = dir.open(&name, OpenMode::Read).await.unwrap();
        out.push(note(reader.read_at(0, 100_000).await.map(|b| gist(&b))));
        out.push(note(dir.read_small(&name, 100_000).await.map(|b| gist(&b))));
        dir.remove_file(&name).await.unwrap();
        out.push(note(file.size().await));
        out.push(note(file.read_at(0, 100_000).await.map(|b| gist(&b))));
        out.push(note(dir.open(&name, OpenMode::Read).await.map(|_| ())));
    }
    out
}

#[test]
fn files() {
    same_on_both_sides(draw_operations);
}

#[test]
fn connections() {
    same_on_both_sides(|rt, _| async move {
        let mut out = Vec::new();
        let listener = rt.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let addr = listener.local_addr();
        out.push(note(rt.listen(addr).await.map(|_| ())));
        // An echo that ends with its client.
        let server = rt.clone();
        rt.spawn(Queue::Latency, async move {
            while let Ok(accepted) = listener.accept().await {
                let (mut reader, mut writer) = server.adopt(accepted).unwrap().split();
                let mut buf = [0; 1000];
                while let Ok(count) = reader.read(&mut buf).await {
                    if count == 0 {
                        break;
                    }
                    let mut slices = vec![Bytes::copy_from_slice(&buf[..count])];
                    if writer.write_all(&mut slices).await.is_err() {
                        break;
                    }
                }
                listener.close();
            }
        });
        let conn = rt.connect(addr).await.unwrap();
        out.push(format!("{}", conn.peer_addr() == addr));
        let closer = conn.closer();
        let (mut reader, mut writer) = conn.split();
        let mut slices = vec![
            Bytes::from_static(b"ab"),
            Bytes::new(),
            Bytes::from_static(b"c"),
        ];
        out.push(note(writer.write_all(&mut slices).await));
        out.push(format!("{}", slices.len()));
        let mut got = Vec::new();
        while got.len() < 3 {
            let mut buf = [0; 10];
            let count = reader.read(&mut buf).await.unwrap();
            got.extend_from_slice(&buf[..count]);
        }
        out.push(format!("{got:?}"));
        closer.close();
        // Either answer says that it is over.
        let over = reader.read(&mut [0; 10]).await;
        out.push(format!(
            "{}",
            matches!(note(over).as_str(), "0" | "Disconnected")
        ));
        let mut late = vec![Bytes::from_static(b"late")];
        out.push(note(writer.write_all(&mut late).await));
        drop((reader, writer));
        rt.sleep(Duration::from_millis(100)).await;
        // The listener is closed by now.
        out.push(format!("{}", rt.connect(addr).await.is_err()));
        out
    });
}

#[test]
fn paths_are_those_that_were_asked_for() {
    same_on_both_sides(|rt, root| async move {
        let dir = rt.dir(&root).subdir("a");
        dir.create_all(DIR_SITE).await.unwrap();
        let file = dir.open("f", OpenMode::CreateNew).await.unwrap();
        let below = |path: &Path| format!("{:?}", path.strip_prefix(&root));
        vec![below(dir.path()), below(file.path())]
    });
}
