//! The search: let an engine work, crash it at every operation in as many ways as are asked for, and hear what it says then.
//!
//! ```text
//! life 0   work ........... crash at each operation ─┬─ check
//! life 1                                             └─ check, work .. crash inside recovery and after ─┬─ check
//! life 2                                                                                                └─ ...
//! ```
//!
//! Up to half of the points go into crashes inside recoveries that did something new, and up to a quarter into lives that
//! went on after one.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::acks::{Acks, Progress, Timeline};
use crate::crash::{Plan, Round, Stops};
use crate::disk::SimDisk;
use crate::fault::{Fault, Hits};
use crate::image::Image;
use crate::point::{CrashPath, CrashPoint};
use crate::trace::Trace;

/// Something that keeps commits on a disk, and is tried. It must do the same on the same disk, each time.
pub trait Engine {
    /// Opens or makes the store, does some commits and tells `acks` of each. It goes on from what the disk holds.
    ///
    /// # Errors
    /// Says what went wrong. Without an injected fault that is a violation.
    fn live(&self, disk: &SimDisk, acks: &Acks) -> Result<(), String>;

    /// Opens the store that a crash left and looks at all of it. Answers how many commits it holds, after checking that it
    /// is exactly the state after that many. The search sees to it that the number lies within `seen`.
    ///
    /// # Errors
    /// Says what is wrong.
    fn check(&self, disk: &SimDisk, seen: Progress) -> Result<u64, String>;
}

/// A search for crashes that an engine does not survive.
///
/// The same settings find the same points in the same order.
#[derive(Clone, Debug)]
#[must_use]
pub struct Explorer {
    plan: Plan,
    start: Image,
    points_max: u64,
    lives_max: u32,
    faults: Vec<Fault>,
}

/// What a search did.
#[derive(Clone, Debug)]
#[must_use]
pub struct Report {
    /// How many images were made and checked.
    pub points: u64,
    /// How many of them are crashes inside a recovery from a crash before.
    pub recovery_points: u64,
    /// How many lives were lived, the first included.
    pub lives: u64,
    /// What happened to the disk, by kind.
    pub hits: Hits,
    /// The first violation, if there was one.
    pub violation: Option<Violation>,
}

/// An image that the engine should have survived.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The crashes that led to it.
    pub path: CrashPath,
    /// How many images were checked before, this one included.
    pub points: u64,
    /// What was on its way, or came next, at the last crash.
    pub op: String,
    /// What the engine said.
    pub what: String,
}

/// How many points of one recovery are looked at, and of one life after it.
const LATER_LIFE_POINTS_MAX: u64 = 128;

/// A recovery of no more operations is crashed in every way there is; of longer ones, one in so many. The others are crashed
/// in the plain ways only: a bug in recovery needs the right crash before it, so many recoveries are worth more than one.
const SHORT_RECOVERY_OPS: usize = 4;
const THOROUGH_RECOVERIES: u64 = 4;

/// How many points lie between two lives that go on, at least.
const LIVES_APART: u64 = 8;

/// How often the first life is walked along, at most.
const ROUNDS_MAX: u32 = 10_000;

/// How many points a boundary has in one round, about.
const BOUNDARY_POINTS: u64 = 4;

impl Explorer {
    /// A search with this seed: an empty disk, 5,000 points, 3 lives, writes torn at 512 and at 16 bytes, no faults.
    pub fn new(seed: u64) -> Self {
        let plan = Plan { seed, ..Plan::default() };
        Self { plan, start: Image::new(), points_max: 5_000, lives_max: 3, faults: Vec::new() }
    }

    /// Starts from a disk that holds this image.
    pub fn start(self, start: Image) -> Self {
        Self { start, ..self }
    }

    /// Looks at no more than this many points.
    pub fn points(self, points_max: u64) -> Self {
        Self { points_max, ..self }
    }

    /// Lives no more than this many lives in a row: 1 means that recovery is not crashed.
    pub fn lives(self, lives_max: u32) -> Self {
        Self { lives_max, ..self }
    }

    /// Tears writes into pieces of these sizes, taken in turn.
    pub fn tear_bytes(mut self, sizes: &[u32]) -> Self {
        assert!(!sizes.is_empty() && sizes.iter().all(|size| *size > 0), "pieces have a size");
        self.plan.tear_bytes = sizes.to_vec();
        self
    }

    /// Tries every subset of up to this many pending effects, 20 at most.
    pub fn exhaustive(mut self, effects_max: u32) -> Self {
        assert!(effects_max <= 20, "a million subsets at each boundary are enough");
        self.plan.exhaustive_max = effects_max;
        self
    }

    /// Orders a fault for the first life.
    pub fn fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// Lets the engine live and crashes it, until a violation is found or the points are used up.
    pub fn explore(&self, engine: &impl Engine) -> Report {
        let report = Report { points: 0, recovery_points: 0, lives: 0, hits: Hits::default(), violation: None };
        let (spent, known) = (Spent::default(), BTreeSet::new());
        let mut search = Search { explorer: self, engine, report, path: Vec::new(), spent, known, recoveries: 0 };
        if let ControlFlow::Break(Stop::Violated(op, what)) = search.first_life() {
            let (path, points) = (CrashPath(search.path), search.report.points);
            search.report.violation = Some(Violation { path, points, op, what });
        }
        search.report
    }

    /// Goes one path again.
    ///
    /// # Errors
    /// Says what the engine said, or that the path leads nowhere.
    pub fn replay(&self, engine: &impl Engine, path: &CrashPath) -> Result<(), String> {
        let mut life = self.begin(engine)?.0;
        for (number, point) in path.0.iter().enumerate() {
            let image = life.trace.image_at(point).ok_or_else(|| format!("no such point: {point}"))?;
            let seen = life.timeline.at(point.op);
            let (disk, held) = checked(engine, image, seen)?;
            life = Life::recovered(&disk, seen, held);
            // What comes after recovery is only lived if the next crash comes after it.
            if path.0.get(number + 1).is_some_and(|next| next.op > life.recovery_ops) {
                life = life.go_on(engine, &disk, u32::try_from(number).unwrap_or(u32::MAX) + 1)?;
            }
        }
        Ok(())
    }

    /// The life before the first crash, and what the ordered faults did in it.
    fn begin(&self, engine: &impl Engine) -> Result<(Life, Hits), String> {
        let disk = SimDisk::from_image(self.start.clone());
        disk.reseed(self.plan.seed);
        self.faults.iter().for_each(|fault| disk.inject(*fault));
        let acks = Acks::new(&disk, 0, Timeline::new(Progress::default()));
        let lived = guarded(|| engine.live(&disk, &acks));
        let hits = disk.hits();
        match lived {
            // An engine that met a fault may give up; what it promised until then holds.
            Err(what) if !hits.any() => Err(format!("the engine failed without a fault: {what}")),
            _ => Ok((Life { recovery_ops: 0, trace: disk.trace(), timeline: acks.into_timeline() }, hits)),
        }
    }
}

/// One life of an engine: what it did from its start, recovery included, and what it promised.
struct Life {
    trace: Trace,
    timeline: Timeline,
    recovery_ops: usize,
}

impl Life {
    /// A life that has seen no more than its recovery.
    fn recovered(disk: &SimDisk, seen: Progress, held: u64) -> Self {
        let recovery_ops = disk.ops();
        let mut timeline = Timeline::new(seen);
        // What was shown after recovery was on the disk before it, so it must stay.
        timeline.add(recovery_ops, Progress { acked: held, started: held });
        Self { trace: disk.trace(), timeline, recovery_ops }
    }

    /// Lets an engine that has just recovered go on.
    fn go_on(self, engine: &impl Engine, disk: &SimDisk, life: u32) -> Result<Self, String> {
        let acks = Acks::new(disk, life, self.timeline);
        guarded(|| engine.live(disk, &acks)).map_err(|what| format!("the life after recovery failed: {what}"))?;
        Ok(Self { trace: disk.trace(), timeline: acks.into_timeline(), ..self })
    }
}

struct Search<'a, E> {
    explorer: &'a Explorer,
    engine: &'a E,
    report: Report,
    path: Vec<CrashPoint>,
    spent: Spent,
    /// The recoveries that were looked at, by fingerprint, and their number.
    known: BTreeSet<u64>,
    recoveries: u64,
}

/// A part of the walk along one life.
#[derive(Clone)]
struct Leg {
    round: Round,
    /// The boundaries, and every how many of them.
    range: Range<usize>,
    every: usize,
    /// The number of the life that follows from a crash here.
    next_life: u32,
    /// At which count of points to stop.
    points_max: u64,
}

/// Where the points of the search went.
#[derive(Default)]
struct Spent {
    in_recoveries: u64,
    in_lives: u64,
}

enum Stop {
    /// The operation, and what is wrong.
    Violated(String, String),
    /// The points of this life, or of the search, are used up.
    Enough,
}

impl<E: Engine> Search<'_, E> {
    fn first_life(&mut self) -> ControlFlow<Stop> {
        self.report.lives = 1;
        let (life, hits) = match self.explorer.begin(self.engine) {
            Ok(begun) => begun,
            Err(what) => return ControlFlow::Break(Stop::Violated("the first life".to_owned(), what)),
        };
        self.report.hits.merge(&hits);
        let range = 0..life.trace.ops() + 1;
        let first_rounds = range.len() as u64 * 2 * BOUNDARY_POINTS;
        let every = usize::try_from(first_rounds / self.explorer.points_max.max(1)).unwrap_or(usize::MAX) + 1;
        // The shallow bugs first: nothing follows from the first crashes.
        let leg = Leg { round: Round::Plain, range, every, next_life: u32::MAX, points_max: u64::MAX };
        self.walk(&life, &leg)?;
        let leg = Leg { next_life: 1, ..leg };
        self.walk(&life, &Leg { round: Round::Samples(0), ..leg.clone() })?;
        self.walk(&life, &Leg { round: Round::Subsets, ..leg.clone() })?;
        for number in 1..ROUNDS_MAX {
            let before = self.report.points;
            self.walk(&life, &Leg { round: Round::Samples(number), every: 1, ..leg.clone() })?;
            if self.report.points == before {
                break;
            }
        }
        ControlFlow::Continue(())
    }

    /// Crashes inside a recovery. The boundary before its first operation is the crash that led to it.
    fn recovery(&mut self, life: &Life, next_life: u32) -> ControlFlow<Stop> {
        // The deeper, the fewer: a recovery of a recovery is much like the one before.
        let points = LATER_LIFE_POINTS_MAX >> (2 * (next_life - 2)).min(5);
        let points_max = self.report.points + points;
        let range = 1..life.recovery_ops + 1;
        let every = usize::try_from(range.len() as u64 * BOUNDARY_POINTS / 2 / points).expect("a small number") + 1;
        let leg = Leg { round: Round::Plain, range, every, next_life, points_max };
        self.walk(life, &leg)?;
        self.recoveries += 1;
        if life.recovery_ops <= SHORT_RECOVERY_OPS || self.recoveries.is_multiple_of(THOROUGH_RECOVERIES) {
            self.walk(life, &Leg { round: Round::Subsets, ..leg.clone() })?;
            self.walk(life, &Leg { round: Round::Samples(0), ..leg.clone() })?;
            self.walk(life, &Leg { round: Round::Samples(1), ..leg })?;
        }
        ControlFlow::Continue(())
    }

    /// Crashes after a recovery.
    fn later_life(&mut self, life: &Life, next_life: u32) -> ControlFlow<Stop> {
        self.report.lives += 1;
        let range = life.recovery_ops + 1..life.trace.ops() + 1;
        let stops_max = usize::try_from(LATER_LIFE_POINTS_MAX / BOUNDARY_POINTS / 2).expect("a small number");
        let every = range.len().div_ceil(stops_max);
        let points_max = self.report.points + LATER_LIFE_POINTS_MAX;
        let leg = Leg { round: Round::Plain, range, every, next_life, points_max };
        self.walk(life, &leg)?;
        self.walk(life, &Leg { round: Round::Samples(0), ..leg })
    }

    /// Visits some points of a life, and some of the lives that follow from them.
    fn walk(&mut self, life: &Life, leg: &Leg) -> ControlFlow<Stop> {
        let marks = life.timeline.marks();
        let stops = Stops { range: leg.range.clone(), every: leg.every, marks: &marks };
        let mut hits = Hits::default();
        let plan = &self.explorer.plan;
        let ended = life.trace.visit(plan, leg.round, &stops, &mut hits, |point, image| {
            if self.report.points >= leg.points_max.min(self.explorer.points_max) {
                return ControlFlow::Break(Stop::Enough);
            }
            self.path.push(point);
            self.visit(life, leg.next_life, point, image)?;
            self.path.pop();
            ControlFlow::Continue(())
        });
        self.report.hits.merge(&hits);
        ended
    }

    fn visit(&mut self, life: &Life, next_life: u32, point: CrashPoint, image: Image) -> ControlFlow<Stop> {
        self.report.points += 1;
        // Later lives begin with a recovery; the first has none.
        self.report.recovery_points += u64::from(point.op <= life.recovery_ops && self.path.len() > 1);
        let seen = life.timeline.at(point.op);
        let violated = |what| ControlFlow::Break(Stop::Violated(life.trace.describe(point.op), what));
        let (disk, held) = match checked(self.engine, image, seen) {
            Ok(checked) => checked,
            Err(what) => return violated(what),
        };
        if next_life >= self.explorer.lives_max {
            return ControlFlow::Continue(());
        }
        let next = Life::recovered(&disk, seen, held);
        let points = self.report.points;
        if self.is_worth_crashing(&next) {
            unless_violated(self.recovery(&next, next_life + 1))?;
            if next_life == 1 {
                self.spent.in_recoveries += self.report.points - points;
            }
        }
        let before = self.report.points;
        if self.report.points.is_multiple_of(LIVES_APART) && self.spent.in_lives < self.report.points / 4 {
            let next = match next.go_on(self.engine, &disk, next_life) {
                Ok(next) => next,
                Err(what) => return violated(what),
            };
            unless_violated(self.later_life(&next, next_life + 1))?;
            self.spent.in_lives += self.report.points - before;
        }
        ControlFlow::Continue(())
    }

    /// Whether a recovery wrote something, and something new, and the points allow it.
    fn is_worth_crashing(&mut self, life: &Life) -> bool {
        life.recovery_ops > 0
            && self.spent.in_recoveries <= self.report.points / 2
            && self.known.insert(life.trace.fingerprint())
    }
}

/// That the points of a later life are used up does not end the one before.
fn unless_violated(ended: ControlFlow<Stop>) -> ControlFlow<Stop> {
    match ended {
        ControlFlow::Break(Stop::Enough) => ControlFlow::Continue(()),
        other => other,
    }
}

/// Opens an image and has the engine look at it. Answers the disk, which recorded that, and how many commits it holds.
fn checked(engine: &impl Engine, image: Image, seen: Progress) -> Result<(SimDisk, u64), String> {
    let disk = SimDisk::from_image(image);
    let held = guarded(|| engine.check(&disk, seen))?;
    let Progress { acked, started } = seen;
    if held < acked {
        return Err(format!("commit {acked} was acknowledged, and only {held} are there"));
    }
    if held > started {
        return Err(format!("commit {held} is there, and only {started} were begun"));
    }
    Ok((disk, held))
}

/// A panic of the engine is a violation like any other.
fn guarded<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("without words")))
    })
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "crash {} ({}), point {}: {}", self.path, self.op, self.points, self.what)
    }
}
