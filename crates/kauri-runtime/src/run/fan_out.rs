//! Derived work: jobs that a run asks for, made in the commit in which it asks.

use kauri_wire::RunId;
use kauri_wire::pack::{ArrayBuf, Map, MapBuf, Value};
use kauri_wire::run::{Event, EventType, Level};
use sha2::{Digest, Sha256};

use super::class::FanOut;
use super::event;
use super::fault::RunFault;
use super::ids;
use super::index::{self, Gate};
use super::job::{Job, OnFailed};
use super::make::{self, Input, NewRun, count_marked, stage_job};
use super::outcome::Origin;
use super::row::Run;
use super::seal;
use super::sink::EventDraft;
use crate::atomic::Atomic;
use crate::error::{Error, Result};
use crate::read::Read;
use crate::runtime::Shared;
use crate::schema::RUN_INDEX;

/// What became of a wish for derived work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Enqueued {
    /// A job was made, and this is its first run.
    Made(RunId),
    /// The same work was asked for before in this tree; this is its first run. If an attempt of the same job before this one asked for it, and
    /// it had failed or been cancelled when this attempt was made, another run of it is made now.
    Same(RunId),
    /// Nothing was made.
    Skipped(Skip),
}

/// Why no job was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Skip {
    /// The class of the tree's first run wants no derived work.
    Off,
    /// It would stand too deep in the tree.
    Depth,
    /// There are enough jobs in the tree.
    Runs,
    /// No class has the target's name.
    Target,
}

impl Skip {
    /// In words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "the first run's class allows none",
            Self::Depth => "it would stand too deep in the tree",
            Self::Runs => "there are enough jobs in the tree",
            Self::Target => "no class has the target's name",
        }
    }
}

/// Stages that a run says what derived work it wants, and the work itself.
pub(super) fn say_and_enqueue(
    block: &mut Atomic<'_>,
    shared: &Shared,
    run: &mut Run,
    target: &str,
    params: Map<'_>,
) -> Result<Enqueued> {
    if Value::Map(params).depth() + 1 >= kauri_wire::pack::DEPTH_MAX {
        return Err(refuse("expected 62 levels at most, found more"));
    }
    let event = Event::Enqueue { target, params, source: None, category: None };
    let payload = event.payload().view().encode();
    let draft = EventDraft { kind: EventType::Enqueue, ts: block.now().wall.0, payload };
    say(block, run, &draft)?;
    enqueue(block, shared, run, target, params)
}

/// Stages an event of a run.
pub(super) fn say(block: &mut Atomic<'_>, run: &mut Run, draft: &EventDraft) -> Result<()> {
    let row = event::encode(draft)?;
    event::stage(block, run, &row)
}

/// Stages the derived work that an event asks for. What is not made is said in the run's log.
pub(super) fn enqueue(
    block: &mut Atomic<'_>,
    shared: &Shared,
    run: &mut Run,
    target: &str,
    params: Map<'_>,
) -> Result<Enqueued> {
    let hash = work_hash(target, params)?;
    let top = Top::of(block, run)?;
    let key = index::derived(top.run, &hash);
    if let Some(same) = block.row(&RUN_INDEX, &key)? {
        let first = index::run_value(&same)?;
        do_again(block, shared, run, first)?;
        return Ok(Enqueued::Same(first));
    }
    if let Some(skip) = limit(block, run, &top, target)? {
        if skip != Skip::Off {
            warn(block, run, target, skip)?;
        }
        return Ok(Enqueued::Skipped(skip));
    }
    let child = make_child(block, shared, run, (target, &params.encode()), top.limits.parallel)?;
    block.stage(&RUN_INDEX, &key, Some(child.as_bytes()))?;
    Ok(Enqueued::Made(child))
}

/// Who says how much derived work there may be, and with whose marks that is counted: the first job of the tree. If that is gone, or going,
/// each job of the tree does for itself: its marks go with it, and nothing would ever remove those of a job that is gone.
struct Top {
    /// The job's first run.
    run: RunId,
    limits: FanOut,
}

impl Top {
    fn of(block: &Atomic<'_>, run: &Run) -> Result<Self> {
        let limits = |class: &str| Ok::<_, Error>(make::class(block, class)?.class.fan_out);
        if run.depth == 0 {
            return Ok(Self { run: run.root, limits: limits(&run.class)? });
        }
        match make::find_run(block, run.root)? {
            Some(root) if block.row(&RUN_INDEX, &index::leaving(&root.class, &root.job))?.is_none() => {
                Ok(Self { run: run.root, limits: limits(&root.class)? })
            }
            _ => Ok(Self { run: make::job(block, &run.job)?.first, limits: limits(&run.class)? }),
        }
    }
}

/// Stages that derived work is done again which an attempt before this one asked for, if it had failed or been cancelled when this one was
/// made. Else this one would wait for what cannot come: a tree that was cancelled could not be retried. What fails for this attempt stays as it is.
fn do_again(block: &mut Atomic<'_>, shared: &Shared, run: &Run, first: RunId) -> Result<()> {
    if !matches!(run.origin, Origin::Retry { .. }) {
        return Ok(());
    }
    let Some(child) = make::find_run(block, first)? else { return Ok(()) };
    let asker = child.parent().map(|parent| make::find_run(block, parent)).transpose()?.flatten();
    if asker.is_none_or(|asker| asker.job != run.job || asker.id == run.id) {
        return Ok(());
    }
    let job = make::job(block, &child.job)?;
    let is_leaving = block.row(&RUN_INDEX, &index::leaving(&job.class, &job.id))?.is_some();
    if is_leaving || job.outcome.is_none_or(|outcome| outcome.is_success()) {
        return Ok(());
    }
    let last = make::run(block, job.latest)?;
    // Moments alone do not tell what was made and failed in the one in which this attempt was made; ids come in the order in which they are made.
    if last.id < run.id && last.ended.is_some_and(|ended| ended <= run.created) {
        seal::follow(block, shared, &last, job, Input::Of(last.input_of), None)?;
    }
    Ok(())
}

/// What stands against another job in the tree.
fn limit(block: &Atomic<'_>, run: &Run, top: &Top, target: &str) -> Result<Option<Skip>> {
    if top.limits.depth_max == 0 {
        return Ok(Some(Skip::Off));
    }
    if run.depth >= top.limits.depth_max {
        return Ok(Some(Skip::Depth));
    }
    if count_marked(block, &index::derived_of(top.run))? >= u64::from(top.limits.runs_max) {
        return Ok(Some(Skip::Runs));
    }
    Ok(make::find_class(block, target)?.is_none().then_some(Skip::Target))
}

fn make_child(
    block: &mut Atomic<'_>,
    shared: &Shared,
    run: &Run,
    (target, input): (&str, &[u8]),
    parallel: u32,
) -> Result<RunId> {
    let (id, now) = (ids::fresh(block, shared)?, block.now().wall);
    let above = make::job(block, &run.job)?;
    let job = Job {
        id: make::own_job(id)?,
        class: target.into(),
        outcome: None,
        created: now,
        deadline: above.deadline,
        first: id,
        latest: id,
        attempts: 1,
        tags: above.tags,
        after: Vec::new(),
        at: None,
        waiting: 0,
        on_failed: OnFailed::Fail,
        is_urgent: above.is_urgent,
        is_hurt: false,
        gate: Some((Gate::of_tree(run.root), parallel)),
        unique: None,
    };
    let depth = run.depth.saturating_add(1);
    let origin = Origin::Child { of: run.id, depth };
    let input = Input::Own(input);
    let made = make::make(block, &NewRun { id, job: &job, origin, depth, root: run.root, input, now })?;
    stage_job(block, &job)?;
    make::dispatch(block, &made, &job, None)?;
    Ok(id)
}

/// Says in the run's log that derived work was not made.
fn warn(block: &mut Atomic<'_>, run: &mut Run, target: &str, skip: Skip) -> Result<()> {
    let mut fields = MapBuf::new();
    fields.put("target", target).put("reason", skip.as_str());
    let message = "derived work was not made";
    let event = Event::Log { level: Level::Warn, message, fields: Some(fields.view()) };
    let payload = event.payload().view().encode();
    say(block, run, &EventDraft { kind: EventType::Log, ts: block.now().wall.0, payload })
}

/// The SHA-256 of a target, a byte 0 and the params in their canonical form: the same for the same work, however it was written.
///
/// # Errors
/// `Params` if they have no such form: a number that is none, a key twice, or a key that is no text.
pub fn work_hash(target: &str, params: Map<'_>) -> Result<[u8; 32]> {
    let canonical = canonical_map(params)?.view().encode();
    let mut hash = Sha256::new();
    hash.update(target.as_bytes());
    hash.update([0]);
    hash.update(&canonical);
    Ok(hash.finalize().into())
}

fn refuse(why: impl Into<Box<str>>) -> Error {
    Error::Run(RunFault::Params(why.into()))
}

/// The same map with its keys in order, and every value in its one form.
fn canonical_map(map: Map<'_>) -> Result<MapBuf> {
    let mut entries = Vec::new();
    for (key, value) in map.iter() {
        let Value::Str(key) = key else {
            return Err(refuse(format!("expected keys that are text, found {}", key.type_name())));
        };
        entries.push((key, value));
    }
    entries.sort_by_key(|(key, _)| *key);
    if let Some(twice) = entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(refuse(format!("expected each key once, found {:?} twice", twice[0].0)));
    }
    let mut out = MapBuf::new();
    for (key, value) in entries {
        with_canonical(value, &mut |value| {
            out.put(key, value);
        })?;
    }
    Ok(out)
}

fn with_canonical(value: Value<'_>, put: &mut dyn FnMut(Value<'_>)) -> Result<()> {
    match value {
        Value::Map(map) => put(Value::Map(canonical_map(map)?.view())),
        Value::Array(array) => {
            let mut out = ArrayBuf::new();
            for item in array.iter() {
                with_canonical(item, &mut |item| {
                    out.push(item);
                })?;
            }
            put(Value::Array(out.view()));
        }
        Value::F32(number) => put(canonical_float(number.into())?),
        Value::F64(number) => put(canonical_float(number)?),
        other => put(other),
    }
    Ok(())
}

/// A whole number is the same, written as a float or not; what is no number is refused.
fn canonical_float(number: f64) -> Result<Value<'static>> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if !number.is_finite() {
        return Err(refuse(format!("expected numbers, found {number}")));
    }
    #[expect(clippy::cast_possible_truncation, reason = "whole and in range")]
    let whole = (number.fract() == 0.0 && number.abs() < EXACT).then_some(number as i64);
    Ok(whole.map_or(Value::F64(number), Value::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(make: impl FnOnce(&mut MapBuf)) -> Result<[u8; 32]> {
        let mut map = MapBuf::new();
        make(&mut map);
        work_hash("detail", map.view())
    }

    #[test]
    fn the_same_work_has_the_same_hash_however_it_was_written() {
        let one = hash(|map| {
            map.put("a", 1_u64).put("b", "x");
        })
        .unwrap();
        assert_eq!(
            hash(|map| {
                map.put("b", "x").put("a", 1_u64);
            })
            .unwrap(),
            one
        );
        assert_eq!(
            hash(|map| {
                map.put("b", "x").put("a", 1.0);
            })
            .unwrap(),
            one
        );
        assert_ne!(
            hash(|map| {
                map.put("b", "x").put("a", 2_u64);
            })
            .unwrap(),
            one
        );
        assert_ne!(
            hash(|map| {
                map.put("b", "x").put("a", 1.5);
            })
            .unwrap(),
            one
        );
        let map = MapBuf::new();
        assert_ne!(work_hash("a", map.view()).unwrap(), work_hash("b", map.view()).unwrap());
    }

    #[test]
    fn params_without_a_canonical_form_are_refused_and_collide_with_nothing() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(matches!(
                hash(|map| {
                    map.put("n", bad);
                }),
                Err(Error::Run(RunFault::Params(_)))
            ));
        }
        assert!(
            hash(|map| {
                map.put("twice", 1_u64).put("twice", 2_u64);
            })
            .is_err()
        );
    }
}
