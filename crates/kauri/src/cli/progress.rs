//! How far long work is, on standard error, for whoever watches it there.
//!
//! Nothing is shown where standard error is no terminal, and nothing is left of it when the work is done.

use std::borrow::Cow;
use std::io::{Read, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often it is drawn while nothing is counted.
const TICK: Duration = Duration::from_millis(200);

/// Work that goes on, until this is dropped.
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// Work of which nobody knows how far it is.
    pub(super) fn of(what: impl Into<Cow<'static, str>>, is_shown: bool) -> Self {
        Self::new(what, is_shown, None, "{spinner} {msg} {elapsed}")
    }

    /// Work that counts rows, of so many if that is known.
    pub(super) fn of_rows(what: impl Into<Cow<'static, str>>, is_shown: bool, rows: Option<u64>) -> Self {
        let template = match rows {
            Some(_) => "{msg} {wide_bar} {human_pos} of {human_len} rows, {eta} left",
            None => "{spinner} {msg} {human_pos} rows, {elapsed}",
        };
        Self::new(what, is_shown, rows, template)
    }

    /// Work that counts bytes, of so many if that is known.
    pub(super) fn of_bytes(what: impl Into<Cow<'static, str>>, is_shown: bool, bytes: Option<u64>) -> Self {
        let template = match bytes {
            Some(_) => "{msg} {wide_bar} {bytes} of {total_bytes}, {eta} left",
            None => "{spinner} {msg} {bytes}, {bytes_per_sec}",
        };
        Self::new(what, is_shown, bytes, template)
    }

    fn new(what: impl Into<Cow<'static, str>>, is_shown: bool, end: Option<u64>, template: &str) -> Self {
        // A target that draws nothing where there is no terminal.
        let target = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(end, target).with_message(what);
        bar.set_style(ProgressStyle::with_template(template).expect("the template is one"));
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        Self(bar)
    }

    pub(super) fn add(&self, count: u64) {
        self.0.inc(count);
    }

    /// Prints something where the progress is shown.
    pub(super) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }

    /// Counts what is read.
    pub(super) fn read<R: Read>(&self, from: R) -> impl Read + use<R> {
        self.0.wrap_read(from)
    }

    /// Counts what is written.
    pub(super) fn write<W: Write>(&self, to: W) -> impl Write + use<W> {
        self.0.wrap_write(to)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
