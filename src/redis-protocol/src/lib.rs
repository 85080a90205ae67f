//! The part of `redis-protocol` 6 that fred uses, with bounds on replies.
//!
//! The parser of `redis-protocol` has no bounds. It calls itself for each nested array, so 32 KB of
//! `*1` end the process by a stack overflow. It waits for any number of bytes, and parses an
//! incomplete array from its start at each read. fred has no hook between the socket and the parser.
//! Therefore `[patch]` in the root's `Cargo.toml` puts this crate in the parser's place: it measures
//! each reply without recursion, and passes on only replies that are complete and within the bounds.
//!
//! A reply that exceeds a bound is an error, after which fred closes the connection.
//!
//! Types and parser are those of `redis-protocol` 5, which has the same. Version 6 encodes commands in
//! another way, which is in `encode`.

mod encode;
mod fairness;
mod measure;

use std::borrow::Cow;

use upstream::error::{RedisProtocolError, RedisProtocolErrorKind};
pub use upstream::{digits_in_number as digits_in_usize, error, redis_keyslot, types};

/// RESP2, which Tidegate speaks.
pub mod resp2 {
    pub use upstream::resp2::types;

    /// Decodes replies within the bounds.
    pub mod decode {
        use bytes::{Bytes, BytesMut};
        use upstream::error::RedisProtocolError;
        use upstream::resp2::types::BytesFrame;

        /// The first reply in `buf`, or `None` if it is incomplete.
        ///
        /// # Errors
        /// It is not RESP2, or exceeds a bound.
        pub fn decode_bytes_mut(
            buf: &mut BytesMut,
        ) -> Result<Option<(BytesFrame, usize, Bytes)>, RedisProtocolError> {
            match crate::measure::measure(buf) {
                Ok(None) => Ok(None),
                Ok(Some(_bytes)) => {
                    crate::fairness::spend();
                    upstream::resp2::decode::decode_bytes_mut(buf)
                }
                Err(refused) => Err(crate::error_of(refused.0)),
            }
        }
    }

    /// Encodes commands.
    pub mod encode {
        pub use crate::encode::extend_encode;
    }
}

/// RESP3, which Tidegate never asks for.
pub mod resp3 {
    pub use upstream::resp3::types;

    /// Decodes nothing.
    pub mod decode {
        /// Replies in parts.
        pub mod streaming {
            use bytes::{Bytes, BytesMut};
            use upstream::error::RedisProtocolError;
            use upstream::resp3::types::{BytesFrame, DecodedFrame};

            /// Always an error. fred tries RESP3 on a reply that is not RESP2.
            ///
            /// # Errors
            /// RESP3 is not supported.
            pub fn decode_bytes_mut(
                _buf: &mut BytesMut,
            ) -> Result<Option<(DecodedFrame<BytesFrame>, usize, Bytes)>, RedisProtocolError>
            {
                Err(crate::error_of(crate::NO_RESP3))
            }
        }
    }

    /// Encodes nothing.
    pub mod encode {
        /// Whole commands.
        pub mod complete {
            use bytes::BytesMut;
            use upstream::error::RedisProtocolError;
            use upstream::resp3::types::BytesFrame;

            /// Always an error.
            ///
            /// # Errors
            /// RESP3 is not supported.
            pub fn extend_encode(
                _buf: &mut BytesMut,
                _frame: &BytesFrame,
                _int_as_blobstring: bool,
            ) -> Result<usize, RedisProtocolError> {
                Err(crate::error_of(crate::NO_RESP3))
            }
        }
    }
}

const NO_RESP3: &str = "RESP3 is not supported";

fn error_of(details: &'static str) -> RedisProtocolError {
    RedisProtocolError::new(RedisProtocolErrorKind::DecodeError, Cow::Borrowed(details))
}
