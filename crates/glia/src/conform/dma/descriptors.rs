//! Descriptors that the driver checks and copies.

use glia_abi::addr::BusAddr;
use glia_abi::divergence::Divergence;
use glia_abi::errno::Errno;
use glia_abi::mem::Location;
use glia_abi::udma::{DESC_BYTES_MAX, DESC_SIZE_BYTES, Direction};
use glia_driver::dma::Place;
use glia_driver::dma::descriptors::DescriptorCopy;

use super::super::judge::Verdict;
use super::calls::{Doing, Refusal};
use super::content::{Hasher, Piece};
use super::judge::{self, Kind};
use super::session::{Done, Session};
use super::trace::Record;
use super::words::Size;

/// What the reference answers if it does not know whose the descriptors are.
const UNKNOWN_SIDE_RET: i32 = -1;
/// Where a descriptor holds its address.
const ADDRESS_OFFSET: u64 = 8;

impl Session {
    /// Copies descriptors. Where the reference checks others than it copies, and lets them pass,
    /// the copy is followed; where it does so and refuses, the two sides part.
    pub(super) fn copy_descriptors(
        &mut self,
        record: &Record<'_>,
        hasher: &mut Hasher,
        start: Place,
        (source, target): (Place, Place),
        Size(size): Size,
        side: u32,
    ) -> Verdict {
        let core = target.core;
        let doing = Doing {
            core,
            request: (target.location == Location::Device).then(|| (0, vec![size])),
            target: Some((target.at.get(), size)),
            handle: None,
        };
        let case = self.case(record, core, Kind::Sync);
        let direction = match side {
            0 => Some(Direction::Tx),
            1 => Some(Direction::Rx),
            _ => None,
        };
        let queue = self.queue(core);
        let before = self.rig.state().books.get(&queue).cloned();
        let (by, memories) = (self.caller, self.memories.clone());
        let mut done = self.perform(&doing, hasher, |dma| match direction {
            // The op layer takes no such side.
            None => Err(Refusal::Unknown),
            Some(direction) => Ok(dma.copy_descriptors(
                by,
                &memories,
                source,
                DescriptorCopy {
                    target,
                    size_bytes: size,
                    direction,
                },
            )?),
        });
        if done.log.is_empty() {
            // The request never reached the context.
            self.rig
                .state()
                .books
                .insert(queue, before.unwrap_or_default());
            if let Some(fields) = done.fields.get_mut("queue") {
                *fields = self.tell_queue(queue, core).into();
            }
        }
        if case.is_zero_size(&done) && size == 0 {
            let followed = self.follow_nothing(&doing, hasher, |dma| {
                dma.copy(by, source, target, DESC_BYTES_MAX)
            });
            return case.judge_followed(&done, &followed);
        }
        let refused = done.fields.get("ret") == Some(&Errno::EINVAL.ret().into());
        let starts_elsewhere = start.at != source.at;
        if !refused {
            let verdict = case.judge(&done);
            let is_refused = record.expected.get("ret") == Some(&Errno::EINVAL.ret().into());
            if is_refused && starts_elsewhere && !self.passes(start.at, size) {
                return judge::declared_and_tainting(Divergence::DescriptorWalk);
            }
            return verdict;
        }
        match record.expected.get("ret") {
            Some(ret) if direction.is_none() && *ret == UNKNOWN_SIDE_RET.into() => {
                done.answer(UNKNOWN_SIDE_RET);
            }
            Some(ret)
                if starts_elsewhere
                    && *ret != Errno::EINVAL.ret().into()
                    && self.passes(start.at, size) =>
            {
                done = self.follow(&doing, hasher, source, target, size);
            }
            _ => return case.judge(&done),
        }
        case.judge_as(Divergence::DescriptorWalk, &done)
    }

    /// Whether the driver would let descriptors pass.
    fn passes(&self, at: BusAddr, size_bytes: u64) -> bool {
        (0..size_bytes / DESC_SIZE_BYTES).all(|number| {
            let at = at.get() + number * DESC_SIZE_BYTES + ADDRESS_OFFSET;
            let bytes = Piece::bytes(&self.rig.content(at, size_of::<u64>() as u64));
            let bytes = bytes.try_into().unwrap_or_default();
            let at = BusAddr::new(u64::from_le_bytes(bytes));
            self.dma.check_address(&self.memories, at).is_ok()
        })
    }

    /// Copies descriptors without a check.
    fn follow(
        &mut self,
        doing: &Doing,
        hasher: &mut Hasher,
        source: Place,
        target: Place,
        size: u64,
    ) -> Done {
        let by = self.caller;
        if target.location == Location::Device {
            return self.perform(doing, hasher, |dma| dma.copy(by, source, target, size));
        }
        let pieces = self.rig.content(source.at.get(), size);
        self.rig.put(target.at.get(), pieces);
        self.perform(doing, hasher, |_| Ok::<_, Refusal>(()))
    }
}

impl Done {
    /// Answers something else.
    fn answer(&mut self, ret: i32) {
        if let Some(value) = self.fields.get_mut("ret") {
            *value = ret.into();
        }
    }
}
