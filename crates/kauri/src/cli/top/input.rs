//! What a key means.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What somebody at the keyboard wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Quit,
    /// Close what is open; where nothing is, quit.
    Back,
    NextPane,
    PreviousPane,
    /// A pane by its number, from 1.
    Pane(usize),
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    /// Look at what is selected.
    Look,
    Pause,
    Help,
    Zoom,
    Measure,
    Slower,
    Faster,
}

/// Nothing for keys that mean nothing.
pub(super) fn action(key: &KeyEvent) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return matches!(key.code, KeyCode::Char('c' | 'd')).then_some(Action::Quit);
    }
    Some(match key.code {
        KeyCode::Char('q') => Action::Quit,
        KeyCode::Esc | KeyCode::Backspace => Action::Back,
        KeyCode::Tab | KeyCode::Right => Action::NextPane,
        KeyCode::BackTab | KeyCode::Left => Action::PreviousPane,
        KeyCode::Char(digit @ '1'..='9') => Action::Pane(digit.to_digit(10)? as usize),
        KeyCode::Up | KeyCode::Char('k') => Action::Up,
        KeyCode::Down | KeyCode::Char('j') => Action::Down,
        KeyCode::PageUp => Action::PageUp,
        KeyCode::PageDown | KeyCode::Char(' ') => Action::PageDown,
        KeyCode::Home | KeyCode::Char('g') => Action::First,
        KeyCode::End | KeyCode::Char('G') => Action::Last,
        KeyCode::Enter => Action::Look,
        KeyCode::Char('p') => Action::Pause,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => Action::Help,
        KeyCode::Char('z') => Action::Zoom,
        KeyCode::Char('m') => Action::Measure,
        KeyCode::Char('+' | '=') => Action::Slower,
        KeyCode::Char('-' | '_') => Action::Faster,
        _ => return None,
    })
}

/// The keys as people are told of them.
pub(super) const KEYS: [(&str, &str); 10] = [
    ("q, Ctrl-C", "quit"),
    ("Esc", "close what is open; where nothing is, quit"),
    ("Tab, ← →, 1 to 6", "go to another pane"),
    ("↑ ↓, Home, End", "select, or scroll; PgUp and PgDn by ten"),
    ("Enter", "look at what is selected"),
    ("z", "let the pane fill the screen, and back"),
    ("m", "plot how long runs took, or had waited to begin"),
    ("p", "pause the view, and go on"),
    ("+ -", "ask less often, more often"),
    ("?", "this help"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: KeyCode, expected: Option<Action>) {
        assert_eq!(action(&KeyEvent::new(code, KeyModifiers::NONE)), expected, "{code:?}");
    }

    #[test]
    fn keys_mean_what_the_help_says() {
        use Action::*;
        let letters =
            [('q', Quit), ('p', Pause), ('?', Help), ('+', Slower), ('-', Faster), ('z', Zoom), ('m', Measure)];
        letters.into_iter().for_each(|(letter, action)| check(KeyCode::Char(letter), Some(action)));
        check(KeyCode::Esc, Some(Back));
        check(KeyCode::Tab, Some(NextPane));
        check(KeyCode::Right, Some(NextPane));
        check(KeyCode::BackTab, Some(PreviousPane));
        check(KeyCode::Left, Some(PreviousPane));
        (1..=9).for_each(|pane| check(KeyCode::Char(char::from_digit(pane, 10).unwrap()), Some(Pane(pane as usize))));
        check(KeyCode::Up, Some(Up));
        check(KeyCode::Down, Some(Down));
        check(KeyCode::Enter, Some(Look));
    }

    #[test]
    fn other_keys_and_keys_let_go_mean_nothing() {
        ['0', 'x', 'Q', 'ü'].into_iter().for_each(|letter| check(KeyCode::Char(letter), None));
        check(KeyCode::F(9), None);
        let key = KeyEvent::new_with_kind(KeyCode::Char('q'), KeyModifiers::NONE, KeyEventKind::Release);
        assert_eq!(action(&key), None);
        let control = |letter| action(&KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL));
        assert_eq!((control('c'), control('q')), (Some(Action::Quit), None));
    }
}
