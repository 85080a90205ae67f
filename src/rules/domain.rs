//! One domain: its rules, and the walk down their tree.

use std::path::{Path, PathBuf};

use super::rule::Rule;
use super::switches::Switches;
use super::tree::Level;
use crate::key::Group;
use crate::on_store_failure::OnStoreFailure;

/// The rules of one limits file, or of several that are merged.
#[derive(Debug)]
pub struct Domain {
    pub(super) name: String,
    pub(super) id: usize,
    pub(super) sources: Vec<PathBuf>,
    pub(super) own: Own,
    pub(super) switches: Switches,
    pub(super) replaces: bool,
    pub(super) overrides: Group,
    pub(super) rules: Vec<Rule>,
    pub(super) root: Level,
}

/// What a domain sets for itself.
#[derive(Debug, Default)]
pub(super) struct Own {
    pub(super) slot_by: Vec<String>,
    pub(super) on_store_failure: Option<OnStoreFailure>,
    pub(super) raw_body: Option<Box<str>>,
}

impl Domain {
    /// The name that requests give.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number among all domains of the rule set, which are sorted by name.
    pub fn id(&self) -> usize {
        self.id
    }

    /// The entry keys whose values choose the cluster's shard; none: the domain does.
    pub fn slot_by(&self) -> &[String] {
        &self.own.slot_by
    }

    /// What this domain wants while the store cannot decide; `None`: what the service does.
    pub fn on_store_failure(&self) -> Option<OnStoreFailure> {
        self.own.on_store_failure
    }

    /// The body of answers to its rejected requests, where the rule that rejects has none.
    pub fn raw_body(&self) -> Option<&str> {
        self.own.raw_body.as_deref()
    }

    /// The files that configure it.
    pub fn sources(&self) -> impl Iterator<Item = &Path> {
        self.sources.iter().map(PathBuf::as_path)
    }

    /// What holds for all its limits, also for those that requests bring.
    pub const fn switches(&self) -> Switches {
        self.switches
    }

    /// Whether some limit stands in for others.
    pub(crate) const fn replaces(&self) -> bool {
        self.replaces
    }

    /// The group of counters whose limits requests bring, where no rule has a limit.
    pub(crate) const fn overrides(&self) -> Group {
        self.overrides
    }

    /// The rule at which these entries, (key, value) in order, end; `None` where none matches.
    ///
    /// Takes one or two hash lookups an entry, however many rules there are. Where the entry's key
    /// has wildcards, it reads the value besides: a few times, or once for all where there are many.
    /// Allocates nothing but what such a lookup needs, once a thread.
    pub fn find<'a>(&self, entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<&Rule> {
        let mut level = &self.root;
        let mut found = None;
        for (key, value) in entries {
            let rule = self.rules.get(level.find(key, value)?)?;
            level = &rule.below;
            found = Some(rule);
        }
        found
    }

    /// All rules in file order, each before those below it.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }
}
