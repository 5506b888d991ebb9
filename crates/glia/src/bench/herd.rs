//! Who lives, in no order: chunks or handles, of which random ones go.
//!
//! Those that go are drawn before the clock starts, and they are put side by side: the figure is to
//! be the driver's, and a caller who picks one of a million handles at random pays for a cache miss
//! of its own.

use super::rng::Rng;

/// All that live, and a die.
pub(super) struct Herd<T> {
    members: Vec<T>,
    rng: Rng,
}

impl<T> Herd<T> {
    pub(super) fn of(members: Vec<T>) -> Self {
        Self {
            members,
            rng: Rng::seeded(),
        }
    }

    /// How many live.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// The die.
    pub(super) fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// `count` different ones at random (all, if there are fewer), to be replaced in place.
    pub(super) fn draw(&mut self, count: usize) -> &mut [T] {
        let first = self.members.len().saturating_sub(count);
        for last in (first..self.members.len()).rev() {
            self.members.swap(last, self.rng.below(last + 1));
        }
        &mut self.members[first..]
    }
}

impl<T: Copy> Herd<T> {
    /// Copies of `count` random ones, one behind the other. Some may come twice.
    pub(super) fn sample(&mut self, count: usize) -> Vec<T> {
        let members = &self.members;
        let pick = |_| members[self.rng.below(members.len())];
        (0..count).map(pick).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_holds_nobody_twice() {
        let mut herd = Herd::of((0..100).collect());
        let mut drawn = herd.draw(64).to_vec();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 64);
        assert_eq!(herd.len(), 100);
    }
}
