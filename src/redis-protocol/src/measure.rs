//! Measures the first reply of a buffer. It keeps its place in an array of fixed size, so that no
//! reply can make it recurse.

use memchr::memchr;

/// Bytes of a reply. The largest that Tidegate asks for is that of a script run with 65,535
/// counters, 1.4 MB.
pub(crate) const BYTES_MAX: usize = 2 << 20;

/// Bytes of a reply's line: a status, an error, a number.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;

/// Values in a reply, all levels together. A cluster's map has about 12 for each range of slots.
pub(crate) const VALUES_MAX: usize = 1 << 15;

/// Levels of arrays. CLUSTER SLOTS has four.
pub(crate) const DEPTH_MAX: usize = 8;

/// Why a reply is not parsed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) &'static str);

const TOO_LONG: Refused = Refused("a reply is longer than 2 MiB");
const LINE_TOO_LONG: Refused = Refused("a line of a reply is longer than 64 KiB");
const TOO_MANY: Refused = Refused("a reply has more than 32,768 values");
const TOO_DEEP: Refused = Refused("a reply has more than 8 levels of arrays");
const NOT_RESP2: Refused = Refused("a reply is not RESP2");

/// What begins at a place of a reply.
enum Value {
    /// A value of so many bytes.
    Whole(usize),
    /// An array's head of so many bytes, and how many values follow.
    Array(usize, usize),
}

/// How many bytes the first reply has; `None` if more must arrive.
pub(crate) fn measure(bytes: &[u8]) -> Result<Option<usize>, Refused> {
    // The values that each open array still lacks.
    let mut lacking = [0_usize; DEPTH_MAX];
    let (mut depth, mut at) = (0, 0);
    for _ in 0..=VALUES_MAX {
        let Some(value) = Value::at_start(&bytes[at..])? else {
            return if bytes.len() > BYTES_MAX { Err(TOO_LONG) } else { Ok(None) };
        };
        match value {
            Value::Whole(length) => at += length,
            Value::Array(_, values) if values > VALUES_MAX => return Err(TOO_MANY),
            Value::Array(_, 1..) if depth == DEPTH_MAX => return Err(TOO_DEEP),
            Value::Array(length, values) => {
                at += length;
                if values > 0 {
                    lacking[depth] = values;
                    depth += 1;
                    continue;
                }
            }
        }
        // A value is complete, and with it each array whose last value it is.
        while depth > 0 {
            lacking[depth - 1] -= 1;
            if lacking[depth - 1] > 0 {
                break;
            }
            depth -= 1;
        }
        if depth == 0 {
            return if at > BYTES_MAX { Err(TOO_LONG) } else { Ok(Some(at)) };
        }
    }
    Err(TOO_MANY)
}

impl Value {
    /// The value that `bytes` begin with; `None` if it is incomplete.
    fn at_start(bytes: &[u8]) -> Result<Option<Self>, Refused> {
        let Some(kind) = bytes.first() else { return Ok(None) };
        if !b"+-:$*".contains(kind) {
            return Err(NOT_RESP2);
        }
        let Some(line) = line(&bytes[1..])? else { return Ok(None) };
        let head = 1 + line.len() + 2;
        match kind {
            b'$' | b'*' => {}
            _ => return Ok(Some(Self::Whole(head))),
        }
        let Some(length) = length(line)? else { return Ok(Some(Self::Whole(head))) };
        if *kind == b'*' {
            return Ok(Some(Self::Array(head, length)));
        }
        if length > BYTES_MAX {
            return Err(TOO_LONG);
        }
        let whole = head + length + 2;
        Ok(Some(Self::Whole(whole)).filter(|_| whole <= bytes.len()))
    }
}

/// The bytes before the first line break; `None` if it did not arrive yet.
fn line(bytes: &[u8]) -> Result<Option<&[u8]>, Refused> {
    let within = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let mut at = 0;
    while let Some(found) = memchr(b'\r', &within[at..]) {
        at += found;
        match bytes.get(at + 1) {
            Some(b'\n') => return Ok(Some(&bytes[..at])),
            Some(_) => at += 1,
            None => return Ok(None),
        }
    }
    if bytes.len() > LINE_BYTES_MAX { Err(LINE_TOO_LONG) } else { Ok(None) }
}

/// A length; `None` stands for -1, null.
fn length(line: &[u8]) -> Result<Option<usize>, Refused> {
    if line == b"-1" {
        return Ok(None);
    }
    let text = std::str::from_utf8(line).map_err(|_not_utf8| NOT_RESP2)?;
    if !line.iter().all(u8::is_ascii_digit) {
        return Err(NOT_RESP2);
    }
    // Digits that are no number are too many of them.
    text.parse().map(Some).map_err(|_too_large| if text.is_empty() { NOT_RESP2 } else { TOO_LONG })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_measured_once_its_last_byte_is_there() {
        for reply in [
            "+OK\r\n",
            "-ERR a\rb\r\n",
            ":-5\r\n",
            "$-1\r\n",
            "$0\r\n\r\n",
            "$5\r\na\r\nbc\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*2\r\n:1\r\n*1\r\n$1\r\na\r\n",
            "*3\r\n*0\r\n*-1\r\n*2\r\n:1\r\n:2\r\n",
        ] {
            let with_next = [reply, "+next\r\n"].concat();
            assert_eq!(measure(with_next.as_bytes()), Ok(Some(reply.len())), "{reply:?}");
            for cut in 0..reply.len() {
                assert_eq!(measure(&reply.as_bytes()[..cut]), Ok(None), "{:?}", &reply[..cut]);
            }
        }
    }

    #[test]
    fn what_is_measured_is_what_the_parser_reads() {
        for reply in ["*2\r\n:1\r\n*1\r\n$1\r\na\r\n", "$5\r\na\r\nbc\r\n", "-ERR a\rb\r\n"] {
            let mut bytes = bytes::BytesMut::from(reply);
            let (_, parsed, _) = upstream::resp2::decode::decode_bytes_mut(&mut bytes)
                .expect("it is RESP2")
                .expect("it is complete");
            assert_eq!(measure(reply.as_bytes()), Ok(Some(parsed)), "{reply:?}");
        }
    }

    #[test]
    fn each_bound_is_the_last_that_passes() {
        let nested = |levels| ["*1\r\n".repeat(levels), ":1\r\n".to_owned()].concat();
        let values = |values| [format!("*{values}\r\n"), ":1\r\n".repeat(values)].concat();
        let line = |length| format!("-{}\r\n", "a".repeat(length));
        let bulk = |length| format!("${length}\r\n{}\r\n", "a".repeat(length));
        let head = "$2097152\r\n\r\n".len();
        for (passes, exceeds, refused) in [
            (nested(DEPTH_MAX), nested(DEPTH_MAX + 1), TOO_DEEP),
            (values(VALUES_MAX), values(VALUES_MAX + 1), TOO_MANY),
            (line(LINE_BYTES_MAX - 2), line(LINE_BYTES_MAX + 2), LINE_TOO_LONG),
            (bulk(BYTES_MAX - head), bulk(BYTES_MAX + 1), TOO_LONG),
        ] {
            assert_eq!(measure(passes.as_bytes()), Ok(Some(passes.len())));
            assert_eq!(measure(exceeds.as_bytes()), Err(refused));
        }
    }

    #[test]
    fn what_never_ends_is_refused_before_its_end() {
        let endless = |part: &str, length: usize| part.repeat(length / part.len());
        for (bytes, refused) in [
            (endless("*1\r\n", 32 << 10), TOO_DEEP),
            ("*32768\r\n".repeat(9), TOO_DEEP),
            (["*9\r\n*32768\r\n", &":1\r\n".repeat(VALUES_MAX)].concat(), TOO_MANY),
            ("$4294967296\r\n".to_owned(), TOO_LONG),
            ("$99999999999999999999999\r\n".to_owned(), TOO_LONG),
            ("*4294967296\r\n".to_owned(), TOO_MANY),
            (format!("+{}", "a".repeat(LINE_BYTES_MAX + 1)), LINE_TOO_LONG),
            ("%1\r\n".to_owned(), NOT_RESP2),
            ("$-2\r\n".to_owned(), NOT_RESP2),
            ("$+2\r\n".to_owned(), NOT_RESP2),
            ("*\r\n".to_owned(), NOT_RESP2),
        ] {
            assert_eq!(measure(bytes.as_bytes()), Err(refused), "{:.40}", bytes);
        }
    }

    #[test]
    fn many_long_values_together_are_too_long() {
        let value = format!("${}\r\n{}\r\n", 1 << 19, "a".repeat(1 << 19));
        let reply = ["*9\r\n", &value.repeat(4)].concat();
        assert_eq!(measure(reply.as_bytes()), Err(TOO_LONG));
    }
}
