//! The images that a crash may leave: which ones are looked at, and how each is made.

use std::ops::{ControlFlow, Range};

use crate::effect::{self, Effect, Fate, What};
use crate::fault::{FaultKind, Hits};
use crate::image::Image;
use crate::point::{CrashPoint, Flight, Variant};
use crate::rng::Rng;
use crate::tear::Tear;
use crate::trace::{Op, Trace};
use crate::walk::{Moved, Walk};

/// What is the same for all crash points of a search.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of every random choice.
    pub seed: u64,
    /// The sizes of the pieces into which writes are torn, taken in turn.
    pub tear_bytes: Vec<u32>,
    /// Up to how many pending effects every subset is tried.
    pub exhaustive_max: u32,
}

/// Which points of each boundary a walk visits. Rounds have no point in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Round {
    /// Nothing, everything, all but the last, only the last.
    Plain,
    /// Every other subset, where few effects are pending.
    Subsets,
    /// Some random choices; the number says which.
    Samples(u32),
}

/// Where a walk stops to crash.
#[derive(Clone, Debug)]
pub struct Stops<'a> {
    /// The boundaries, as numbers of operations that have returned.
    pub range: Range<usize>,
    /// Only every so many of them, and the marks.
    pub every: usize,
    /// The boundaries, in order, at which the program promised something new: there, images that were seen before are
    /// looked at again.
    pub marks: &'a [usize],
}

/// How many random choices a boundary gets in one round.
const SAMPLES: u32 = 4;

impl Default for Plan {
    fn default() -> Self {
        Self { seed: 1, tear_bytes: vec![512, 16], exhaustive_max: 8 }
    }
}

impl Trace {
    /// Walks along the trace once and shows the image of each crash point, until `visit` breaks.
    pub fn visit<B>(
        &self,
        plan: &Plan,
        round: Round,
        stops: &Stops<'_>,
        hits: &mut Hits,
        mut visit: impl FnMut(CrashPoint, Image) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let mut walk = Walk::new(self);
        let mut fresh = true;
        loop {
            let op = walk.at();
            let marked = stops.marks.binary_search(&op).is_ok();
            let stop = stops.range.contains(&op) && (marked || op.is_multiple_of(stops.every.max(1)));
            if stop {
                let boundary = Boundary { plan, round, op, fresh: fresh || marked };
                boundary.visit(walk.durable(), walk.pending(), Flight::Between, hits, &mut visit)?;
                if matches!(walk.next(), Some(Op::WriteDurable { .. })) {
                    boundary.visit(walk.durable(), &walk.pending_during_next(), Flight::During, hits, &mut visit)?;
                }
            }
            if walk.next().is_none() || op + 1 >= stops.range.end {
                return ControlFlow::Continue(());
            }
            // What was not looked at here must be looked at where the walk stops next.
            fresh = walk.advance() == Moved::Durable || !stop;
        }
    }

    /// The image of one crash point, or nothing if the trace is shorter than that.
    #[must_use]
    pub fn image_at(&self, point: &CrashPoint) -> Option<Image> {
        if point.op > self.ops.len() {
            return None;
        }
        let mut walk = Walk::new(self);
        while walk.at() < point.op {
            walk.advance();
        }
        let pending = match point.flight {
            Flight::Between => walk.pending().to_vec(),
            Flight::During => walk.pending_during_next(),
        };
        Some(image(walk.durable(), &pending, point, &mut Hits::default()))
    }
}

struct Boundary<'a> {
    plan: &'a Plan,
    round: Round,
    op: usize,
    /// Whether images without the newest operation are worth a look: they were not seen at the boundary before, or less was
    /// promised then.
    fresh: bool,
}

impl Boundary<'_> {
    fn visit<B>(
        &self,
        durable: &Image,
        pending: &[Effect],
        flight: Flight,
        hits: &mut Hits,
        visit: &mut impl FnMut(CrashPoint, Image) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        for variant in self.variants(pending, flight) {
            let point = CrashPoint { seed: self.plan.seed, op: self.op, flight, variant };
            visit(point, image(durable, pending, &point, hits))?;
        }
        ControlFlow::Continue(())
    }

    fn variants(&self, pending: &[Effect], flight: Flight) -> Vec<Variant> {
        // While a durable write is on its way, only images that hold a part of it are new.
        let fresh = self.fresh && flight == Flight::Between;
        let newest = pending.last().map(|effect| effect.op);
        match self.round {
            Round::Plain => self.plain(pending, fresh, flight),
            Round::Subsets if pending.len() <= self.plan.exhaustive_max.min(20) as usize => {
                let newest: u64 =
                    (0..pending.len()).filter(|at| Some(pending[*at].op) == newest).map(|at| 1 << at).sum();
                let all = (1_u64 << pending.len()) - 1;
                (1..all).filter(|bits| fresh || bits & newest != 0).map(Variant::Subset).collect()
            }
            Round::Samples(number) if !pending.is_empty() && self.is_new(pending, fresh, flight) => {
                (number * SAMPLES..(number + 1) * SAMPLES).map(|number| self.sample(number)).collect()
            }
            Round::Subsets | Round::Samples(_) => Vec::new(),
        }
    }

    fn plain(&self, pending: &[Effect], fresh: bool, flight: Flight) -> Vec<Variant> {
        let mut variants = Vec::new();
        if fresh {
            variants.push(Variant::None);
        }
        let Some(last) = pending.last() else { return variants };
        if !self.is_new(pending, fresh, flight) {
            return variants;
        }
        if flight == Flight::Between {
            variants.push(Variant::All);
        }
        if pending[0].op != last.op {
            variants.push(Variant::OnlyLast);
            if fresh {
                variants.push(Variant::AllButLast);
            }
        }
        variants
    }

    /// Whether there is something here that was not pending at the boundary before.
    fn is_new(&self, pending: &[Effect], fresh: bool, flight: Flight) -> bool {
        fresh || flight == Flight::During || pending.last().is_some_and(|last| last.op + 1 == self.op)
    }

    fn sample(&self, number: u32) -> Variant {
        let sizes = &self.plan.tear_bytes;
        assert!(!sizes.is_empty(), "a plan says how writes are torn");
        Variant::Sample { number, tear_bytes: sizes[number as usize % sizes.len()] }
    }
}

/// What a crash leaves of these two.
fn image(durable: &Image, pending: &[Effect], point: &CrashPoint, hits: &mut Hits) -> Image {
    let (fates, garbage) = fates(pending, point);
    effect::count(pending, &fates, hits);
    let mut image = durable.clone();
    if garbage.is_some_and(|mut rng| effect::fill_growth(&mut image, pending, &mut rng)) {
        hits.count(FaultKind::Garbage);
    }
    for (effect, fate) in pending.iter().zip(&fates) {
        effect::apply(&mut image, &effect.what, fate);
    }
    effect::settle(&mut image, pending);
    image.visible()
}

/// What becomes of each pending effect; and, if growth holds garbage, which.
fn fates(pending: &[Effect], point: &CrashPoint) -> (Vec<Fate>, Option<Rng>) {
    let last = pending.last().map(|effect| effect.op);
    let survive = |survives: &dyn Fn(usize, &Effect) -> bool| {
        let fate = |(at, effect)| if survives(at, effect) { Fate::Whole } else { Fate::Lost };
        (pending.iter().enumerate().map(fate).collect(), None)
    };
    match point.variant {
        Variant::None => survive(&|_, _| false),
        Variant::All => survive(&|_, _| true),
        Variant::AllButLast => survive(&|_, effect| Some(effect.op) != last),
        Variant::OnlyLast => survive(&|_, effect| Some(effect.op) == last),
        Variant::Subset(bits) => survive(&|at, _| at < 64 && bits >> at & 1 == 1),
        Variant::Sample { number, tear_bytes } => {
            let during = u64::from(point.flight == Flight::During);
            let rng = Rng::of(point.seed, &[point.op as u64, during, number.into(), tear_bytes.into()]);
            sample(pending, tear_bytes, rng)
        }
    }
}

/// The ways in which a random choice is made. `one` is an effect drawn beforehand.
#[derive(Clone, Copy)]
enum Style {
    /// The device wrote in order and was interrupted within this one.
    InOrder,
    AllButOne,
    OnlyOne,
    /// Everything survived, this one in part.
    OneTorn,
    /// Each effect has its own luck.
    Free,
}

fn sample(pending: &[Effect], tear_bytes: u32, mut rng: Rng) -> (Vec<Fate>, Option<Rng>) {
    let style =
        *rng.pick(&[Style::InOrder, Style::AllButOne, Style::OnlyOne, Style::OneTorn, Style::Free, Style::Free]);
    let one = draw_one(pending, &mut rng);
    let keep_of_16 = *rng.pick(&[1, 4, 8, 12, 15]);
    let torn_of_4 = *rng.pick(&[0, 1, 2, 4]);
    let fate = |(at, effect): (usize, &Effect)| {
        let (survives, torn) = match style {
            Style::InOrder => (at <= one, at == one),
            Style::AllButOne => (at != one, rng.chance(torn_of_4, 4)),
            Style::OnlyOne => (at == one, rng.chance(torn_of_4, 4)),
            Style::OneTorn => (true, at == one),
            Style::Free => (rng.chance(keep_of_16, 16), rng.chance(torn_of_4, 4)),
        };
        match (survives, torn && effect.is_bytes()) {
            (false, _) => Fate::Lost,
            (true, true) => Fate::Torn(Tear::draw(tear_bytes, &mut rng)),
            (true, false) => Fate::Whole,
        }
    };
    let mut fates: Vec<Fate> = pending.iter().enumerate().map(fate).collect();
    // Images in which everything or nothing survived have been seen; a torn one is worth more.
    let is_plain =
        fates.iter().all(|fate| matches!(fate, Fate::Whole)) || fates.iter().all(|fate| matches!(fate, Fate::Lost));
    if is_plain && pending.get(one).is_some_and(Effect::is_bytes) {
        fates[one] = Fate::Torn(Tear::draw(tear_bytes, &mut rng));
    }
    let garbage = rng.chance(1, 4).then(|| rng.clone());
    (fates, garbage)
}

/// Any of the effects, or, half of the time, the shortest write: what is short is a header or a tail, and matters.
fn draw_one(pending: &[Effect], rng: &mut Rng) -> usize {
    let any = rng.index(pending.len().max(1));
    let short = rng.chance(1, 2);
    let writes = pending.iter().enumerate().filter_map(|(at, effect)| match &effect.what {
        What::Bytes { bytes, .. } => Some((bytes.len(), at)),
        What::Length { .. } | What::Name(_) => None,
    });
    writes.min().filter(|_| short).map_or(any, |(_, at)| at)
}
