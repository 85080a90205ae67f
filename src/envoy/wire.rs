//! Fields of protobuf messages, written by hand: built as messages, an answer would cost an allocation
//! for each text in it, and two passes.

use prost::encoding::encode_varint;

/// The tag of a number's field.
pub(super) const fn number(field: u8) -> u8 {
    field << 3
}

/// The tag of a field with a length: a text, bytes or a message.
pub(super) const fn sized(field: u8) -> u8 {
    field << 3 | 2
}

pub(super) fn push_varint(bytes: &mut Vec<u8>, number: u64) {
    match u8::try_from(number) {
        // Nearly all are.
        Ok(short @ ..0x80) => bytes.push(short),
        Ok(_) | Err(_) => encode_varint(number, bytes),
    }
}

/// A number; 0 is as if not given.
pub(super) fn push_number(bytes: &mut Vec<u8>, tag: u8, number: u64) {
    if number > 0 {
        bytes.push(tag);
        push_varint(bytes, number);
    }
}

/// A field but for its content, which comes next.
pub(super) fn push_head(bytes: &mut Vec<u8>, tag: u8, content_len: usize) {
    bytes.push(tag);
    push_varint(bytes, content_len as u64);
}

/// A text or bytes; none are as if not given.
pub(super) fn push_sized(bytes: &mut Vec<u8>, tag: u8, content: &[u8]) {
    if !content.is_empty() {
        push_head(bytes, tag, content.len());
        bytes.extend_from_slice(content);
    }
}

/// What [`push_number`] pushes.
pub(super) const fn number_len(number: u64) -> usize {
    if number == 0 { 0 } else { 1 + varint_len(number) }
}

/// What [`push_head`] and the content are.
pub(super) const fn field_len(content_len: usize) -> usize {
    1 + varint_len(content_len as u64) + content_len
}

const fn varint_len(number: u64) -> usize {
    let bits = u64::BITS - (number | 1).leading_zeros();
    bits.div_ceil(7) as usize
}
