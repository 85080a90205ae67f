//! The tree of descriptors of one file.

use super::errors::Report;
use super::fields::{Fields, Given, Reported, Subject, kind};
use super::yaml::{Content, Node, Position};
use super::{LEVELS_MAX, limit};
use crate::rules::tree::{Level, Pattern, Refused, WILDCARDS_MAX};
use crate::rules::{Kind, Rule};

const KEYS: [&str; 5] = ["key", "value", "rate_limit", "descriptors", "shadow_mode"];

/// Keys that a later version reads.
const LATER: [&str; 5] =
    ["detailed_metric", "value_to_metric", "share_threshold", "quota_mode", "metadata"];

/// The longest key or value, in bytes: what requests may carry unless a flag says otherwise.
const TEXT_BYTES_MAX: usize = 4_096;

/// The rules of a file, read so far.
pub(super) struct Tree<'r, 'e> {
    report: &'r mut Report<'e>,
    /// Each rule before those below it.
    rules: Vec<Rule>,
    /// Where each rule's values stand.
    places: Vec<Position>,
}

/// What a level is below: a rule, or the top of the file, whose path is empty.
#[derive(Clone, Copy)]
struct Above<'p> {
    path: &'p str,
    levels: usize,
}

/// What a descriptor matches, and where that stands.
struct Names<'n> {
    key: &'n str,
    value: &'n str,
    at: Position,
}

/// Reads the `descriptors` of a file: all rules, and the top level as indexes into them.
pub(super) fn read(list: &Node<'_>, report: &mut Report<'_>) -> (Vec<Rule>, Level) {
    if list.is_null() {
        report.add(list.at, "descriptors is empty; list the rules, or write [] for none");
    }
    let mut tree = Tree { report, rules: vec![], places: vec![] };
    let top = tree.read_level(list, Above { path: "", levels: 0 });
    (tree.rules, top)
}

impl Tree<'_, '_> {
    /// Recurses with [`Self::read_rule`], [`LEVELS_MAX`] levels deep at most.
    fn read_level(&mut self, list: &Node<'_>, above: Above<'_>) -> Level {
        let mut level = Level::default();
        let Content::List(nodes) = &list.content else {
            if !list.is_null() {
                let message = format!("descriptors must be a list, not {}", kind(list));
                self.report.add(list.at, format!("{}{message}", above.subject()));
            }
            return level;
        };
        if above.levels >= LEVELS_MAX {
            let message = format!("descriptors nest more than {LEVELS_MAX} levels deep");
            self.report.add(list.at, format!("{}{message}", above.subject()));
            return level;
        }
        for node in nodes {
            self.read_rule(node, above, &mut level);
        }
        level
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
        fields.check_names(&KEYS, &LATER, self.report);
        if let Ok(names) = &names {
            self.place(&fields, names, level);
        }
        let index = self.push(&fields, &path, names.map_or(node.at, |names| names.at));
        if let Some(list) = fields.get("descriptors") {
            let below =
                self.read_level(&list.value, Above { path: &path, levels: above.levels + 1 });
            if let Some(rule) = self.rules.get_mut(index) {
                rule.below = below;
            }
        }
    }

    /// Puts the rule that comes next into its level.
    fn place(&mut self, fields: &Fields<'_, '_>, names: &Names<'_>, level: &mut Level) {
        let pattern = Pattern::new(names.value);
        let message = match level.insert(names.key, pattern, self.rules.len()) {
            Ok(()) => return,
            Err(Refused::Duplicate(earlier)) => {
                let line = self.places.get(earlier).map_or(0, |at| at.line);
                format!("the rule at line {line} matches the same; keep one of them")
            }
            Err(Refused::TooManyWildcards) => {
                format!("more than {WILDCARDS_MAX} wildcards for one key; use exact values")
            }
        };
        fields.refuse(names.at, message, self.report);
    }

    fn push(&mut self, fields: &Fields<'_, '_>, path: &str, at: Position) -> usize {
        let kind = match fields.get("rate_limit") {
            Some(field) => limit::read(&field.value, path, self.report),
            None => Kind::Exempt,
        };
        let shadow = fields.flag("shadow_mode", self.report);
        let shadow = shadow.ok().flatten().unwrap_or(false);
        self.rules.push(Rule { path: path.into(), kind, shadow, below: Level::default() });
        self.places.push(at);
        self.rules.len() - 1
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
    /// Both are read before either's mistakes end it, so that all are reported.
    fn read(fields: &Fields<'n, '_>, report: &mut Report<'_>) -> Result<Self, Reported> {
        let key = required_key(fields, report);
        let value = short_text(fields, "value", report);
        let (key, value) = (key?, value?.unwrap_or_default());
        let at = fields.at(if value.is_empty() { "key" } else { "value" });
        Ok(Self { key, value, at })
    }
}

fn required_key<'n>(fields: &Fields<'n, '_>, report: &mut Report<'_>) -> Result<&'n str, Reported> {
    match short_text(fields, "key", report)? {
        None => Err(fields.refuse(fields.at, "key is missing", report)),
        Some("") => Err(fields.refuse(fields.at("key"), "key is empty", report)),
        Some(key) => Ok(key),
    }
}

fn short_text<'n>(fields: &Fields<'n, '_>, name: &str, report: &mut Report<'_>) -> Given<&'n str> {
    match fields.text(name, report)? {
        Some(text) if text.len() > TEXT_BYTES_MAX => {
            let length = text.len();
            let message = format!("{name} of {length} bytes is over the most, {TEXT_BYTES_MAX}");
            Err(fields.refuse(fields.at(name), message, report))
        }
        text => Ok(text),
    }
}
