//! Recognizes what a peer speaks by the first bytes that it sends.

use std::sync::Arc;

use parking_lot::Mutex;

/// Bytes that are enough to tell.
pub(super) const FIRST_BYTES: usize = 9;

/// A request to which servers of every protocol answer something. To the start of HTTP/2, servers of HTTP/1
/// may answer nothing.
pub(super) const GREETING: &[u8] =
    b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speech {
    Http1,
    Http2,
    Tls,
}

impl Speech {
    pub(super) const fn verb(self) -> &'static str {
        match self {
            Self::Http1 => "speaks HTTP/1",
            Self::Http2 => "speaks HTTP/2",
            Self::Tls => "uses TLS",
        }
    }

    fn of(first: &[u8]) -> Option<Self> {
        // An HTTP/2 server begins with SETTINGS, type 4; GOAWAY is 7.
        match first {
            [b'H', b'T', b'T', b'P', b'/', b'1', ..] => Some(Self::Http1),
            [0, 0, _, 4 | 7, ..] => Some(Self::Http2),
            // A handshake or an alert, of TLS 1.0 to 1.3.
            [0x15 | 0x16, 3, 0..=4, ..] => Some(Self::Tls),
            _ => None,
        }
    }
}

/// Called with all bytes that a connection receives.
pub(in crate::command) type Listener = Box<dyn FnMut(&[u8]) + Send>;

/// The first bytes of the newest connection.
#[derive(Debug, Default)]
pub(super) struct Heard(Mutex<Vec<u8>>);

impl Heard {
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }

    /// A function that keeps the first of the bytes that it is called with.
    pub(super) fn listener(self: &Arc<Self>) -> Listener {
        let (heard, mut left) = (Arc::clone(self), FIRST_BYTES);
        Box::new(move |received| {
            let first = &received[..left.min(received.len())];
            if !first.is_empty() {
                heard.0.lock().extend_from_slice(first);
                left -= first.len();
            }
        })
    }

    pub(super) fn speech(&self) -> Option<Speech> {
        Speech::of(&self.0.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_known_by_its_first_bytes() {
        for (first, speech) in [
            (&b"HTTP/1.1 400 Bad Request"[..], Some(Speech::Http1)),
            (b"\x00\x00\x1e\x04\x00\x00\x00\x00\x00", Some(Speech::Http2)),
            (b"\x00\x00\x08\x07\x00", Some(Speech::Http2)),
            (b"\x15\x03\x03\x00\x02\x02\x32", Some(Speech::Tls)),
            (b"-ERR unknown command", None),
            (b"", None),
        ] {
            assert_eq!(Speech::of(first), speech, "{first:?}");
        }
    }
}
