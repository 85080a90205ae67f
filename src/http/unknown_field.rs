//! Finds the field of a JSON body that its message does not have.
//!
//! It runs only for bodies that were refused. It builds no values, so that it takes no memory for
//! what the body contains.

use std::borrow::Cow;
use std::fmt;

use prost_reflect::{Kind, MessageDescriptor};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Deserializer as Json;

use crate::request::RequestError;
use crate::suggest::{nearest, quoted, shortened};

/// The first unknown field; `None` if the body has another mistake before it.
pub(super) fn find(body: &[u8], message: &MessageDescriptor) -> Option<RequestError> {
    let mut found = None;
    let fields = Fields { message, path: String::new(), is_list: false, found: &mut found };
    // The error only ends the search.
    let _ = fields.deserialize(&mut Json::from_slice(body));
    found
}

/// A message, or a list of messages.
struct Fields<'f> {
    message: &'f MessageDescriptor,
    /// The path of the message in the body.
    path: String,
    is_list: bool,
    found: &'f mut Option<RequestError>,
}

impl<'de> DeserializeSeed<'de> for Fields<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        if self.is_list { json.deserialize_seq(self) } else { json.deserialize_map(self) }
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message.name())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Self { message, path, found, .. } = self;
        for at in 0.. {
            let path = format!("{path}[{at}]");
            let item = Fields { message, path, is_list: false, found: &mut *found };
            if list.next_element_seed(item)?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { message, path, found, .. } = self;
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            let field = message.get_field_by_json_name(&name);
            let Some(field) = field.or_else(|| message.get_field_by_name(&name)) else {
                *found = Some(unknown(message, &path, &name));
                return Err(Error::custom("an unknown field"));
            };
            let Kind::Message(below) = field.kind() else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let path = within(&path, field.name());
            let is_list = field.is_list();
            map.next_value_seed(Fields { message: &below, path, is_list, found: &mut *found })?;
        }
        Ok(())
    }
}

fn unknown(message: &MessageDescriptor, path: &str, name: &str) -> RequestError {
    let fields: Vec<_> = message.fields().map(|field| field.name().to_owned()).collect();
    let known = match nearest(name, fields.iter().map(String::as_str)) {
        Some(near) => format!("did you mean {}", quoted(near)),
        None => format!("known are {}", fields.join(", ")),
    };
    let message = format!("is no field of {}; {known}", message.name());
    RequestError { field: within(path, &shortened(name)), message }
}

fn within(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
