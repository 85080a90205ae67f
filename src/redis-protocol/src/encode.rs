//! Encodes commands.

use bytes::{BufMut, BytesMut};
use itoa::Buffer;
use upstream::error::RedisProtocolError;
use upstream::resp2::types::BytesFrame;

/// Bytes of a line besides its text, and of the digits of most lengths.
const HEAD_BYTES: usize = 1 + 2 + 7;

/// Appends `frame` to `buf`, with numbers as strings if `int_as_bulkstring`, which servers require of
/// commands. Returns the length of `buf`.
///
/// # Errors
/// None; fred expects a result.
pub fn extend_encode(
    buf: &mut BytesMut,
    frame: &BytesFrame,
    int_as_bulkstring: bool,
) -> Result<usize, RedisProtocolError> {
    buf.reserve(expected_bytes(frame));
    append(buf, frame, int_as_bulkstring);
    Ok(buf.len())
}

/// About so many bytes; more are reserved where they are needed.
fn expected_bytes(frame: &BytesFrame) -> usize {
    match frame {
        BytesFrame::Array(frames) => HEAD_BYTES + frames.iter().map(expected_bytes).sum::<usize>(),
        BytesFrame::BulkString(bytes) | BytesFrame::SimpleString(bytes) => {
            HEAD_BYTES + bytes.len() + 2
        }
        BytesFrame::Error(text) => HEAD_BYTES + text.len(),
        BytesFrame::Integer(_) | BytesFrame::Null => 2 * HEAD_BYTES,
    }
}

fn append(buf: &mut BytesMut, frame: &BytesFrame, int_as_bulkstring: bool) {
    match frame {
        BytesFrame::Array(frames) => {
            line(buf, b'*', Buffer::new().format(frames.len()).as_bytes());
            frames.iter().for_each(|frame| append(buf, frame, int_as_bulkstring));
        }
        BytesFrame::BulkString(bytes) => bulk(buf, bytes),
        BytesFrame::Integer(number) => {
            let mut digits = Buffer::new();
            let digits = digits.format(*number).as_bytes();
            if int_as_bulkstring { bulk(buf, digits) } else { line(buf, b':', digits) }
        }
        BytesFrame::SimpleString(text) => line(buf, b'+', text),
        BytesFrame::Error(text) => line(buf, b'-', text.as_bytes()),
        BytesFrame::Null => buf.put_slice(b"$-1\r\n"),
    }
}

fn bulk(buf: &mut BytesMut, bytes: &[u8]) {
    line(buf, b'$', Buffer::new().format(bytes.len()).as_bytes());
    buf.put_slice(bytes);
    buf.put_slice(b"\r\n");
}

fn line(buf: &mut BytesMut, kind: u8, text: &[u8]) {
    buf.put_u8(kind);
    buf.put_slice(text);
    buf.put_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_encoded_behind_what_is_there() {
        let word = |text: &'static str| BytesFrame::BulkString(text.into());
        let command = BytesFrame::Array(vec![
            word("EVALSHA"),
            word(""),
            BytesFrame::Integer(-12),
            BytesFrame::Null,
            BytesFrame::Array(vec![]),
            BytesFrame::SimpleString("OK".into()),
            BytesFrame::Error("ERR".into()),
        ]);
        let encoded = |int_as_bulkstring| {
            let mut buf = BytesMut::from("+OK\r\n");
            let length = extend_encode(&mut buf, &command, int_as_bulkstring).expect("no error");
            assert_eq!(length, buf.len());
            String::from_utf8(buf.to_vec()).expect("it is text")
        };
        let (start, end) =
            ("+OK\r\n*7\r\n$7\r\nEVALSHA\r\n$0\r\n\r\n", "$-1\r\n*0\r\n+OK\r\n-ERR\r\n");
        assert_eq!(encoded(true), format!("{start}$3\r\n-12\r\n{end}"));
        assert_eq!(encoded(false), format!("{start}:-12\r\n{end}"));
    }
}
