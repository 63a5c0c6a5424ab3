//! The screen at many sizes, looked at as rows of text.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::Value;

use super::super::input::Action;
use super::super::rows_of;
use super::super::sample::Sample;
use super::super::sample::tests::answer;
use super::*;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// What is drawn, with its styles.
fn buffer(model: &Model, state: &State, is_coloured: bool, columns: u16, rows: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    let theme = Theme { is_coloured };
    let scene = Scene { model, state, theme, now: secs(100), waiting: None, has_keys: true };
    terminal.draw(|frame| draw(&scene, frame.area(), frame.buffer_mut())).unwrap();
    terminal.backend().buffer().clone()
}

fn screen(model: &Model, state: &State, columns: u16, rows: u16) -> String {
    rows_of(&buffer(model, state, true, columns, rows)).join("\n")
}

fn state() -> State {
    State::new(secs(1), " --home shop")
}

/// The example, changed; then again after a second, with so many runs more, of which some failed.
fn model(change: impl Fn(&mut Value)) -> Model {
    let mut value = answer();
    change(&mut value);
    let mut model = Model::new();
    for (second, well, failed) in [(0_u64, 2_u64, 1_u64), (1, 10, 3), (2, 12, 4), (3, 12, 4)] {
        value["counters"]["runs_success"] = well.into();
        value["counters"]["runs_script_error"] = failed.into();
        value["latency"]["runs"]["spread"] = serde_json::json!([[20_000_000, well], [800_000_000, failed]]);
        value["latency"]["runs"]["max_us"] = 800_000.into();
        model.take(secs(second), Sample::read(&value).unwrap());
    }
    model
}

fn check(screen: &str, expected: &[&str]) {
    for words in expected {
        assert!(screen.contains(words), "{words:?} is missing:\n{screen}");
    }
}

#[test]
fn a_screen_of_80_by_24_shows_every_pane_with_exact_numbers() {
    let shown = screen(&model(|_| {}), &state(), 80, 24);
    check(&shown, &["kauri top  working   up 2m 00s  1 of 4 workers busy", "/srv/shop  every 1s"]);
    check(&shown, &["1 Throughput", "0 runs/s, 0 failed", "10/s", "3s ago", "now"]);
    check(&shown, &["2 Latency", "took p50 20ms, p99 800ms", "1s"]);
    check(&shown, &["3 Queues", "inbox         12", "dead letters   1", "dedupe  123456", "timers         5"]);
    check(
        &shown,
        &["4 Workers", "1 busy, 3 idle", "CLASS   BUSY WAITING ENDED FAILED", "mail  1 of 4      11     3      1"],
    );
    check(&shown, &["5 Runs in flight", "FOR CLASS ATTEMPT RUN", "59s mail        2 …"]);
    check(&shown, &["6 Failures", "4, 1 dead letter", "30s worker 7 no such\\u{1b}[2J account"]);
    check(&shown, &["q quit", "? help", "Enter look"]);
    assert_eq!(shown.lines().count(), 24);
}

#[test]
fn a_wide_screen_has_room_for_what_is_left_out_of_a_small_one() {
    let shown = screen(&model(|_| {}), &state(), 140, 40);
    check(&shown, &["start 3  process 4242  version 0.1.0", "/srv/shop  every 1s"]);
    check(
        &shown,
        &[
            "AGO CLASS    HOW                  MESSAGE",
            "failure budget spent",
            "script error",
            "exit code 3: the disk is full",
        ],
    );
    check(&shown, &["…2c5e-7a10-7c3e-8f00-0123456789ab", "4 since the start, 1 dead letter"]);
}

#[test]
fn a_small_screen_shows_one_pane_under_the_names_of_all() {
    let (model, mut state) = (model(|_| {}), state());
    let shown = screen(&model, &state, 50, 12);
    check(&shown, &["1  2  3  4 Workers  5  6", "mail  1 of 4"]);
    assert!(!shown.contains("Failures"), "{shown}");
    state.apply(Action::Pane(6), &model, room(Rect::new(0, 0, 50, 12)));
    check(&screen(&model, &state, 50, 12), &["6 Failures", "no such"]);
}

#[test]
fn no_size_is_too_small_or_too_large_for_any_pane_or_page() {
    let full = model(|value| {
        value["instance"]["home"] = "/very/long/水水水/path/to/some/home/of/shops".into();
        let class = value["classes"][0].clone();
        value["classes"] = (0..30).map(|_| class.clone()).collect();
        for count in ["steps", "runs_timed_out", "runs_cancelled"] {
            value["counters"][count] = u64::MAX.into();
        }
        for count in ["concurrency", "busy", "waiting", "ended", "failed"] {
            value["classes"][7][count] = u64::MAX.into();
        }
        value["in_flight"][0]["events"] = u64::MAX.into();
        value["queues"]["dead_letters"] = u64::MAX.into();
    });
    let mut gone = full.clone();
    gone.lose(secs(4), "no instance answers");
    let empty = Model::new();
    let mut states = Vec::new();
    for pane in 1..=6 {
        for actions in [
            &[][..],
            &[Action::Look],
            &[Action::Last, Action::Look],
            &[Action::Zoom, Action::Measure],
            &[Action::Help, Action::Last],
        ] {
            let mut state = state();
            state.apply(Action::Pane(pane), &full, Room { columns: 40, rows: 10 });
            for action in actions {
                state.apply(*action, &full, Room { columns: 40, rows: 10 });
            }
            states.push(state);
        }
    }
    // Every size that is small, and others up to a wall of a screen, each with some state and model.
    let small = (1..=36_u16).flat_map(|columns| (1..=10_u16).map(move |rows| (columns, rows)));
    let large = (1..=200_u16).step_by(7).flat_map(|columns| (1..=60_u16).step_by(5).map(move |rows| (columns, rows)));
    for (at, (columns, rows)) in small.chain(large).enumerate() {
        let model = [&full, &gone, &empty][at % 3];
        let drawn = buffer(model, &states[at % states.len()], at % 2 == 0, columns, rows);
        assert_eq!(drawn.area, Rect::new(0, 0, columns, rows));
    }
    for size in [(1, 1), (30, 6), (31, 7), (77, 21), (78, 22), (200, 60)] {
        for (model, state) in states.iter().flat_map(|state| [&full, &gone, &empty].map(|model| (model, state))) {
            buffer(model, state, true, size.0, size.1);
        }
    }
}

#[test]
fn a_screen_that_is_too_small_says_so() {
    check(&screen(&model(|_| {}), &state(), 29, 3), &["too small: 29x3, needs 30x6"]);
    assert_eq!(screen(&model(|_| {}), &state(), 1, 1), "t");
}

#[test]
fn an_instance_that_is_gone_is_said_to_be_with_what_to_do() {
    let mut gone = model(|_| {});
    gone.lose(secs(93), "no instance answers");
    let shown = screen(&gone, &state(), 80, 24);
    check(
        &shown,
        &[
            "kauri top  gone ",
            "no instance answers for 7s; start it: kauri up --home shop",
            "was up 2m 00s  what was known last",
            "inbox         12",
            "·",
        ],
    );
}

#[test]
fn trouble_and_other_standings_are_told() {
    let of = |name: &'static str, word: &'static str| model(move |value| value["instance"][name] = word.into());
    check(
        &screen(&of("standing", "stopped"), &state(), 80, 24),
        &[" stopped ", "kill switch is thrown", "kauri resume --home shop"],
    );
    check(&screen(&of("standing", "draining"), &state(), 80, 24), &[" draining ", "it is stopping"]);
    check(&screen(&of("trouble", "disk full"), &state(), 80, 24), &["trouble: disk full"]);
    let fresh = screen(&Model::new(), &state(), 80, 24);
    check(&fresh, &["connecting", "nothing is known yet"]);
}

#[test]
fn what_is_empty_says_so() {
    let empty = model(|value| {
        for list in ["classes", "in_flight", "failures", "dead_letters"] {
            value[list] = Value::Array(Vec::new());
        }
        value["running"] = 0.into();
    });
    check(
        &screen(&empty, &state(), 80, 24),
        &["no jobs in kauri.toml", "no run is under way", "nothing failed lately"],
    );
}

#[test]
fn bars_show_how_much_and_how_much_of_it_failed() {
    let drawn = buffer(&model(|_| {}), &state(), true, 80, 24);
    // The plot's inner rows are 2 to 5; its last columns are the three intervals: 10, 3 and 0 runs a second.
    let column = |x: u16| (2..=5).map(|y| drawn[(x, y)].symbol()).collect::<String>();
    assert_eq!([36, 37, 38].map(column), ["███▆", "  ▂▃", "    "]);
    let (bottom, above) = (drawn[(36, 5)].style(), drawn[(36, 4)].style());
    assert_eq!((bottom.fg, bottom.bg), (Some(Color::Red), Some(Color::Green)), "those that failed are at the bottom");
    assert_eq!(above.fg, Some(Color::Green));
    let plain = buffer(&model(|_| {}), &state(), false, 80, 24);
    assert_eq!(
        (plain[(36, 5)].symbol(), plain[(36, 4)].symbol()),
        ("▒", "█"),
        "without colours by what they are made of"
    );
}

#[test]
fn without_colours_there_are_none() {
    let has_colour =
        |drawn: &Buffer| drawn.content.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset);
    let mut gone = model(|_| {});
    gone.lose(secs(4), "gone");
    assert!(has_colour(&buffer(&gone, &state(), true, 120, 40)));
    assert!(!has_colour(&buffer(&gone, &state(), false, 120, 40)));
}

#[test]
fn the_selected_row_is_seen_however_long_the_list_is() {
    let full = model(|value| {
        let class = value["classes"][0].clone();
        let named = |at: usize| {
            let mut class = class.clone();
            class["class"] = format!("class-{at:02}").into();
            class
        };
        value["classes"] = (0..40).map(named).collect();
    });
    let mut state = state();
    assert!(!screen(&full, &state, 80, 24).contains("class-39"));
    state.apply(Action::Last, &full, Room { columns: 80, rows: 20 });
    check(&screen(&full, &state, 80, 24), &["class-39"]);
    let drawn = buffer(&full, &state, true, 80, 24);
    let row = rows_of(&drawn).iter().position(|row| row.contains("class-39")).unwrap();
    let style = drawn[(40, u16::try_from(row).unwrap())].style();
    assert!(style.add_modifier.contains(Modifier::REVERSED));
}

#[test]
fn pages_tell_of_runs_letters_classes_and_keys() {
    let (model, size) = (model(|_| {}), Rect::new(0, 0, 80, 24));
    let page = |pane: usize, told: Option<Value>| {
        let mut state = state();
        state.apply(Action::Pane(pane), &model, room(size));
        state.apply(Action::Look, &model, room(size));
        if let (Some(told), Some((id, _))) = (told, state.run_wanted().map(|(id, from)| (id.to_owned(), from))) {
            state.tell_run(&id, Ok(told));
        }
        screen(&model, &state, 80, 24)
    };
    check(&page(5, None), &["Run 019d2c5e-7a10-7c3e-8f00-0123456789ab", "asking...", "Esc close"]);
    let run = answer()["in_flight"][0].clone();
    let event = serde_json::json!({ "seq": 1, "ts": "2026-02-21T09:30:01.250Z", "type": "log", "payload": { "message": "page 1" } });
    let told = serde_json::json!({ "events": [event], "next": 2, "over": false, "run": run });
    check(
        &page(5, Some(told)),
        &[
            "state      running, attempt 2",
            "started",
            "after 1.0ms",
            "09:30:01.250 log          page 1",
            "kauri runs report 019d",
        ],
    );
    check(&page(6, None), &["Dead letter 7/12", "failure budget spent", "order-9", "kauri dead-letters replay 7/12"]);
    check(&page(4, None), &["Class mail", "send mail", "1 busy, 3 idle", "kauri classes pause mail --home shop"]);
    check(&page(3, None), &["messages that wait for a moment", "kauri timers", "123456"]);
    let mut state = state();
    state.apply(Action::Help, &model, room(size));
    check(&screen(&model, &state, 80, 24), &["Keys", "quit", "let the pane fill the screen"]);
}
