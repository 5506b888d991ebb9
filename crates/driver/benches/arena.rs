//! Arenas alone: the rows of the prototypes' table, for the tree and, where it ends in time, the
//! reference's loop.
//!
//! A unit is 4 KiB and a channel 24 GiB. `alloc` and `free` are timed apart, in batches of
//! [`BATCH`] operations that leave the arena as they found it; `churn` times pairs (free a random
//! live run, take a new one of random size). Ratios against the naive bitmap mean most for the
//! checkerboards and churn, where the coding of its loop does not matter (see its module).
//!
//! Each row is bounded to about a second and a half.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use criterion::{
    BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime,
};
use glia_driver::arena::{Arena, ExtentTree, NaiveBitmap};

/// 24 GiB, the main pool of a channel, in units.
const CHANNEL_UNITS: u32 = 6 * 1024 * 1024;
const MIB_UNITS: u32 = 256;
const GIB_UNITS: u32 = 1024 * MIB_UNITS;
/// Operations between two readings of the clock.
const BATCH: u32 = 64;

/// Random enough to be unpredictable, and the same in each run.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The product of two 32-bit numbers, of which the upper half is below `limit`.
        let scaled = (self.0 >> 32) * u64::from(limit);
        u32::try_from(scaled >> 32).unwrap_or(0)
    }
}

/// A request: units, and the alignment in units.
#[derive(Clone, Copy)]
struct Ask {
    units: u32,
    align_units: NonZeroU32,
}

impl Ask {
    const fn plain(units: u32) -> Self {
        Self {
            units,
            align_units: NonZeroU32::MIN,
        }
    }

    fn aligned(units: u32, align_units: u32) -> Self {
        Self {
            units,
            align_units: NonZeroU32::new(align_units).unwrap_or(NonZeroU32::MIN),
        }
    }

    fn take<A: Arena>(self, arena: &mut A) -> u32 {
        let at = if self.align_units == NonZeroU32::MIN {
            arena.alloc(self.units)
        } else {
            arena.alloc_aligned(self.units, self.align_units)
        };
        at.expect("the arena has room for the whole batch")
    }
}

fn give<A: Arena>(arena: &mut A, at: u32, units: u32) {
    arena.free(at, units).expect("the bench took these units");
}

/// `live` units taken from the start of a channel.
fn behind<A: Arena>(live: u32) -> A {
    let mut arena = A::new(0, CHANNEL_UNITS);
    assert!(live == 0 || arena.alloc_at(0, live));
    arena
}

/// A channel whose first units are all taken but for `holes` of `hole_units` units, one every
/// `stride` units from `first` on.
fn pierced<A: Arena>(holes: u32, hole_units: u32, stride: u32, first: u32) -> A {
    let mut arena = behind::<A>(first + holes * stride);
    for hole in 0..holes {
        give(&mut arena, first + hole * stride, hole_units);
    }
    arena
}

/// Times `alloc` and `free` of one request, in batches.
fn alloc_free<A: Arena>(c: &mut Criterion, name: &str, ask: Ask, batch: u32, make: fn() -> A) {
    let mut group = group::<A>(c, name);
    for timed_alloc in [true, false] {
        let mut arena = make();
        let mut taken = Vec::new();
        group.bench_function(if timed_alloc { "alloc" } else { "free" }, |bencher| {
            bencher.iter_custom(|iters| {
                let batches = iters.div_ceil(u64::from(batch));
                let mut time = Duration::ZERO;
                for _ in 0..batches {
                    let start = Instant::now();
                    for _ in 0..batch {
                        taken.push(ask.take(black_box(&mut arena)));
                    }
                    let between = Instant::now();
                    for at in taken.drain(..) {
                        give(black_box(&mut arena), at, ask.units);
                    }
                    time += if timed_alloc {
                        between - start
                    } else {
                        between.elapsed()
                    };
                }
                per_iters(time, batches * u64::from(batch), iters)
            });
        });
    }
    group.finish();
}

/// Single pages given back at random out of `live` taken ones, then taken again (the lowest first).
fn holes<A: Arena>(c: &mut Criterion, name: &str, live: u32) {
    let mut group = group::<A>(c, name);
    for timed_alloc in [true, false] {
        let mut arena = behind::<A>(live);
        let mut rng = Rng(0x9E37_79B9_7F4A_7C15);
        let mut pages: Vec<u32> = (0..live).collect();
        for last in (1..live).rev() {
            pages.swap(last as usize, rng.below(last + 1) as usize);
        }
        group.bench_function(if timed_alloc { "alloc" } else { "free" }, |bencher| {
            bencher.iter_custom(|iters| {
                let batches = iters.div_ceil(u64::from(BATCH));
                let mut time = Duration::ZERO;
                for _ in 0..batches {
                    let from = rng.below(live - BATCH) as usize;
                    let start = Instant::now();
                    for &page in &pages[from..from + BATCH as usize] {
                        give(black_box(&mut arena), page, 1);
                    }
                    let between = Instant::now();
                    for _ in 0..BATCH {
                        black_box(Ask::plain(1).take(&mut arena));
                    }
                    time += if timed_alloc {
                        between.elapsed()
                    } else {
                        between - start
                    };
                }
                per_iters(time, batches * u64::from(BATCH), iters)
            });
        });
    }
    group.finish();
}

/// Pairs of free and alloc with `live` runs of 1 to `units_max` units; `classes` alignments are in
/// use besides, each asked for once every two thousand pairs.
fn churn<A: Arena>(c: &mut Criterion, name: &str, live: u32, units_max: u32, classes: u32) {
    let mut group = group::<A>(c, name);
    let mut arena = A::new(0, CHANNEL_UNITS);
    let mut rng = Rng(0x2545_F491_4F6C_DD1D);
    let mut runs: Vec<(u32, u32)> = Vec::new();
    let mut pair = |arena: &mut A, rng: &mut Rng| {
        let units = 1 + rng.below(units_max);
        let at = Ask::plain(units).take(arena);
        if runs.len() < live as usize {
            runs.push((at, units));
            return;
        }
        let run = &mut runs[rng.below(live) as usize];
        give(arena, run.0, run.1);
        *run = (at, units);
    };
    for _ in 0..live * 4 {
        pair(&mut arena, &mut rng);
    }
    let keep = |arena: &mut A| {
        for class in 1..=classes {
            let at = Ask::aligned(1, 1 << class).take(arena);
            give(arena, at, 1);
        }
    };
    group.bench_function("pair", |bencher| {
        bencher.iter_custom(|iters| {
            keep(&mut arena);
            let mut time = Duration::ZERO;
            let mut left = iters;
            while left > 0 {
                let now = left.min(2 * 1024);
                let start = Instant::now();
                for _ in 0..now {
                    pair(black_box(&mut arena), &mut rng);
                }
                time += start.elapsed();
                keep(&mut arena);
                left -= now;
            }
            time
        });
    });
    group.finish();
}

/// 340,000 extents of 15 units, each starting one unit past a multiple of 16, and requests for 8
/// units aligned to 16: all extents are long enough, none fits before the free space behind them.
fn adversarial<A: Arena>() -> A {
    pierced::<A>(340_000, 15, 16, 1)
}

/// The first aligned request, which finds no class yet. The clone drops what the last one has
/// built.
fn adversarial_first(c: &mut Criterion) {
    let mut group = group::<ExtentTree>(c, "adversarial_aligned_first");
    let arena = adversarial::<ExtentTree>();
    group.bench_function("alloc", |bencher| {
        bencher.iter_custom(|iters| {
            let mut time = Duration::ZERO;
            for _ in 0..iters {
                let mut arena = arena.clone();
                let start = Instant::now();
                black_box(Ask::aligned(8, 16).take(&mut arena));
                time += start.elapsed();
            }
            time
        });
    });
    group.finish();
}

fn group<'a, A: Arena>(c: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = c.benchmark_group(format!("{name}/{}", A::NAME));
    group.sample_size(11);
    group.warm_up_time(Duration::from_millis(200));
    group.measurement_time(Duration::from_millis(500));
    group
}

/// Scales the time of `done` operations to the `iters` that were asked for.
fn per_iters(time: Duration, done: u64, iters: u64) -> Duration {
    time.mul_f64(iters as f64 / done as f64)
}

fn rows<A: Arena>(c: &mut Criterion, slow_batch: u32) {
    const PAGE: Ask = Ask::plain(1);
    alloc_free::<A>(c, "empty_4k", PAGE, BATCH, || behind(0));
    alloc_free::<A>(c, "empty_1g", Ask::plain(GIB_UNITS), 16, || behind(0));
    alloc_free::<A>(c, "behind_1m_4k", PAGE, BATCH, || behind(1_000_000));
    holes::<A>(c, "holes_1m_4k", 1_000_000);
    let board = || pierced(GIB_UNITS / 2, 1, 2, 0);
    alloc_free::<A>(
        c,
        "checkerboard_2m",
        Ask::plain(2 * MIB_UNITS),
        slow_batch,
        board,
    );
    alloc_free::<A>(
        c,
        "checkerboard_64k_aligned",
        Ask::aligned(16, 16),
        slow_batch,
        board,
    );
    alloc_free::<A>(
        c,
        "adversarial_aligned",
        Ask::aligned(8, 16),
        slow_batch,
        adversarial,
    );
    churn::<A>(c, "churn_1k", 1_000, 16, 0);
    churn::<A>(c, "churn_10k", 10_000, 16, 0);
}

fn tree(c: &mut Criterion) {
    rows::<ExtentTree>(c, BATCH);
    adversarial_first(c);
    // No power of two: the literal loop over free extents. Mask 19 maps no start of an extent to
    // itself in three cases of four.
    let ask = Ask::aligned(16, 20);
    alloc_free::<ExtentTree>(c, "adversarial_no_power_of_two", ask, 2, adversarial);
    churn::<ExtentTree>(c, "churn_100k", 100_000, 16, 0);
    // 1 to 8 pages, or a million would not fit.
    churn::<ExtentTree>(c, "churn_1m", 1_000_000, 8, 0);
    // What the classes of alignments in use add to plain traffic.
    for classes in [1, 2, 4, 8, 16] {
        churn::<ExtentTree>(
            c,
            &format!("churn_1k_classes_{classes}"),
            1_000,
            16,
            classes,
        );
        churn::<ExtentTree>(
            c,
            &format!("churn_100k_classes_{classes}"),
            100_000,
            16,
            classes,
        );
    }
}

fn naive(c: &mut Criterion) {
    rows::<NaiveBitmap>(c, 2);
}

criterion_group!(arenas, tree, naive);
criterion_main!(arenas);
