//! What the proxy is told about a decision, as the bytes of a `Struct`:
//!
//! ```json
//! {"domain": "edge", "matched": ["user_id", "ip"], "rejected": ["ip"], "metadata": {...}}
//! ```
//!
//! `matched` and `rejected` name rules, never values of the request. `rejected` are the limits that
//! have no room, also quotas whose request passes. `metadata` is what the limits file has for the
//! rules that have room: where several do, mappings are joined, and else the first one stands.

use std::borrow::Cow;

use prost::Message;
use prost::encoding::encode_varint;
use prost_types::Struct;
use prost_types::value::Kind;

use super::rejects;
use crate::service::Answer;

// Tags of fields with a length.
const DYNAMIC_METADATA: u8 = 6 << 3 | 2;
const STRUCT_ENTRY: u8 = 1 << 3 | 2;
const ENTRY_KEY: u8 = 1 << 3 | 2;
const ENTRY_VALUE: u8 = 2 << 3 | 2;
const VALUE_STRING: u8 = 3 << 3 | 2;
const VALUE_STRUCT: u8 = 5 << 3 | 2;
const VALUE_LIST: u8 = 6 << 3 | 2;
const LIST_VALUE: u8 = 1 << 3 | 2;

/// The field `dynamic_metadata` of an answer.
pub(super) fn encoded(domain: &str, answer: &Answer<'_>) -> Vec<u8> {
    let (mut matched, mut rejected) = (Vec::with_capacity(64), Vec::new());
    for status in &answer.statuses {
        push_item(&mut matched, status.rule);
        if rejects(status) {
            push_item(&mut rejected, status.rule);
        }
    }
    let mut fields = Vec::with_capacity(64 + domain.len() + matched.len() + rejected.len());
    push_entry(&mut fields, "domain", VALUE_STRING, domain.as_bytes());
    push_entry(&mut fields, "matched", VALUE_LIST, &matched);
    push_entry(&mut fields, "rejected", VALUE_LIST, &rejected);
    if let Some(metadata) = configured(answer) {
        push_entry(&mut fields, "metadata", VALUE_STRUCT, &metadata.encode_to_vec());
    }
    let mut field = Vec::with_capacity(fields.len() + 4);
    push(&mut field, DYNAMIC_METADATA, &fields);
    field
}

fn configured<'a>(answer: &Answer<'a>) -> Option<Cow<'a, Struct>> {
    let has_room = answer.statuses.iter().filter(|status| status.status.within_limit);
    let mut all = has_room.filter_map(|status| status.matched?.metadata());
    let mut joined = Cow::Borrowed(all.next()?);
    for other in all {
        if *other != *joined {
            join(joined.to_mut(), other);
        }
    }
    Some(joined)
}

/// As deep as the limits file nests, which its reading bounds.
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

fn push_item(list: &mut Vec<u8>, text: &str) {
    list.push(LIST_VALUE);
    encode_varint(length_of(text.as_bytes()), list);
    push(list, VALUE_STRING, text.as_bytes());
}

fn push_entry(fields: &mut Vec<u8>, name: &str, kind: u8, value: &[u8]) {
    fields.push(STRUCT_ENTRY);
    let value_len = length_of(value);
    let length = 2 + name.len() as u64 + 1 + varint_len(value_len) + value_len;
    encode_varint(length, fields);
    push(fields, ENTRY_KEY, name.as_bytes());
    fields.push(ENTRY_VALUE);
    encode_varint(value_len, fields);
    push(fields, kind, value);
}

fn push(bytes: &mut Vec<u8>, tag: u8, content: &[u8]) {
    bytes.push(tag);
    encode_varint(content.len() as u64, bytes);
    bytes.extend_from_slice(content);
}

/// The length of a field with this content, its tag included.
fn length_of(content: &[u8]) -> u64 {
    let length = content.len() as u64;
    1 + varint_len(length) + length
}

const fn varint_len(number: u64) -> u64 {
    let bits = 64 - (number | 1).leading_zeros() as u64;
    bits.div_ceil(7)
}
