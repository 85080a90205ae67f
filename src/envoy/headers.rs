//! Rate limit headers, which the proxy adds to the response.
//!
//! Shadow limits are left out, because they do not affect the caller.

use std::fmt::Write;

use super::tightest::{rejects, seconds, tightest};
use crate::decision::Enforcement;
use crate::key;
use crate::proto::envoy::config::core::v3::HeaderValue;
use crate::service::{Answer, LimitAnswer};

/// Limits listed in one header at most.
const LISTED_MAX: usize = 16;

/// The headers that answers carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Headers {
    /// None. Envoy can make its own.
    #[default]
    Off,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset` of the tightest limit: hits, hits, seconds.
    XRateLimit,
    /// `RateLimit-Policy` and `RateLimit` for all limits (draft-ietf-httpapi-ratelimit-headers-10),
    /// and `Retry-After` if the request is rejected.
    Draft,
}

impl Headers {
    /// All choices, in the order in which messages list them.
    pub const ALL: [Self; 3] = [Self::Off, Self::XRateLimit, Self::Draft];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::XRateLimit => "x-ratelimit",
            Self::Draft => "draft",
        }
    }

    /// The choice with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.name() == name)
    }
}

/// The headers for an answer.
pub(super) fn of(answer: &Answer<'_>, headers: Headers) -> Vec<HeaderValue> {
    let enforced = answer.limits.iter().filter(|limit| limit.enforcement != Enforcement::Shadow);
    match headers {
        Headers::Off => vec![],
        Headers::XRateLimit => tightest(enforced).map(x_ratelimit).unwrap_or_default(),
        Headers::Draft => draft(answer),
    }
}

fn x_ratelimit(limit: &LimitAnswer<'_>) -> Vec<HeaderValue> {
    let hits = limit.definition.map_or(0, |definition| definition.hits());
    vec![
        header("X-RateLimit-Limit", hits.to_string()),
        header("X-RateLimit-Remaining", limit.status.remaining.to_string()),
        header("X-RateLimit-Reset", seconds(limit).to_string()),
    ]
}

fn draft(answer: &Answer<'_>) -> Vec<HeaderValue> {
    let rate_limit = rate_limit(answer).into_iter().flatten();
    let mut headers: Vec<_> = rate_limit.map(|(key, value)| header(key, value)).collect();
    if !answer.allowed {
        let waits = answer.limits.iter().filter(|limit| rejects(limit)).map(seconds);
        headers.extend(waits.max().map(|wait| header("Retry-After", wait.to_string())));
    }
    headers
}

/// The names and values of `RateLimit-Policy` and `RateLimit`; `None` if no limit applies.
pub(crate) fn rate_limit(answer: &Answer<'_>) -> Option<[(&'static str, String); 2]> {
    let enforced = answer.limits.iter().filter(|limit| limit.enforcement != Enforcement::Shadow);
    let limited = enforced.filter(|limit| limit.definition.is_some());
    let (mut policies, mut states) = (String::new(), String::new());
    let mut names: Vec<String> = vec![];
    for limit in limited.take(LISTED_MAX) {
        let Some(definition) = limit.definition else { continue };
        let separator = if names.is_empty() { "" } else { ", " };
        let name = name(limit.rule, &names);
        let (quota, window) = (integer(definition.hits()), definition.period_ms().div_ceil(1_000));
        let (remaining, seconds) = (integer(limit.status.remaining), integer(seconds(limit)));
        // Writing to a string does not fail.
        let _ = write!(policies, "{separator}{name};q={quota};w={window}");
        let _ = write!(states, "{separator}{name};r={remaining};t={seconds}");
        names.push(name);
    }
    (!names.is_empty()).then_some([("RateLimit-Policy", policies), ("RateLimit", states)])
}

fn header(key: &str, value: String) -> HeaderValue {
    HeaderValue { key: key.to_owned(), value, raw_value: Default::default() }
}

/// Policies are matched by name between the two headers, so each name is made unique.
fn name(rule: &str, names: &[String]) -> String {
    let numbered = (2..).map(|number| string(rule, &format!("#{number}")));
    let mut all = std::iter::once(string(rule, "")).chain(numbered);
    all.find(|name| !names.contains(name)).unwrap_or_default()
}

/// An integer of RFC 9651, which has 15 digits at most.
fn integer(number: u64) -> u64 {
    number.min(999_999_999_999_999)
}

/// A string of RFC 9651, which has printable ASCII only: other bytes and `%` are written as `%XX`.
/// A long text is shortened; `end` is not.
fn string(text: &str, end: &str) -> String {
    let mut string = String::from("\"");
    for byte in key::shortened(text).bytes() {
        match byte {
            b'"' | b'\\' => string.extend(['\\', char::from(byte)]),
            b'%' | 0..0x20 | 0x7f.. => {
                let _ = write!(string, "%{byte:02x}");
            }
            _ => string.push(char::from(byte)),
        }
    }
    string + end + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_is_a_string_of_printable_ascii() {
        assert_eq!(string("tenant=acme/path", ""), r#""tenant=acme/path""#);
        assert_eq!(string("a\"b\\c", ""), r#""a\"b\\c""#);
        assert_eq!(string("5%\nö", "#2"), r#""5%25%0a%c3%b6#2""#);
    }
}
