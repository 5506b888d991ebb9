//! The names of a sink: each text once, with its number.

use std::collections::HashMap;
use std::sync::Arc;

use glia_abi::event::NameId;

/// A table of names, numbered from 0 in the order in which they were first asked for.
#[derive(Default)]
pub(super) struct Names {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, NameId>,
}

impl Names {
    /// The number of a text, and whether it is new. `None` when there are 2^32 of them.
    pub(super) fn number(&mut self, text: &str) -> Option<(NameId, bool)> {
        if let Some(&name) = self.numbers.get(text) {
            return Some((name, false));
        }
        let name = NameId::new(u32::try_from(self.texts.len()).ok()?);
        let text: Arc<str> = Arc::from(text);
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, name);
        Some((name, true))
    }

    /// The text of a number; `None` if it is no number of this table.
    pub(super) fn text(&self, name: NameId) -> Option<&Arc<str>> {
        self.texts.get(name.get() as usize)
    }
}
