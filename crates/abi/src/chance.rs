//! Chance that is the same in every run: a seed decides.
//!
//! Whatever in a machine is left to chance draws from a [`Chance`] of its own, seeded from the
//! machine's seed and from what it is; so one seed gives one trace, whoever else draws.

/// 2^64 over the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A splitmix64 generator: every seed is good, and the numbers that follow from it never change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chance(u64);

impl Chance {
    /// The numbers of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The numbers of one of many that share a seed.
    #[must_use]
    pub fn of(seed: u64, which: u64) -> Self {
        let mut own = Self(seed ^ which.wrapping_add(1).wrapping_mul(STEP));
        Self(own.number())
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        let product = u128::from(self.number()) * u128::from(end);
        // CAST: the upper half.
        (product >> u64::BITS) as u64
    }

    /// From 0 to 1, without 1.
    pub fn fraction(&mut self) -> f64 {
        // CAST: 53 bits are exact.
        #[expect(clippy::cast_precision_loss, reason = "see CAST")]
        let numerator = (self.number() >> 11) as f64;
        numerator / 9_007_199_254_740_992.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        let mut chance = Chance::new(1_234_567);
        let first = [(); 3].map(|()| chance.number());
        assert_eq!(
            first,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn numbers_stay_below_their_end_and_reach_all_of_it() {
        let mut chance = Chance::new(3);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[usize::try_from(chance.below(5)).unwrap()] = true;
            assert!((0.0..1.0).contains(&chance.fraction()));
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(chance.below(0), 0);
    }

    #[test]
    fn those_that_share_a_seed_differ() {
        assert_ne!(Chance::of(7, 0).number(), Chance::of(7, 1).number());
        assert_eq!(Chance::of(7, 1).number(), Chance::of(7, 1).number());
    }
}
