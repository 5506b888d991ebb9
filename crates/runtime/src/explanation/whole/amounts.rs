//! How many blocks of each kind: all amounts from none to what is needed, by numbers.

use crate::explanation::holes::Fit;

/// All amounts of some blocks. 0 is the number of none, and the last one that of all; to add a block
/// of a kind adds the same to any number.
pub(super) struct Amounts {
    kinds: Vec<Kind>,
    /// Of each, the counts of its kinds beside each other, in as many bits as they need and one more.
    packed: Vec<u64>,
    /// Those bits more.
    borrows: u64,
}

struct Kind {
    fit: Fit,
    count: usize,
    /// What a block of it adds to the number.
    step: usize,
}

impl Amounts {
    /// `None` if it is more than so many.
    pub(super) fn new(fits: &[Fit], amounts_max: usize) -> Option<Self> {
        let mut kinds: Vec<Kind> = Vec::new();
        // Each kind makes it twice as many at least.
        let kinds_max = amounts_max.checked_ilog2()? as usize;
        for &fit in fits {
            if let Some(kind) = kinds.iter_mut().find(|kind| kind.fit == fit) {
                kind.count += 1;
                continue;
            }
            kinds.push(Kind {
                fit,
                count: 1,
                step: 0,
            });
            if kinds.len() > kinds_max {
                return None;
            }
        }
        let mut amounts = 1_usize;
        for kind in &mut kinds {
            kind.step = amounts;
            let amounts_more = amounts.checked_mul(kind.count + 1);
            amounts = amounts_more.filter(|&amounts| amounts <= amounts_max)?;
        }
        let (mut packed, mut borrows, mut shift) = (vec![0_u64; amounts], 0, 0);
        for kind in &kinds {
            for (number, packed) in packed.iter_mut().enumerate() {
                *packed |= (kind.count_in(number) as u64).checked_shl(shift)?;
            }
            shift += usize::BITS - kind.count.leading_zeros() + 1;
            borrows |= 1_u64.checked_shl(shift - 1)?;
        }
        Some(Self {
            kinds,
            packed,
            borrows,
        })
    }

    /// The number of all blocks.
    pub(super) fn all(&self) -> usize {
        self.packed.len() - 1
    }

    /// Whether of each kind one amount has as many blocks as another: then their numbers can be
    /// subtracted.
    pub(super) fn has(&self, amount: usize, part: usize) -> bool {
        // A kind of which there are too few borrows from the bit above it.
        let left = (self.packed[amount] | self.borrows) - self.packed[part];
        left & self.borrows == self.borrows
    }

    /// Each kind that is in an amount, and the amount without one of it.
    pub(super) fn without_one(&self, amount: usize) -> impl Iterator<Item = (Fit, usize)> {
        let kinds = self.kinds.iter();
        let kinds = kinds.filter(move |kind| kind.count_in(amount) > 0);
        kinds.map(move |kind| (kind.fit, amount - kind.step))
    }
}

impl Kind {
    fn count_in(&self, amount: usize) -> usize {
        amount / self.step % (self.count + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explanation::holes::Align;

    #[test]
    fn an_amount_has_another_that_has_no_more_of_any_kind() {
        let fit = |size_bytes| Fit {
            size_bytes,
            align: Align::None,
        };
        let kinds = [(3, 4096), (1, 8192), (4, 12288)];
        let fits = kinds.map(|(count, size_bytes)| vec![fit(size_bytes); count]);
        let amounts = Amounts::new(&fits.concat(), 40).unwrap();
        assert_eq!(amounts.all(), 39);
        let counts = |number| [number % 4, number / 4 % 2, number / 8];
        for (amount, part) in (0..40).flat_map(|one| (0..40).map(move |other| (one, other))) {
            let mut pairs = counts(amount).into_iter().zip(counts(part));
            let has_all = pairs.all(|(of_amount, of_part)| of_part <= of_amount);
            assert_eq!(amounts.has(amount, part), has_all, "{amount} {part}");
        }
        let less: Vec<_> = amounts.without_one(9).collect();
        assert_eq!(less, [(fit(4096), 8), (fit(12288), 1)]);
        assert!(Amounts::new(&fits.concat(), 39).is_none());
    }
}
