//! The metric label `dimension` where values of requests stand in it.

use crate::key;
use crate::request::Request;
use crate::rules::{Rule, Segment};

/// `tenant=acme/path=/login`, after the limit's own name if it has one. A value over 128 bytes is
/// told by its hash, as in keys.
pub(super) fn spell(rule: &Rule, name: &str, request: &Request, descriptor: usize) -> String {
    let mut text = String::new();
    if name != rule.path() {
        text.push_str(name);
    }
    let mut entries = request.descriptor(descriptor).entries;
    for segment in rule.segments() {
        let value = entries.next().map_or("", |(_, value)| value);
        if !text.is_empty() {
            text.push('/');
        }
        match segment {
            Segment::Configured(own) => text.push_str(own),
            Segment::Value(key) => {
                text.push_str(key);
                text.push('=');
                text.push_str(&key::shortened(value));
            }
            Segment::Hash(key) => text.extend([key, "=", &key::hashed(value)]),
        }
    }
    text
}
