//! The top of a limits file: one domain.

use super::descriptor;
use super::errors::{Report, quoted};
use super::fields::{Fields, Subject, kind};
use super::yaml::{self, Content, Node, Position};
use crate::rules::{Domain, OnStoreFailure};

const KEYS: [&str; 4] = ["domain", "descriptors", "slot_by", "on_store_failure"];

/// The start of a file, for mistakes about what is not in it.
const START: Position = Position { line: 1, column: 1 };

/// A domain, and where its name stands.
pub(super) struct Read {
    pub(super) domain: Domain,
    pub(super) name_at: Position,
}

/// Reads a file; `None` where no name of a domain could be read.
pub(super) fn read(text: &str, report: &mut Report<'_>) -> Option<Read> {
    let mistakes = report.errors.count();
    let Some(root) = yaml::read(text, report).filter(|root| !root.is_null()) else {
        if report.errors.count() == mistakes {
            report.add(START, "the file is empty; it needs domain and descriptors");
        }
        return None;
    };
    let Some(fields) = Fields::of(&root, Subject::File) else {
        let what = kind(&root);
        report.add(
            root.at,
            format!("the file must be a mapping with domain and descriptors, not {what}"),
        );
        return None;
    };
    fields.check_names(&KEYS, &[], report);
    let name = name(&fields, report);
    let (rules, root) = match fields.get("descriptors") {
        Some(field) => descriptor::read(&field.value, report),
        None => {
            fields.refuse(fields.at, "descriptors is missing; it lists the rules", report);
            Default::default()
        }
    };
    let domain = Domain {
        id: 0,
        slot_by: slot_by(&fields, report),
        on_store_failure: on_store_failure(&fields, report),
        name: name?,
        source: report.file.to_owned(),
        rules,
        root,
    };
    Some(Read { domain, name_at: fields.at("domain") })
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

fn slot_by(fields: &Fields<'_, '_>, report: &mut Report<'_>) -> Vec<String> {
    let Some(field) = fields.get("slot_by") else {
        return vec![];
    };
    let Content::List(nodes) = &field.value.content else {
        let what = kind(&field.value);
        report.add(field.value.at, format!("slot_by must be a list of entry keys, not {what}"));
        return vec![];
    };
    if nodes.is_empty() {
        report.add(field.value.at, "slot_by is an empty list; name entry keys or leave it out");
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
        let allowed = OnStoreFailure::ALL.map(OnStoreFailure::name).join(", ");
        let message = format!("on_store_failure {} is not one of {allowed}", quoted(name));
        fields.refuse(fields.at("on_store_failure"), message, report);
    }
    choice
}
