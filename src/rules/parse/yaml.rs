//! YAML text to a tree of nodes that know where they stand.
//!
//! serde's data model has no places and no "as written": `value: 0404` would arrive as a number.
//! So this reads the parser's events. It never recurses, and an alias shares its
//! node, so no file makes the tree deep or larger than its text; `ALIAS_NODES_MAX` bounds what
//! a walk over the tree meets on top of it.

mod builder;
mod node;

pub(super) use builder::read;
pub(super) use node::{Content, Field, Node, Scalar};
