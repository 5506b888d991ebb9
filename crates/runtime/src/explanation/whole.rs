//! Several blocks that have to be had together, like those of a scratchpad reservation.
//!
//! The driver is asked for one after the other, and each goes to the lowest place that has room. So
//! whether there is room for all is found by doing what the driver would do, on a copy of the holes.
//!
//! What to free is exact where the blocks are alike, as pages are ([`runs`]). Where blocks differ, the
//! first fit may put a small one where a large one was to go, and there is no such order in it. All
//! sets are tried where few chunks can be freed. Where more can, but blocks are of few kinds, sets are
//! looked at from the cheapest on that may be enough ([`search`]). Where that takes too long, chunks
//! are freed for one block after the other, and those that turn out to be spare are taken out again,
//! the largest first: what is left is enough, but another set may be smaller.

mod amounts;
mod room;
mod runs;
mod search;
mod tree;

use glia_abi::insight::ChunkFacts;

use self::room::Room;
use self::runs::{Cost, Runs};
use self::search::Found;
use super::evict::Place;
use super::holes::{Bank, Fit};

/// Looks at runs of blocks that are alike.
const RUN_LOOKS_MAX: usize = 1 << 24;
/// Looks at each chunk that this takes, about.
const RUN_LOOKS: usize = 16;
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
    let first = fits.first()?;
    let alike = match fits.iter().all(|fit| fit == first) {
        true => Runs::new(bank, fits, &[], RUN_LOOKS_MAX, &may),
        false => None,
    };
    let can_go = candidates(bank, &may);
    let (is_freed, is_least) = match alike {
        Some(runs) => (marks(bank, runs.least()?), true),
        None if can_go.len() <= tried_max(bank, fits) => (of_few(bank, fits, &can_go)?, true),
        None => match search::least(bank, fits, &can_go, &may) {
            Found::Least(is_freed) => (is_freed, true),
            Found::Nothing => return None,
            Found::AtLeast(least) => {
                let all = || marks(bank, can_go.iter().map(|&(number, _)| number));
                let is_freed = one_by_one(bank, fits, &may).unwrap_or_else(all);
                place_of_first(bank, fits, &is_freed)?;
                let is_freed = without_spare(bank, fits, is_freed);
                let is_least = cost(bank, &is_freed) <= least;
                (is_freed, is_least)
            }
        },
    };
    let at = place_of_first(bank, fits, &is_freed)?;
    let (bytes, _) = cost(bank, &is_freed);
    let chunks = is_freed.into_iter().enumerate();
    let chunks = chunks.filter(|(_, is_freed)| *is_freed);
    Some(Freed {
        place: Place {
            at,
            bytes,
            chunks: chunks.map(|(number, _)| number).collect(),
        },
        is_least,
    })
}

/// How many looks at chunks and blocks a search for all blocks takes at the most, about, where so many
/// chunks can go.
pub(super) fn looks(bank: &Bank<'_>, fits: &[Fit], can_go: usize) -> usize {
    let each = bank.channel.chunks.len() + fits.len();
    if fits.iter().all(|fit| Some(fit) == fits.first()) {
        return each * RUN_LOOKS;
    }
    match can_go <= tried_max(bank, fits) {
        true => each << can_go,
        false => search::LOOKS_MAX,
    }
}

/// What it costs to free some chunks.
fn cost(bank: &Bank<'_>, is_freed: &[bool]) -> Cost {
    let chunks = bank.channel.chunks.iter().zip(is_freed);
    let freed = chunks.filter(|(_, is_freed)| **is_freed);
    freed.fold((0, 0), |(bytes, count): Cost, (chunk, _)| {
        (bytes.saturating_add(chunk.span.size_bytes()), count + 1)
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

/// A chunk that may be freed, by its place in the channel's list, with its bytes.
type Candidate = (usize, u64);

fn candidates(bank: &Bank<'_>, may: impl Fn(&ChunkFacts) -> bool) -> Vec<Candidate> {
    let chunks = bank.channel.chunks.iter().enumerate();
    let chunks = chunks.filter(|(_, chunk)| may(chunk));
    chunks
        .map(|(number, chunk)| (number, chunk.span.size_bytes()))
        .collect()
}

/// The least of all sets of these chunks; `None` if none helps.
fn of_few(bank: &Bank<'_>, fits: &[Fit], can_go: &[Candidate]) -> Option<Vec<bool>> {
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

/// Leaves out what is not needed, as long as there is something.
fn without_spare(bank: &Bank<'_>, fits: &[Fit], mut is_freed: Vec<bool>) -> Vec<bool> {
    let mut turns_left = turns(bank, fits).clamp(16, TURNS_MAX);
    // LIMIT: each turn leaves something out.
    while leave_out(bank, fits, &mut is_freed, &mut turns_left) {}
    is_freed
}

/// Leaves out what is not needed, largest first: of what cannot be left out as a whole, each half.
/// Whether that was anything.
fn leave_out(bank: &Bank<'_>, fits: &[Fit], is_freed: &mut [bool], turns_left: &mut usize) -> bool {
    let mut chunks = candidates(bank, |_| true);
    chunks.retain(|(number, _)| is_freed.get(*number) == Some(&true));
    chunks.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
    let mut parts = vec![chunks.as_slice()];
    let mut is_less = false;
    while let Some(part) = parts.pop().filter(|part| !part.is_empty())
        && *turns_left > 0
    {
        *turns_left -= 1;
        let numbers = || part.iter().map(|&(number, _)| number);
        mark(is_freed, numbers(), false);
        if place_of_first(bank, fits, is_freed).is_some() {
            is_less = true;
            continue;
        }
        mark(is_freed, numbers(), true);
        if part.len() > 1 {
            let (large, small) = part.split_at(part.len() / 2);
            parts.extend([small, large]);
        }
    }
    is_less
}
