//! `--watch`: what a command shows, drawn again and again until Ctrl-C.

use std::io::{IsTerminal as _, Write};
use std::time::Duration;

use super::Trouble;

/// How often it is drawn.
const PAUSE: Duration = Duration::from_secs(1);
/// Puts the cursor into the first place, and clears what is behind it.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Whether something is shown once, or until Ctrl-C.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(super) struct Watch {
    /// Draw it again every second, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

impl Watch {
    /// Draws once, or until somebody ends the program or its reader.
    pub(super) fn show<W: Write>(
        self,
        json: bool,
        out: &mut W,
        draw: impl Fn(&mut Vec<u8>) -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        if self.watch && json {
            return Err(Trouble::Wrong("--watch draws for people: leave --json away, or call again".to_owned()));
        }
        loop {
            // What is drawn appears at once, whole.
            let mut drawn = Vec::new();
            if self.watch && std::io::stdout().is_terminal() {
                drawn.extend_from_slice(CLEAR.as_bytes());
            }
            let done = draw(&mut drawn);
            out.write_all(&drawn)?;
            out.flush()?;
            done?;
            if !self.watch {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
    }
}
