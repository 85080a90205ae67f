//! One pass over one value: records the nodes that are reached, and the queue of each piece.

use std::cell::RefCell;

use super::node::{ROOT, Sequences};

/// The memory of searches, reused by one thread; it grows to the largest tree.
struct Scratch {
    /// The number of the search; entries with another number are from an earlier search.
    search: u64,
    nodes: Vec<Reached>,
    queues: Vec<Queue>,
}

/// Where a node was reached.
#[derive(Clone, Copy, Default)]
struct Reached {
    search: u64,
    end: usize,
    /// The next node in a queue; the root at its end.
    next: usize,
}

/// Nodes that wait for one piece, in the order in which their parents were reached.
#[derive(Clone, Copy, Default)]
struct Queue {
    search: u64,
    /// The root, if the queue is empty.
    first: usize,
    last: usize,
}

/// A search in progress.
pub(super) struct Search<'s> {
    of: &'s Sequences,
    scratch: &'s mut Scratch,
    /// The lowest rule found.
    rule: usize,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> =
        const { RefCell::new(Scratch { search: 0, nodes: vec![], queues: vec![] }) };
}

/// Searches for rules that come before `rule`, and returns the first of all.
pub(super) fn with(of: &Sequences, rule: usize, scan: impl FnOnce(&mut Search<'_>)) -> usize {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.begin(of);
        let mut search = Search { of, scratch, rule };
        scan(&mut search);
        search.rule
    })
}

impl Scratch {
    fn begin(&mut self, of: &Sequences) {
        self.search += 1;
        if self.nodes.len() < of.nodes.len() {
            self.nodes.resize(of.nodes.len(), Reached::default());
        }
        if self.queues.len() < of.pieces.len() {
            self.queues.resize(of.pieces.len(), Queue::default());
        }
        self.nodes[ROOT] = Reached { search: self.search, end: 0, next: ROOT };
    }

    /// Whether a node was reached at or before `start`.
    fn is_reached(&self, node: usize, start: usize) -> bool {
        let reached = &self.nodes[node];
        reached.search == self.search && reached.end <= start
    }
}

impl Search<'_> {
    /// The lowest rule found so far.
    pub(super) const fn rule(&self) -> usize {
        self.rule
    }

    /// Handles the end of a piece, and of the pieces that are its suffixes.
    pub(super) fn meet(&mut self, piece: usize, end: usize) {
        let of = self.of;
        let piece = &of.pieces[piece];
        self.rule = self.rule.min(piece.alone);
        for nested in &piece.nested {
            let start = end - of.pieces[*nested].length;
            for edge in &of.pieces[*nested].edges {
                if self.scratch.is_reached(edge.parent, start) {
                    self.reach(edge.child, end);
                }
            }
            while let Some(node) = self.next_waiting(*nested, start) {
                self.reach(node, end);
            }
        }
    }

    /// Removes the first node of a queue if its parent was reached at or before `start`.
    fn next_waiting(&mut self, piece: usize, start: usize) -> Option<usize> {
        let queue = self.scratch.queues[piece];
        if queue.search != self.scratch.search || queue.first == ROOT {
            return None;
        }
        let node = queue.first;
        if !self.scratch.is_reached(self.of.nodes[node].parent, start) {
            return None;
        }
        self.scratch.queues[piece].first = self.scratch.nodes[node].next;
        Some(node)
    }

    fn reach(&mut self, node: usize, end: usize) {
        let search = self.scratch.search;
        if self.scratch.nodes[node].search == search {
            return;
        }
        self.scratch.nodes[node] = Reached { search, end, next: ROOT };
        let of = self.of;
        self.rule = self.rule.min(of.nodes[node].rule);
        of.nodes[node].queued.iter().for_each(|child| self.wait(*child));
    }

    /// Appends a node to the queue of its piece.
    fn wait(&mut self, node: usize) {
        let Scratch { search, nodes, queues } = &mut *self.scratch;
        nodes[node].next = ROOT;
        let queue = &mut queues[self.of.nodes[node].piece];
        let is_empty = queue.search != *search || queue.first == ROOT;
        if is_empty {
            *queue = Queue { search: *search, first: node, last: node };
        } else {
            nodes[queue.last].next = node;
            queue.last = node;
        }
    }
}
