//! A bank from which blocks are taken as the driver would, one after the other.

use std::collections::BTreeSet;

use glia_abi::addr::{BusAddr, Span};
use glia_abi::insight::ChunkFacts;

use crate::explanation::evict::{self, Place};
use crate::explanation::holes::{Bank, Fit, Pool};

/// The holes of a bank, from which blocks are taken as the driver would.
pub(super) struct Room<'a> {
    bank: &'a Bank<'a>,
    pools: Vec<(Pool<'a>, Vec<Span<BusAddr>>)>,
    /// What was asked for last, and before which hole of each pool there is no room for it.
    last: Option<Fit>,
    from: Vec<usize>,
}

impl<'a> Room<'a> {
    /// With some chunks freed, told by their places in the channel's list.
    pub(super) fn new(bank: &'a Bank<'a>, freed: &BTreeSet<usize>) -> Self {
        let pools = bank.pools().map(|pool| {
            let chunks = pool.chunks.iter().zip(pool.chunks_before..);
            let freed = chunks.filter(|(_, number)| freed.contains(number));
            let freed = freed.map(|(chunk, _)| pool.taken(chunk));
            let mut spans: Vec<_> = pool.holes.iter().copied().map(ends).chain(freed).collect();
            spans.sort_unstable();
            let mut joined: Vec<(u64, u64)> = Vec::with_capacity(spans.len());
            for (start, end) in spans {
                match joined.last_mut() {
                    Some(last) if last.1 >= start => last.1 = last.1.max(end),
                    _ => joined.push((start, end)),
                }
            }
            (pool, joined.into_iter().filter_map(span).collect())
        });
        let pools: Vec<_> = pools.collect();
        Self {
            bank,
            last: None,
            from: vec![0; pools.len()],
            pools,
        }
    }

    /// Takes a block; where it lies. `None` for no room.
    pub(super) fn take(&mut self, fit: Fit) -> Option<u64> {
        if self.last.replace(fit) != Some(fit) {
            self.from.fill(0);
        }
        let prefers_small = self.bank.prefers_small(fit);
        let mut order: Vec<usize> = (0..self.pools.len()).collect();
        if prefers_small {
            order.reverse();
        }
        for at in order {
            let (pool, holes) = self.pools.get_mut(at)?;
            let from = self.from.get_mut(at)?;
            let rest = holes.get(*from..).unwrap_or_default();
            let Some(place) = (Pool {
                holes: rest,
                ..*pool
            })
            .place(fit) else {
                *from = holes.len();
                continue;
            };
            let number = holes.partition_point(|hole| hole.end().get() <= place);
            *from = number;
            let (start, end) = ends(*holes.get(number)?);
            let left = [(start, place), (place.checked_add(fit.size_bytes)?, end)];
            holes.splice(number..=number, left.into_iter().filter_map(span));
            return fit.align.divides(place).then_some(place);
        }
        None
    }

    /// The least that must be freed for a block, beside what has been freed and taken.
    pub(super) fn least(
        &self,
        fit: Fit,
        freed: &BTreeSet<usize>,
        may: impl Fn(&ChunkFacts) -> bool,
    ) -> Option<Place> {
        let places = self.pools.iter().filter_map(|(pool, holes)| {
            let chunks = (pool.chunks_before..).zip(pool.chunks);
            let (numbers, chunks): (Vec<_>, Vec<_>) = chunks
                .filter(|(number, _)| !freed.contains(number))
                .map(|(number, chunk)| (number, chunk.clone()))
                .unzip();
            let pool = Pool {
                holes,
                chunks: &chunks,
                ..*pool
            };
            let mut place = evict::least(&pool, &evict::fillings(&pool), fit, &may)?;
            for chunk in &mut place.chunks {
                *chunk = *numbers.get(*chunk)?;
            }
            Some(place)
        });
        places.min_by_key(Place::cost)
    }
}

fn ends(span: Span<BusAddr>) -> (u64, u64) {
    (span.start().get(), span.end().get())
}

/// `None` for one without bytes.
fn span((start, end): (u64, u64)) -> Option<Span<BusAddr>> {
    let size_bytes = end.checked_sub(start).filter(|&bytes| bytes > 0)?;
    Span::new(BusAddr::new(start), size_bytes)
}
