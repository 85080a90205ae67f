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

/// The settings of one domain.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Own {
    pub(super) slot_by: Vec<String>,
    pub(super) on_store_failure: Option<OnStoreFailure>,
    pub(super) raw_body: Option<Box<str>>,
}

impl Domain {
    /// The domain in requests.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its index among all domains of the rule set, which are sorted by name.
    pub fn id(&self) -> usize {
        self.id
    }

    /// The entry keys whose values choose the cluster's shard; if empty, the domain chooses it.
    pub fn slot_by(&self) -> &[String] {
        &self.own.slot_by
    }

    /// The policy while the store cannot decide; `None`: the service's default.
    pub fn on_store_failure(&self) -> Option<OnStoreFailure> {
        self.own.on_store_failure
    }

    /// The body of answers to rejected requests, unless the rule has its own.
    pub fn raw_body(&self) -> Option<&str> {
        self.own.raw_body.as_deref()
    }

    /// The files that configure it.
    pub fn sources(&self) -> impl Iterator<Item = &Path> {
        self.sources.iter().map(PathBuf::as_path)
    }

    /// The switches for all its limits, including limits that requests bring.
    pub const fn switches(&self) -> Switches {
        self.switches
    }

    /// Whether some limit replaces others.
    pub(crate) const fn replaces(&self) -> bool {
        self.replaces
    }

    /// The group of counters of limits that requests bring where no rule has a limit.
    pub(crate) const fn overrides(&self) -> Group {
        self.overrides
    }

    /// The rule at which these entries, (key, value) in order, end; `None` if none matches.
    ///
    /// Takes one or two hash lookups per entry, for any number of rules. If the entry's key has
    /// wildcards, it also reads the value: a few times, or once for all if there are many.
    /// Allocates nothing except a scratch buffer once per thread.
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

    /// All rules in file order, each before its nested rules.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }
}
