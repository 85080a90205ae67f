//! The metric label `dimension` where values of requests stand in it.

use crate::key;
use crate::request::Request;
use crate::rules::{Rule, Segment};

/// `tenant=acme/path=/login`, after the limit's name if the limits file gives it one. A value over
/// 128 bytes is told by its hash, as in keys.
pub(super) fn spell(
    rule: &Rule,
    given_name: Option<&str>,
    request: &Request,
    descriptor: usize,
) -> String {
    let mut text = given_name.unwrap_or_default().to_owned();
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
