//! YAML text to a tree of nodes that know where they stand.
//!
//! serde's data model has no places and no "as written": `value: 0404` would arrive as a number.
//! So this reads the events of serde-saphyr's parser. It never recurses, and an alias shares its
//! node, so no file makes the tree deep or larger than its text; `ALIAS_NODES_MAX` bounds what
//! a walk over the tree meets on top of it.

use std::borrow::Cow;
use std::rc::Rc;

mod builder;

pub(super) use builder::read;

/// The most nodes that all aliases of a file may stand for together.
pub(super) const ALIAS_NODES_MAX: usize = 1_000_000;

/// The deepest nesting of lists and mappings, aliases followed.
pub(super) const DEPTH_MAX: usize = 100;

/// Where something stands in its file; both count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// A value and where it stands.
#[derive(Debug)]
pub(super) struct Node<'a> {
    pub(super) at: Position,
    pub(super) content: Content<'a>,
    /// Nodes in it, itself included, aliases followed.
    weight: usize,
    /// Lists and mappings on the longest way down, itself included.
    height: usize,
}

/// What a node is.
#[derive(Debug)]
pub(super) enum Content<'a> {
    /// Text, numbers, booleans, nothing.
    Scalar(Scalar<'a>),
    /// A list.
    List(Vec<Rc<Node<'a>>>),
    /// A mapping, without duplicates, in file order.
    Map(Vec<Field<'a>>),
}

/// A scalar as written.
#[derive(Clone, Debug)]
pub(super) struct Scalar<'a> {
    pub(super) text: Cow<'a, str>,
    /// Neither quoted nor a block: could be a number, a boolean or nothing.
    pub(super) plain: bool,
}

/// A key of a mapping and its value.
#[derive(Clone, Debug)]
pub(super) struct Field<'a> {
    pub(super) name: Scalar<'a>,
    pub(super) at: Position,
    pub(super) value: Rc<Node<'a>>,
}

impl Scalar<'_> {
    /// Whether it is YAML's null: nothing, `~` or `null`.
    pub(super) fn is_null(&self) -> bool {
        self.plain && matches!(&*self.text, "" | "~" | "null" | "Null" | "NULL")
    }
}

impl Node<'_> {
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.content, Content::Scalar(scalar) if scalar.is_null())
    }

    /// Whether it is null, or a list of nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.is_null() || matches!(&self.content, Content::List(list) if list.is_empty())
    }
}
