//! Reads the tree of descriptors of a domain.
//!
//! Files that are merged add to one tree. The tree is a list of rules in file order plus
//! [`Level`]s, which find the rule for an entry. Two rules for the same values are a mistake, with
//! both positions in the message; a rule that an earlier wildcard fully covers is a warning. Every
//! mistake names the path of its rule, since line numbers alone are hard to find in generated
//! files.

use std::path::Path;

use super::errors::{LoadErrors, Position, Report};
use super::fields::{Fields, Reported, Subject, kind};
use super::names::Place;
use super::path::Step;
use super::yaml::{Content, Node};
use super::{limit, metadata, path};
use crate::decision::Enforcement;
use crate::rules::rule::{Kind, Rule};
use crate::rules::tree::{Level, Pattern};
use crate::rules::wildcard::{Covered, Refused, Unfit, WILDCARD_BYTES_MAX, WILDCARDS_MAX};
use crate::rules::{LEVELS_MAX, Switches};

/// The longest key or value, in bytes: the default maximum of requests.
const TEXT_BYTES_MAX: usize = 4_096;

/// The rules of a domain, read so far.
#[derive(Default)]
pub(super) struct Tree {
    /// Each rule before its nested rules.
    pub(super) rules: Vec<Rule>,
    pub(super) root: Level,
    /// The position of each rule's value.
    pub(super) locations: Vec<Location>,
}

/// The position of a rule.
pub(super) struct Location {
    pub(super) file: Box<Path>,
    pub(super) at: Position,
}

/// Reads the rules of one file into the tree.
struct Reader<'t, 'r, 'e> {
    tree: &'t mut Tree,
    report: &'r mut Report<'e>,
    switches: Switches,
}

/// The parent of a level: a rule, or the top of the file, whose path is empty.
#[derive(Clone, Copy)]
struct Above<'p> {
    path: &'p str,
    /// One step per level above.
    steps: &'p [Step],
}

/// The key and value that a descriptor matches, with their positions.
struct Names<'n> {
    key: &'n str,
    value: &'n str,
    at: Position,
}

/// Reads the `descriptors` of a file into the tree of its domain.
pub(super) fn read(list: &Node<'_>, tree: &mut Tree, switches: Switches, report: &mut Report<'_>) {
    let mut root = std::mem::take(&mut tree.root);
    let mut reader = Reader { tree, report, switches };
    reader.read_level(list, Above { path: "", steps: &[] }, &mut root);
    tree.root = root;
}

impl Tree {
    /// Prepares lookups, once all files of the domain are read, and reports mistakes and warnings
    /// about sibling wildcards.
    pub(super) fn finish(&mut self, errors: &mut LoadErrors) {
        let below = self.rules.iter_mut().map(|rule| &mut rule.below);
        let levels = std::iter::once(&mut self.root).chain(below);
        let finished: Vec<_> = levels.flat_map(Level::finish).collect();
        for finished in finished {
            match finished {
                Ok(covered) => covered.iter().for_each(|covered| self.warn_of(covered, errors)),
                Err(Unfit { rule, why }) => self.report_at(rule, errors, |report, at, subject| {
                    report.add(at, format!("{subject}{why}; use exact values"));
                }),
            }
        }
    }

    fn warn_of(&self, covered: &Covered, errors: &mut LoadErrors) {
        self.report_at(covered.rule, errors, |report, at, subject| {
            let place = self.place_of(covered.by, report.file);
            let message =
                format!("this rule is never used: the wildcard {place} matches all its values");
            report.warn(at, format!("{subject}{message}"));
        });
    }

    /// Reports a mistake or warning at the position of a rule.
    pub(super) fn report_at(
        &self,
        rule: usize,
        errors: &mut LoadErrors,
        write: impl FnOnce(&mut Report<'_>, Position, Subject<'_>),
    ) {
        if let (Some(rule), Some(location)) = (self.rules.get(rule), self.locations.get(rule)) {
            let mut report = Report { file: &location.file, errors };
            write(&mut report, location.at, Subject::Descriptor(rule.path()));
        }
    }

    /// The position of a rule, as a message about `file` prints it.
    pub(super) fn place_of(&self, rule: usize, file: &Path) -> String {
        match self.locations.get(rule) {
            Some(own) if *own.file == *file => format!("at line {}", own.at.line),
            Some(Location { file, at }) => format!("at {}:{}", file.display(), at.line),
            None => String::new(),
        }
    }
}

impl Reader<'_, '_, '_> {
    /// Recurses with [`Self::read_rule`], at most [`LEVELS_MAX`] levels deep.
    fn read_level(&mut self, list: &Node<'_>, above: Above<'_>, level: &mut Level) {
        let Content::List(nodes) = &list.content else {
            if !list.is_null() {
                let message = format!("descriptors must be a list, not {}", kind(list));
                self.report.add(list.at, format!("{}{message}", above.subject()));
            }
            return;
        };
        if above.steps.len() >= LEVELS_MAX {
            let message = format!("descriptors nest more than {LEVELS_MAX} levels deep");
            self.report.add(list.at, format!("{}{message}", above.subject()));
            return;
        }
        for node in nodes {
            self.read_rule(node, above, level);
        }
    }

    fn read_rule(&mut self, node: &Node<'_>, above: Above<'_>, level: &mut Level) {
        let subject = Subject::DescriptorIn(above.path);
        let Some(fields) = Fields::of(node, subject) else {
            let message = format!("{subject}must be a mapping with a key, not {}", kind(node));
            self.report.add(node.at, message);
            return;
        };
        let names = Names::read(&fields, self.report);
        let path = above.path_to(names.as_ref().ok());
        let subject = if names.is_ok() { Subject::Descriptor(&path) } else { subject };
        let fields = fields.about(subject);
        fields.check_names(Place::Descriptor, self.report);
        let step = self.step(&fields, names.as_ref().ok());
        let steps: Vec<Step> = above.steps.iter().cloned().chain([step]).collect();
        if let Ok(names) = &names {
            self.place(&fields, names, level);
        }
        let rule = self.rule(&fields, Above { path: &path, steps: &steps });
        let at = names.map_or(node.at, |names| names.at);
        let index = self.tree.rules.len();
        self.tree.rules.push(rule);
        self.tree.locations.push(Location { file: self.report.file.into(), at });
        if let Some(list) = fields.get("descriptors") {
            let mut below = Level::default();
            self.read_level(&list.value, Above { path: &path, steps: &steps }, &mut below);
            self.tree.rules[index].below = below;
        }
    }

    /// The step of the rule's own level, which affects the keys and metrics of all rules below.
    fn step(&mut self, fields: &Fields<'_, '_>, names: Option<&Names<'_>>) -> Step {
        let shares = self.flag(fields, "share_threshold");
        let value_to_metric = self.flag(fields, "value_to_metric");
        let (key, value) = names.map_or(("", ""), |names| (names.key, names.value));
        let wildcard = value.contains('*');
        if key.contains('*') && names.is_some() {
            let message = "a * in a key has no special meaning; wildcards belong in value";
            fields.warn(fields.at("key"), message, self.report);
        }
        if shares && !wildcard && names.is_some() {
            let message = "share_threshold does nothing without a wildcard in value";
            fields.warn(fields.at("share_threshold"), message, self.report);
        }
        let hashes = self.flag(fields, "hash_values");
        if hashes && !wildcard && !value.is_empty() {
            let message = "hash_values does nothing beside a value";
            fields.warn(fields.at("hash_values"), message, self.report);
        }
        let hashes = hashes && (wildcard || value.is_empty());
        let options = path::Options { shares: shares && wildcard, value_to_metric, hashes };
        Step::new(key, value, options)
    }

    /// Adds the next rule to its level.
    fn place(&mut self, fields: &Fields<'_, '_>, names: &Names<'_>, level: &mut Level) {
        let pattern = Pattern::new(names.value);
        let Err(refused) = level.insert(names.key, pattern, self.tree.rules.len()) else { return };
        let message = match refused {
            Refused::Duplicate(earlier) => {
                let place = self.tree.place_of(earlier, self.report.file);
                format!("the rule {place} matches the same values; keep one of them")
            }
            Refused::TooMany => {
                format!("more than {WILDCARDS_MAX} wildcards for one key; use exact values")
            }
            Refused::TooLong => format!(
                "the wildcards for one key have more than {WILDCARD_BYTES_MAX} bytes; use exact values"
            ),
        };
        fields.refuse(names.at, message, self.report);
    }

    fn rule(&mut self, fields: &Fields<'_, '_>, own: Above<'_>) -> Rule {
        let mut kind = match fields.get("rate_limit") {
            Some(field) => limit::read(&field.value, own.path, self.report),
            None => Kind::Exempt,
        };
        if self.switches.count_rejected {
            kind = kind.into_counted();
        }
        let detailed = self.flag(fields, "detailed_metric");
        Rule {
            path: own.path.into(),
            kind,
            enforcement: self.enforcement(fields),
            shared: path::shared(own.steps),
            segments: path::segments(own.steps, detailed),
            hashes: path::hashes(own.steps),
            metadata: metadata::read(fields, self.report).ok().flatten(),
            raw_body: fields.raw_body(self.report).ok().flatten(),
            below: Level::default(),
        }
    }

    fn enforcement(&mut self, fields: &Fields<'_, '_>) -> Enforcement {
        let shadow = self.flag(fields, "shadow_mode");
        let quota = self.flag(fields, "quota_mode");
        if shadow && quota {
            let message = "quota_mode does nothing beside shadow_mode";
            fields.warn(fields.at("quota_mode"), message, self.report);
        }
        self.switches.enforcement(match (shadow, quota) {
            (true, _) => Enforcement::Shadow,
            (false, true) => Enforcement::Quota,
            (false, false) => Enforcement::Enforced,
        })
    }

    fn flag(&mut self, fields: &Fields<'_, '_>, name: &str) -> bool {
        fields.flag(name, self.report).ok().flatten().unwrap_or(false)
    }
}

impl<'p> Above<'p> {
    fn subject(self) -> Subject<'p> {
        if self.path.is_empty() { Subject::File } else { Subject::Descriptor(self.path) }
    }

    fn path_to(self, names: Option<&Names<'_>>) -> String {
        let mut path = String::from(self.path);
        if !path.is_empty() {
            path.push('/');
        }
        match names {
            Some(Names { key, value: "", .. }) => path.push_str(key),
            Some(Names { key, value, .. }) => path.extend([key, "=", value]),
            None => path.push('?'),
        }
        path
    }
}

impl<'n> Names<'n> {
    /// Reads both before returning, so that the mistakes of both are reported.
    fn read(fields: &Fields<'n, '_>, report: &mut Report<'_>) -> Result<Self, Reported> {
        let key = required_key(fields, report);
        let value = fields.text_within("value", TEXT_BYTES_MAX, report);
        let (key, value) = (key?, value?.unwrap_or_default());
        let at = fields.at(if value.is_empty() { "key" } else { "value" });
        Ok(Self { key, value, at })
    }
}

fn required_key<'n>(fields: &Fields<'n, '_>, report: &mut Report<'_>) -> Result<&'n str, Reported> {
    match fields.text_within("key", TEXT_BYTES_MAX, report)? {
        None => Err(fields.refuse(fields.at, "key is missing", report)),
        Some("") => Err(fields.refuse(fields.at("key"), "key is empty", report)),
        Some(key) => Ok(key),
    }
}
