//! The domains read so far. Each file adds to the draft of its domain, which becomes a [`Domain`]
//! once all files are read.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use super::descriptor::Tree;
use super::errors::{LoadErrors, Position, Report, quoted};
use super::fields::Subject;
use crate::key::Group;
use crate::rules::domain::Own;
use crate::rules::{Domain, Rule, Switches};

/// The drafts of all domains.
#[derive(Default)]
pub(super) struct Drafts {
    pub(super) drafts: Vec<Draft>,
    by_name: HashMap<String, usize>,
}

/// A domain, read so far.
#[derive(Default)]
pub(super) struct Draft {
    name: String,
    pub(super) sources: Vec<PathBuf>,
    pub(super) own: Own,
    pub(super) tree: Tree,
}

impl Drafts {
    /// The draft of the domain whose name is at `at`: a new one, or the existing one if files are
    /// merged.
    pub(super) fn of(
        &mut self,
        name: String,
        at: Position,
        switches: Switches,
        report: &mut Report<'_>,
    ) -> &mut Draft {
        let earlier = self.by_name.get(&name).copied();
        if let Some(earlier) = earlier.filter(|_| !switches.merge_domains) {
            let draft = &self.drafts[earlier];
            let place = draft.sources.first().map_or_else(String::new, |f| f.display().to_string());
            let domain = quoted(&draft.name);
            let message = format!("domain {domain} is in {place} already");
            report.add(at, message + "; keep all of a domain in one file, or use --merge-domains");
        }
        let index = earlier.filter(|_| switches.merge_domains).unwrap_or_else(|| {
            self.by_name.insert(name.clone(), self.drafts.len());
            self.drafts.push(Draft { name, ..Draft::default() });
            self.drafts.len() - 1
        });
        &mut self.drafts[index]
    }
}

impl Draft {
    /// Warns of names in `replaces` that no limit of the domain has, in any of its files.
    pub(super) fn warn_of_missing_names(&self, errors: &mut LoadErrors) {
        let limits = self.tree.rules.iter().flat_map(Rule::given_names);
        let names: HashSet<&str> = limits.collect();
        for (rule, location) in self.tree.rules.iter().zip(&self.tree.locations) {
            for missing in rule.replaces().filter(|name| !names.contains(name)) {
                let message = format!(
                    "{}replaces {}, but no limit of this domain has that name",
                    Subject::Limit(rule.path()),
                    quoted(missing)
                );
                Report { file: &location.file, errors }.warn(location.at, message);
            }
        }
    }

    pub(super) fn finish(self, switches: Switches) -> Domain {
        let Self { name, sources, own, tree: Tree { mut rules, root, .. } } = self;
        let replaces = rules.iter().any(|rule| rule.replaces().next().is_some());
        rules.iter_mut().for_each(|rule| rule.take_groups(&name));
        let overrides = Group::of_overrides(&name);
        Domain { id: 0, name, sources, own, switches, replaces, overrides, rules, root }
    }
}
