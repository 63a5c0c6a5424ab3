//! When events are committed, and which are dropped: random events against a model that is obvious.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kauri_runtime::Mono;
use kauri_runtime::run::{Appended, EventDraft, EventSink, Ingest, Ingestion, Offered, SinkError};
use kauri_wire::pack::MapBuf;
use kauri_wire::run::{Event, EventType, Level};

#[derive(Clone, Default)]
struct Commits {
    commits: Arc<Mutex<Vec<Vec<EventDraft>>>>,
    /// Fails this commit, from 1.
    fails: Option<usize>,
    /// What it says instead of the true places.
    lies: Option<Appended>,
}

impl EventSink for Commits {
    fn append(&mut self, events: &[EventDraft]) -> Result<Appended, SinkError> {
        let mut commits = self.commits.lock().unwrap();
        if self.fails == Some(commits.len() + 1) {
            return Err(SinkError::Failed("full".to_owned()));
        }
        let first_seq = commits.iter().map(Vec::len).sum::<usize>() as u64 + 1;
        commits.push(events.to_vec());
        let truth = Appended { first_seq, last_seq: first_seq + events.len() as u64 - 1 };
        Ok(self.lies.unwrap_or(truth))
    }
}

/// Numbers that look random and follow from a seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// An event of a random kind and size, told apart by its number.
fn event(rng: &mut Rng, number: u64) -> EventDraft {
    let text = "x".repeat(usize::try_from(rng.below(200)).unwrap());
    let mut data = MapBuf::new();
    data.put("number", number).put("text", &*text);
    let event = match rng.below(6) {
        0 | 1 => Event::Item { item_type: "i", data: data.view() },
        2 => Event::Checkpoint { checkpoint_id: &format!("{number}{text}"), note: None },
        3 => Event::Enqueue { target: "t", params: data.view(), source: None, category: None },
        4 => Event::RotateProxy { reason: Some(&format!("{number}{text}")) },
        _ => Event::Log { level: Level::Info, message: "m", fields: Some(data.view()) },
    };
    EventDraft::new(&event, number.cast_signed()).unwrap()
}

fn size(draft: &EventDraft) -> usize {
    draft.payload.capacity() + size_of::<EventDraft>()
}

/// How an event is given to be taken.
#[derive(Clone, Copy, PartialEq)]
enum Given {
    Offered,
    Insisted,
}

impl Given {
    fn may_drop(self, draft: &EventDraft) -> bool {
        self == Self::Offered && draft.kind.is_droppable()
    }

    fn to(self, ingest: &mut Ingest, draft: EventDraft, now: Mono) -> Result<Offered, SinkError> {
        match self {
            Self::Offered => ingest.offer(draft, now),
            Self::Insisted => ingest.insist(draft, now),
        }
    }
}

/// The policies as one would explain them.
#[derive(Default)]
struct Model {
    waiting: Vec<(EventDraft, Given)>,
    since: Mono,
    commits: Vec<Vec<EventDraft>>,
    dropped: BTreeMap<&'static str, u64>,
}

impl Model {
    fn bytes(&self) -> usize {
        self.waiting.iter().map(|(draft, _)| size(draft)).sum()
    }

    fn flush(&mut self) {
        if !self.waiting.is_empty() {
            self.commits.push(std::mem::take(&mut self.waiting).into_iter().map(|(draft, _)| draft).collect());
        }
    }

    fn wait(&mut self, draft: EventDraft, given: Given, now: Mono) {
        if self.waiting.is_empty() {
            self.since = now;
        }
        self.waiting.push((draft, given));
    }

    fn take(&mut self, policy: Ingestion, draft: EventDraft, given: Given, now: Mono) -> Offered {
        match policy {
            Ingestion::Strict => {
                self.commits.push(vec![draft]);
                Offered::Committed
            }
            Ingestion::Buffered { bytes_max } => {
                let room = |model: &Self| model.bytes() + size(&draft) <= bytes_max;
                if !room(self) && given.may_drop(&draft) {
                    *self.dropped.entry(draft.kind.as_str()).or_default() += 1;
                    return Offered::Dropped;
                }
                while size(&draft) <= bytes_max
                    && !room(self)
                    && let Some(oldest) = self.waiting.iter().position(|(it, given)| given.may_drop(it))
                {
                    *self.dropped.entry(self.waiting.remove(oldest).0.kind.as_str()).or_default() += 1;
                }
                if !room(self) {
                    self.flush();
                }
                if !room(self) {
                    self.commits.push(vec![draft]);
                    return Offered::Committed;
                }
                self.wait(draft, given, now);
                Offered::Waits
            }
            Ingestion::Streaming { events_max, bytes_max, interval } => {
                self.wait(draft, given, now);
                let is_old = interval.is_some_and(|interval| self.since + interval <= now);
                if self.waiting.len() >= events_max || self.bytes() >= bytes_max || is_old {
                    self.flush();
                    return Offered::Committed;
                }
                Offered::Waits
            }
        }
    }

    fn tick(&mut self, policy: Ingestion, now: Mono) {
        if let Ingestion::Streaming { interval: Some(interval), .. } = policy
            && self.since + interval <= now
        {
            self.flush();
        }
    }
}

fn compare(policy: Ingestion, seed: u64) {
    let (sink, mut model, mut rng) = (Commits::default(), Model::default(), Rng(seed));
    let mut ingest = Ingest::new(policy, Box::new(sink.clone()));
    let (mut now, mut last) = (Mono::default(), None);
    for number in 0..400 {
        now = now + Duration::from_millis(rng.below(20));
        if rng.below(8) == 0 {
            ingest.tick(now).unwrap();
            model.tick(policy, now);
        } else if rng.below(100) == 0 {
            ingest.flush().unwrap();
            model.flush();
        } else {
            // Now and then the same again, to the last byte: it is another event all the same.
            let draft = last.take().filter(|_| rng.below(3) == 0).unwrap_or_else(|| event(&mut rng, number));
            last = Some(draft.clone());
            let given = if rng.below(10) == 0 { Given::Insisted } else { Given::Offered };
            let offered = given.to(&mut ingest, draft.clone(), now).unwrap();
            assert_eq!(offered, model.take(policy, draft, given, now), "{policy:?} seed {seed} event {number}");
        }
        assert_eq!(ingest.waiting_bytes(), model.bytes(), "{policy:?} seed {seed} event {number}");
        if let Ingestion::Buffered { bytes_max } = policy {
            assert!(ingest.waiting_bytes() <= bytes_max);
        }
        let is_waiting = matches!(policy, Ingestion::Streaming { interval: Some(_), .. }) && model.bytes() > 0;
        assert_eq!(ingest.due().is_some(), is_waiting);
    }
    ingest.flush().unwrap();
    model.flush();
    assert!(*sink.commits.lock().unwrap() == model.commits, "{policy:?} seed {seed}");
    assert_eq!(ingest.tally().dropped, model.dropped, "{policy:?} seed {seed}");
    assert_eq!(ingest.tally().commits, model.commits.len() as u64);
    assert_eq!(ingest.tally().committed, model.commits.iter().map(Vec::len).sum::<usize>() as u64);
}

#[test]
fn policies_do_what_their_model_does() {
    let interval = Some(Duration::from_millis(100));
    for seed in 0..60 {
        compare(Ingestion::Strict, seed);
        for bytes_max in [0, 100, 500, 2_000, 1 << 20] {
            compare(Ingestion::Buffered { bytes_max }, seed);
        }
        for (events_max, bytes_max, interval) in
            [(0, 0, None), (1, 1 << 20, None), (7, 1 << 20, interval), (1_000, 900, interval), (50, 2_000, None)]
        {
            compare(Ingestion::Streaming { events_max, bytes_max, interval }, seed);
        }
    }
}

#[test]
fn only_kinds_that_may_be_dropped_are_dropped_and_all_others_are_committed_in_order() {
    for seed in 0..50 {
        let (sink, mut rng) = (Commits::default(), Rng(seed));
        let mut ingest = Ingest::new(Ingestion::Buffered { bytes_max: 1_000 }, Box::new(sink.clone()));
        let drafts: Vec<EventDraft> = (0..300).map(|number| event(&mut rng, number)).collect();
        for draft in &drafts {
            ingest.offer(draft.clone(), Mono::default()).unwrap();
        }
        ingest.flush().unwrap();
        let committed: Vec<EventDraft> = sink.commits.lock().unwrap().concat();
        assert!(committed.is_sorted_by_key(|draft| draft.ts), "seed {seed}");
        let must = |drafts: &[EventDraft]| -> Vec<i64> {
            drafts.iter().filter(|draft| !draft.kind.is_droppable()).map(|draft| draft.ts).collect()
        };
        assert_eq!(must(&committed), must(&drafts), "seed {seed}");
        assert_eq!(drafts.len() as u64, committed.len() as u64 + ingest.tally().dropped_total(), "seed {seed}");
        assert!(ingest.tally().dropped_total() > 0, "seed {seed}");
    }
}

#[test]
fn nothing_is_offered_to_a_sink_that_has_refused() {
    let sink = Commits { fails: Some(3), ..Commits::default() };
    let mut ingest = Ingest::new(Ingestion::Strict, Box::new(sink.clone()));
    let mut rng = Rng(7);
    for number in 0..10 {
        let draft = event(&mut rng, number);
        assert_eq!(ingest.offer(draft, Mono::default()).is_ok(), number < 2, "{number}");
    }
    assert!(ingest.flush().is_err() && ingest.tick(Mono::default()).is_err());
    assert_eq!(ingest.refusal(), Some(&SinkError::Failed("full".to_owned())));
    assert_eq!(sink.commits.lock().unwrap().len(), 2);
}

#[test]
fn sink_that_gives_other_places_than_the_next_ones_has_failed() {
    let mut rng = Rng(7);
    for (first_seq, last_seq) in [(0, 0), (1, 2), (2, 1), (u64::MAX, 0)] {
        let sink = Commits { lies: Some(Appended { first_seq, last_seq }), ..Commits::default() };
        let mut ingest = Ingest::new(Ingestion::Strict, Box::new(sink));
        let offered = ingest.offer(event(&mut rng, 1), Mono::default());
        assert!(matches!(offered, Err(SinkError::Failed(_))), "{first_seq} to {last_seq}: {offered:?}");
    }
    // A run that goes on begins anywhere, and goes on from there.
    let sink = Commits { lies: Some(Appended { first_seq: 41, last_seq: 41 }), ..Commits::default() };
    let mut ingest = Ingest::new(Ingestion::Strict, Box::new(sink));
    assert!(ingest.offer(event(&mut rng, 1), Mono::default()).is_ok());
    assert!(ingest.offer(event(&mut rng, 2), Mono::default()).is_err());
}

#[test]
fn sink_may_say_something_between_batches_and_after_each_wish_for_derived_work() {
    let draft = |event: Event<'_>| EventDraft::new(&event, 1).unwrap();
    let log = || draft(Event::Log { level: Level::Info, message: "m", fields: None });
    let params = MapBuf::new();
    let wish = || draft(Event::Enqueue { target: "t", params: params.view(), source: None, category: None });
    let check = |first_seq, last_seq, drafts: Vec<EventDraft>, is_right: bool| {
        let sink = Commits { lies: Some(Appended { first_seq, last_seq }), ..Commits::default() };
        let policy = Ingestion::Streaming { events_max: drafts.len(), bytes_max: 1 << 20, interval: None };
        let mut ingest = Ingest::new(policy, Box::new(sink));
        let offered = drafts.into_iter().try_for_each(|draft| ingest.offer(draft, Mono::default()).map(drop));
        assert_eq!(offered.is_ok(), is_right, "{first_seq} to {last_seq}: {offered:?}");
    };
    check(5, 6, vec![log(), log()], true);
    check(5, 7, vec![log(), log()], false);
    check(5, 7, vec![log(), wish()], true);
    check(5, 8, vec![log(), wish()], false);
    check(5, 5, vec![log(), wish()], false);
    check(5, 9, vec![wish(), log(), wish()], true);
}

#[test]
fn kinds_that_may_be_dropped_are_those_of_the_contract() {
    let droppable: Vec<&str> = EventType::ALL.iter().filter(|it| it.is_droppable()).map(|it| it.as_str()).collect();
    assert_eq!(droppable, ["enqueue", "rotate_proxy", "log"]);
}
