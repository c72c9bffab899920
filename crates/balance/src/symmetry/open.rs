//! Where a change leads on.

use alloc::vec::Vec;

use super::NONE;
use crate::topology::Node;

/// Nodes to go to, the nearest first, each once.
#[derive(Debug, Default)]
pub(super) struct Open {
    by_hops: Vec<Vec<Node>>,
    at: usize,
    is_in: Vec<bool>,
}

impl Open {
    /// Adds one, no nearer than the one that came out last, unless there is no way from it.
    pub(super) fn add(&mut self, hops: u32, node: Node) {
        if hops == NONE {
            return;
        }
        if self.is_in.len() <= node.index() {
            self.is_in.resize(node.index() + 1, false);
        }
        if core::mem::replace(&mut self.is_in[node.index()], true) {
            return;
        }
        if self.by_hops.len() <= hops as usize {
            self.by_hops.resize(hops as usize + 1, Vec::new());
        }
        self.by_hops[hops as usize].push(node);
    }

    /// Takes the nearest one out; after the last one, it begins anew.
    pub(super) fn next(&mut self) -> Option<Node> {
        while let Some(nodes) = self.by_hops.get_mut(self.at) {
            if let Some(node) = nodes.pop() {
                self.is_in[node.index()] = false;
                return Some(node);
            }
            self.at += 1;
        }
        self.at = 0;
        None
    }
}
