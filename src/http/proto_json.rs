//! Messages of `proto/` as proto JSON.

use std::sync::LazyLock;

use prost::Message;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor, SerializeOptions,
};
use serde_json::Serializer;
use serde_json::de::Deserializer;

use super::unknown_field;
use crate::proto::DESCRIPTORS;
use crate::request::{RequestError, refuse};

/// All messages and services of `proto/`.
static POOL: LazyLock<Option<DescriptorPool>> =
    LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).ok());

/// The two JSON dialects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Like other services of Envoy's protocol: unknown fields are skipped, as in gRPC, and zeros
    /// are left out.
    Envoy,
    /// For people who write requests by hand: unknown fields are refused, and zeros are written.
    Own,
}

/// The messages of one RPC.
pub(super) struct Messages {
    request: MessageDescriptor,
    response: MessageDescriptor,
}

impl Messages {
    /// Those of `/service/method`.
    pub(super) fn of(path: &str) -> Option<Self> {
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        let service = POOL.as_ref()?.get_service_by_name(service)?;
        let method = service.methods().find(|known| known.name() == method)?;
        Some(Self { request: method.input(), response: method.output() })
    }

    /// The request's bytes.
    ///
    /// # Errors
    /// The body is not JSON, or not of this message.
    pub(super) fn parse(&self, body: &[u8], form: Form) -> Result<Vec<u8>, RequestError> {
        let mut json = Deserializer::from_slice(body);
        let options = DeserializeOptions::new().deny_unknown_fields(form == Form::Own);
        let read =
            DynamicMessage::deserialize_with_options(self.request.clone(), &mut json, &options);
        let message = match read {
            Ok(message) => message,
            Err(error) => return Err(self.mistake(body, form, &error)),
        };
        if let Err(error) = json.end() {
            return refuse("body", format!("goes on after the request: {error}"));
        }
        Ok(message.encode_to_vec())
    }

    fn mistake(&self, body: &[u8], form: Form, error: &serde_json::Error) -> RequestError {
        let unknown = || unknown_field::find(body, &self.request);
        let unknown = if form == Form::Own { unknown() } else { None };
        unknown.unwrap_or_else(|| {
            let message = format!("is no {}: {error}", self.request.name());
            RequestError { field: "body".to_owned(), message }
        })
    }

    /// The response as JSON, with numbers as numbers: they are exact up to 2^53. `None` cannot happen.
    pub(super) fn format(&self, response: &impl Message, form: Form) -> Option<String> {
        let bytes = response.encode_to_vec();
        let message = DynamicMessage::decode(self.response.clone(), bytes.as_slice()).ok()?;
        let mut json = Serializer::new(Vec::new());
        let options = SerializeOptions::new()
            .stringify_64_bit_integers(false)
            .skip_default_fields(form == Form::Envoy);
        message.serialize_with_options(&mut json, &options).ok()?;
        String::from_utf8(json.into_inner()).ok()
    }
}
