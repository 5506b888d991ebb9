//! What is done to a device.

use glia_abi::fault::FaultPoint;
use glia_abi::handle::{Channel, CoreId, Pid, Region};
use glia_abi::mem::{Lifespan, Location};
use glia_abi::usage::Category;
use glia_driver::alloc::AllocRequest;
use proptest::prelude::*;
use proptest::sample::select;

use super::machine::Order;
use crate::support::{MIB, PAGE};

/// One operation; picks are taken modulo what there is.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Alloc(Pid, AllocRequest),
    Free(Pid, usize),
    AddRef(usize),
    Access(usize, Edge, u64),
    Search(usize, Edge),
    Publish(usize),
    IssueHandle(u32),
    FreeHandle(usize),
    Pin(usize),
    PinHandle(usize),
    PinAt(usize, Edge),
    Unpin(usize),
    Open(Pid),
    /// So many processes in a row.
    OpenMany(u32),
    Close(Pid),
    /// The first half of a close alone: a descriptor that was duplicated.
    Flush(Pid),
    /// The second half alone.
    Release(Pid),
    Expire(Pid, Lifespan),
    FailHost(Order),
    FailKernel(FaultPoint, Order),
    Teardown(Pid),
}

/// An offset by where it is measured from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Edge {
    Start(u64),
    End(i64),
    Raw(u64),
}

impl Edge {
    /// The offset in a chunk of that size.
    pub(super) fn offset(self, size: u64) -> u64 {
        match self {
            Self::Start(offset) | Self::Raw(offset) => offset,
            Self::End(offset) => size.wrapping_add_signed(offset),
        }
    }
}

/// Processes: more than there are attach slots.
const PIDS: u32 = 20;

pub(super) fn pid(number: u32) -> Pid {
    Pid::new(100 + number % PIDS)
}

pub(super) fn any_op() -> impl Strategy<Value = Op> {
    let pick = any::<usize>;
    let order = || (0..3_u32, 1..5_u32).prop_map(|(skip, count)| Order { skip, count });
    let point = select(vec![
        FaultPoint::Alloc,
        FaultPoint::ChunkRecord,
        FaultPoint::HandlePage,
    ]);
    let lives = prop_oneof![
        40 => (any_pid(), any_request()).prop_map(|(pid, request)| Op::Alloc(pid, request)),
        9 => (any_pid(), pick()).prop_map(|(pid, chunk)| Op::Free(pid, chunk)),
        5 => pick().prop_map(Op::AddRef),
        4 => (pick(), any_edge(), any_length()).prop_map(|(chunk, offset, size)| Op::Access(chunk, offset, size)),
        4 => (pick(), any_edge()).prop_map(|(chunk, offset)| Op::Search(chunk, offset)),
    ];
    let handles = prop_oneof![
        8 => pick().prop_map(Op::Publish),
        2 => (1..4_u32).prop_map(Op::IssueHandle),
        3 => pick().prop_map(Op::FreeHandle),
    ];
    let pins = prop_oneof![
        3 => pick().prop_map(Op::Pin),
        2 => pick().prop_map(Op::PinHandle),
        2 => (pick(), any_edge()).prop_map(|(chunk, offset)| Op::PinAt(chunk, offset)),
        5 => pick().prop_map(Op::Unpin),
    ];
    let ends = prop_oneof![
        6 => any_pid().prop_map(Op::Open),
        1 => (2..20_u32).prop_map(Op::OpenMany),
        5 => any_pid().prop_map(Op::Close),
        1 => any_pid().prop_map(Op::Flush),
        1 => any_pid().prop_map(Op::Release),
        3 => (any_pid(), select(Lifespan::ALL.to_vec())).prop_map(|(pid, lifespan)| Op::Expire(pid, lifespan)),
    ];
    let faults = prop_oneof![
        3 => order().prop_map(Op::FailHost),
        3 => (point, order()).prop_map(|(point, order)| Op::FailKernel(point, order)),
    ];
    prop_oneof![
        900 => lives,
        210 => handles,
        180 => pins,
        150 => ends,
        60 => faults,
        1 => any_pid().prop_map(Op::Teardown),
    ]
}

/// Mostly a few, so that they meet themselves again.
fn any_pid() -> impl Strategy<Value = Pid> {
    prop_oneof![3 => 0..3_u32, 1 => 0..PIDS].prop_map(pid)
}

fn any_edge() -> impl Strategy<Value = Edge> {
    prop_oneof![
        3 => (0..(64_u64 << 10)).prop_map(Edge::Start),
        3 => (-9000..9000_i64).prop_map(Edge::End),
        1 => (-1..=1_i64).prop_map(Edge::End),
        1 => (0..(3 * MIB)).prop_map(Edge::Start),
        1 => any::<u64>().prop_map(Edge::Raw),
        1 => ((u64::MAX - 9000)..=u64::MAX).prop_map(Edge::Raw),
    ]
}

fn any_length() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..(64_u64 << 10), 2 => 0..2_u64, 1 => any::<u64>(), 1 => (u64::MAX - 9000)..=u64::MAX]
}

fn any_size() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => (1..64_u64).prop_map(|pages| pages * PAGE),
        4 => (1..16_u64).prop_map(|n| n << 16),
        4 => 1..(2 * MIB),
        4 => (1..12_u64).prop_map(|n| n * MIB),
        1 => select(vec![512 << 10, (512 << 10) + 1, 256 << 10, 1 << 20, 2 << 20]),
        1 => select(vec![0, u64::MAX, i64::MAX.unsigned_abs(), 1 << 63]),
    ]
}

fn any_align() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => Just(0_u64),
        3 => (11..25_u32).prop_map(|order| 1 << order),
        2 => 1..(1_u64 << 18),
        1 => select(vec![4095, 4096, 4097, 0x7fff_ffff, 0x8000_0000, u64::MAX]),
    ]
}

fn any_request() -> impl Strategy<Value = AllocRequest> {
    let host = prop::bool::weighted(0.25);
    let category = prop_oneof![5 => 7..19_u32, 3 => Just(19), 1 => any::<u32>(), 1 => 0..7_u32];
    // Channels 2 and 3 exist on some devices, channel 4 on none.
    let channel = prop_oneof![16 => 0..2_u32, 4 => 2..4_u32, 1 => 4..6_u32];
    let core = prop_oneof![24 => 0..8_u32, 1 => 8..10_u32];
    let lifespan = select(Lifespan::ALL.to_vec());
    let numbers = (channel, any::<u32>(), core);
    (any_size(), any_align(), host, category, numbers, lifespan).prop_map(
        |(size_bytes, align, host, category, (channel, region, core), lifespan)| AllocRequest {
            align_bytes: if host && align < 1 << 20 { 0 } else { align },
            location: if host {
                Location::Host
            } else {
                Location::Device
            },
            region: Region::new(region),
            core: CoreId::new(core),
            lifespan,
            category: Category(category),
            ..AllocRequest::device(size_bytes, Channel::new(channel))
        },
    )
}
