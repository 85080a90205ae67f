//! The thread that puts changed limits files in force. Reading, parsing and dropping what was in
//! force take milliseconds where rules are many, so none of it happens where requests are served.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::metrics::Metrics;
use crate::rules::parse::{Files, LoadErrors, rules_of};
use crate::rules::reload::{Changes, Next, Notice, Signal};
use crate::rules::{RuleSet, Switches};
use crate::service::{Load, Refusal, Rules, Snapshot};
use crate::settings::Serve;

/// How long to wait where there is nothing else to do.
const IDLE: Duration = Duration::from_secs(60);

/// How soon to look again whether requests still read old rules.
const RETIRE: Duration = Duration::from_millis(200);

/// The most mistakes of one refusal that are logged.
const LOGGED_MAX: usize = 20;

/// Limits files that are watched until this is dropped.
pub(super) struct Reload(Arc<Notice>);

struct Loader {
    changes: Changes,
    rules: Arc<Rules>,
    metrics: Metrics,
    switches: Switches,
    /// What was in force, until no request reads it: dropped here, and by no request.
    retired: Vec<Arc<Snapshot>>,
}

impl Reload {
    /// Watches `--limits`, whose `files` are in force.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(super) fn start(
        settings: &Serve,
        files: &Files,
        rules: Arc<Rules>,
        metrics: Metrics,
    ) -> io::Result<Self> {
        let changes = Changes::of(&settings.limits, files)?;
        let switches = settings.switches.into();
        let notice = changes.notice();
        let loader = Loader { changes, rules, metrics, switches, retired: vec![] };
        std::thread::Builder::new().name("reload".to_owned()).spawn(move || loader.run())?;
        Ok(Self(notice))
    }

    /// What asks for a reading now.
    pub(super) fn notice(&self) -> Arc<Notice> {
        Arc::clone(&self.0)
    }
}

impl Drop for Reload {
    fn drop(&mut self) {
        self.0.tell(Signal::End);
    }
}

impl Loader {
    fn run(mut self) {
        loop {
            let wait = if self.retired.is_empty() { IDLE } else { RETIRE };
            match self.changes.next(wait) {
                Next::Read(files) => self.load(&files),
                Next::Nothing => {}
                Next::End => return,
            }
            self.retired.retain(|snapshot| Arc::strong_count(snapshot) > 1);
        }
    }

    fn load(&mut self, files: &Files) {
        match rules_of(files, self.switches) {
            Ok(rules) => self.replace(rules, files),
            Err(errors) => self.refuse(errors),
        }
    }

    fn replace(&mut self, rules: RuleSet, files: &Files) {
        rules.warnings().for_each(|warning| tracing::warn!("{warning}"));
        let now_ms = SystemClock.now_ms();
        let load = Load::of(files, self.rules.snapshot().load.version + 1, now_ms);
        let (version, hash) = (load.version, load.hash.clone());
        self.retired.push(self.rules.replace(rules, load, &self.metrics));
        self.metrics.loaded(&hash, now_ms);
        tracing::info!(version, hash, "limits were read anew and are in force");
    }

    fn refuse(&self, errors: LoadErrors) {
        for error in errors.iter().take(LOGGED_MAX) {
            tracing::error!("{error}");
        }
        let (mistakes, version) = (errors.count(), self.rules.snapshot().load.version);
        tracing::error!(mistakes, version, "limits were refused; those of this version stay");
        self.metrics.refused();
        self.rules.refuse(Refusal { at_ms: SystemClock.now_ms(), errors });
    }
}
