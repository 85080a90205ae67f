//! Reads the `metadata` of a rule: any YAML, passed to the proxy as protobuf's `Struct`.

use std::collections::BTreeMap;

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};

use super::errors::Report;
use super::fields::{Fields, Given, kind};
use super::yaml::{Content, Field, Node, Scalar};

/// The most encoded bytes of one rule's metadata: every answer carries it.
const BYTES_MAX: usize = 16 << 10;

pub(super) fn read(fields: &Fields<'_, '_>, report: &mut Report<'_>) -> Given<Struct> {
    let Some(field) = fields.get("metadata").filter(|field| !field.value.is_null()) else {
        return Ok(None);
    };
    let Content::Map(entries) = &field.value.content else {
        let message = format!("metadata must be a mapping, not {}", kind(&field.value));
        return Err(fields.refuse(field.value.at, message, report));
    };
    let metadata = mapping(entries);
    let length = prost::Message::encoded_len(&metadata);
    if length > BYTES_MAX {
        let message = format!("metadata of {length} bytes is over the maximum, {BYTES_MAX}");
        return Err(fields.refuse(field.value.at, message, report));
    }
    Ok(Some(metadata))
}

fn mapping(entries: &[Field<'_>]) -> Struct {
    let entry = |field: &Field<'_>| (field.name.text.to_string(), value(&field.value));
    Struct { fields: entries.iter().map(entry).collect::<BTreeMap<_, _>>() }
}

/// Recurses as deep as the file nests, which the parser bounds.
fn value(node: &Node<'_>) -> Value {
    let kind = match &node.content {
        Content::Scalar(text) => scalar(text),
        Content::List(nodes) => {
            Kind::ListValue(ListValue { values: nodes.iter().map(|node| value(node)).collect() })
        }
        Content::Map(entries) => Kind::StructValue(mapping(entries)),
    };
    Value { kind: Some(kind) }
}

/// Plain text by the core schema of YAML 1.1; quoted text stays text.
fn scalar(scalar: &Scalar<'_>) -> Kind {
    if scalar.is_null() {
        return Kind::NullValue(0);
    }
    if scalar.plain {
        match &*scalar.text.to_ascii_lowercase() {
            "true" => return Kind::BoolValue(true),
            "false" => return Kind::BoolValue(false),
            _ => {}
        }
        let number = scalar.text.parse().ok().filter(|number: &f64| number.is_finite());
        if let Some(number) = number {
            return Kind::NumberValue(number);
        }
    }
    Kind::StringValue(scalar.text.to_string())
}
