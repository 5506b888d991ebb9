//! What one visit to cold memory costs on this machine now.
//!
//! With a million live chunks an operation is a few dependent reads of records and nodes that are
//! in no cache, and little else. A shared machine serves such a read in 150 ns or in 600, and
//! changes within minutes; printed beside the figures, this tells the one from the other.

use std::hint::black_box;
use std::time::Instant;

use super::rng::Rng;

/// As large as the records of a million chunks, a cache line each.
const LINES: usize = 1 << 20;
const STEPS: u32 = 100_000;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    next: usize,
}

/// Nanoseconds a step of a random walk over 64 MiB in which each read waits for the one before.
pub(super) fn memory_latency_ns() -> f64 {
    let mut lines: Vec<Line> = (0..LINES).map(|next| Line { next }).collect();
    // Sattolo's shuffle: a permutation that is one single cycle, so that the walk meets no line
    // twice.
    let mut rng = Rng::seeded();
    for last in (1..LINES).rev() {
        let other = rng.below(last);
        (lines[last].next, lines[other].next) = (lines[other].next, lines[last].next);
    }
    let (start, mut at) = (Instant::now(), 0);
    for _ in 0..STEPS {
        at = lines[at].next;
    }
    let time = start.elapsed();
    black_box(at);
    time.as_secs_f64() * 1e9 / f64::from(STEPS)
}
