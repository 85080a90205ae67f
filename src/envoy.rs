//! Encodes answers for Envoy's rate limit service, over gRPC and over HTTP.
//!
//! An answer is encoded as bytes in one pass, without building the generated messages first.

use bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType, skip_field};
use prost::{DecodeError, Message};

use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use crate::request::Request;
use crate::service::Answer;

mod headers;
mod metadata;
mod status;
mod tightest;
mod wire;

use tightest::rejects;
use wire::{push_head, push_number, push_sized, sized};

pub use headers::Headers;
pub(crate) use headers::rate_limit as rate_limit_headers;

const OVERALL_CODE: u8 = wire::number(1);
const RESPONSE_HEADERS: u8 = sized(3);
const RAW_BODY: u8 = sized(5);

/// Bytes to allocate per status, and for everything else.
const USUAL_STATUS_BYTES: usize = 64;
const USUAL_BYTES: usize = 128;

/// Optional parts of an answer.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Headers for the caller behind the proxy.
    pub headers: Headers,
    /// Whether to send dynamic metadata: the rules matched, those that reject, and their own
    /// metadata.
    pub dynamic_metadata: bool,
}

/// The answer to one request: an encoded `RateLimitResponse`.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    bytes: Vec<u8>,
    is_over_limit: bool,
}

impl Reply {
    /// Encodes an answer with one status per descriptor of the request, in order.
    pub fn of(request: &Request, answer: &Answer<'_>, style: Style) -> Self {
        let code = if answer.allowed { Code::Ok } else { Code::OverLimit };
        let descriptors = request.descriptors().len();
        let mut bytes = Vec::with_capacity(USUAL_BYTES + descriptors * USUAL_STATUS_BYTES);
        push_number(&mut bytes, OVERALL_CODE, code as u64);
        for descriptor in 0..descriptors {
            status::of(answer, descriptor).push(&mut bytes);
        }
        for header in headers::of(answer, style.headers) {
            push_head(&mut bytes, RESPONSE_HEADERS, header.encoded_len());
            header.encode_raw(&mut bytes);
        }
        if let Some(body) = raw_body(answer) {
            push_sized(&mut bytes, RAW_BODY, body.as_bytes());
        }
        if style.dynamic_metadata {
            metadata::push(&mut bytes, request.domain(), answer);
        }
        Self { bytes, is_over_limit: !answer.allowed }
    }

    /// Whether the request is rejected.
    pub const fn is_over_limit(&self) -> bool {
        self.is_over_limit
    }
}

impl Message for Reply {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        buffer.put_slice(&self.bytes);
    }

    /// Replies are never decoded.
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        skip_field(wire_type, tag, buffer, context)
    }

    fn encoded_len(&self) -> usize {
        self.bytes.len()
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The response body configured for the rule that rejects, or else for its domain.
fn raw_body<'a>(answer: &Answer<'a>) -> Option<&'a str> {
    if answer.allowed {
        return None;
    }
    let own = answer.limits.iter().filter(|limit| rejects(limit));
    let own = own.filter_map(|limit| limit.matched?.raw_body()).next();
    own.or_else(|| answer.domain?.raw_body())
}
