//! Usage counters: how many bytes each use holds, by core.
//!
//! On allocation a chunk is charged twice: to the total of its location, and to its category's
//! counter; a free takes back exactly that. Device chunks are charged to their core. Of a host
//! chunk the total is charged to its core and the category to the device as a whole (driver 2.27).
//! Everything here is called under the set's lock.

use glia_abi::handle::{CORES_MAX, CoreId};
use glia_abi::mem::Location;
use glia_abi::usage::Counter;

use crate::chunk::Chunk;

/// One counter, in the reference's three figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Balance {
    /// Bytes charged now (the reference's "total", its running balance).
    pub total_bytes: i64,
    /// Bytes of the last change, whichever its direction (the reference's "present").
    pub present_bytes: u64,
    /// The highest `total_bytes` so far.
    pub peak_bytes: i64,
}

impl Balance {
    pub(crate) fn up(&mut self, size_bytes: u64) {
        self.change(size_bytes, i64::try_from(size_bytes).unwrap_or(i64::MAX));
    }

    pub(crate) fn down(&mut self, size_bytes: u64) {
        self.change(size_bytes, -i64::try_from(size_bytes).unwrap_or(i64::MAX));
    }

    fn change(&mut self, size_bytes: u64, delta_bytes: i64) {
        if size_bytes == 0 {
            return;
        }
        self.total_bytes = self.total_bytes.saturating_add(delta_bytes);
        self.present_bytes = size_bytes;
        self.peak_bytes = self.peak_bytes.max(self.total_bytes);
    }
}

/// Whom a counter is kept for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// The device as a whole.
    Device,
    /// One core.
    Core(CoreId),
}

const KEYS: usize = CORES_MAX as usize + 1;

/// All counters of a device.
#[derive(Debug, Clone)]
pub struct Usage {
    balances: [[Balance; KEYS]; Counter::ALL.len()],
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            balances: [[Balance::default(); KEYS]; Counter::ALL.len()],
        }
    }
}

impl Usage {
    /// One counter of one key. A core that the driver never accepts has a counter of zeros.
    #[must_use]
    pub fn balance(&self, counter: Counter, key: Key) -> Balance {
        self.balances[counter.index()]
            .get(key.index())
            .copied()
            .unwrap_or_default()
    }

    /// Every counter that was ever charged, by counter and then by key, the device as a whole
    /// first.
    pub fn balances(&self) -> impl Iterator<Item = (Counter, Key, Balance)> + '_ {
        Counter::ALL.into_iter().flat_map(move |counter| {
            Key::all()
                .map(move |key| (counter, key, self.balance(counter, key)))
                .filter(|(_, _, balance)| balance.peak_bytes != 0)
        })
    }

    pub(crate) fn charge(&mut self, chunk: &Chunk) {
        for balance in self.of(chunk) {
            balance.up(chunk.size_bytes());
        }
    }

    pub(crate) fn discharge(&mut self, chunk: &Chunk) {
        for balance in self.of(chunk) {
            balance.down(chunk.size_bytes());
        }
    }

    /// The two counters that a chunk is charged to. A category's counter is never a total, so they
    /// are two.
    fn of(&mut self, chunk: &Chunk) -> [&mut Balance; 2] {
        let core = Key::Core(chunk.core()).index();
        let (total, key) = match chunk.location() {
            Location::Host => (Counter::HostTotal, Key::Device.index()),
            Location::Device => (Counter::DeviceTotal, core),
        };
        let (totals, categories) = self.balances.split_at_mut(TOTALS);
        let category = chunk.category().counter(chunk.location()).index() - TOTALS;
        [
            &mut totals[total.index()][core],
            &mut categories[category][key],
        ]
    }
}

/// How many counters are totals; they come first.
const TOTALS: usize = 2;
const _: () = assert!(Counter::HostTotal.index() < TOTALS && Counter::DeviceTotal.index() < TOTALS);

impl Key {
    fn index(self) -> usize {
        match self {
            Self::Device => 0,
            Self::Core(core) => 1 + core.index(),
        }
    }

    fn all() -> impl Iterator<Item = Self> {
        std::iter::once(Self::Device)
            .chain((0..CORES_MAX).map(|core| Self::Core(CoreId::new(core))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_balance_keeps_its_peak_and_its_last_change() {
        let mut balance = Balance::default();
        balance.up(8192);
        balance.down(4096);
        assert_eq!(
            balance,
            Balance {
                total_bytes: 4096,
                present_bytes: 4096,
                peak_bytes: 8192
            }
        );
        balance.up(0);
        assert_eq!(balance.present_bytes, 4096);
    }
}
