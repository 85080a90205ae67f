//! Counts rejections for `/top`.

use std::borrow::Cow;

use crate::entries;
use crate::key;
use crate::metrics::top::{Rejecting, TEXT_BYTES_MAX, Writer};
use crate::plan::{MatchedLimit, Origin};
use crate::request::{Entries, Request};
use crate::rules::{Domain, Rule};

/// Counts that a limit rejected a request.
pub(super) fn count(top: &Writer, domain: &Domain, matched: &MatchedLimit<'_>, request: &Request) {
    let (rule, name) = match matched.origin {
        Origin::Rule(rule, limit) => (Some(rule), limit.name()),
        Origin::Override(rule, _) => (rule, crate::metrics::OVERRIDE),
        // An unlimited rule rejects nothing.
        Origin::Unlimited(_) => return,
    };
    let descriptor = request.descriptor(matched.descriptor);
    let by = Rejecting { domain: domain.name(), rule: name };
    top.count(by, descriptor.entries, || spell(rule, descriptor.entries));
}

/// Formats entries as on the command line: `tenant=acme,path=/login`. Values are hashed where the rule
/// asks for it, and where no rule matches.
fn spell(rule: Option<&Rule>, entries: Entries<'_>) -> String {
    let mut text = String::new();
    pairs(rule, entries).for_each(|(key, value)| entries::push(&mut text, &key, &value));
    if text.len() > TEXT_BYTES_MAX { key::hashed(&text) } else { text }
}

/// The same entries as pairs, as the decision log shows them. Where all of them together are too long, every
/// value is hashed.
pub(super) fn shown<'e>(rule: Option<&'e Rule>, entries: Entries<'e>) -> Vec<Pair<'e>> {
    let mut shown: Vec<_> = pairs(rule, entries).collect();
    let length: usize = shown.iter().map(|(key, value)| key.len() + value.len()).sum();
    if length > TEXT_BYTES_MAX {
        shown.iter_mut().for_each(|(_, value)| *value = key::hashed(value).into());
    }
    shown
}

/// A key and a value.
pub(super) type Pair<'e> = (Cow<'e, str>, Cow<'e, str>);

fn pairs<'e>(rule: Option<&'e Rule>, entries: Entries<'e>) -> impl Iterator<Item = Pair<'e>> {
    entries.enumerate().map(move |(level, (key, value))| {
        let value = match rule {
            Some(rule) if !rule.hashes(level) => key::shortened(value),
            Some(_) | None => Cow::Owned(key::hashed(value)),
        };
        (key::shortened(key), value)
    })
}
