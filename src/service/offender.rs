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

/// Formats entries as on the command line: `tenant=acme,path=/login`. Values are hashed where the
/// rule asks for it, and where no rule matches.
pub(super) fn spell(rule: Option<&Rule>, entries: Entries<'_>) -> String {
    let mut text = String::new();
    for (level, (key, value)) in entries.enumerate() {
        let value = match rule {
            Some(rule) if !rule.hashes(level) => key::shortened(value),
            Some(_) | None => Cow::Owned(key::hashed(value)),
        };
        entries::push(&mut text, &key::shortened(key), &value);
    }
    if text.len() > TEXT_BYTES_MAX { key::hashed(&text) } else { text }
}
