//! Why an allocation failed, who stands in the way, and the least that would have to go.
//!
//! An out-of-memory report says who holds what. It does not say why there was no room: were there
//! too few bytes, or no hole that was large enough, or none at the alignment; is the neighbour on the
//! same HBM the reason, and is the next HBM empty? This says it. With every error of that kind goes
//! an [`Explanation`], as data ([`RuntimeError::explanation`](crate::RuntimeError::explanation)) and
//! as a few lines behind the report.
//!
//! ```text
//!   refused ──► Transport::insight (holes, chunks, owners: the driver's facts) ─┐
//!          └──► live allocations (usage, name, model: the runtime's facts) ─────┴► Explanation
//! ```
//!
//! Nothing in it is a guess. The holes are those of the driver's pools, copied at one moment under
//! their lock, right after the refusal and once what was taken in vain is given back; places are
//! judged by the driver's own rules; the set to free is the least that there is, not a good one (and
//! where that is not known, it says so: [`Opening::is_least`]). What nobody knows is said to be unknown: of blocks of
//! other processes the driver knows owner, core, size and category, and neither usage nor name.
//!
//! The moment of the look is not that of the refusal: if other threads or processes free memory in
//! between, the explanation says that there is room now ([`Cause::Passing`]).
//!
//! | part | what it is |
//! | --- | --- |
//! | `cause` | the kinds of want |
//! | `bank` | an HBM without room, put together |
//! | `look` | a request and a bank: is there room, why not, what makes room |
//! | `blocks` | what must be freed, put together as it is looked at |
//! | `holes` | pools as a request sees them |
//! | `evict` | the least set to free |
//! | `unload` | what goes back only as models are unloaded |
//! | `gone` | a channel with some chunks gone |
//! | `whole` | the same where several blocks have to be had together |
//! | `scratchpad` | the place of the contiguous scratchpad's next pages |
//! | `tables` | host memory, handles, attach slots |
//! | `text` | the words |
//!
//! **What this does not do.** A real device node shows nobody its pools, and so there is no
//! explanation of what it refuses.

mod bank;
mod blocks;
mod cause;
mod evict;
mod gone;
mod holes;
mod look;
mod scratchpad;
mod tables;
#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the banks of these tests are small"
)]
mod tests;
mod text;
mod unload;
mod whole;

use glia_abi::handle::{Channel, CoreId, DeviceId, Pid};
use glia_abi::insight::PoolSnapshot;

pub use bank::{BankExplanation, BankRoom, Holder, Opening, Piece, PoolRoom, Request, Unload};
pub(crate) use blocks::Own;
pub use blocks::{Block, Blocks, Owner};
pub use cause::Cause;
pub use holes::PoolPart;
pub use tables::{HandleExplanation, HostExplanation, Share, SlotExplanation, SlotHolder};
pub(crate) use unload::{ScratchBook, ScratchUser};

/// Why an allocation failed, or a device could not be opened, for want of something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Explanation {
    /// An HBM had no room.
    Bank(Box<BankExplanation>),
    /// There was no host memory.
    Host(HostExplanation),
    /// There was no handle.
    Handles(HandleExplanation),
    /// There was no attach slot.
    Slots(SlotExplanation),
}

impl Explanation {
    /// Of a request for HBM. `None` if the snapshot has no such channel.
    pub(crate) fn of_bank(
        snapshot: PoolSnapshot,
        request: Request,
        own: Own,
        cores_of: impl Fn(Channel) -> Vec<CoreId>,
    ) -> Option<Self> {
        let bank = BankExplanation::new(snapshot, request, own, cores_of)?;
        Some(Self::Bank(Box::new(bank)))
    }

    /// Of a request for host memory.
    pub(crate) fn of_host(
        device: DeviceId,
        asked_bytes: u64,
        snapshot: &PoolSnapshot,
        own: &Own,
    ) -> Self {
        Self::Host(HostExplanation::new(device, asked_bytes, snapshot, own))
    }

    /// Of a request that got no handle.
    pub(crate) fn of_handles(device: DeviceId, snapshot: &PoolSnapshot, own: &Own) -> Self {
        Self::Handles(HandleExplanation::new(device, snapshot, own))
    }

    /// Of a device that could not be opened.
    pub(crate) fn of_slots(
        device: DeviceId,
        process: Option<Pid>,
        snapshot: &PoolSnapshot,
    ) -> Self {
        Self::Slots(SlotExplanation::new(device, process, snapshot))
    }

    /// Why, in one word.
    #[must_use]
    pub fn cause(&self) -> Cause {
        match self {
            Self::Bank(bank) => bank.cause,
            Self::Host(_) => Cause::HostMemory,
            Self::Handles(_) => Cause::HandleTable,
            Self::Slots(_) => Cause::ProcessSlots,
        }
    }

    /// The explanation of an HBM without room.
    #[must_use]
    pub fn bank(&self) -> Option<&BankExplanation> {
        match self {
            Self::Bank(bank) => Some(bank),
            Self::Host(_) | Self::Handles(_) | Self::Slots(_) => None,
        }
    }
}
