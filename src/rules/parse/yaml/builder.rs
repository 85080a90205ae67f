//! Builds the tree from the parser's events, bottom up.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use granit_parser::{Event, Marker, Options, Parser, ScalarStyle, Span, Tag};

use super::super::errors::{Position, Report, quoted};
use super::node::{Content, Field, Node, Scalar};

/// The most nodes that all aliases of a file may add together.
const ALIAS_NODES_MAX: usize = 1_000_000;

/// The deepest nesting of lists and mappings, with aliases resolved.
const DEPTH_MAX: usize = 100;

/// Reads the only document of a file; `None` if it is empty, or if a mistake, which is reported,
/// hides the rest of it.
pub(in crate::rules::parse) fn read<'a>(
    text: &'a str,
    report: &mut Report<'_>,
) -> Option<Rc<Node<'a>>> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    let mut builder =
        Builder { report, frames: vec![], anchors: HashMap::new(), root: None, alias_nodes: 0 };
    for event in Parser::new_from_str_with_options(text, options) {
        let taken = match event {
            Ok((event, span)) => builder.take(event, Position::from(&span)),
            Err(error) => Err((error.marker().into(), format!("not valid YAML: {}", error.info()))),
        };
        if let Err((at, message)) = taken {
            builder.report.add(at, message);
            return None;
        }
    }
    builder.root
}

impl From<&Marker> for Position {
    fn from(marker: &Marker) -> Self {
        Self { line: marker.line(), column: marker.col() + 1, width: 1 }
    }
}

impl From<&Span> for Position {
    fn from(span: &Span) -> Self {
        let is_one_line = span.start.line() == span.end.line();
        let width = if is_one_line { span.end.col().saturating_sub(span.start.col()) } else { 1 };
        Self { width: width.max(1), ..Self::from(&span.start) }
    }
}

/// A mistake after which the rest of the file cannot be parsed.
type Fatal = (Position, String);

struct Builder<'a, 'r, 'e> {
    report: &'r mut Report<'e>,
    frames: Vec<Frame<'a>>,
    anchors: HashMap<usize, Rc<Node<'a>>>,
    root: Option<Rc<Node<'a>>>,
    alias_nodes: usize,
}

/// A list or mapping that is still open.
struct Frame<'a> {
    at: Position,
    anchor: usize,
    nodes: Vec<Rc<Node<'a>>>,
    collection: Collection,
}

enum Collection {
    List,
    /// Keys and values alternate.
    Map,
}

impl Frame<'_> {
    const fn new(at: Position, anchor: usize, collection: Collection) -> Self {
        Self { at, anchor, nodes: vec![], collection }
    }
}

impl<'a> Builder<'a, '_, '_> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the parser's enum may grow")]
    fn take(&mut self, event: Event<'a>, at: Position) -> Result<(), Fatal> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && !self.is_text(tag.as_deref(), at);
                self.push(Node::scalar(at, Scalar { text, plain }), anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.open(Frame::new(at, anchor, Collection::List), tag.as_deref())
            }
            Event::MappingStart(_, anchor, tag) => {
                self.open(Frame::new(at, anchor, Collection::Map), tag.as_deref())
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => self.alias(at, anchor),
            Event::DocumentStart(..) if self.root.is_some() => {
                Err((at, "a second document; put it into a file of its own".into()))
            }
            // Starts, ends and comments have no values.
            _ => Ok(()),
        }
    }

    /// Whether a tag makes a scalar text; other tags change the meaning of a value and are
    /// mistakes.
    fn is_text(&mut self, tag: Option<&Tag>, at: Position) -> bool {
        let Some(tag) = tag else { return false };
        let text = tag.core_suffix() == Some("str");
        if !text {
            self.report
                .add(at, format!("tag {} is not supported; leave it out", quoted(&tag.original())));
        }
        text
    }

    fn open(&mut self, frame: Frame<'a>, tag: Option<&Tag>) -> Result<(), Fatal> {
        self.is_text(tag, frame.at);
        if self.frames.len() >= DEPTH_MAX {
            return Err(too_deep(frame.at));
        }
        self.frames.push(frame);
        Ok(())
    }

    fn close(&mut self) -> Result<(), Fatal> {
        let Some(frame) = self.frames.pop() else {
            return Ok(());
        };
        let height = 1 + frame.nodes.iter().map(|node| node.height).max().unwrap_or(0);
        if height > DEPTH_MAX {
            return Err(too_deep(frame.at));
        }
        let weight = frame.nodes.iter().fold(1, |sum: usize, node| sum.saturating_add(node.weight));
        let content = match frame.collection {
            Collection::Map => Content::Map(self.fields(frame.nodes)),
            Collection::List => Content::List(frame.nodes),
        };
        self.push(Node { at: frame.at, content, weight, height }, frame.anchor)
    }

    fn alias(&mut self, at: Position, anchor: usize) -> Result<(), Fatal> {
        let Some(node) = self.anchors.get(&anchor) else {
            return Err((at, "an alias inside the node that it refers to".into()));
        };
        let node = Rc::clone(node);
        self.alias_nodes = self.alias_nodes.saturating_add(node.weight);
        if self.alias_nodes > ALIAS_NODES_MAX {
            return Err((at, format!("aliases expand to more than {ALIAS_NODES_MAX} nodes")));
        }
        self.place(node);
        Ok(())
    }

    fn push(&mut self, node: Node<'a>, anchor: usize) -> Result<(), Fatal> {
        let node = Rc::new(node);
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        self.place(node);
        Ok(())
    }

    fn place(&mut self, node: Rc<Node<'a>>) {
        match self.frames.last_mut() {
            Some(frame) => frame.nodes.push(node),
            None => self.root = Some(node),
        }
    }

    /// Pairs keys with values; reports duplicates and keys that are not text; merges `<<`.
    fn fields(&mut self, nodes: Vec<Rc<Node<'a>>>) -> Vec<Field<'a>> {
        let mut fields: Vec<Field<'a>> = Vec::with_capacity(nodes.len() / 2);
        let mut merged = vec![];
        let mut names = HashMap::new();
        let mut nodes = nodes.into_iter();
        while let (Some(key), Some(value)) = (nodes.next(), nodes.next()) {
            let Content::Scalar(name) = &key.content else {
                self.report.add(key.at, "a key must be text, not a list or a mapping");
                continue;
            };
            if name.plain && name.text == "<<" {
                merged.push(value);
            } else if let Some(earlier) = names.insert(name.text.to_string(), key.at) {
                let name = quoted(&name.text);
                self.report.add(
                    key.at,
                    format!("duplicate key {name}; it is given at line {}", earlier.line),
                );
            } else {
                fields.push(Field { name: name.clone(), at: key.at, value });
            }
        }
        let mut names = names.into_keys().collect();
        for value in merged {
            self.merge(&value, &mut fields, &mut names);
        }
        fields
    }

    /// Adds the fields of a mapping, or of a list of mappings, unless they are present.
    fn merge(&mut self, from: &Node<'a>, fields: &mut Vec<Field<'a>>, names: &mut HashSet<String>) {
        let maps = match &from.content {
            Content::List(nodes) => nodes.iter().map(|node| &**node).collect(),
            Content::Map(_) | Content::Scalar(_) => vec![from],
        };
        for map in maps {
            let Content::Map(new) = &map.content else {
                self.report.add(map.at, "<< merges mappings only");
                continue;
            };
            let new = new.iter().filter(|field| names.insert(field.name.text.to_string()));
            fields.extend(new.cloned());
        }
    }
}

fn too_deep(at: Position) -> Fatal {
    (at, format!("nested more than {DEPTH_MAX} lists and mappings deep"))
}
