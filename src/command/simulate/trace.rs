//! Parses a recorded request: one line of JSON.

use serde::Deserialize;

use crate::clock::MOMENT_MAX_MS;
use crate::decide::Mode;
use crate::request::{Bounds, Request, RequestBuilder, RequestError};

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

impl Recorded {
    /// The request of a line, and its moment.
    pub(super) fn parse(line: &[u8]) -> Result<(Request, u64), String> {
        let recorded: Self = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let at_ms = recorded.at_ms;
        if at_ms > MOMENT_MAX_MS {
            return Err(format!("at_ms: {at_ms} is over the maximum, {MOMENT_MAX_MS}"));
        }
        let mode = match (recorded.peek, recorded.refund) {
            (true, true) => return Err("peek and refund: a request is at most one".to_owned()),
            (true, false) => Mode::Peek,
            (false, true) => Mode::Refund,
            (false, false) => Mode::Take,
        };
        let request = recorded.request(mode).map_err(|error| error.to_string())?;
        Ok((request, at_ms))
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
