//! How many crash images a second: `cargo run --release -p kauri-sim --example rate`.
//!
//! Three hundred operations on a file of some size: pages written here and there, a sync after every eighth. The engine is
//! nothing but one read of the file's first page, so what is measured is the simulator.
#![expect(clippy::disallowed_methods, reason = "measures time")]
#![expect(clippy::print_stdout, reason = "prints what it measured")]

use std::time::Instant;

use kauri_sim::{Acks, Engine, Explorer, Image, Progress, Rng, SimDisk};
use kauri_tree::disk::{Disk, Open};

const PAGE_BYTES: usize = 4096;
const POINTS: u64 = 200_000;

struct Pages {
    count: u64,
}

impl Engine for Pages {
    fn live(&self, disk: &SimDisk, acks: &Acks) -> Result<(), String> {
        let file = disk.open("pages", Open::ReadWrite).map_err(|error| error.to_string())?;
        let mut rng = Rng::new(u64::from(acks.life()));
        for op in 1..300 {
            let at = rng.below(self.count) * PAGE_BYTES as u64;
            let done = if op % 9 == 0 { file.sync() } else { file.write_at(at, &[1; PAGE_BYTES]) };
            done.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn check(&self, disk: &SimDisk, _seen: Progress) -> Result<u64, String> {
        let file = disk.open("pages", Open::ReadWrite).map_err(|error| error.to_string())?;
        file.read_at(0, &mut [0; PAGE_BYTES]).map(|()| 0).map_err(|error| error.to_string())
    }
}

fn main() {
    for kib in [64, 256, 1024] {
        let engine = Pages { count: kib / 4 };
        let bytes = vec![0; usize::try_from(kib).expect("small") * 1024];
        let explorer = Explorer::new(1).start(Image::new().with_file("pages", &bytes)).points(POINTS);
        let start = Instant::now();
        let report = explorer.explore(&engine);
        let rate = u128::from(report.points) * 1000 / start.elapsed().as_millis().max(1);
        println!("{kib:>5} KiB: {} crash images, {rate} a second", report.points);
    }
}
