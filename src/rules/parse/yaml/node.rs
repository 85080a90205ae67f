//! The tree: nodes that know their position in the file.

use std::borrow::Cow;
use std::rc::Rc;

use super::super::errors::Position;

/// A value and its position.
#[derive(Debug)]
pub(in crate::rules::parse) struct Node<'a> {
    pub(in crate::rules::parse) at: Position,
    pub(in crate::rules::parse) content: Content<'a>,
    /// The number of nodes in it, including itself, with aliases resolved.
    pub(super) weight: usize,
    /// The depth of lists and mappings in it, including itself.
    pub(super) height: usize,
}

/// The type and contents of a node.
#[derive(Debug)]
pub(in crate::rules::parse) enum Content<'a> {
    /// Text, a number, a boolean or null.
    Scalar(Scalar<'a>),
    /// A list.
    List(Vec<Rc<Node<'a>>>),
    /// A mapping, without duplicates, in file order.
    Map(Vec<Field<'a>>),
}

/// A scalar as written.
#[derive(Clone, Debug)]
pub(in crate::rules::parse) struct Scalar<'a> {
    pub(in crate::rules::parse) text: Cow<'a, str>,
    /// Neither quoted nor a block: may be a number, a boolean or null.
    pub(in crate::rules::parse) plain: bool,
}

/// A key of a mapping and its value.
#[derive(Clone, Debug)]
pub(in crate::rules::parse) struct Field<'a> {
    pub(in crate::rules::parse) name: Scalar<'a>,
    pub(in crate::rules::parse) at: Position,
    pub(in crate::rules::parse) value: Rc<Node<'a>>,
}

impl Scalar<'_> {
    /// Whether it is YAML's null: empty, `~` or `null`.
    pub(in crate::rules::parse) fn is_null(&self) -> bool {
        self.plain && matches!(&*self.text, "" | "~" | "null" | "Null" | "NULL")
    }
}

impl Node<'_> {
    pub(in crate::rules::parse) fn is_null(&self) -> bool {
        matches!(&self.content, Content::Scalar(scalar) if scalar.is_null())
    }

    /// Whether it is null or an empty list.
    pub(in crate::rules::parse) fn is_empty(&self) -> bool {
        self.is_null() || matches!(&self.content, Content::List(list) if list.is_empty())
    }
}

impl<'a> Node<'a> {
    pub(super) fn scalar(at: Position, scalar: Scalar<'a>) -> Self {
        let weight = 1 + scalar.text.len() / 64; // long texts weigh more, for aliases copy them
        Self { at, content: Content::Scalar(scalar), weight, height: 0 }
    }
}
