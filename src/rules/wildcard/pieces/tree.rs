//! Merges sequences with common beginnings into one tree.

use hashbrown::HashMap;
use rapidhash::fast::RandomState;

use super::super::ends::NO_RULE;
use super::node::{EDGES_FEW, Edge, Node, ROOT};

/// The tree under construction, and the texts of its pieces.
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
    pub(super) texts: Vec<Vec<u8>>,
    /// The nodes by parent and piece.
    children: HashMap<(usize, usize), usize, RandomState>,
    pieces: HashMap<Vec<u8>, usize, RandomState>,
}

impl Tree {
    pub(super) fn new() -> Self {
        let root = Node { parent: ROOT, piece: usize::MAX, rule: NO_RULE, queued: vec![] };
        let (children, pieces) = (HashMap::default(), HashMap::default());
        Self { nodes: vec![root], texts: vec![], children, pieces }
    }

    pub(super) fn add(&mut self, texts: impl Iterator<Item = Vec<u8>>, rule: usize) {
        let end = texts.fold(ROOT, |parent, text| self.child(parent, text));
        self.nodes[end].rule = self.nodes[end].rule.min(rule);
    }

    fn child(&mut self, parent: usize, text: Vec<u8>) -> usize {
        let texts = &mut self.texts;
        let piece = *self.pieces.entry(text).or_insert_with_key(|text| {
            texts.push(text.clone());
            texts.len() - 1
        });
        let nodes = &mut self.nodes;
        *self.children.entry((parent, piece)).or_insert_with(|| {
            nodes.push(Node { parent, piece, rule: NO_RULE, queued: vec![] });
            nodes.len() - 1
        })
    }

    /// All nodes except the root.
    fn numbered(&self) -> impl Iterator<Item = (usize, &Node)> {
        self.nodes.iter().enumerate().skip(1)
    }

    /// By piece, the rule of the sequence that consists of this piece alone.
    pub(super) fn alone(&self) -> Vec<usize> {
        let mut alone = vec![NO_RULE; self.texts.len()];
        let first = self.numbered().filter(|(_, node)| node.parent == ROOT);
        first.for_each(|(_, node)| alone[node.piece] = node.rule);
        alone
    }

    /// By piece, whether longer sequences contain it.
    pub(super) fn is_in_longer(&self) -> Vec<bool> {
        let mut longer = vec![false; self.texts.len()];
        for (_, node) in self.numbered().filter(|(_, node)| node.parent != ROOT) {
            longer[node.piece] = true;
            longer[self.nodes[node.parent].piece] = true;
        }
        longer
    }

    /// By piece, the edges to test where it ends. The others become queued children of their
    /// parents.
    pub(super) fn take_edges(&mut self) -> Vec<Vec<Edge>> {
        let mut edges = vec![vec![]; self.texts.len()];
        for (child, node) in self.numbered() {
            edges[node.piece].push(Edge { parent: node.parent, child });
        }
        for edges in edges.iter_mut().filter(|edges| edges.len() > EDGES_FEW) {
            let is_queued = |edge: &mut Edge| edge.parent != ROOT;
            for edge in edges.extract_if(.., is_queued) {
                self.nodes[edge.parent].queued.push(edge.child);
            }
        }
        edges
    }
}
