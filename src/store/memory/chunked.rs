//! A growable array in chunks of fixed size.
//!
//! Growing a `Vec` of a million slots copies all of them while a shard is locked, and leaves up to
//! half of the new array empty. Here growing allocates one more chunk and copies nothing.

use std::ops::{Index, IndexMut};

/// Items by index, in the order in which they were added.
#[derive(Debug)]
pub(super) struct Chunked<T> {
    chunks: Vec<Vec<T>>,
    len: u32,
}

impl<T> Default for Chunked<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }
}

impl<T> Chunked<T> {
    /// Items per chunk. With slots of 64 bytes a chunk is just under 32 KiB, so that the allocator
    /// can align it without using the next size class. The operating system provides only the pages
    /// that are written.
    const CHUNK: u32 = 511;

    /// Adds an item and returns its index.
    pub(super) fn push(&mut self, item: T) -> u32 {
        match self.chunks.last_mut() {
            Some(last) if last.len() < Self::CHUNK as usize => last.push(item),
            Some(_) | None => {
                let mut chunk = Vec::with_capacity(Self::CHUNK as usize);
                chunk.push(item);
                self.chunks.push(chunk);
            }
        }
        self.len += 1;
        self.len - 1
    }

    /// Number of items.
    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    /// All items, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }
}

impl<T> Index<u32> for Chunked<T> {
    type Output = T;

    fn index(&self, index: u32) -> &T {
        &self.chunks[(index / Self::CHUNK) as usize][(index % Self::CHUNK) as usize]
    }
}

impl<T> IndexMut<u32> for Chunked<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.chunks[(index / Self::CHUNK) as usize][(index % Self::CHUNK) as usize]
    }
}
