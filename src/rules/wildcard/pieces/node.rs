//! The tree of sequences that searches read: its nodes, and the pieces that lead to them.

/// The root of the tree.
pub(super) const ROOT: usize = 0;

/// The most nodes of one piece that are all looked at where it ends.
pub(super) const EDGES_FEW: usize = 4;

/// All pieces, and the nodes that they lead to.
#[derive(Debug)]
pub(super) struct Sequences {
    pub(super) pieces: Box<[Piece]>,
    pub(super) nodes: Box<[Node]>,
}

/// A text between stars.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) length: usize,
    /// The first rule of the sequences that are this piece alone, or one that ends it.
    pub(super) alone: usize,
    /// The pieces of longer sequences that end where this one does.
    pub(super) nested: Box<[usize]>,
    /// All edges to nodes of this piece, or where there are more than a few that from the root.
    pub(super) edges: Box<[Edge]>,
}

/// From a node to one of its children.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) parent: usize,
    pub(super) child: usize,
}

/// Where a sequence of pieces ends, or goes on.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) parent: usize,
    pub(super) piece: usize,
    /// The rule of the sequence that ends here.
    pub(super) rule: usize,
    /// The children that wait in the queue of their piece once this node is reached.
    pub(super) queued: Vec<usize>,
}
