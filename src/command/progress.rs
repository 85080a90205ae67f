//! A line on the terminal that shows how far a command is.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

/// How often the line is written.
pub(super) const INTERVAL: Duration = Duration::from_millis(250);

/// The line; removed when this is dropped. Nothing is shown unless standard error is a terminal.
pub(super) struct Progress {
    is_shown: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { is_shown: stderr().is_terminal() }
    }

    /// The same, unless `hides`: other output goes to the terminal.
    pub(super) fn unless(hides: bool) -> Self {
        Self { is_shown: !hides && stderr().is_terminal() }
    }

    pub(super) fn show(&self, line: &str) {
        if self.is_shown {
            // A line that cannot be shown is no reason to stop.
            let _ = write!(stderr(), "\r\x1b[K{line}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.show("");
    }
}
