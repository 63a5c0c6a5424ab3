//! Stores beside maps: ten million operations, on which they agree.

use kauri_sim::{Medley, Rng, Twin, TwinShape};

const SEEDS: u64 = 10;
const OPERATIONS: u64 = 100_000;

fn check(seed: u64) {
    if let Err(what) = Twin::new(TwinShape::of(seed), Rng::new(seed)).work(OPERATIONS) {
        panic!("{what}; again: cargo run -p kauri-sim -- model --seed {seed} --operations {OPERATIONS}");
    }
}

/// Tests of their own, so that they run side by side: a million operations each.
macro_rules! twins {
    ($($name:ident: $first:expr;)*) => {$(
        #[test]
        fn $name() {
            for seed in $first..$first + SEEDS {
                check(seed);
            }
        }
    )*};
}

twins! {
    stores_agree_with_maps_0: 0;
    stores_agree_with_maps_1: 100;
    stores_agree_with_maps_2: 200;
    stores_agree_with_maps_3: 300;
    stores_agree_with_maps_4: 400;
    stores_agree_with_maps_5: 500;
    stores_agree_with_maps_6: 600;
    stores_agree_with_maps_7: 700;
    stores_agree_with_maps_8: 800;
    stores_agree_with_maps_9: 900;
}

#[test]
fn tables_of_every_kind_agree_with_maps() {
    for seed in 0..12 {
        if let Err(what) = Medley::new(Rng::new(seed)).work(150) {
            panic!("seed {seed}: {what}");
        }
    }
}
