//! Randomness that is the same in every run: splitmix64 from a fixed seed.

/// Where every random sequence of the benches starts.
pub const SEED: u64 = 0x611A_BE0C_2027_0001;

/// A splitmix64 generator.
pub(super) struct Rng(u64);

impl Rng {
    /// The generator of the benches, at its start.
    pub(super) fn seeded() -> Self {
        Self(SEED)
    }

    /// A number below `limit`, 0 if that is 0. The bias is below `limit` in 2^64.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        let scaled = (u128::from(self.next()) * limit as u128) >> 64;
        usize::try_from(scaled).unwrap_or(0)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
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
