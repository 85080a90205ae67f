//! Reads the top level of a limits file: one domain, or a part of one.

use super::descriptor;
use super::drafts::{Draft, Drafts};
use super::errors::{Position, Report, quoted};
use super::fields::{Fields, Subject, kind};
use super::names::{Place, not_one_of};
use super::yaml::{self, Content, Node};
use crate::on_store_failure::OnStoreFailure;
use crate::rules::Switches;

/// The start of a file, for mistakes about missing fields.
const START: Position = Position { line: 1, column: 1, width: 1 };

/// Reads a file into the draft of its domain.
pub(super) fn read(text: &str, drafts: &mut Drafts, switches: Switches, report: &mut Report<'_>) {
    let mistakes = report.errors.count();
    let Some(root) = yaml::read(text, report).filter(|root| !root.is_null()) else {
        if report.errors.count() == mistakes {
            report.add(START, "the file is empty; it needs domain and descriptors");
        }
        return;
    };
    let Some(fields) = Fields::of(&root, Subject::File) else {
        let what = kind(&root);
        report.add(
            root.at,
            format!("the file must be a mapping with domain and descriptors, not {what}"),
        );
        return;
    };
    fields.check_names(Place::File, report);
    // A file without a domain is read to report its other mistakes.
    let mut nameless = Draft::default();
    let draft = match name(&fields, report) {
        Some(name) => drafts.of(name, fields.at("domain"), switches, report),
        None => &mut nameless,
    };
    draft.sources.push(report.file.to_owned());
    draft.set(&fields, report);
    match fields.get("descriptors").filter(|field| !field.value.is_empty()) {
        Some(field) => descriptor::read(&field.value, &mut draft.tree, switches, report),
        None => report.warn(fields.at, "descriptors is missing or empty: this file limits nothing"),
    }
}

fn name(fields: &Fields<'_, '_>, report: &mut Report<'_>) -> Option<String> {
    let name = fields.text("domain", report).ok()?;
    match name {
        Some("") => fields.refuse(fields.at("domain"), "domain is empty", report),
        Some(name) => return Some(name.to_owned()),
        None => fields.refuse(fields.at, "domain is missing; requests give its name", report),
    };
    None
}

impl Draft {
    /// Applies the settings of a file to the whole domain; files that are merged must agree.
    fn set(&mut self, fields: &Fields<'_, '_>, report: &mut Report<'_>) {
        let mut differs = vec![];
        if let Some(field) = fields.get("slot_by") {
            let keys = slot_by(&field.value, report);
            let earlier = std::mem::replace(&mut self.own.slot_by, keys);
            if !earlier.is_empty() && earlier != self.own.slot_by {
                differs.push("slot_by");
            }
        }
        if let Some(choice) = on_store_failure(fields, report) {
            let earlier = self.own.on_store_failure.replace(choice);
            if earlier.is_some_and(|earlier| earlier != choice) {
                differs.push("on_store_failure");
            }
        }
        if let Some(body) = fields.raw_body(report).ok().flatten() {
            if self.own.raw_body.as_ref().is_some_and(|earlier| *earlier != body) {
                differs.push("raw_body");
            }
            self.own.raw_body = Some(body);
        }
        for name in differs {
            let message = format!("{name} differs from that of another file of this domain");
            fields.refuse(fields.at(name), message, report);
        }
    }
}

fn slot_by(list: &Node<'_>, report: &mut Report<'_>) -> Vec<String> {
    let Content::List(nodes) = &list.content else {
        let what = kind(list);
        report.add(list.at, format!("slot_by must be a list of entry keys, not {what}"));
        return vec![];
    };
    if nodes.is_empty() {
        report.add(list.at, "slot_by is an empty list; name entry keys or leave it out");
    }
    let mut keys = vec![];
    for node in nodes {
        match slot_key(node, &keys) {
            Ok(key) => keys.push(key),
            Err(message) => report.add(node.at, message),
        }
    }
    keys
}

fn slot_key(node: &Node<'_>, earlier: &[String]) -> Result<String, String> {
    let Content::Scalar(key) = &node.content else {
        return Err(format!("slot_by: an entry key must be text, not {}", kind(node)));
    };
    if key.is_null() || key.text.is_empty() {
        return Err("slot_by: an entry key is empty".into());
    }
    if earlier.iter().any(|earlier| *earlier == key.text) {
        return Err(format!("slot_by names {} twice", quoted(&key.text)));
    }
    Ok(key.text.to_string())
}

fn on_store_failure(fields: &Fields<'_, '_>, report: &mut Report<'_>) -> Option<OnStoreFailure> {
    let name = fields.text("on_store_failure", report).ok()??;
    let choice = OnStoreFailure::from_name(name);
    if choice.is_none() {
        let allowed = OnStoreFailure::ALL.map(OnStoreFailure::name);
        let message = not_one_of("on_store_failure", name, &allowed);
        fields.refuse(fields.at("on_store_failure"), message, report);
    }
    choice
}
