//! Where somebody looks: which pane, what is selected, what is open. A pure function of actions.

use std::time::Duration;

use serde_json::Value;

use super::input::Action;
use super::model::{Measure, Model};
use super::page;
use super::sample::{Failure, FailureKind, Sample};

/// Intervals that `+` and `-` go through.
const INTERVALS_MS: [u64; 9] = [250, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000];
/// How far a page moves.
const PAGE_ROWS: usize = 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pane {
    Throughput,
    Latency,
    Queues,
    Workers,
    Runs,
    Failures,
}

impl Pane {
    pub(super) const ALL: [Self; 6] =
        [Self::Throughput, Self::Latency, Self::Queues, Self::Workers, Self::Runs, Self::Failures];

    pub(super) const fn index(self) -> usize {
        self as usize
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Throughput => "Throughput",
            Self::Latency => "Latency",
            Self::Queues => "Queues",
            Self::Workers => "Workers",
            Self::Runs => "Runs in flight",
            Self::Failures => "Failures",
        }
    }

    /// What each row of a list is known by, however the list changes.
    pub(super) fn keys(self, sample: &Sample) -> Vec<&str> {
        match self {
            Self::Throughput | Self::Latency | Self::Queues => Vec::new(),
            Self::Workers => sample.classes.iter().map(|class| &*class.name).collect(),
            Self::Runs => sample.in_flight.iter().map(|run| &*run.id).collect(),
            Self::Failures => sample.failures.iter().map(|failure| &*failure.key).collect(),
        }
    }
}

/// What is selected in a list: a row by its key, and where it was in case it is gone.
#[derive(Clone, Debug, Default)]
struct Selected {
    key: Option<String>,
    index: usize,
}

impl Selected {
    fn index(&self, keys: &[&str]) -> usize {
        let found = self.key.as_ref().and_then(|key| keys.iter().position(|found| found == key));
        found.unwrap_or(self.index).min(keys.len().saturating_sub(1))
    }
}

/// What a page tells of.
#[derive(Clone, Debug)]
pub(super) enum Subject {
    /// A run, and from which of its events on.
    Run {
        id: String,
        from: u64,
    },
    Letter(Failure),
    Class(String),
    Queues,
    Help,
}

/// A page over the panes.
#[derive(Clone, Debug)]
pub(super) struct Page {
    pub(super) subject: Subject,
    pub(super) scroll: usize,
    /// What was answered about a run.
    pub(super) told: Option<Result<Value, String>>,
}

/// How much room a page has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Room {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// What the loop has to do after an action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    Nothing,
    /// Ask at once: something else is to be shown.
    Ask,
    Quit,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) pane: Pane,
    pub(super) measure: Measure,
    pub(super) is_zoomed: bool,
    pub(super) page: Option<Page>,
    pub(super) every: Duration,
    /// How the home is named again, with a space before it; for advice.
    pub(super) home: String,
    selected: [Selected; 6],
    /// What is shown while the view is paused.
    frozen: Option<Box<Model>>,
}

impl State {
    pub(super) fn new(every: Duration, home: &str) -> Self {
        Self {
            pane: Pane::Workers,
            measure: Measure::default(),
            is_zoomed: false,
            page: None,
            every,
            home: home.to_owned(),
            selected: Default::default(),
            frozen: None,
        }
    }

    pub(super) const fn is_paused(&self) -> bool {
        self.frozen.is_some()
    }

    /// What is shown: the present, or what it was when the view was paused.
    pub(super) fn shown<'a>(&'a self, live: &'a Model) -> &'a Model {
        self.frozen.as_deref().unwrap_or(live)
    }

    /// Which row of a list is selected.
    pub(super) fn selected(&self, pane: Pane, sample: &Sample) -> usize {
        self.selected[pane.index()].index(&pane.keys(sample))
    }

    /// The run whose page is open, and from which event on.
    pub(super) fn run_wanted(&self) -> Option<(&str, u64)> {
        match &self.page.as_ref()?.subject {
            Subject::Run { id, from } => Some((id, *from)),
            _ => None,
        }
    }

    /// What was answered about a run, if its page is still open.
    pub(super) fn tell_run(&mut self, id: &str, told: Result<Value, String>) {
        if let Some(page) =
            self.page.as_mut().filter(|page| matches!(&page.subject, Subject::Run { id: open, .. } if open == id))
        {
            // The page keeps to the newest events of a run that goes on.
            if let (Ok(told), Subject::Run { from, .. }) = (&told, &mut page.subject) {
                *from = (*from).max(page::from_of(told["next"].as_u64().unwrap_or(1)));
            }
            page.told = Some(told);
        }
    }

    pub(super) fn apply(&mut self, action: Action, live: &Model, room: Room) -> Effect {
        match action {
            Action::Quit => return Effect::Quit,
            Action::Back if self.page.is_some() => self.page = None,
            Action::Back if self.is_zoomed => self.is_zoomed = false,
            Action::Back => return Effect::Quit,
            Action::Help => self.toggle_help(),
            Action::Pause => self.frozen = if self.is_paused() { None } else { Some(Box::new(live.clone())) },
            Action::Zoom => self.is_zoomed = !self.is_zoomed,
            Action::Measure => self.measure = self.measure.other(),
            Action::Slower => self.every = slower(self.every),
            Action::Faster => self.every = faster(self.every),
            Action::NextPane => self.go(self.pane.index() + 1),
            Action::PreviousPane => self.go(self.pane.index() + Pane::ALL.len() - 1),
            Action::Pane(number) if number <= Pane::ALL.len() => self.go(number - 1),
            Action::Pane(_) => {}
            Action::Look if self.page.is_some() => self.page = None,
            Action::Look => return self.look(live),
            _ if self.page.is_some() => self.scroll(action, live, room),
            _ => self.select(action, live),
        }
        Effect::Nothing
    }

    fn toggle_help(&mut self) {
        self.page = match self.page.take() {
            Some(Page { subject: Subject::Help, .. }) => None,
            _ => Some(Page { subject: Subject::Help, scroll: 0, told: None }),
        };
    }

    fn go(&mut self, index: usize) {
        self.page = None;
        self.pane = Pane::ALL[index % Pane::ALL.len()];
    }

    fn look(&mut self, live: &Model) -> Effect {
        let subject = match self.pane {
            Pane::Throughput | Pane::Latency => {
                self.is_zoomed = !self.is_zoomed;
                return Effect::Nothing;
            }
            Pane::Queues => Some(Subject::Queues),
            Pane::Workers | Pane::Runs | Pane::Failures => self.subject(live),
        };
        self.page = subject.map(|subject| Page { subject, scroll: 0, told: None });
        if self.run_wanted().is_some() { Effect::Ask } else { Effect::Nothing }
    }

    /// What is selected, if anything is.
    fn subject(&self, live: &Model) -> Option<Subject> {
        let sample = self.shown(live).sample()?;
        let at = self.selected(self.pane, sample);
        match self.pane {
            Pane::Workers => sample.classes.get(at).map(|class| Subject::Class(class.name.clone())),
            Pane::Runs => sample.in_flight.get(at).map(|run| page::of_run(&run.id, run.events)),
            Pane::Failures => sample.failures.get(at).map(|failure| match failure.kind {
                FailureKind::Run { events, .. } => page::of_run(&failure.key, events),
                FailureKind::Letter { .. } => Subject::Letter(failure.clone()),
            }),
            Pane::Throughput | Pane::Latency | Pane::Queues => None,
        }
    }

    fn scroll(&mut self, action: Action, live: &Model, room: Room) {
        let Some(page) = &self.page else { return };
        let lines = page::lines(page, self.shown(live), &self.home, room.columns).len();
        let last = lines.saturating_sub(room.rows);
        // At its end it stays at its end, however long the page becomes.
        let to = if action == Action::Last { usize::MAX } else { moved(page.scroll.min(last), action, last) };
        if let Some(page) = &mut self.page {
            page.scroll = to;
        }
    }

    fn select(&mut self, action: Action, live: &Model) {
        let Some(sample) = self.shown(live).sample() else { return };
        let keys = self.pane.keys(sample);
        let at = moved(self.selected[self.pane.index()].index(&keys), action, keys.len().saturating_sub(1));
        // The first place is a place, not a row: what comes new is seen there.
        let key = if action == Action::First { None } else { keys.get(at).map(|key| (*key).to_owned()) };
        self.selected[self.pane.index()] = Selected { key, index: at };
    }
}

/// Another place between 0 and the last.
fn moved(at: usize, action: Action, last: usize) -> usize {
    match action {
        Action::Up => at.saturating_sub(1),
        Action::Down => (at + 1).min(last),
        Action::PageUp => at.saturating_sub(PAGE_ROWS),
        Action::PageDown => (at + PAGE_ROWS).min(last),
        Action::First => 0,
        Action::Last => last,
        _ => at,
    }
}

fn slower(every: Duration) -> Duration {
    let longer = INTERVALS_MS.into_iter().map(Duration::from_millis).find(|interval| *interval > every);
    longer.unwrap_or(every)
}

fn faster(every: Duration) -> Duration {
    let shorter = INTERVALS_MS.into_iter().rev().map(Duration::from_millis).find(|interval| *interval < every);
    shorter.unwrap_or(every)
}

#[cfg(test)]
mod tests {
    use super::super::sample::tests::answer;
    use super::*;

    const ROOM: Room = Room { columns: 40, rows: 3 };

    fn model(classes: &[&str]) -> Model {
        let mut value = answer();
        let class = value["classes"][0].clone();
        let named = |name: &&str| {
            let mut class = class.clone();
            class["class"] = (*name).into();
            class
        };
        value["classes"] = classes.iter().map(named).collect();
        let mut model = Model::new();
        model.take(Duration::ZERO, Sample::read(&value).unwrap());
        model
    }

    fn state() -> State {
        State::new(Duration::from_secs(1), "")
    }

    #[test]
    fn panes_are_gone_through_in_both_directions_and_by_number() {
        let (mut state, model) = (state(), model(&["a"]));
        state.apply(Action::Pane(1), &model, ROOM);
        let mut seen = Vec::new();
        for _ in 0..7 {
            seen.push(state.pane.index());
            state.apply(Action::NextPane, &model, ROOM);
        }
        assert_eq!(seen, [0, 1, 2, 3, 4, 5, 0]);
        state.apply(Action::Pane(1), &model, ROOM);
        state.apply(Action::PreviousPane, &model, ROOM);
        assert_eq!(state.pane, Pane::Failures);
        state.apply(Action::Pane(9), &model, ROOM);
        assert_eq!(state.pane, Pane::Failures, "there is no ninth");
    }

    #[test]
    fn a_selected_row_stays_selected_where_it_goes() {
        let (mut state, before) = (state(), model(&["a", "c"]));
        state.apply(Action::Down, &before, ROOM);
        let at = |state: &State, model: &Model| state.selected(Pane::Workers, model.sample().unwrap());
        assert_eq!(at(&state, &before), 1);
        assert_eq!(at(&state, &model(&["a", "b", "c"])), 2, "it moved down");
        assert_eq!(at(&state, &model(&["a", "b"])), 1, "it is gone: what is in its place");
        assert_eq!(at(&state, &model(&[])), 0);
        state.apply(Action::Down, &before, ROOM);
        assert_eq!(at(&state, &before), 1, "there is nothing below the last");
        state.apply(Action::First, &before, ROOM);
        assert_eq!(at(&state, &model(&["0", "a"])), 0, "the first place, whoever is there");
    }

    #[test]
    fn escape_closes_what_is_open_before_it_quits() {
        let (mut state, model) = (state(), model(&["a"]));
        state.apply(Action::Zoom, &model, ROOM);
        state.apply(Action::Help, &model, ROOM);
        let back = |state: &mut State| (state.apply(Action::Back, &model, ROOM), state.is_zoomed, state.page.is_some());
        assert_eq!(back(&mut state), (Effect::Nothing, true, false));
        assert_eq!(back(&mut state), (Effect::Nothing, false, false));
        assert_eq!(back(&mut state), (Effect::Quit, false, false));
        state.apply(Action::Help, &model, ROOM);
        assert_eq!(state.apply(Action::Quit, &model, ROOM), Effect::Quit, "q quits wherever it is pressed");
    }

    #[test]
    fn a_run_that_is_looked_at_is_asked_for_and_told_only_while_its_page_is_open() {
        let (mut state, model) = (state(), model(&["a"]));
        state.apply(Action::Pane(5), &model, ROOM);
        assert_eq!(state.apply(Action::Look, &model, ROOM), Effect::Ask);
        let id = "019d2c5e-7a10-7c3e-8f00-0123456789ab";
        assert_eq!(state.run_wanted(), Some((id, 1)));
        state.tell_run("another", Err("no".to_owned()));
        assert!(state.page.as_ref().unwrap().told.is_none());
        state.tell_run(id, Err("there is no such run".to_owned()));
        assert!(state.page.as_ref().unwrap().told.is_some());
        state.apply(Action::Look, &model, ROOM);
        assert!(state.page.is_none() && state.run_wanted().is_none());
    }

    #[test]
    fn a_paused_view_shows_what_was_and_goes_on_with_what_is() {
        let (mut state, before, after) = (state(), model(&["a"]), model(&["a", "b"]));
        let classes = |state: &State| state.shown(&after).sample().unwrap().classes.len();
        state.apply(Action::Pause, &before, ROOM);
        assert_eq!((state.is_paused(), classes(&state)), (true, 1));
        state.apply(Action::Pause, &after, ROOM);
        assert_eq!((state.is_paused(), classes(&state)), (false, 2));
    }

    #[test]
    fn pages_scroll_between_their_ends() {
        let (mut state, model) = (state(), model(&["a"]));
        state.apply(Action::Help, &model, ROOM);
        let scroll = |state: &State| state.page.as_ref().unwrap().scroll;
        state.apply(Action::Up, &model, ROOM);
        assert_eq!(scroll(&state), 0);
        state.apply(Action::Last, &model, ROOM);
        state.apply(Action::Down, &model, ROOM);
        let last = scroll(&state);
        assert_eq!(last + ROOM.rows, page::lines(state.page.as_ref().unwrap(), &model, "", ROOM.columns).len());
        state.apply(Action::Up, &model, ROOM);
        assert!(last > 0 && scroll(&state) == last - 1);
    }

    #[test]
    fn intervals_become_longer_and_shorter_and_have_ends() {
        let (mut state, model) = (State::new(Duration::from_millis(700), ""), model(&[]));
        state.apply(Action::Slower, &model, ROOM);
        assert_eq!(state.every, Duration::from_secs(1));
        (0..20).for_each(|_| assert_eq!(state.apply(Action::Slower, &model, ROOM), Effect::Nothing));
        assert_eq!(state.every, Duration::from_mins(1));
        (0..20).for_each(|_| assert_eq!(state.apply(Action::Faster, &model, ROOM), Effect::Nothing));
        assert_eq!(state.every, Duration::from_millis(250));
    }
}
