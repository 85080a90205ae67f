//! Dynamic metadata for the proxy, encoded as a `Struct`:
//!
//! ```json
//! {"domain": "edge", "matched": ["user_id", "ip"], "rejected": ["ip"], "metadata": {...}}
//! ```
//!
//! `matched` and `rejected` name rules and never contain values of the request. `rejected` lists
//! the limits without room, including quotas whose request passes. `metadata` comes from the limits
//! file, for the rules that have room. If several rules have mappings, they are merged; otherwise
//! the first value is used.

use std::borrow::Cow;

use prost::Message;
use prost_types::Struct;
use prost_types::value::Kind;

use super::tightest::rejects;
use super::wire::{field_len, push_head, sized};
use crate::service::Answer;

// Tags of length-delimited fields.
const DYNAMIC_METADATA: u8 = sized(6);
const STRUCT_ENTRY: u8 = sized(1);
const ENTRY_KEY: u8 = sized(1);
const ENTRY_VALUE: u8 = sized(2);
const VALUE_STRING: u8 = sized(3);
const VALUE_STRUCT: u8 = sized(5);
const VALUE_LIST: u8 = sized(6);
const LIST_VALUE: u8 = sized(1);

/// Appends the field `dynamic_metadata` to an answer.
pub(super) fn push(bytes: &mut Vec<u8>, domain: &str, answer: &Answer<'_>) {
    let matched = || answer.limits.iter().map(|limit| limit.rule);
    let rejected = || answer.limits.iter().filter(|limit| rejects(limit)).map(|limit| limit.rule);
    let configured = configured(answer).map(|metadata| metadata.encode_to_vec());
    let (matched_len, rejected_len) = (list_len(matched()), list_len(rejected()));
    let length = entry_len("domain", domain.len())
        + entry_len("matched", matched_len)
        + entry_len("rejected", rejected_len)
        + configured.as_ref().map_or(0, |metadata| entry_len("metadata", metadata.len()));
    bytes.reserve(field_len(length));
    push_head(bytes, DYNAMIC_METADATA, length);
    push_entry(bytes, "domain", VALUE_STRING, domain.len());
    bytes.extend_from_slice(domain.as_bytes());
    push_entry(bytes, "matched", VALUE_LIST, matched_len);
    push_list(bytes, matched());
    push_entry(bytes, "rejected", VALUE_LIST, rejected_len);
    push_list(bytes, rejected());
    if let Some(metadata) = configured {
        push_entry(bytes, "metadata", VALUE_STRUCT, metadata.len());
        bytes.extend_from_slice(&metadata);
    }
}

fn configured<'a>(answer: &Answer<'a>) -> Option<Cow<'a, Struct>> {
    let has_room = answer.limits.iter().filter(|limit| limit.status.within_limit);
    let mut all = has_room.filter_map(|limit| limit.matched?.metadata());
    let mut joined = Cow::Borrowed(all.next()?);
    for other in all {
        if *other != *joined {
            join(joined.to_mut(), other);
        }
    }
    Some(joined)
}

/// Recursion is bounded by the nesting that the limits parser allows.
fn join(own: &mut Struct, other: &Struct) {
    for (name, value) in &other.fields {
        match own.fields.get_mut(name) {
            None => {
                own.fields.insert(name.clone(), value.clone());
            }
            Some(same) => {
                if let (Some(Kind::StructValue(own)), Some(Kind::StructValue(other))) =
                    (&mut same.kind, &value.kind)
                {
                    join(own, other);
                }
            }
        }
    }
}

/// Length of an encoded list of strings.
fn list_len<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    texts.map(|text| field_len(field_len(text.len()))).sum()
}

fn push_list<'a>(bytes: &mut Vec<u8>, texts: impl Iterator<Item = &'a str>) {
    for text in texts {
        push_head(bytes, LIST_VALUE, field_len(text.len()));
        push_head(bytes, VALUE_STRING, text.len());
        bytes.extend_from_slice(text.as_bytes());
    }
}

/// Length of a struct's entry whose value has `value_len` bytes.
const fn entry_len(name: &str, value_len: usize) -> usize {
    field_len(named_len(name, value_len))
}

const fn named_len(name: &str, value_len: usize) -> usize {
    field_len(name.len()) + field_len(field_len(value_len))
}

/// Appends a struct's entry up to its value, whose bytes follow.
fn push_entry(bytes: &mut Vec<u8>, name: &str, kind: u8, value_len: usize) {
    push_head(bytes, STRUCT_ENTRY, named_len(name, value_len));
    push_head(bytes, ENTRY_KEY, name.len());
    bytes.extend_from_slice(name.as_bytes());
    push_head(bytes, ENTRY_VALUE, field_len(value_len));
    push_head(bytes, kind, value_len);
}
