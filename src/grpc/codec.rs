//! Messages on the way in and out: a request is read from its bytes where they stand, an answer
//! is encoded by prost.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

use crate::request::{Bounds, Request, RequestError};
use bytes::Buf;

/// How a call's message becomes a request.
pub(super) type Read = fn(&[u8], &Bounds) -> Result<Request, RequestError>;

/// Room for a usual message and answer. tonic makes both for each call; its default is 8 KiB.
fn buffer() -> BufferSettings {
    BufferSettings::new(512, 32 * 1_024)
}

/// Reads with `read`, answers with `T`.
pub(super) struct Codec<T> {
    reader: Reader,
    answer: PhantomData<T>,
}

#[derive(Clone, Copy)]
pub(super) struct Reader {
    read: Read,
    bounds: Bounds,
}

impl<T> Codec<T> {
    pub(super) const fn new(read: Read, bounds: Bounds) -> Self {
        Self { reader: Reader { read, bounds }, answer: PhantomData }
    }
}

impl<T: Message + 'static> tonic::codec::Codec for Codec<T> {
    type Encode = T;
    // A caller's mistake is answered with its own code, which a decoder's error would not be.
    type Decode = Result<Request, RequestError>;
    type Encoder = ProstEncoder<T>;
    type Decoder = Reader;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(buffer())
    }

    fn decoder(&mut self) -> Self::Decoder {
        self.reader
    }
}

impl Decoder for Reader {
    type Item = Result<Request, RequestError>;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, Status> {
        // The whole message stands in one chunk; an empty one is a message too.
        let request = (self.read)(message.chunk(), &self.bounds);
        message.advance(message.remaining());
        Ok(Some(request))
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffer()
    }
}
