//! Reads `rate_limit`: one limit, a list of limits, or unlimited.
//!
//! The result is the [`Kind`] of a rule. Several limits on one rule all apply, and each has its own
//! counter; two with the same algorithm, period and sub-windows are told apart by their ordinal, so
//! that reordering other limits does not rename their keys.

use super::errors::{Report, quoted};
use super::fields::{Fields, Given, Reported, Subject, kind};
use super::names::Place;
use super::yaml::{Content, Node};
use crate::key::{Group, KeySuffix};
use crate::limit::Limit;
use crate::limit::RUN_COST_MAX;
use crate::rules::rule::{Kind, Name};
use crate::rules::{RULE_LIMITS_MAX, RuleLimit, Unlimited};

mod spec;

/// Fields that have no effect beside unlimited, and that envoyproxy/ratelimit accepts there.
const IDLE_BESIDE_UNLIMITED: [&str; 1] = ["requests_per_unit"];

/// The most names in one `replaces`.
const REPLACES_MAX: usize = 100;

/// The longest `name`, in bytes.
const NAME_BYTES_MAX: usize = 128;

/// One mapping under `rate_limit`.
struct Item {
    name: Name,
    replaces: Box<[Box<str>]>,
    /// `None`: unlimited.
    limit: Option<Limit>,
}

/// Reads the `rate_limit` of the rule with this path.
pub(super) fn read(node: &Node<'_>, path: &str, report: &mut Report<'_>) -> Kind {
    let nodes: Vec<&Node<'_>> = match &node.content {
        Content::List(nodes) => nodes.iter().map(|node| &**node).collect(),
        Content::Map(_) | Content::Scalar(_) => vec![node],
    };
    let subject = Subject::Limit(path);
    if node.is_null() {
        let message = "rate_limit is empty, so the rule exempts; remove it or add a limit";
        report.warn(node.at, format!("{subject}{message}"));
        return Kind::Exempt;
    }
    if nodes.is_empty() {
        let message = "rate_limit is empty; remove it to exempt, or add a limit";
        report.add(node.at, format!("{subject}{message}"));
        return Kind::Exempt;
    }
    if nodes.len() > RULE_LIMITS_MAX {
        let message = format!("{} limits are over the maximum, {RULE_LIMITS_MAX}", nodes.len());
        report.add(node.at, format!("{subject}{message}"));
        return Kind::Exempt;
    }
    let mut items = vec![];
    for node in &nodes {
        let Ok(item) = read_item(node, path, report) else {
            continue;
        };
        if item.limit.is_none() && nodes.len() > 1 {
            let message = "unlimited is set beside other limits; keep one or the other";
            report.add(node.at, format!("{subject}{message}"));
        }
        items.push(item);
    }
    warn_of_cost(&items, node, path, report);
    kind_of(items)
}

/// Warns of a rule whose own limits cost more than the maximum per request: every request fails.
fn warn_of_cost(items: &[Item], node: &Node<'_>, path: &str, report: &mut Report<'_>) {
    let cost: usize =
        items.iter().filter_map(|item| item.limit.as_ref()).map(Limit::run_cost).sum();
    if cost > RUN_COST_MAX {
        let subject = Subject::Limit(path);
        let message = format!(
            "its limits cost {cost} together, and a request may cost {RUN_COST_MAX}: \
             every request for it is refused; use fewer limits or sub_windows"
        );
        report.warn(node.at, format!("{subject}{message}"));
    }
}

fn kind_of(items: Vec<Item>) -> Kind {
    let mut limits: Vec<RuleLimit> = Vec::with_capacity(items.len());
    for Item { name, replaces, limit } in items {
        let Some(limit) = limit else {
            return Kind::Unlimited(Unlimited { name, replaces, id: 0 });
        };
        let alike = limits.iter().filter(|earlier| earlier.counts_like(&limit)).count();
        // At most RULE_LIMITS_MAX, so it fits.
        let ordinal = u8::try_from(alike).unwrap_or(u8::MAX);
        let key_suffix = KeySuffix::of(&limit, ordinal);
        // The id and the group are set when the rule set is complete.
        let group = Group::default();
        limits.push(RuleLimit { name, replaces, limit, id: 0, key_suffix, group });
    }
    if limits.is_empty() { Kind::Exempt } else { Kind::Limited(limits.into()) }
}

fn read_item(node: &Node<'_>, path: &str, report: &mut Report<'_>) -> Result<Item, Reported> {
    let subject = Subject::Limit(path);
    let Some(fields) = Fields::of(node, subject) else {
        let message = format!("{subject}rate_limit must be a mapping or a list of them, not ");
        report.add(node.at, message + &kind(node));
        return Err(Reported);
    };
    fields.check_names(Place::Limit, report);
    let name = name(&fields, report);
    let replaces = replaces(&fields, report);
    let limit = match fields.flag("unlimited", report) {
        Ok(Some(true)) => refuse_beside_unlimited(&fields, report).map(|()| None),
        Ok(Some(false) | None) => spec::read(&fields, report).map(Some),
        Err(Reported) => spec::read(&fields, report).and(Err(Reported)),
    };
    let name = name?;
    let replaces = replaces?;
    refuse_itself(&fields, name, &replaces, report)?;
    Ok(Item { name: Name::of(name, path), replaces, limit: limit? })
}

fn refuse_beside_unlimited(
    fields: &Fields<'_, '_>,
    report: &mut Report<'_>,
) -> Result<(), Reported> {
    let mut result = Ok(());
    for field in fields.all() {
        let other = &*field.name.text;
        let is_empty =
            matches!(&field.value.content, Content::Scalar(text) if text.text.is_empty());
        if IDLE_BESIDE_UNLIMITED.contains(&other) || other == "unit" && is_empty {
            fields.warn(field.at, format!("{other} does nothing beside unlimited"), report);
        } else if Place::Limit.keys().contains(&other)
            && !["unlimited", "name", "replaces"].contains(&other)
        {
            let message = format!("{other} is set beside unlimited; keep one of them");
            result = Err(fields.refuse(field.at, message, report));
        }
    }
    result
}

fn name<'n>(fields: &Fields<'n, '_>, report: &mut Report<'_>) -> Given<&'n str> {
    let Some(name) = fields.text("name", report)? else {
        return Ok(None);
    };
    if name.is_empty() {
        return Ok(None);
    }
    let wrong = if name.len() > NAME_BYTES_MAX {
        format!("name of {} bytes is over the maximum, {NAME_BYTES_MAX}", name.len())
    } else if name.chars().any(char::is_control) {
        format!("name {} has control characters", quoted(name))
    } else {
        return Ok(Some(name));
    };
    Err(fields.refuse(fields.at("name"), wrong, report))
}

/// A list of mappings, each with a name.
fn replaces(fields: &Fields<'_, '_>, report: &mut Report<'_>) -> Result<Box<[Box<str>]>, Reported> {
    let Some(field) = fields.get("replaces").filter(|field| !field.value.is_null()) else {
        return Ok(Box::default());
    };
    let Content::List(nodes) = &field.value.content else {
        let what = kind(&field.value);
        let message = format!("replaces must be a list such as [{{name: other}}], not {what}");
        return Err(fields.refuse(field.value.at, message, report));
    };
    if nodes.len() > REPLACES_MAX {
        let message =
            format!("replaces names {}, which is over the maximum, {REPLACES_MAX}", nodes.len());
        return Err(fields.refuse(field.value.at, message, report));
    }
    let names: Vec<_> = nodes.iter().map(|node| replaced(node, fields, report)).collect();
    names.into_iter().collect()
}

fn replaced(
    node: &Node<'_>,
    fields: &Fields<'_, '_>,
    report: &mut Report<'_>,
) -> Result<Box<str>, Reported> {
    let Some(entry) = Fields::of(node, fields.subject) else {
        let message = format!("replaces: {} is not a mapping such as {{name: other}}", kind(node));
        return Err(fields.refuse(node.at, message, report));
    };
    entry.check_names(Place::Replaced, report);
    match entry.text("name", report)? {
        Some(name) if !name.is_empty() => Ok(name.into()),
        _ => Err(entry.refuse(node.at, "replaces: an entry has no name", report)),
    }
}

fn refuse_itself(
    fields: &Fields<'_, '_>,
    name: Option<&str>,
    replaces: &[Box<str>],
    report: &mut Report<'_>,
) -> Result<(), Reported> {
    match name.filter(|name| replaces.iter().any(|replaced| **replaced == **name)) {
        None => Ok(()),
        Some(name) => {
            let message = format!("replaces {}, its own name", quoted(name));
            Err(fields.refuse(fields.at("replaces"), message, report))
        }
    }
}
