//! Queues of the copy engines for a process: asked for and given back.

use glia_abi::errno::Errno;
use glia_abi::handle::{CoreId, QUEUES_PER_ENGINE, QueueId};
use glia_abi::ioctl::{H2tDmaAllocQueues, H2tDmaFreeQueues};

use super::Call;
use crate::dma::h2t::H2tUse;

/// `H2T_DMA_ALLOC_QUEUES`: all of them or none. The maps say which they are, and the default queue is
/// the core's own. (uncertain: that it is)
pub(crate) fn h2t_dma_alloc_queues(call: &Call<'_>) -> Result<(), Errno> {
    let mut argument: H2tDmaAllocQueues = call.read()?;
    let core = CoreId::new(argument.nc_id.into());
    let own = call.profile().h2t_queue(core).ok_or(Errno::E2BIG)?;
    let (copies, services) = (
        u32::from(argument.copy_cnt),
        u32::from(argument.service_cnt),
    );
    if copies + services >= QUEUES_PER_ENGINE {
        return Err(Errno::E2BIG);
    }
    let mut given = Given {
        call,
        core,
        queues: Vec::new(),
    };
    argument.copy_bmap = given.take(copies, H2tUse::Copies)?;
    argument.service_bmap = given.take(services, H2tUse::Service)?;
    argument.copy_default_queue = own.number;
    call.write(&argument)?;
    given.queues.clear();
    Ok(())
}

/// `H2T_DMA_FREE_QUEUES`: in the order of their numbers, up to the first that fails. (uncertain: that
/// it ends there, and `E2BIG`)
pub(crate) fn h2t_dma_free_queues(call: &Call<'_>) -> Result<(), Errno> {
    let argument: H2tDmaFreeQueues = call.read()?;
    let core = CoreId::new(argument.nc_id.into());
    if call.profile().h2t_queue(core).is_none() {
        return Err(Errno::E2BIG);
    }
    for number in (0..u32::BITS).filter(|number| argument.queue_bmap >> number & 1 != 0) {
        call.device.dma.release_queue(core, number)?;
    }
    Ok(())
}

/// Queues that were given so far; those that are left when it is dropped are taken back.
struct Given<'a> {
    call: &'a Call<'a>,
    core: CoreId,
    queues: Vec<QueueId>,
}

impl Given<'_> {
    /// Asks for queues: the map of their numbers.
    fn take(&mut self, count: u32, used_for: H2tUse) -> Result<u32, Errno> {
        let (dma, pid) = (&self.call.device.dma, self.call.caller.pid);
        let mut map = 0;
        for _ in 0..count {
            let queue = dma.request_queue(pid, self.core, used_for)?;
            self.queues.push(queue);
            map |= 1 << queue.number;
        }
        Ok(map)
    }
}

impl Drop for Given<'_> {
    fn drop(&mut self) {
        let (dma, by) = (&self.call.device.dma, self.call.caller.pid);
        for queue in self.queues.drain(..) {
            // Somebody else may have given it back, and a third may have it by now.
            let _ = dma.release_queue_by(by, self.core, queue.number);
        }
    }
}
