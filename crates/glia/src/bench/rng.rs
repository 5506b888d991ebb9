//! Randomness that is the same in every run.

use glia_abi::chance::Chance;

/// Where every random sequence of the benches starts.
pub const SEED: u64 = 0x611A_BE0C_2027_0001;

/// The numbers of the benches.
pub(super) struct Rng(Chance);

impl Rng {
    /// The generator of the benches, at its start.
    pub(super) fn seeded() -> Self {
        Self(Chance::new(SEED))
    }

    /// A number below `limit`, 0 if that is 0.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.0.below(limit as u64)).unwrap_or(0)
    }
}

/// Chunk sizes in bytes, whole pages, log-uniform: each doubling is as likely as the next.
pub(super) struct Sizes {
    /// The distribution as a table from which each entry is as likely as the next.
    bytes: Vec<u64>,
}

impl Sizes {
    const ENTRIES: u32 = 4096;

    /// One to `pages_max` pages.
    pub(super) fn log_uniform(pages_max: u32) -> Self {
        let span = f64::from(pages_max + 1).log2();
        let pages = |entry: u32| {
            let log = span * (f64::from(entry) + 0.5) / f64::from(Self::ENTRIES);
            (1..=pages_max)
                .rev()
                .find(|&pages| f64::from(pages).log2() <= log)
        };
        let bytes = (0..Self::ENTRIES)
            .map(|entry| u64::from(pages(entry).unwrap_or(1)) * glia_abi::PAGE_SIZE_BYTES);
        Self {
            bytes: bytes.collect(),
        }
    }

    /// One size at random.
    pub(super) fn draw(&self, rng: &mut Rng) -> u64 {
        self.bytes[rng.below(self.bytes.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_doubling_of_the_size_is_about_as_likely_as_the_next() {
        let sizes = Sizes::log_uniform(16);
        let share = |pages: std::ops::Range<u64>| {
            let inside = sizes
                .bytes
                .iter()
                .filter(|&&bytes| pages.contains(&(bytes / 4096)));
            inside.count() as f64 / f64::from(Sizes::ENTRIES)
        };
        for pages in [1..2, 2..4, 4..8, 8..16] {
            assert!((share(pages.clone()) - 0.245).abs() < 0.005, "{pages:?}");
        }
        assert_eq!(share(1..17), 1.0);
    }

    #[test]
    fn two_generators_draw_the_same() {
        let draws = || {
            let mut rng = Rng::seeded();
            std::iter::repeat_with(|| rng.below(1000))
                .take(100)
                .collect::<Vec<_>>()
        };
        assert_eq!(draws(), draws());
        assert!(draws().iter().all(|&draw| draw < 1000));
    }
}
