//! Several blocks that have to be had together, like those of a scratchpad reservation.
//!
//! The driver is asked for one after the other, and each goes to the lowest place that has room. So
//! whether there is room for all is found by doing what the driver would do, on a copy of the holes.
//!
//! What to free is exact where the blocks are alike, as pages are ([`runs`]).
//!
//! Where blocks differ, the first fit may put a small one where a large one was to go, and there is
//! no such order in it. All sets are tried where few chunks can be freed. Else chunks are freed for
//! one block after the other, and those that turn out to be spare are taken out again, the largest
//! first: what is left is enough, but another set may be smaller.

mod room;
mod runs;
mod tree;

use glia_abi::insight::ChunkFacts;

use self::room::Room;
use self::runs::Runs;
use super::evict::Place;
use super::holes::{Bank, Fit};

/// All sets of so many chunks are tried.
const CHUNKS_TRIED_MAX: usize = 12;
/// Turns of the search among blocks that differ, and chunks that are then tried to be spare;
const TURNS_MAX: usize = 256;
/// and chunks that are looked at in all of them.
const LOOKS_MAX: usize = 1 << 21;

/// What to free for all blocks.
pub(super) struct Freed {
    pub(super) place: Place,
    /// Whether no other set has fewer bytes.
    pub(super) is_least: bool,
}

/// Whether the driver would give all of these now.
pub(super) fn has_room(bank: &Bank<'_>, fits: &[Fit]) -> bool {
    place_of_first(bank, fits, &[]).is_some()
}

/// Where the first of these would be, if all can be had with some chunks freed: for each, by its place
/// in the channel's list, whether it is.
fn place_of_first(bank: &Bank<'_>, fits: &[Fit], is_freed: &[bool]) -> Option<u64> {
    let mut room = Room::new(bank, is_freed);
    let mut places = fits.iter().map(|&fit| room.take(fit));
    let first = places.next()??;
    places.all(|place| place.is_some()).then_some(first)
}

/// What must be freed for all of these, of chunks that may be; `None` if nothing helps.
pub(super) fn least(
    bank: &Bank<'_>,
    fits: &[Fit],
    may: impl Fn(&ChunkFacts) -> bool,
) -> Option<Freed> {
    let first = *fits.first()?;
    let alike = match fits.iter().all(|fit| *fit == first) {
        true => Runs::new(bank, first, fits.len(), &may),
        false => None,
    };
    let can_go = candidates(bank, &may);
    let (is_freed, is_least) = match alike {
        Some(runs) => (marks(bank, runs.least(fits.len())?), true),
        None if can_go.len() <= tried_max(bank, fits) => (of_few(bank, fits, &can_go)?, true),
        None => {
            let all = || marks(bank, can_go.iter().map(|&(number, _)| number));
            let is_freed = one_by_one(bank, fits, &may).unwrap_or_else(all);
            place_of_first(bank, fits, &is_freed)?;
            (without_spare(bank, fits, is_freed), false)
        }
    };
    let at = place_of_first(bank, fits, &is_freed)?;
    let chunks = bank.channel.chunks.iter().zip(&is_freed).enumerate();
    let freed = chunks.filter(|(_, (_, is_freed))| **is_freed);
    let bytes = freed.clone().map(|(_, (chunk, _))| chunk.span.size_bytes());
    Some(Freed {
        place: Place {
            at,
            bytes: bytes.fold(0, u64::saturating_add),
            chunks: freed.map(|(number, _)| number).collect(),
        },
        is_least,
    })
}

/// Some chunks, by their places in the channel's list, marked among all.
fn marks(bank: &Bank<'_>, freed: impl IntoIterator<Item = usize>) -> Vec<bool> {
    let mut is_freed = vec![false; bank.channel.chunks.len()];
    mark(&mut is_freed, freed, true);
    is_freed
}

fn mark(is_freed: &mut [bool], chunks: impl IntoIterator<Item = usize>, to: bool) {
    for number in chunks {
        if let Some(mark) = is_freed.get_mut(number) {
            *mark = to;
        }
    }
}

/// The chunks that may be freed, with their bytes.
fn candidates(bank: &Bank<'_>, may: impl Fn(&ChunkFacts) -> bool) -> Vec<(usize, u64)> {
    let chunks = bank.channel.chunks.iter().enumerate();
    let chunks = chunks.filter(|(_, chunk)| may(chunk));
    chunks
        .map(|(number, chunk)| (number, chunk.span.size_bytes()))
        .collect()
}

/// The least of all sets of these chunks; `None` if none helps.
fn of_few(bank: &Bank<'_>, fits: &[Fit], can_go: &[(usize, u64)]) -> Option<Vec<bool>> {
    let sets = (0..1_u32 << can_go.len()).map(|set| {
        let picked = can_go.iter().enumerate();
        let picked = picked.filter(|(bit, _)| set >> bit & 1 == 1);
        let picked: Vec<(usize, u64)> = picked.map(|(_, &one)| one).collect();
        let bytes: u64 = picked.iter().map(|(_, bytes)| bytes).sum();
        (bytes, picked.len(), set, picked)
    });
    let mut sets: Vec<_> = sets.collect();
    sets.sort_unstable_by_key(|&(bytes, count, set, _)| (bytes, count, set));
    let sets = sets.into_iter().map(|(.., picked)| picked);
    let mut sets = sets.map(|picked| marks(bank, picked.into_iter().map(|(number, _)| number)));
    sets.find(|is_freed| place_of_first(bank, fits, is_freed).is_some())
}

/// How often all blocks can be placed.
fn turns(bank: &Bank<'_>, fits: &[Fit]) -> usize {
    LOOKS_MAX / (bank.channel.chunks.len() + fits.len()).max(1)
}

/// Of how many chunks all sets can be tried.
fn tried_max(bank: &Bank<'_>, fits: &[Fit]) -> usize {
    let sets = turns(bank, fits).max(1);
    CHUNKS_TRIED_MAX.min(sets.ilog2() as usize)
}

/// A set that is enough: for one block after the other, the least for it. `None` if that leads nowhere,
/// or takes too long.
fn one_by_one(
    bank: &Bank<'_>,
    fits: &[Fit],
    may: impl Fn(&ChunkFacts) -> bool,
) -> Option<Vec<bool>> {
    let mut is_freed = marks(bank, []);
    // LIMIT: each turn frees more.
    for _ in 0..turns(bank, fits).min(TURNS_MAX) {
        let mut room = Room::new(bank, &is_freed);
        let Some(refused) = fits.iter().find(|fit| room.take(**fit).is_none()) else {
            return Some(is_freed);
        };
        let more = room.least(*refused, &may)?.chunks;
        if more.is_empty() {
            return None;
        }
        mark(&mut is_freed, more, true);
    }
    None
}

/// Leaves out what is not needed, largest first: of what cannot be left out as a whole, each half.
fn without_spare(bank: &Bank<'_>, fits: &[Fit], mut is_freed: Vec<bool>) -> Vec<bool> {
    let mut chunks = candidates(bank, |_| true);
    chunks.retain(|(number, _)| is_freed.get(*number) == Some(&true));
    chunks.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
    let mut parts = vec![chunks.as_slice()];
    let mut left = turns(bank, fits).clamp(16, TURNS_MAX);
    while let Some(part) = parts.pop()
        && left > 0
    {
        left -= 1;
        let numbers = || part.iter().map(|&(number, _)| number);
        mark(&mut is_freed, numbers(), false);
        if place_of_first(bank, fits, &is_freed).is_some() {
            continue;
        }
        mark(&mut is_freed, numbers(), true);
        if part.len() > 1 {
            let (large, small) = part.split_at(part.len() / 2);
            parts.extend([small, large]);
        }
    }
    is_freed
}
