//! The thread that loads changed limits files.
//!
//! Reading, parsing and dropping a large rule set take milliseconds, so none of it happens on the
//! serving threads: they swap a pointer. A file with mistakes changes nothing: the old rules stay
//! in use, and the mistakes are logged, counted and listed on the HTTP port.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::follow::{Control, Fingerprint, Follower, Next, Source};
use crate::metrics::Metrics;
use crate::rules::parse::{Files, LoadErrors, candidates, rules_of};
use crate::rules::{Changes, RuleSet, Switches};
use crate::service::{Load, Refusal, Rules, Snapshot};
use crate::settings::Serve;

/// How long limits files must be unchanged before they are read.
const STILL: Duration = Duration::from_millis(100);

/// The most mistakes that are logged per refusal.
const LOGGED_MAX: usize = 20;

/// Follows limits files until it is dropped.
pub(super) struct Reload(Control);

struct Loader {
    follower: Follower<LimitsFiles>,
    rules: Arc<Rules>,
    metrics: Metrics,
    switches: Switches,
    /// Replaced rules that a request may still read. They are dropped here, not by a request.
    retired: Vec<Arc<Snapshot>>,
}

/// The limits files at this path, a file or a folder.
struct LimitsFiles(PathBuf);

impl Source for LimitsFiles {
    type Contents = Files;

    fn paths(&self) -> Vec<PathBuf> {
        candidates(&self.0)
    }

    fn read(&self) -> Files {
        Files::read(&self.0)
    }

    fn fingerprint(files: &Files) -> Fingerprint {
        let (hash, errors) = (files.hash(), files.errors().to_string());
        let contents = [hash.as_bytes(), errors.as_bytes()];
        match files.errors().count() {
            0 => Fingerprint::complete(contents),
            _ => Fingerprint::incomplete(contents),
        }
    }
}

impl Reload {
    /// Follows `--limits`. `files` are in use now.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(
        settings: &Serve,
        files: &Files,
        rules: Arc<Rules>,
        metrics: Metrics,
    ) -> io::Result<Self> {
        let source = LimitsFiles(settings.limits.clone());
        let follower = Follower::new(source, LimitsFiles::fingerprint(files), STILL);
        let control = follower.control();
        let switches = settings.switches.into();
        let loader = Loader { follower, rules, metrics, switches, retired: vec![] };
        std::thread::Builder::new().name("reload".to_owned()).spawn(move || loader.run())?;
        Ok(Self(control))
    }

    /// A handle that requests reloads.
    pub(super) fn control(&self) -> Control {
        self.0.clone()
    }
}

impl Drop for Reload {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Loader {
    fn run(mut self) {
        loop {
            match self.follower.next() {
                Next::Read(files) => self.load(&files),
                Next::Unchanged => {}
                Next::Stopped => return,
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
        let changes = Changes::between(&self.rules.snapshot().rules, &rules);
        self.retired.push(self.rules.replace(rules, load, &self.metrics));
        self.metrics.loaded(&hash, now_ms);
        tracing::info!(version, hash, %changes, "limits were reloaded");
    }

    fn refuse(&self, errors: LoadErrors) {
        for error in errors.iter().take(LOGGED_MAX) {
            tracing::error!("{error}");
        }
        let (mistakes, version) = (errors.count(), self.rules.snapshot().load.version);
        tracing::error!(
            mistakes,
            version,
            "limits were refused; those of this version stay in use"
        );
        self.metrics.refused();
        self.rules.refuse(Refusal { at_ms: SystemClock.now_ms(), errors });
    }
}
