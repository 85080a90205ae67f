//! Parses a line of a trace: a recorded request, or a line of the decision log.
//!
//! The decision log goes to standard error, as other logs do, so its lines stand between others. Those
//! are skipped if they are lines of a JSON log: objects with a `target`.

use std::str::FromStr;

use prost_types::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::clock::MOMENT_MAX_MS;
use crate::decide::Mode;
use crate::entries;
use crate::request::{Bounds, Request, RequestBuilder, RequestError};

/// The target of the decision log's lines.
const DECISION: &str = "tidegate::decision";

/// What a line is.
pub(super) enum Line {
    /// A request at a moment.
    Request { request: Request, at_ms: u64 },
    /// A line of the decision log without all descriptors of its request.
    Incomplete,
    /// Another line of a log.
    Other,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recorded {
    at_ms: u64,
    domain: String,
    descriptors: Vec<RecordedDescriptor>,
    hits: Option<u64>,
    #[serde(default)]
    peek: bool,
    #[serde(default)]
    refund: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedDescriptor {
    entries: Vec<(String, String)>,
    hits: Option<u64>,
}

/// A line of the decision log; its other fields say what was decided.
#[derive(Debug, Deserialize)]
struct Logged {
    timestamp: String,
    domain: String,
    descriptors: Vec<LoggedDescriptor>,
    descriptors_count: usize,
    #[serde(default)]
    refund: bool,
}

#[derive(Debug, Deserialize)]
struct LoggedDescriptor {
    entries: LoggedEntries,
    hits: u64,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum LoggedEntries {
    Pairs(Vec<(String, String)>),
    /// As on the command line, `tenant=acme,path=/login`: what the log had before.
    Text(String),
}

impl Recorded {
    /// The request of a line, and its moment.
    pub(super) fn parse(line: &[u8]) -> Result<Line, String> {
        match serde_json::from_slice::<Self>(line) {
            Ok(recorded) => recorded.read(),
            Err(error) => match target(line) {
                Some(target) if target == DECISION => {
                    let logged = serde_json::from_slice::<Logged>(line);
                    logged.map_err(|error| error.to_string())?.read()
                }
                Some(_) => Ok(Line::Other),
                None => Err(error.to_string()),
            },
        }
    }

    fn read(self) -> Result<Line, String> {
        let at_ms = self.at_ms;
        if at_ms > MOMENT_MAX_MS {
            return Err(format!("at_ms: {at_ms} is over the maximum, {MOMENT_MAX_MS}"));
        }
        let mode = match (self.peek, self.refund) {
            (true, true) => return Err("peek and refund: a request is at most one".to_owned()),
            (true, false) => Mode::Peek,
            (false, true) => Mode::Refund,
            (false, false) => Mode::Take,
        };
        let request = self.request(mode).map_err(|error| error.to_string())?;
        Ok(Line::Request { request, at_ms })
    }

    fn request(&self, mode: Mode) -> Result<Request, RequestError> {
        let bounds = Bounds::default();
        let mut builder = RequestBuilder::new(0, &bounds);
        builder.domain(&self.domain)?;
        builder.mode(mode);
        builder.hits(self.hits.unwrap_or(1));
        for descriptor in &self.descriptors {
            builder.descriptor(descriptor.hits)?;
            for (key, value) in &descriptor.entries {
                builder.entry(key, value)?;
            }
        }
        builder.finish()
    }
}

impl Logged {
    fn read(self) -> Result<Line, String> {
        if self.descriptors.len() < self.descriptors_count {
            return Ok(Line::Incomplete);
        }
        let descriptors = self.descriptors.into_iter().map(|descriptor| {
            let entries = match descriptor.entries {
                LoggedEntries::Pairs(pairs) => pairs,
                LoggedEntries::Text(text) => entries::parse(&text)?,
            };
            Ok(RecordedDescriptor { entries, hits: Some(descriptor.hits) })
        });
        Recorded {
            at_ms: at_ms(&self.timestamp)?,
            domain: self.domain,
            descriptors: descriptors.collect::<Result<_, String>>()?,
            hits: None,
            peek: false,
            refund: self.refund,
        }
        .read()
    }
}

fn at_ms(timestamp: &str) -> Result<u64, String> {
    let moment = Timestamp::from_str(timestamp).map_err(|error| format!("timestamp: {error}"))?;
    let ms = u64::try_from(moment.seconds).ok().and_then(|seconds| seconds.checked_mul(1_000));
    let ms = ms.zip(u64::try_from(moment.nanos / 1_000_000).ok());
    ms.map(|(seconds, rest)| seconds + rest).ok_or_else(|| "timestamp: before 1970".to_owned())
}

/// The `target` of a line of a JSON log.
fn target(line: &[u8]) -> Option<String> {
    let line: Value = serde_json::from_slice(line).ok()?;
    line.get("target")?.as_str().map(ToOwned::to_owned)
}
