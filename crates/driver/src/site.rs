//! Sites: the place in a program that asked for memory.
//!
//! Every allocation carries one, so that a report can say who holds what. A site is a name, stored
//! once; the chunk record holds its number. A caller interns its name at start-up, or
//! [`Sites::here`] at the call, and pays nothing for it per allocation.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::{Arc, Mutex, PoisonError};

/// The number of an interned site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteId(u32);

impl SiteId {
    /// The caller did not say.
    pub const UNKNOWN: Self = Self(0);

    pub(crate) const fn new(raw: u32) -> Self {
        Self(raw)
    }

    /// The number, for traces.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The table of names.
#[derive(Debug)]
pub struct Sites {
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, SiteId>,
}

impl Default for Sites {
    fn default() -> Self {
        let unknown: Arc<str> = Arc::from("unknown");
        let numbers = HashMap::from([(Arc::clone(&unknown), SiteId::UNKNOWN)]);
        Self {
            table: Mutex::new(Table {
                names: vec![unknown],
                numbers,
            }),
        }
    }
}

impl Sites {
    /// The number of `name`, which is stored the first time. When 2^32 names are stored, further
    /// ones are `UNKNOWN`.
    pub fn intern(&self, name: &str) -> SiteId {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&id) = table.numbers.get(name) {
            return id;
        }
        let Ok(number) = u32::try_from(table.names.len()) else {
            return SiteId::UNKNOWN;
        };
        let (id, stored) = (SiteId(number), Arc::<str>::from(name));
        table.names.push(Arc::clone(&stored));
        table.numbers.insert(stored, id);
        id
    }

    /// The site of the line that calls this: `file:line`.
    #[track_caller]
    pub fn here(&self) -> SiteId {
        let at = Location::caller();
        self.intern(&format!("{}:{}", at.file(), at.line()))
    }

    /// The name stored under this number; `None` if it is of another table.
    #[must_use]
    pub fn name(&self, id: SiteId) -> Option<Arc<str>> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.names.get(id.0 as usize).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_stored_once() {
        let sites = Sites::default();
        let weights = sites.intern("load weights");
        assert_eq!(sites.intern("load weights"), weights);
        assert_ne!(sites.intern("scratchpad"), weights);
        assert_eq!(sites.name(weights).as_deref(), Some("load weights"));
        assert_eq!(sites.name(SiteId::UNKNOWN).as_deref(), Some("unknown"));
        assert_eq!(sites.name(SiteId(99)), None);
    }

    #[test]
    fn here_names_file_and_line() {
        let sites = Sites::default();
        let name = sites.name(sites.here()).unwrap();
        assert!(name.contains("site.rs:"), "{name}");
    }
}
