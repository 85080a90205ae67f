//! The rule set: finds the limits that apply to a descriptor.
//!
//! A limits file is a tree. A request's descriptor walks down it, one level per entry: at each
//! level the exact value wins, then the wildcards in file order, then the rule for any value. The
//! walk never backtracks, and a limit applies only to descriptors that end at its rule. The result
//! of the walk is a [`Rule`]; a rule without limits exempts its requests.
//!
//! A [`RuleSet`] is an immutable snapshot: a reload builds a new one, and requests in progress keep
//! the old one. All text that a request needs (paths, names) is formatted when the set is built, so
//! that [`Domain::find`] only hashes and compares. The maps are seeded at random: callers cannot
//! choose values that collide.
//!
//! [`parse`] builds rule sets from files and reports all mistakes at once. This module does no IO.

mod changes;
mod domain;
mod load_error;
pub mod parse;
mod rule;
mod rule_set;
mod switches;
mod tree;
mod walk;
mod wildcard;

pub use changes::Changes;
pub use domain::Domain;
pub(crate) use rule::Segment;
pub use rule::{Rule, RuleLimit, Unlimited};
pub use rule_set::RuleSet;
pub use switches::Switches;
pub use walk::DeadEnd;

/// The deepest nesting of descriptors.
pub const LEVELS_MAX: usize = 32;

/// The most limits on one descriptor.
pub const RULE_LIMITS_MAX: usize = 32;

#[cfg(test)]
mod tests;
