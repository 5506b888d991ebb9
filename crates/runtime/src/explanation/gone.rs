//! A channel as it would be with some chunks gone.

use glia_abi::addr::{BusAddr, Span};
use glia_abi::insight::ChannelSnapshot;

use super::holes::{Bank, Pool};

/// A channel without some of its chunks: where they were are holes.
pub(super) struct Without {
    pub(super) channel: ChannelSnapshot,
    /// Of the chunks that are left, their places in the list of the channel that has all.
    left: Vec<usize>,
}

impl Without {
    /// Without the chunks at some places in the channel's list, which rise.
    pub(super) fn new(bank: &Bank<'_>, gone: &[usize]) -> Self {
        let all = bank.channel;
        let is_gone = |number: &usize| gone.binary_search(number).is_ok();
        let left: Vec<usize> = (0..all.chunks.len())
            .filter(|number| !is_gone(number))
            .collect();
        let chunks = left.iter().filter_map(|&number| all.chunks.get(number));
        let channel = ChannelSnapshot {
            chunks: chunks.cloned().collect(),
            free: bank.pools().flat_map(|pool| holes(&pool, gone)).collect(),
            ..*all
        };
        Self { channel, left }
    }

    /// The same for marks, one for each chunk.
    pub(super) fn marked(bank: &Bank<'_>, is_gone: &[bool]) -> Self {
        let gone = is_gone.iter().enumerate();
        let gone = gone.filter(|(_, is_gone)| **is_gone);
        let gone: Vec<usize> = gone.map(|(number, _)| number).collect();
        Self::new(bank, &gone)
    }

    /// Places in the list that has all chunks, for places in the list of those that are left.
    pub(super) fn numbers(&self, chunks: &[usize]) -> Vec<usize> {
        let numbers = chunks.iter().filter_map(|&chunk| self.left.get(chunk));
        numbers.copied().collect()
    }
}

/// The holes of a pool, and what is gone, joined.
fn holes(pool: &Pool<'_>, gone: &[usize]) -> Vec<Span<BusAddr>> {
    let from = gone.partition_point(|&number| number < pool.chunks_before);
    let gone = gone.iter().skip(from);
    let gone = gone.map_while(|number| pool.chunks.get(number - pool.chunks_before));
    let ends = |hole: &Span<BusAddr>| (hole.start().get(), hole.end().get());
    let spans = pool.holes.iter().map(ends);
    let mut spans: Vec<_> = spans.chain(gone.map(|chunk| pool.taken(chunk))).collect();
    spans.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::with_capacity(spans.len());
    for (start, end) in spans {
        match joined.last_mut() {
            Some(last) if last.1 >= start => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    let spans = joined.into_iter();
    spans
        .filter_map(|(start, end)| Span::new(BusAddr::new(start), end - start))
        .collect()
}
