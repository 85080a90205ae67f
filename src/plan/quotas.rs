//! The groups that a request's quotas form.
//!
//! Each descriptor is a group. Those that name the same backend and model are one, as in
//! envoyproxy/ratelimit, for a gateway that chooses among models: one that is over any of its own
//! limits is no choice any more, and the request is rejected when none is left.

use crate::decision::QuotaGroup;
use crate::request::{Entries, RequestError, refuse};

/// The entries whose values name a model.
const BACKEND: &str = "backend_name";
const MODEL: &str = "model_name_override";

/// The groups so far; a group's number is its index.
#[derive(Default)]
pub(super) struct Groups<'a>(Vec<Group<'a>>);

#[derive(PartialEq, Eq)]
enum Group<'a> {
    Descriptor(usize),
    Model { backend: &'a str, model: &'a str },
}

impl<'a> Groups<'a> {
    /// The group of a quota that the descriptor at `at` matches.
    ///
    /// # Errors
    /// The request has more than [`QuotaGroup::MAX`] groups.
    pub(super) fn find_or_add(
        &mut self,
        at: usize,
        entries: Entries<'a>,
    ) -> Result<QuotaGroup, RequestError> {
        let group = Group::of(at, entries);
        let index = self.0.iter().position(|earlier| *earlier == group).unwrap_or_else(|| {
            self.0.push(group);
            self.0.len() - 1
        });
        let Some(group) = QuotaGroup::new(index) else {
            let most = QuotaGroup::MAX;
            let message = format!("meet more than {most} quotas; ask in several requests");
            return refuse("descriptors", message);
        };
        Ok(group)
    }
}

impl<'a> Group<'a> {
    fn of(at: usize, entries: Entries<'a>) -> Self {
        let value = |name| entries.clone().find(|(key, _)| *key == name).map_or("", |(_, v)| v);
        match (value(BACKEND), value(MODEL)) {
            ("", "") => Self::Descriptor(at),
            (backend, model) => Self::Model { backend, model },
        }
    }
}
