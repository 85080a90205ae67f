//! Parses YAML text to a tree of nodes that know their position.
//!
//! serde's data model has no positions and no original spelling: `value: 0404` would become a
//! number. So this module reads the parser's events. It never recurses, and an alias shares its
//! node, so no file makes the tree deeper or larger than its text; `ALIAS_NODES_MAX` bounds the
//! nodes that a walk over the tree visits through aliases.

mod builder;
mod node;

pub(super) use builder::read;
pub(super) use node::{Content, Field, Node, Scalar};
