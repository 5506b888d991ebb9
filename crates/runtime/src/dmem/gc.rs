//! Lists of allocations that are let go together.

use super::Dmem;

/// References to allocations that end together, as those of a load that failed half way. One
/// allocation may be on several lists; it goes with its last reference, wherever that is.
#[derive(Default)]
pub struct GcList(Vec<Dmem>);

impl GcList {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a reference.
    pub fn push(&mut self, memory: Dmem) {
        self.0.push(memory);
    }

    /// How many references there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops each reference, in the order in which they came. The list can be used again.
    pub fn free(&mut self) {
        self.0.drain(..).for_each(drop);
    }
}
