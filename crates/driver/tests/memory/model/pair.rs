//! Both sides of the comparison: each operation on the driver and on the model.

use std::mem::ManuallyDrop;

use glia_abi::addr::BusAddr;
use glia_abi::fault::FaultPoint;
use glia_abi::handle::{Channel, CoreId, McHandle, Pid};
use glia_abi::usage::Category;
use glia_driver::alloc::AllocRequest;
use glia_driver::arena::Arena;
use glia_driver::chunk::{ChunkRef, DeadChunk, Place};
use glia_driver::handles::{HandleError, Object};
use glia_driver::memory::{
    AccessError, ChannelFacts, DeviceMemory, Pinned, PublishError, RefError,
};

use super::device::Device;
use super::machine::{Machine, Order};
use super::ops::{Edge, Op, pid};
use super::reference::{Model, ModelChunk};
use crate::support::MIB;

pub(super) struct Pair<'a, A: Arena> {
    pub(super) real: &'a DeviceMemory<A>,
    pub(super) machine: &'a Machine,
    pub(super) model: Model,
    /// Not dropped when a comparison fails: the driver is at odds with itself then, and a second
    /// panic would hide the first.
    pub(super) pins: ManuallyDrop<Vec<Pinned<'a, A>>>,
}

fn carveout(channel: u32) -> AllocRequest {
    AllocRequest {
        core: CoreId::new(channel),
        category: Category::NCDEV_DEVICE,
        ..AllocRequest::device(16 * MIB, Channel::new(channel))
    }
}

/// The error number with which the reference refuses the device, if it does: no room for a
/// carveout, or a carveout that is not where it must be.
pub(super) fn bring_up_refusal(device: &Device) -> Option<i32> {
    let mut model = Model::new(device);
    match model.place(Pid::new(0), &carveout(0)) {
        Err(_) => Some(-12),
        Ok((at, ..)) => (at != Some(model.pools[0].base)).then_some(-22),
    }
}

impl<'a, A: Arena> Pair<'a, A> {
    pub(super) fn new(device: &Device, real: &'a DeviceMemory<A>, machine: &'a Machine) -> Self {
        assert_eq!(bring_up_refusal(device), None);
        let mut pair = Self {
            real,
            machine,
            model: Model::new(device),
            pins: ManuallyDrop::default(),
        };
        let layout = device.config.layout;
        for (pool, pages) in (0..).zip(&mut pair.model.reserves) {
            for (page, bits) in (0..).zip(pages) {
                let at = real.reserve_page(pool, page).unwrap();
                bits.base = layout.host_to_bus(at).get();
            }
        }
        for (channel, facts) in (0..).zip(real.channel_facts()) {
            pair.take_carveout(channel, &facts);
        }
        // Only now may kernel memory fail, and host memory again.
        pair.model.orders.host = Order::default();
        machine.order(pair.model.orders);
        assert_eq!(real.granule_bytes(), pair.model.granule());
        for number in 0..device.handles_before {
            pair.issue_handle(number);
        }
        pair.check();
        pair
    }

    fn take_carveout(&mut self, channel: u32, facts: &ChannelFacts) {
        let request = carveout(channel);
        let (at, size, place) = self.model.place(Pid::new(0), &request).unwrap();
        let pools = &self.model.pools[channel as usize];
        assert_eq!(facts.region.start().get(), pools.base);
        assert_eq!(
            facts.region.size_bytes(),
            pools.main_size + pools.small_size
        );
        assert_eq!(facts.main_end.get(), pools.base + pools.main_size);
        assert_eq!(facts.small_size_bytes, pools.small_size);
        assert_eq!(facts.effective_base.get(), pools.base + 16 * MIB);
        assert_eq!(at, Some(pools.base));
        let owner = Pid::new(0);
        self.born(facts.carveout, owner, &request, (pools.base, size, place));
    }

    fn born(
        &mut self,
        reference: ChunkRef,
        owner: Pid,
        request: &AllocRequest,
        (at, size, place): (u64, u64, Place),
    ) {
        let chunk = ModelChunk {
            request: *request,
            owner,
            birth: self.model.births,
            at,
            size,
            place,
            refs: 1,
            handle: None,
        };
        self.model.stamp(reference, chunk);
    }

    /// A chunk that lives, or now and then one that lived.
    fn pick(&self, pick: usize) -> Option<ChunkRef> {
        let live = || self.model.chunks.keys();
        let lately = || self.model.dead.iter().rev().take(6);
        let number = pick / 8;
        if pick.is_multiple_of(8) || live().len() == 0 {
            lately().nth(number % lately().len().max(1)).copied()
        } else {
            live().nth(number % live().len()).copied()
        }
    }

    pub(super) fn step(&mut self, op: &Op) {
        match *op {
            Op::Alloc(pid, ref request) => self.alloc(pid, request),
            Op::Free(pid, pick) => {
                let Some(chunk) = self.pick(pick) else { return };
                assert_eq!(self.real.free(pid, chunk), self.model.free(pid, chunk));
            }
            Op::AddRef(pick) => self.add_ref(pick),
            Op::Access(pick, offset, size) => self.access(pick, offset, size),
            Op::Search(pick, offset) => {
                let Some(at) = self.address(pick, offset) else {
                    return;
                };
                let found = self.real.search(at);
                assert_eq!(found.map(|(chunk, _)| chunk), self.covering(at));
                assert!(found.is_none_or(|(_, record)| record.contains(at)));
            }
            Op::Publish(pick) => self.publish(pick),
            Op::IssueHandle(count) => (0..count).for_each(|number| self.issue_handle(number)),
            Op::FreeHandle(pick) => {
                let handle = self.model.handles.pick(pick);
                let expected = self.model.handles.free(handle);
                assert_eq!(self.real.free_handle(handle), expected);
            }
            Op::Pin(pick) => {
                let Some(chunk) = self.pick(pick) else { return };
                let lives = self.model.chunks.contains_key(&chunk);
                match self.real.pin(chunk) {
                    Ok(pin) => self.pinned(pin, lives.then_some(chunk)),
                    Err(error) => {
                        assert_eq!(error, DeadChunk { chunk }.into());
                        assert!(!lives);
                    }
                }
            }
            Op::PinHandle(pick) => {
                let handle = self.model.handles.pick(pick);
                let expected = self.named(handle);
                match self.real.pin_handle(handle) {
                    Some(pin) => self.pinned(pin, expected),
                    None => assert_eq!(expected, None),
                }
            }
            Op::PinAt(pick, offset) => {
                let Some(at) = self.address(pick, offset) else {
                    return;
                };
                let expected = self.covering(at);
                match self.real.pin_at(at) {
                    Some(pin) => self.pinned(pin, expected),
                    None => assert_eq!(expected, None),
                }
            }
            Op::Unpin(pick) => self.unpin(pick),
            Op::Open(pid) => assert_eq!(self.real.open(pid), self.model.open(pid)),
            Op::OpenMany(count) => {
                for number in 0..count {
                    let pid = pid(number);
                    assert_eq!(self.real.open(pid), self.model.open(pid));
                }
            }
            Op::Close(pid) => {
                assert_eq!(self.real.flush(pid), self.model.flush(pid));
                assert_eq!(self.real.release(pid), self.model.release(pid));
            }
            Op::Flush(pid) => assert_eq!(self.real.flush(pid), self.model.flush(pid)),
            Op::Release(pid) => assert_eq!(self.real.release(pid), self.model.release(pid)),
            Op::Expire(pid, lifespan) => {
                let expected = self.model.expire(pid, lifespan);
                assert_eq!(self.real.expire(pid, lifespan), expected);
            }
            Op::FailHost(order) => {
                self.model.orders.host = order;
                self.machine.order(self.model.orders);
            }
            Op::FailKernel(point, order) => {
                let orders = &mut self.model.orders;
                match point {
                    FaultPoint::Alloc => orders.alloc = order,
                    FaultPoint::ChunkRecord => orders.record = order,
                    _ => orders.handle_page = order,
                }
                self.machine.order(*orders);
            }
            Op::Teardown(pid) => {
                assert_eq!(self.real.teardown(pid), self.model.teardown(pid));
            }
        }
    }

    fn alloc(&mut self, pid: Pid, request: &AllocRequest) {
        let expected = self.model.place(pid, request);
        match (self.real.alloc(pid, request), expected) {
            (Ok(reference), Ok((at, size, place))) => {
                let granted = || {
                    let layout = self.model.config.layout;
                    layout.host_to_bus(self.machine.last_granted()).get()
                };
                let at = at.unwrap_or_else(granted);
                self.born(reference, pid, request, (at, size, place));
            }
            (got, expected) => assert_eq!(got.err(), expected.err(), "{request:?}"),
        }
    }

    fn add_ref(&mut self, pick: usize) {
        let Some(chunk) = self.pick(pick) else { return };
        let entry = self.model.chunks.get_mut(&chunk);
        let expected = entry.map(|entry| {
            entry.refs += 1;
            entry.refs
        });
        let expected = expected.ok_or(RefError::Dead(DeadChunk { chunk }));
        assert_eq!(self.real.add_ref(chunk), expected);
    }

    fn access(&self, pick: usize, offset: Edge, size_bytes: u64) {
        let Some(chunk) = self.pick(pick) else { return };
        let Some(entry) = self.model.chunks.get(&chunk) else {
            let expected = Err(AccessError::Dead(DeadChunk { chunk }));
            assert_eq!(self.real.check_access(chunk, 0, size_bytes), expected);
            return;
        };
        let limit_bytes = if entry.request.category.0 == 19 {
            let pools = &self.model.pools[entry.request.channel.index()];
            pools.base + pools.main_size - entry.at
        } else {
            entry.size
        };
        let offset_bytes = offset.offset(limit_bytes);
        let fits = u128::from(offset_bytes) + u128::from(size_bytes) <= u128::from(limit_bytes);
        let expected = fits.then_some(()).ok_or(AccessError::OutOfBounds {
            offset_bytes,
            size_bytes,
            limit_bytes,
        });
        let got = self.real.check_access(chunk, offset_bytes, size_bytes);
        assert_eq!(got, expected);
    }

    fn publish(&mut self, pick: usize) {
        let Some(chunk) = self.pick(pick) else { return };
        let got = self.real.publish(chunk);
        let model = &mut self.model;
        let Some(entry) = model.chunks.get_mut(&chunk) else {
            assert_eq!(got, Err(PublishError::Dead(DeadChunk { chunk })));
            return;
        };
        let expected = match entry.handle.and_then(McHandle::new) {
            Some(handle) => Ok(handle),
            None => {
                let page_fault = &mut model.orders.handle_page;
                model.handles.alloc(Object::Chunk(chunk), page_fault)
            }
        };
        entry.handle = expected.ok().map(McHandle::get);
        assert_eq!(got, expected.map_err(PublishError::Handle));
    }

    fn issue_handle(&mut self, number: u32) {
        let object = Object::Other(number);
        let page_fault = &mut self.model.orders.handle_page;
        let expected: Result<_, HandleError> = self.model.handles.alloc(object, page_fault);
        assert_eq!(self.real.issue_handle(number), expected);
    }

    fn pinned(&mut self, pin: Pinned<'a, A>, expected: Option<ChunkRef>) {
        assert_eq!(Some(pin.chunk()), expected);
        *self.model.pins.entry(pin.chunk()).or_default() += 1;
        self.pins.push(pin);
    }

    fn unpin(&mut self, pick: usize) {
        if self.pins.is_empty() {
            return;
        }
        let number = pick % self.pins.len();
        let pin = self.pins.swap_remove(number);
        self.model.unpin(pin.chunk());
    }

    /// An address in or near a chunk, alive or dead, or anywhere.
    fn address(&self, pick: usize, offset: Edge) -> Option<BusAddr> {
        let chunk = self.pick(pick)?;
        let entry = self.model.chunks.get(&chunk);
        let entry = entry.or_else(|| self.model.held.get(&chunk))?;
        let at = entry.at.wrapping_add(offset.offset(entry.size));
        Some(BusAddr::new(at))
    }

    fn covering(&self, at: BusAddr) -> Option<ChunkRef> {
        let inside = |chunk: &ModelChunk| (chunk.at..chunk.at + chunk.size).contains(&at.get());
        let mut chunks = self.model.chunks.iter();
        chunks.find_map(|(reference, chunk)| inside(chunk).then_some(*reference))
    }

    /// The live chunk that a handle names.
    pub(super) fn named(&self, handle: McHandle) -> Option<ChunkRef> {
        match self.model.handles.find(handle)? {
            Object::Chunk(chunk) => self.model.chunks.contains_key(&chunk).then_some(chunk),
            Object::Other(_) => None,
        }
    }

    /// The end: the device goes, then the pins that are left.
    pub(super) fn finish(mut self) {
        self.step(&Op::Teardown(pid(1)));
        self.check();
        while !self.pins.is_empty() {
            self.unpin(self.pins.len() / 2);
            self.check();
        }
        assert_eq!(self.model.host_used, 0);
        drop(ManuallyDrop::into_inner(self.pins));
    }
}
