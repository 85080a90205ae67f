//! Encodes requests and decodes answers of Envoy's ShouldRateLimit.
//!
//! The load generator shares its machine with the service that it measures. So it builds requests
//! from parts that are encoded once, in a reused buffer, and decodes only what it counts. A test
//! compares the bytes with those of the generated code.

use bytes::{BufMut, Bytes, BytesMut};
use fastrand::Rng;
use prost::Message;

use super::template::Template;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use crate::settings::{Bench, Entries};

/// Length of the header before a message: compression flag and length.
const PREFIX_BYTES: usize = 5;

/// Requests share blocks of this many bytes.
const BLOCK_BYTES: usize = 64 * 1_024;

/// Tags of the fields, all of which are length-delimited (wire type 2).
const DOMAIN: u8 = 1 << 3 | 2;
const DESCRIPTORS: u8 = 2 << 3 | 2;
const ENTRIES: u8 = 1 << 3 | 2;
const KEY: u8 = 1 << 3 | 2;
const VALUE: u8 = 2 << 3 | 2;
const HITS_ADDEND: u8 = 3 << 3;

/// Encodes one request after another.
#[derive(Debug)]
pub(super) struct Requests {
    /// The encoded domain, which comes first.
    head: Vec<u8>,
    descriptors: Vec<Vec<Entry>>,
    /// The encoded hits, which come last; empty if hits are 0.
    tail: Vec<u8>,
    rng: Rng,
    /// The values drawn for one request, and where each ends.
    values: Vec<u8>,
    ends: Vec<usize>,
    block: BytesMut,
}

#[derive(Debug)]
struct Entry {
    /// The encoded key.
    key: Vec<u8>,
    value: Template,
}

impl Requests {
    /// Prepares requests from the settings.
    ///
    /// # Errors
    /// A value has an invalid pattern.
    pub(super) fn new(settings: &Bench) -> Result<Self, String> {
        let mut head = Vec::new();
        text_field(DOMAIN, settings.domain.as_bytes(), &mut head);
        let mut tail = Vec::new();
        if settings.hits > 0 {
            tail.push(HITS_ADDEND);
            put_varint(settings.hits as usize, &mut tail);
        }
        let descriptors = settings.descriptors.iter().map(descriptor).collect::<Result<_, _>>()?;
        Ok(Self {
            head,
            descriptors,
            tail,
            rng: Rng::with_seed(settings.seed),
            values: Vec::new(),
            ends: Vec::new(),
            block: BytesMut::new(),
        })
    }

    /// The next request, with its header.
    pub(super) fn next(&mut self) -> Bytes {
        self.draw();
        let body: usize = self.descriptor_lens().map(with_header).sum();
        let len = self.head.len() + body + self.tail.len();
        if self.block.capacity() < PREFIX_BYTES + len {
            self.block.reserve(BLOCK_BYTES.max(PREFIX_BYTES + len));
        }
        let mut block = std::mem::take(&mut self.block);
        block.put_u8(0);
        block.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
        block.put_slice(&self.head);
        self.put_descriptors(&mut block);
        block.put_slice(&self.tail);
        let request = block.split().freeze();
        self.block = block;
        request
    }

    fn draw(&mut self) {
        self.values.clear();
        self.ends.clear();
        for entry in self.descriptors.iter_mut().flatten() {
            entry.value.draw(&mut self.rng, &mut self.values);
            self.ends.push(self.values.len());
        }
    }

    /// The descriptors: each entry with the value drawn for it.
    fn drawn(&self) -> impl Iterator<Item = impl Iterator<Item = (&Entry, &[u8])>> {
        let mut first = 0;
        self.descriptors.iter().map(move |entries| {
            let from = first;
            first += entries.len();
            entries.iter().zip(from..).map(|(entry, at)| {
                let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
                (entry, &self.values[start..self.ends[at]])
            })
        })
    }

    fn descriptor_lens(&self) -> impl Iterator<Item = usize> {
        self.drawn().map(|entries| entries.map(entry_len).map(with_header).sum())
    }

    fn put_descriptors(&self, block: &mut BytesMut) {
        for (entries, len) in self.drawn().zip(self.descriptor_lens()) {
            block.put_u8(DESCRIPTORS);
            put_varint(len, block);
            for (entry, value) in entries {
                block.put_u8(ENTRIES);
                put_varint(entry_len((entry, value)), block);
                block.put_slice(&entry.key);
                text_field(VALUE, value, block);
            }
        }
    }
}

fn descriptor(entries: &Entries) -> Result<Vec<Entry>, String> {
    let entry = |(key, value): &(String, String)| {
        let template = Template::parse(value);
        let value = template.map_err(|error| format!("descriptor {key}={value}: {error}"))?;
        let mut field = Vec::new();
        text_field(KEY, key.as_bytes(), &mut field);
        Ok(Entry { key: field, value })
    };
    entries.0.iter().map(entry).collect()
}

fn entry_len((entry, value): (&Entry, &[u8])) -> usize {
    entry.key.len() + if value.is_empty() { 0 } else { with_header(value.len()) }
}

/// Bytes of a length-delimited field with its header.
fn with_header(len: usize) -> usize {
    1 + varint_len(len) + len
}

/// Appends a varint: seven bits per byte, lowest first; all but the last byte have their highest
/// bit set.
fn put_varint(mut number: usize, out: &mut impl BufMut) {
    while number >= 0x80 {
        out.put_u8(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.put_u8(number.to_le_bytes()[0]);
}

const fn varint_len(number: usize) -> usize {
    match number.checked_ilog2() {
        Some(highest_bit) => highest_bit as usize / 7 + 1,
        None => 1,
    }
}

/// Appends a string; an empty one is left out.
fn text_field(key: u8, text: &[u8], out: &mut impl BufMut) {
    if !text.is_empty() {
        out.put_u8(key);
        put_varint(text.len(), out);
        out.put_slice(text);
    }
}

/// The decoded part of an answer; other fields are skipped.
#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(enumeration = "Code", tag = "1")]
    overall_code: i32,
}

/// Whether an answer, given with its header, allows the request.
///
/// # Errors
/// The answer cannot be decoded.
pub(super) fn allows(answer: &[u8]) -> Result<bool, &'static str> {
    let Some((&[compressed, a, b, c, d], message)) = answer.split_first_chunk() else {
        return Err("an answer without a message");
    };
    if compressed != 0 || u32::from_be_bytes([a, b, c, d]) as usize != message.len() {
        return Err("an answer that is compressed or cut short");
    }
    match Answer::decode(message).map(|answer| answer.overall_code()) {
        Ok(Code::Ok) => Ok(true),
        Ok(Code::OverLimit) => Ok(false),
        Ok(Code::Unknown) => Err("an answer without an overall_code"),
        Err(_) => Err("an answer that is no message"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
    use crate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor as parts;
    use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::DescriptorStatus;
    use crate::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
    use crate::settings::{Cli, Command};

    fn requests(args: &[&str]) -> Requests {
        let cli = Cli::try_parse_from([&["tidegate", "bench"], args].concat()).unwrap();
        let Command::Bench(settings) = cli.command else { panic!("not bench") };
        Requests::new(&settings).unwrap()
    }

    fn message(domain: &str, descriptors: &[&[(&str, &str)]], hits: u32) -> RateLimitRequest {
        let entry = |(key, value): &(&str, &str)| parts::Entry {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
        };
        let descriptor = |entries: &&[(&str, &str)]| RateLimitDescriptor {
            entries: entries.iter().map(entry).collect(),
            ..RateLimitDescriptor::default()
        };
        let descriptors = descriptors.iter().map(descriptor).collect();
        RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: hits }
    }

    fn framed(message: &impl Message) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.put_u32(u32::try_from(message.encoded_len()).unwrap());
        message.encode(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn requests_have_the_bytes_of_the_generated_code() {
        let long = "x".repeat(300);
        let long_entry = format!("path={long}");
        let mut made =
            requests(&["--domain", "edge", "user=u{seq}", "a=1,b=", &long_entry, "--hits", "300"]);
        for user in ["u0", "u1"] {
            let entries: [&[_]; 3] =
                [&[("user", user)], &[("a", "1"), ("b", "")], &[("path", &long)]];
            assert_eq!(made.next(), framed(&message("edge", &entries, 300)));
        }
    }

    #[test]
    fn a_request_as_large_as_many_blocks_is_made_whole() {
        let long = "y".repeat(3 * BLOCK_BYTES);
        let mut made = requests(&["--domain", "", &format!("k={long}")]);
        for _ in 0..3 {
            assert_eq!(made.next(), framed(&message("", &[&[("k", &long)]], 0)));
        }
    }

    #[test]
    fn of_an_answer_the_overall_code_counts() {
        let status = DescriptorStatus { limit_remaining: 7, ..DescriptorStatus::default() };
        for (code, said) in [(Code::Ok, Ok(true)), (Code::OverLimit, Ok(false))] {
            let statuses = vec![status.clone(); 3];
            let answer =
                RateLimitResponse { overall_code: code.into(), statuses, ..Default::default() };
            assert_eq!(allows(&framed(&answer)), said);
        }
    }

    #[test]
    fn what_is_no_answer_is_told() {
        let without_code = RateLimitResponse { raw_body: "x".into(), ..Default::default() };
        assert_eq!(allows(&framed(&without_code)), Err("an answer without an overall_code"));
        assert_eq!(allows(&[]), Err("an answer without a message"));
        assert_eq!(allows(&[0, 0, 0, 0, 9, 8]), Err("an answer that is compressed or cut short"));
        assert_eq!(allows(&[0, 0, 0, 0, 1, 0xff]), Err("an answer that is no message"));
    }
}
