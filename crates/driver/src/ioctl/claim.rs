//! Who uses which core: claims, model locks, initialisation.

use std::ops::Range;

use glia_abi::errno::Errno;
use glia_abi::handle::CoreId;
use glia_abi::ioctl::{CinitSetState, Crwl, NcMap, NcMapExt};

use super::Call;
use crate::claims::{CORES, ClaimError, Claimed, Wanted};
use crate::core_init::InitState;
use crate::model_lock::Ask;

/// A core per bit.
type CoreMap = [u64; CORES as usize / 64];

/// `CRWL_NC_RANGE_MARK`. Of the cores it got, the caller sees those of the first 64.
pub(crate) fn nc_range_mark(call: &Call<'_>) -> Result<(), Errno> {
    let mut argument: NcMap = call.read()?;
    let marked = mark(call, argument.nc_count, argument.start_nc, argument.end_nc)?;
    argument.max_nc_available = marked.longest;
    [argument.bitmap, ..] = marked.map();
    marked.answer(call, &argument)
}

/// `CRWL_NC_RANGE_MARK_EXT0`.
pub(crate) fn nc_range_mark_ext0(call: &Call<'_>) -> Result<(), Errno> {
    let mut argument: NcMapExt = call.read()?;
    let marked = mark(call, argument.nc_count, argument.start_nc, argument.end_nc)?;
    argument.max_nc_available = marked.longest;
    argument.bitmap = marked.map();
    marked.answer(call, &argument)
}

/// `CRWL_NC_RANGE_UNMARK`: those of the bits that are the caller's.
pub(crate) fn nc_range_unmark(call: &Call<'_>) -> Result<(), Errno> {
    let argument: NcMap = call.read()?;
    unmark(call, &[argument.bitmap]);
    Ok(())
}

/// `CRWL_NC_RANGE_UNMARK_EXT0`.
pub(crate) fn nc_range_unmark_ext0(call: &Call<'_>) -> Result<(), Errno> {
    let argument: NcMapExt = call.read()?;
    unmark(call, &argument.bitmap);
    Ok(())
}

/// `CRWL_READER_ENTER`.
pub(crate) fn reader_enter(call: &Call<'_>) -> Result<(), Errno> {
    let locks = &call.device.locks;
    locks.reader_enter(&*call.driver.sched, &ask(call)?, call.caller.killed)?;
    Ok(())
}

/// `CRWL_READER_EXIT`.
pub(crate) fn reader_exit(call: &Call<'_>) -> Result<(), Errno> {
    let locks = &call.device.locks;
    locks.reader_exit(&*call.driver.sched, &ask(call)?)?;
    Ok(())
}

/// `CRWL_WRITER_ENTER`. `EALREADY` is an answer with which the caller has the lock, too.
pub(crate) fn writer_enter(call: &Call<'_>) -> Result<(), Errno> {
    let locks = &call.device.locks;
    locks.writer_enter(&*call.driver.sched, &ask(call)?, call.caller.killed)?;
    Ok(())
}

/// `CRWL_WRITER_DOWNGRADE`.
pub(crate) fn writer_downgrade(call: &Call<'_>) -> Result<(), Errno> {
    let locks = &call.device.locks;
    locks.writer_downgrade(&*call.driver.sched, &ask(call)?)?;
    Ok(())
}

/// `CINIT_SET_STATE`. (uncertain: that an unknown state is `EINVAL`)
pub(crate) fn cinit_set_state(call: &Call<'_>) -> Result<(), Errno> {
    let mut argument: CinitSetState = call.read()?;
    let core = CoreId::new(argument.nc_id);
    let init = &call.device.init;
    init.check(core)?;
    let asked = InitState::from_raw(argument.state).ok_or(Errno::EINVAL)?;
    let sched = &*call.driver.sched;
    let state = init.set(sched, call.caller.pid, core, asked, call.caller.killed)?;
    argument.new_state = state.to_raw();
    call.write(&argument)
}

/// What came of a claim that was in order: it is written back in any case.
struct Marked {
    cores: Range<u32>,
    longest: u32,
    refused: Option<ClaimError>,
}

fn mark(call: &Call<'_>, count: u32, first: u32, last: u32) -> Result<Marked, Errno> {
    let wanted = Wanted { count, first, last };
    let claims = &call.driver.claims;
    match claims.mark(call.caller.pid, call.device.first_core(), wanted) {
        Ok(Claimed { cores, longest }) => Ok(Marked {
            cores,
            longest,
            refused: None,
        }),
        Err(refused @ ClaimError::TooFew { longest, .. }) => Ok(Marked {
            cores: 0..0,
            longest,
            refused: Some(refused),
        }),
        Err(refused @ ClaimError::NoRange { .. }) => Err(refused.errno()),
    }
}

fn unmark(call: &Call<'_>, map: &[u64]) {
    let words = (0..).step_by(64).zip(map);
    let cores = words.flat_map(|(first, word)| {
        let is_set = move |bit: &u32| word >> bit & 1 != 0;
        (0..64).filter(is_set).map(move |bit| first + bit)
    });
    let claims = &call.driver.claims;
    claims.unmark(call.caller.pid, call.device.first_core(), cores);
}

impl Marked {
    fn map(&self) -> CoreMap {
        let mut map = CoreMap::default();
        for core in self.cores.clone() {
            if let Some(word) = map.get_mut(core as usize / 64) {
                *word |= 1 << (core % 64);
            }
        }
        map
    }

    /// Tells the caller. One who cannot be told has nothing (divergence `user-fault`).
    fn answer<T>(self, call: &Call<'_>, argument: &T) -> Result<(), Errno>
    where
        T: ::zerocopy::IntoBytes + ::zerocopy::Immutable,
    {
        call.write(argument).inspect_err(|_| {
            let base = call.device.first_core();
            let claims = &call.driver.claims;
            claims.unmark(call.caller.pid, base, self.cores.clone());
        })?;
        match self.refused {
            None => Ok(()),
            Some(refused) => {
                call.driver.tell_refused(call.device, call.caller, &refused);
                Err(refused.errno())
            }
        }
    }
}

/// What the caller of a lock's command asks for.
fn ask(call: &Call<'_>) -> Result<Ask, Errno> {
    let argument: Crwl = call.read()?;
    Ok(Ask {
        process: call.caller.pid,
        core: CoreId::new(argument.nc_id),
        model: argument.uuid,
    })
}
