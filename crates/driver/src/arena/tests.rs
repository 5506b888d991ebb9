//! Both arenas against the contract: by hand, exhaustively when tiny, by random operations, and at
//! a size where the tree is deep.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::{Arena, Extent, ExtentTree, FreeError, NaiveBitmap};

const EVEN_BASE: u64 = 0;
const ODD_BASE: u64 = 0x0001_0000_0000_0001;
const BASES: [u64; 6] = [EVEN_BASE, 1, 6, 0xFFFF_FFFE, ODD_BASE, (1 << 52) - 3];

fn align(units: u32) -> NonZeroU32 {
    NonZeroU32::new(units).unwrap_or(NonZeroU32::MIN)
}

fn extent(start: u32, len: u32) -> Extent {
    Extent { start, len }
}

/// An arena with the units of `taken` taken.
fn arena_with<A: Arena>(base_unit: u64, len_units: u32, taken: &[Extent]) -> A {
    let mut arena = A::new(base_unit, len_units);
    for run in taken {
        assert!(arena.alloc_at(run.start, run.len));
    }
    arena
}

fn extents<A: Arena>(arena: &A) -> Vec<Extent> {
    arena.free_extents().collect()
}

/// What every arena keeps: books that balance, and extents that are ordered, apart and inside.
fn assert_invariants<A: Arena>(arena: &A) {
    let extents = extents(arena);
    let free: u32 = extents.iter().map(|extent| extent.len).sum();
    assert_eq!(free, arena.free_units());
    assert!(
        extents
            .iter()
            .all(|extent| extent.len > 0 && extent.end() <= arena.len_units())
    );
    assert!(extents.windows(2).all(|pair| pair[0].end() < pair[1].start));
    let largest = extents.iter().map(|extent| extent.len).max().unwrap_or(0);
    assert_eq!(largest, arena.largest_free());
}

/// Runs each behaviour on both arenas.
macro_rules! for_both {
    ($($name:ident: $arena:ident => $body:block)*) => {$(
        mod $name {
            use super::*;

            fn behaves<$arena: Arena>() $body

            #[test]
            fn extent_tree() {
                behaves::<ExtentTree>();
            }

            #[test]
            fn naive_bitmap() {
                behaves::<NaiveBitmap>();
            }
        }
    )*};
}

for_both! {
    plain_requests_take_the_lowest_run_that_fits: A => {
        let mut arena = arena_with::<A>(0, 20, &[extent(2, 3), extent(8, 2)]);
        assert_eq!(arena.alloc(3), Some(5));
        assert_eq!(arena.alloc(3), Some(10));
        assert_eq!(arena.alloc(1), Some(0));
        assert_eq!(extents(&arena), [extent(1, 1), extent(13, 7)]);
    }

    requests_for_nothing_or_for_more_than_all_are_refused: A => {
        let mut arena = A::new(0, 8);
        assert_eq!(arena.alloc(0), None);
        assert_eq!(arena.alloc(9), None);
        assert_eq!(arena.alloc(u32::MAX), None);
        assert_eq!(arena.alloc_aligned(0, align(4)), None);
        assert_eq!(arena.alloc_aligned(9, align(4)), None);
        assert_eq!(arena.alloc_aligned(u32::MAX, align(3)), None);
        assert!(!arena.alloc_at(3, 0));
        assert!(!arena.alloc_at(0, 9));
        assert_eq!(arena.free_units(), 8);
    }

    an_arena_of_no_units_refuses_everything: A => {
        let mut arena = A::new(7, 0);
        assert_eq!(arena.alloc(1), None);
        assert_eq!(arena.alloc_aligned(1, align(2)), None);
        assert_eq!(arena.alloc_aligned(1, align(3)), None);
        assert!(!arena.alloc_at(0, 1));
        assert_eq!(arena.free(0, 1), Err(FreeError::OutOfRange { start: 0, len: 1, len_units: 0 }));
        assert_eq!((arena.largest_free(), arena.largest_aligned_fit(align(2))), (0, 0));
        assert_eq!(extents(&arena), []);
    }

    a_full_arena_comes_back_whole: A => {
        let mut arena = A::new(0, 100);
        assert_eq!(arena.alloc(100), Some(0));
        assert_eq!(arena.alloc(1), None);
        assert_eq!((arena.free_units(), arena.largest_free()), (0, 0));
        assert_eq!(arena.free(0, 100), Ok(()));
        assert_eq!(extents(&arena), [extent(0, 100)]);
    }

    alignment_is_of_the_absolute_address: A => {
        let mut arena = A::new(0x1_0000_0003, 64);
        assert_eq!(arena.alloc_aligned(2, align(16)), Some(13));
        assert_eq!(arena.alloc_aligned(2, align(16)), Some(29));
        assert_eq!(extents(&arena), [extent(0, 13), extent(15, 14), extent(31, 33)]);
    }

    an_alignment_larger_than_the_arena_leaves_one_place_or_none: A => {
        let mut with_place = A::new((1 << 40) - 5, 20);
        assert_eq!(with_place.alloc_aligned(3, align(1 << 31)), Some(5));
        assert_eq!(with_place.alloc_aligned(3, align(1 << 31)), None);
        let mut without = A::new((1 << 40) + 5, 20);
        assert_eq!(without.alloc_aligned(1, align(1 << 31)), None);
    }

    an_alignment_that_is_no_power_of_two_is_bit_arithmetic: A => {
        // Mask 4 rounds a unit with that bit set up to 8, and leaves the others where they are.
        let mut arena = arena_with::<A>(0, 32, &[extent(0, 3)]);
        assert_eq!(arena.alloc_aligned(2, align(5)), Some(3));
        assert_eq!(arena.alloc_aligned(2, align(5)), Some(9));
        // From unit 5 the arithmetic leads to 9, which is taken; unit 8 is never looked at. From 11
        // it leads to 11.
        assert_eq!(arena.alloc_aligned(1, align(5)), Some(11));
    }

    fixed_placement_takes_free_runs_only: A => {
        let mut arena = arena_with::<A>(0, 16, &[extent(4, 2)]);
        assert!(!arena.alloc_at(3, 2));
        assert!(!arena.alloc_at(5, 2));
        assert!(!arena.alloc_at(15, 2));
        assert!(!arena.alloc_at(u32::MAX, 2));
        assert!(arena.alloc_at(8, 3));
        assert!(arena.alloc_at(0, 4));
        assert_eq!(extents(&arena), [extent(6, 2), extent(11, 5)]);
    }

    freeing_between_two_free_extents_merges_both: A => {
        let mut arena = arena_with::<A>(0, 12, &[extent(4, 4)]);
        assert_eq!(arena.free(4, 4), Ok(()));
        assert_eq!(extents(&arena), [extent(0, 12)]);
    }

    part_of_a_taken_run_can_be_given_back: A => {
        let mut arena = arena_with::<A>(0, 12, &[extent(0, 12)]);
        assert_eq!(arena.free(3, 2), Ok(()));
        assert_eq!(arena.free(9, 3), Ok(()));
        assert_eq!(arena.free(5, 1), Ok(()));
        assert_eq!(extents(&arena), [extent(3, 3), extent(9, 3)]);
    }

    freeing_a_run_that_is_not_all_taken_changes_nothing: A => {
        let mut arena = arena_with::<A>(0, 12, &[extent(2, 3), extent(7, 3)]);
        let before = extents(&arena);
        for (start, len) in [(1, 2), (4, 2), (2, 8), (0, 1), (0, 12), (11, 1)] {
            assert_eq!(arena.free(start, len), Err(FreeError::NotTaken { start, len }));
        }
        assert_eq!(extents(&arena), before);
    }

    freeing_outside_the_arena_changes_nothing: A => {
        let mut arena = arena_with::<A>(0, 12, &[extent(0, 12)]);
        for (start, len) in [(0, 0), (11, 2), (12, 1), (u32::MAX, 1), (1, u32::MAX)] {
            let refused = FreeError::OutOfRange { start, len, len_units: 12 };
            assert_eq!(arena.free(start, len), Err(refused));
        }
        assert_eq!(arena.free_units(), 0);
    }

    largest_aligned_fit_counts_from_the_first_aligned_unit: A => {
        let arena = arena_with::<A>(3, 40, &[extent(12, 2)]);
        // Free: 0..12 and 14..40; units 1, 5, 13, 21, 29 and 37 are multiples of 4 or 8 in absolute
        // terms.
        assert_eq!(arena.largest_aligned_fit(align(1)), 26);
        assert_eq!(arena.largest_aligned_fit(align(4)), 23);
        assert_eq!(arena.largest_aligned_fit(align(8)), 19);
        assert_eq!(arena.largest_aligned_fit(align(64)), 0);
    }
}

#[test]
fn the_largest_arena_works_to_its_last_unit() {
    // Its end is the number that the tree pads with.
    let mut arena = ExtentTree::new((1 << 52) - 1, u32::MAX);
    assert_eq!(arena.alloc_aligned(1, align(1 << 31)), Some(1));
    assert!(arena.alloc_at(u32::MAX - 1, 1));
    assert_eq!(arena.alloc(u32::MAX - 3), Some(2));
    assert_eq!(arena.free(u32::MAX - 1, 1), Ok(()));
    assert_eq!(arena.free(2, u32::MAX - 3), Ok(()));
    assert_eq!(extents(&arena), [extent(0, 1), extent(2, u32::MAX - 2)]);
    arena.check();
}

#[test]
fn a_fresh_tree_is_small() {
    assert!(ExtentTree::new(0, u32::MAX).heap_bytes() < 1024);
}

#[test]
fn a_checkerboard_of_a_channel_stays_within_ten_bytes_a_hole() {
    const PAIRS: u32 = 100_000;
    for backwards in [false, true] {
        let mut arena = arena_with::<ExtentTree>(0, 2 * PAIRS, &[extent(0, 2 * PAIRS)]);
        for pair in 0..PAIRS {
            let at = if backwards {
                2 * (PAIRS - 1 - pair)
            } else {
                2 * pair
            };
            assert_eq!(arena.free(at, 1), Ok(()));
        }
        arena.check();
        let bytes = arena.heap_bytes();
        assert!(
            bytes < 11 * PAIRS as usize,
            "{bytes} bytes, backwards: {backwards}"
        );
    }
}

#[test]
fn alignments_that_are_used_no_more_cost_nothing_after_a_while() {
    let mut arena = fragmented(0, 4_000);
    for log in 1..=20 {
        arena.alloc_aligned(1, align(1 << log));
    }
    assert_eq!(arena.class_count(), 20);
    for _ in 0..20_000 {
        for align_units in [1, 4] {
            let at = arena.alloc_aligned(1, align(align_units));
            assert_eq!(at.map(|at| arena.free(at, 1)), Some(Ok(())));
        }
    }
    assert_eq!(arena.class_count(), 1);
    arena.check();
}

/// A tree with `holes` holes of 1 to 3 units and a free end.
fn fragmented(base_unit: u64, holes: u32) -> ExtentTree {
    let mut arena = arena_with::<ExtentTree>(base_unit, holes * 10, &[extent(0, holes * 8)]);
    for hole in 0..holes {
        assert_eq!(arena.free(hole * 8 + hole % 5, 1 + hole % 3), Ok(()));
    }
    arena
}

// --- The contract's loop, a third time ---

/// The loop as the contract writes it, over one `bool` a unit (`true`: taken), in wide integers.
fn literal(taken: &[bool], base_unit: u64, units: u32, align_units: u32) -> Option<u32> {
    let len = u128::from(len_of(taken));
    let mask = u128::from(align_units - 1);
    let off = u128::from(base_unit) & mask;
    let mut start = 0;
    loop {
        let free = (start..len_of(taken)).find(|&unit| !taken[unit as usize])?;
        let i = ((u128::from(free) + off + mask) & !mask) - off;
        if units == 0 || i + u128::from(units) > len {
            return None;
        }
        let i = u32::try_from(i).ok()?;
        match (i..i + units).find(|&unit| taken[unit as usize]) {
            None => return Some(i),
            Some(j) => start = j + 1,
        }
    }
}

/// The largest free run from a unit that the arithmetic maps to itself.
fn literal_fit(taken: &[bool], base_unit: u64, align_units: u32) -> u32 {
    let mask = u64::from(align_units - 1);
    let off = base_unit & mask;
    let answered = (0..len_of(taken)).filter(|&unit| (u64::from(unit) + off) & mask == 0);
    let run = |unit: u32| {
        taken[unit as usize..]
            .iter()
            .take_while(|&&taken| !taken)
            .map(|_| 1)
            .sum()
    };
    answered.map(run).max().unwrap_or(0)
}

fn len_of(taken: &[bool]) -> u32 {
    taken.iter().map(|_| 1).sum()
}

fn from_bits<A: Arena>(base_unit: u64, taken: &[bool]) -> A {
    let mut arena = A::new(base_unit, len_of(taken));
    for unit in (0..len_of(taken)).filter(|&unit| taken[unit as usize]) {
        assert!(arena.alloc_at(unit, 1));
    }
    arena
}

fn answers_like_the_literal_loop<A: Arena>(base_unit: u64, taken: &[bool]) {
    let mut arena = from_bits::<A>(base_unit, taken);
    for align_units in 1..=12 {
        let fit = arena.largest_aligned_fit(align(align_units));
        assert_eq!(
            fit,
            literal_fit(taken, base_unit, align_units),
            "{taken:?} {align_units}"
        );
        for units in 0..=len_of(taken) + 1 {
            let answer = arena.alloc_aligned(units, align(align_units));
            let expected = literal(taken, base_unit, units, align_units);
            assert_eq!(
                answer, expected,
                "{taken:?} at {base_unit}: {units} by {align_units}"
            );
            assert!(answer.is_none() || units <= fit);
            if let Some(at) = answer {
                assert_eq!(arena.free(at, units), Ok(()));
            }
        }
    }
}

#[test]
fn every_tiny_arena_answers_like_the_literal_loop() {
    for len in 0..=10_usize {
        for bits in 0..1_u32 << len {
            let taken: Vec<bool> = (0..len).map(|unit| bits >> unit & 1 == 1).collect();
            for base_unit in [0, 1, 6, ODD_BASE + 2] {
                answers_like_the_literal_loop::<ExtentTree>(base_unit, &taken);
                answers_like_the_literal_loop::<NaiveBitmap>(base_unit, &taken);
            }
        }
    }
}

// --- Random operations ---

/// One operation. Numbers are reduced to the arena at hand when it is applied.
#[derive(Debug, Clone)]
enum Op {
    Alloc {
        units: u32,
    },
    Aligned {
        units: u32,
        align_units: NonZeroU32,
    },
    At {
        at: u32,
        units: u32,
    },
    /// Gives back what a live request took, but for some units at its start and at its end.
    Free {
        pick: usize,
        skip: u32,
        drop: u32,
    },
    /// Any range, most of them wrong.
    FreeRange {
        at: u32,
        units: u32,
    },
}

/// The tree and its model, and what is live in them.
struct Pair {
    tree: ExtentTree,
    model: NaiveBitmap,
    live: Vec<Extent>,
}

impl Pair {
    fn new(base_unit: u64, len_units: u32) -> Self {
        Self {
            tree: ExtentTree::new(base_unit, len_units),
            model: NaiveBitmap::new(base_unit, len_units),
            live: Vec::new(),
        }
    }

    /// Applies one operation to both and compares the answers.
    fn apply(&mut self, op: &Op) {
        let len_units = self.model.len_units();
        match *op {
            Op::Alloc { units } => {
                let at = self.model.alloc(units);
                assert_eq!(self.tree.alloc(units), at, "{op:?}");
                self.live
                    .extend(at.map(|start| Extent { start, len: units }));
            }
            Op::Aligned { units, align_units } => {
                let at = self.model.alloc_aligned(units, align_units);
                assert_eq!(self.tree.alloc_aligned(units, align_units), at, "{op:?}");
                self.live
                    .extend(at.map(|start| Extent { start, len: units }));
            }
            Op::At { at, units } => {
                let at = at % (len_units + 2);
                let taken = self.model.alloc_at(at, units);
                assert_eq!(self.tree.alloc_at(at, units), taken, "{op:?}");
                self.live.extend(taken.then_some(Extent {
                    start: at,
                    len: units,
                }));
            }
            Op::Free { .. } if self.live.is_empty() => {}
            Op::Free { pick, skip, drop } => {
                let run = self.live.swap_remove(pick % self.live.len());
                let skip = skip.min(run.len - 1);
                let given = extent(
                    run.start + skip,
                    run.len - skip - drop.min(run.len - skip - 1),
                );
                let kept = [
                    extent(run.start, skip),
                    extent(given.end(), run.end() - given.end()),
                ];
                self.live
                    .extend(kept.into_iter().filter(|kept| kept.len > 0));
                assert_eq!(self.model.free(given.start, given.len), Ok(()), "{op:?}");
                assert_eq!(self.tree.free(given.start, given.len), Ok(()), "{op:?}");
            }
            Op::FreeRange { at, units } => {
                let at = at % (len_units + 2);
                let answer = self.model.free(at, units);
                assert_eq!(self.tree.free(at, units), answer, "{op:?}");
                if answer.is_ok() {
                    self.forget(extent(at, units));
                }
            }
        }
        assert_eq!(self.tree.free_units(), self.model.free_units());
    }

    /// Cuts a run out of the live ones.
    fn forget(&mut self, run: Extent) {
        let cut = |live: &Extent| {
            let before = extent(
                live.start,
                run.start.clamp(live.start, live.end()) - live.start,
            );
            let after_start = run.end().clamp(live.start, live.end());
            [before, extent(after_start, live.end() - after_start)]
        };
        self.live = self
            .live
            .iter()
            .flat_map(cut)
            .filter(|live| live.len > 0)
            .collect();
    }

    /// Everything that can be asked of both is equal, and the tree is in order.
    fn compare(&self, aligns: &[NonZeroU32]) {
        self.tree.check();
        assert_invariants(&self.tree);
        assert!(self.tree.free_extents().eq(self.model.free_extents()));
        let live: u32 = self.live.iter().map(|live| live.len).sum();
        assert_eq!(live + self.tree.free_units(), self.tree.len_units());
        for &align_units in aligns {
            let fit = self.model.largest_aligned_fit(align_units);
            assert_eq!(
                self.tree.largest_aligned_fit(align_units),
                fit,
                "{align_units}"
            );
        }
    }
}

fn any_align() -> impl Strategy<Value = NonZeroU32> {
    prop_oneof![
        3 => (1_u32..8).prop_map(|log| align(1 << log)),
        1 => (8_u32..32).prop_map(|log| align(1 << log)),
        2 => (1_u32..40).prop_map(align),
        1 => (1_u32..=u32::MAX).prop_map(align),
    ]
}

fn any_op(units_max: u32) -> impl Strategy<Value = Op> {
    let units = move || prop_oneof![8 => 1..=units_max / 16 + 2, 1 => 0..=units_max + 1];
    prop_oneof![
        4 => units().prop_map(|units| Op::Alloc { units }),
        4 => (units(), any_align()).prop_map(|(units, align_units)| Op::Aligned { units, align_units }),
        2 => (any::<u32>(), units()).prop_map(|(at, units)| Op::At { at, units }),
        6 => (any::<usize>(), 0..3_u32, 0..3_u32)
            .prop_map(|(pick, skip, drop)| Op::Free { pick, skip, drop }),
        2 => (any::<u32>(), units()).prop_map(|(at, units)| Op::FreeRange { at, units }),
    ]
}

fn small_case() -> impl Strategy<Value = (u64, u32, Vec<Op>)> {
    let ops = |len_units| proptest::collection::vec(any_op(len_units), 1..120);
    (proptest::sample::select(&BASES[..]), 0..200_u32).prop_flat_map(
        move |(base_unit, len_units)| (Just(base_unit), Just(len_units), ops(len_units)),
    )
}

fn medium_case() -> impl Strategy<Value = (u64, u32, Vec<Op>)> {
    let ops = proptest::collection::vec(any_op(60), 1..400);
    (proptest::sample::select(&BASES[..]), 1_000..6_000_u32, ops)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() })]

    #[test]
    fn small_arenas_agree_after_each_operation((base_unit, len_units, ops) in small_case(), aligned in any_align()) {
        let mut pair = Pair::new(base_unit, len_units);
        for op in &ops {
            pair.apply(op);
            pair.compare(&[align(2), align(8), align(6), aligned]);
        }
    }

    #[test]
    fn medium_arenas_that_start_fragmented_agree((base_unit, len_units, ops) in medium_case(), aligned in any_align()) {
        let mut pair = Pair::new(base_unit, len_units);
        // Single units with gaps of 1 to 4: several hundred extents, so that the tree has inner
        // nodes from the start.
        let mut at = 0;
        while at < len_units {
            pair.apply(&Op::At { at, units: 1 });
            at += 2 + at % 4;
        }
        for (count, op) in ops.iter().enumerate() {
            pair.apply(op);
            if count % 16 == 0 {
                pair.compare(&[align(2), align(16), align(6), aligned]);
            }
        }
        pair.compare(&[aligned]);
    }
}

// --- Deep trees ---

/// Marsaglia's xorshift64: the same numbers in each run.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The upper half of a product with a number below 2^32 is below `limit`.
        let scaled = (self.0 >> 32) * u64::from(limit);
        u32::try_from(scaled >> 32).unwrap_or(0)
    }

    fn op(&mut self, free_share: u32) -> Op {
        let units = 1 + self.below(6);
        let share = self.below(100);
        if share < free_share {
            let (skip, drop) = if self.below(4) == 0 { (1, 1) } else { (0, 0) };
            return Op::Free {
                pick: self.below(u32::MAX) as usize,
                skip,
                drop,
            };
        }
        match share % 16 {
            0..8 => Op::Alloc { units },
            8..11 => Op::Aligned {
                units,
                align_units: align(1 << self.below(9)),
            },
            11 => Op::Aligned {
                units,
                align_units: align(3 + self.below(30)),
            },
            12..15 => Op::At {
                at: self.below(1 << 31),
                units,
            },
            _ => Op::FreeRange {
                at: self.below(1 << 31),
                units,
            },
        }
    }
}

const DEEP_UNITS: u32 = 300_000;

#[test]
fn deep_trees_agree_through_growth_and_decay() {
    let aligns = [align(2), align(8), align(256), align(24), align(1 << 20)];
    let mut rng = Rng(0x9E37_79B9_7F4A_7C15);
    let mut pair = Pair::new(ODD_BASE, DEEP_UNITS);
    let mut levels = Vec::new();
    // Taking more than is given back, the other way round, and level.
    for free_share in [10, 70, 45, 65, 20] {
        for count in 1..=40_000 {
            pair.apply(&rng.op(free_share));
            if count % 5_000 == 0 {
                pair.compare(&aligns);
                levels.push(pair.tree.levels());
            }
        }
    }
    assert!(
        levels.iter().filter(|&&levels| levels >= 3).count() > 10,
        "{levels:?}"
    );
}

/// The order in which holes are filled again.
fn filled_again_in(order: impl Fn(&mut Vec<u32>)) {
    const UNITS: u32 = 150_000;
    let mut tree = arena_with::<ExtentTree>(6, UNITS, &[extent(0, UNITS)]);
    let mut bytes_once = None;
    for _ in 0..2 {
        let mut holes: Vec<u32> = (0..UNITS).step_by(3).collect();
        for &at in &holes {
            assert_eq!(tree.free(at, 1), Ok(()));
        }
        tree.check();
        assert_eq!(tree.levels(), 4);
        order(&mut holes);
        for (count, &at) in holes.iter().enumerate() {
            if count == 1_000 {
                assert_eq!(tree.alloc_aligned(2, align(4)), None);
                assert_eq!(tree.class_count(), 1);
            }
            assert!(tree.alloc_at(at, 1));
            if count % 5_000 == 0 {
                tree.check();
            }
        }
        tree.check();
        assert_eq!((tree.free_units(), tree.levels()), (0, 1));
        assert_eq!(
            tree.heap_bytes(),
            *bytes_once.get_or_insert(tree.heap_bytes())
        );
    }
}

#[test]
fn nodes_emptied_from_the_front_are_used_again() {
    filled_again_in(|_| ());
}

#[test]
fn nodes_emptied_from_the_back_are_used_again() {
    filled_again_in(|holes| holes.reverse());
}

#[test]
fn nodes_emptied_at_random_are_used_again() {
    filled_again_in(|holes| {
        let mut rng = Rng(0x2545_F491_4F6C_DD1D);
        for last in (1..50_000).rev() {
            holes.swap(last as usize, rng.below(last + 1) as usize);
        }
    });
}
