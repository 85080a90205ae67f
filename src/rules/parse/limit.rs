//! What stands under `rate_limit`: one limit, several, or unlimited.

use super::errors::{Report, quoted};
use super::fields::{Fields, Given, Reported, Subject, kind};
use super::yaml::{Content, Node};
use crate::key::Tail;
use crate::limit::Limit;
use crate::rules::{Kind, RULE_LIMITS_MAX, RuleLimit, Unlimited};

mod spec;

const KEYS: [&str; 11] = [
    "limit",
    "requests_per_unit",
    "period",
    "unit",
    "algorithm",
    "burst",
    "sub_windows",
    "weighted",
    "overdraft",
    "unlimited",
    "name",
];

/// Keys that a later version reads.
const LATER: [&str; 1] = ["replaces"];

/// The longest `name`.
const NAME_BYTES_MAX: usize = 128;

/// One mapping under `rate_limit`.
struct Item {
    name: Box<str>,
    /// `None`: unlimited.
    limit: Option<Limit>,
}

/// Reads what stands under `rate_limit` of the rule of this path.
pub(super) fn read(node: &Node<'_>, path: &str, report: &mut Report<'_>) -> Kind {
    let nodes: Vec<&Node<'_>> = match &node.content {
        Content::List(nodes) => nodes.iter().map(|node| &**node).collect(),
        Content::Map(_) | Content::Scalar(_) => vec![node],
    };
    let subject = Subject::Limit(path);
    if nodes.is_empty() || node.is_null() {
        let message = "rate_limit is empty; leave it out to exempt, or give it a limit";
        report.add(node.at, format!("{subject}{message}"));
        return Kind::Exempt;
    }
    if nodes.len() > RULE_LIMITS_MAX {
        let message = format!("{} limits are over the most, {RULE_LIMITS_MAX}", nodes.len());
        report.add(node.at, format!("{subject}{message}"));
        return Kind::Exempt;
    }
    let mut items = vec![];
    for node in &nodes {
        let Ok(item) = read_item(node, path, report) else {
            continue;
        };
        if item.limit.is_none() && nodes.len() > 1 {
            let message = "unlimited stands beside other limits; keep it or them";
            report.add(node.at, format!("{subject}{message}"));
        }
        items.push(item);
    }
    kind_of(items)
}

fn kind_of(items: Vec<Item>) -> Kind {
    let mut limits: Vec<RuleLimit> = Vec::with_capacity(items.len());
    for Item { name, limit } in items {
        let Some(limit) = limit else {
            return Kind::Unlimited(Unlimited { name, id: 0 });
        };
        let alike = limits.iter().filter(|earlier| earlier.counts_like(&limit)).count();
        // At most RULE_LIMITS_MAX, so it fits.
        let ordinal = u8::try_from(alike).unwrap_or(u8::MAX);
        let key_tail = Tail::of(&limit, ordinal);
        limits.push(RuleLimit { name, limit, id: 0, ordinal, key_tail });
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
    fields.check_names(&KEYS, &LATER, report);
    let name = name(&fields, report);
    let limit = match fields.flag("unlimited", report) {
        Ok(Some(true)) => refuse_beside_unlimited(&fields, report).map(|()| None),
        Ok(Some(false) | None) => spec::read(&fields, report).map(Some),
        Err(Reported) => spec::read(&fields, report).and(Err(Reported)),
    };
    Ok(Item { name: name?.unwrap_or(path).into(), limit: limit? })
}

fn refuse_beside_unlimited(
    fields: &Fields<'_, '_>,
    report: &mut Report<'_>,
) -> Result<(), Reported> {
    let mut result = Ok(());
    for field in fields.all() {
        let other = &*field.name.text;
        if KEYS.contains(&other) && other != "unlimited" && other != "name" {
            let message = format!("{other} stands beside unlimited; keep one of them");
            result = Err(fields.refuse(field.at, message, report));
        }
    }
    result
}

fn name<'n>(fields: &Fields<'n, '_>, report: &mut Report<'_>) -> Given<&'n str> {
    let Some(name) = fields.text("name", report)? else {
        return Ok(None);
    };
    let wrong = if name.is_empty() {
        "name is empty; leave it out to name the limit by its path".into()
    } else if name.len() > NAME_BYTES_MAX {
        format!("name of {} bytes is over the most, {NAME_BYTES_MAX}", name.len())
    } else if name.chars().any(char::is_control) {
        format!("name {} has control characters", quoted(name))
    } else {
        return Ok(Some(name));
    };
    Err(fields.refuse(fields.at("name"), wrong, report))
}
