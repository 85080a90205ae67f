//! Encodes fields of protobuf messages. Building the generated messages instead would cost one
//! allocation per string and a second pass.

use prost::encoding::encode_varint;

/// The tag of a varint field.
pub(super) const fn number(field: u8) -> u8 {
    field << 3
}

/// The tag of a length-delimited field: a string, bytes or a message.
pub(super) const fn sized(field: u8) -> u8 {
    field << 3 | 2
}

pub(super) fn push_varint(bytes: &mut Vec<u8>, number: u64) {
    match u8::try_from(number) {
        // Nearly all numbers fit one byte.
        Ok(short @ ..0x80) => bytes.push(short),
        Ok(_) | Err(_) => encode_varint(number, bytes),
    }
}

/// Appends a varint field. 0 is the default and left out.
pub(super) fn push_number(bytes: &mut Vec<u8>, tag: u8, number: u64) {
    if number > 0 {
        bytes.push(tag);
        push_varint(bytes, number);
    }
}

/// Appends the tag and the length of a field, whose content follows.
pub(super) fn push_head(bytes: &mut Vec<u8>, tag: u8, content_len: usize) {
    bytes.push(tag);
    push_varint(bytes, content_len as u64);
}

/// Appends a string or bytes. Empty ones are left out.
pub(super) fn push_sized(bytes: &mut Vec<u8>, tag: u8, content: &[u8]) {
    if !content.is_empty() {
        push_head(bytes, tag, content.len());
        bytes.extend_from_slice(content);
    }
}

/// Bytes that [`push_number`] appends.
pub(super) const fn number_len(number: u64) -> usize {
    if number == 0 { 0 } else { 1 + varint_len(number) }
}

/// Bytes of a length-delimited field with its content.
pub(super) const fn field_len(content_len: usize) -> usize {
    1 + varint_len(content_len as u64) + content_len
}

const fn varint_len(number: u64) -> usize {
    let bits = u64::BITS - (number | 1).leading_zeros();
    bits.div_ceil(7) as usize
}
