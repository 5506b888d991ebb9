//! Explanations of small banks, against models that try everything.

mod unload;

use glia_abi::PAGE_SIZE_BYTES;
use glia_abi::addr::{BusAddr, Span};
use glia_abi::arch::Arch;
use glia_abi::handle::{Channel, ChunkId, CoreId, DeviceId, McHandle, Pid};
use glia_abi::insight::{
    AttachedProcess, ChannelSnapshot, ChunkFacts, PoolSnapshot, ReserveSnapshot,
};
use glia_abi::mem::{Lifespan, Location};
use glia_abi::mem_usage::MemUsage;
use glia_abi::usage::Category;
use proptest::prelude::*;

use super::*;
use crate::dml::{Allocation, Dml, Facts, ModelId};

const THIS: Pid = Pid::new(7);
const OTHER: Pid = Pid::new(8);
const DRIVER: Pid = Pid::new(0);

/// What a bank is made of, from its start: a hole, a chunk of an owner, or bytes of nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Hole(u64),
    Chunk(u64, Pid),
    Page(u64),
    Gap(u64),
}
use Part::{Chunk, Gap, Hole, Page};

impl Part {
    fn pages(self) -> u64 {
        match self {
            Hole(pages) | Chunk(pages, _) | Page(pages) | Gap(pages) => pages,
        }
    }
}

fn span(page: u64, pages: u64) -> Span<BusAddr> {
    let at = BusAddr::new(page * PAGE_SIZE_BYTES);
    Span::new(at, pages * PAGE_SIZE_BYTES).unwrap()
}

/// A channel from a page on; sizes are in pages.
fn channel(number: u32, base: u64, main: &[Part], small: &[Part]) -> ChannelSnapshot {
    let size = |parts: &[Part]| parts.iter().map(|part| part.pages()).sum::<u64>();
    let mut channel = ChannelSnapshot {
        channel: Channel::new(number),
        region: span(base, size(main) + size(small)),
        main_end: span(base + size(main), 0).start(),
        chunks: Vec::new(),
        free: Vec::new(),
    };
    let mut page = base;
    for &part in main.iter().chain(small) {
        let span = span(page, part.pages());
        page += part.pages();
        let (owner, category) = match part {
            Hole(_) => {
                channel.free.push(span);
                continue;
            }
            Gap(_) => continue,
            Chunk(_, owner) => (owner, Category::TENSORS_DEVICE),
            Page(_) => (THIS, Category::CONTIGUOUS_SCRATCHPAD_DEVICE),
        };
        let birth = channel.chunks.len() as u64;
        channel.chunks.push(ChunkFacts {
            chunk: ChunkId {
                slot: 0,
                generation: 0,
            },
            span,
            owner,
            handle: McHandle::new(u32::from(owner != DRIVER) * (birth as u32 + 1)),
            core: CoreId::new(number * 2 + u32::from(owner == OTHER)),
            category,
            lifespan: Lifespan::CurrentProcess,
            site: "unknown".into(),
            birth,
        });
    }
    channel
}

fn snapshot(channels: Vec<ChannelSnapshot>) -> PoolSnapshot {
    PoolSnapshot {
        channels,
        host_bytes: 0,
        host_chunks: Vec::new(),
        reserves: Vec::new(),
        granule_bytes: PAGE_SIZE_BYTES,
        small_alloc_max_bytes: 0,
        births: 100,
        handle_limit: 4_194_304,
        handles_are_down: false,
        processes: Vec::new(),
        process_limit: 16,
    }
}

/// A request for so many pages on channel 0.
fn request(pages: u64, align_bytes: u64) -> Request {
    Request {
        device: DeviceId::new(0),
        core: CoreId::new(0),
        lnc_size: 1,
        channel: Channel::new(0),
        asked_bytes: pages * PAGE_SIZE_BYTES,
        align_bytes,
        driver_bytes: pages * PAGE_SIZE_BYTES,
        driver_align_bytes: align_bytes,
        usage: MemUsage::Tensor,
        hint: Some("kv".to_owned()),
        is_scratchpad_page: false,
        whole: Vec::new(),
        kept: Vec::new(),
        model: None,
    }
}

/// A request for the first of several blocks: how many, pages of each, and alignment in pages.
fn request_of(pieces: &[(u64, u64, u64)]) -> Request {
    let whole = pieces.iter().map(|&(blocks, pages, step)| Piece {
        blocks,
        size_bytes: pages * PAGE_SIZE_BYTES,
        align_bytes: step * PAGE_SIZE_BYTES,
    });
    let (_, pages, step) = pieces[0];
    Request {
        whole: whole.collect(),
        ..request(pages, step * PAGE_SIZE_BYTES)
    }
}

fn facts(blocks: &[(McHandle, Allocation)]) -> Facts {
    let dml = Dml::new(DeviceId::new(0), Arch::V3.profile(), 0);
    let list = dml.add_list();
    for (handle, block) in blocks {
        dml.enter(list, *handle, block);
    }
    dml.facts(Location::Device)
}

fn explained_by(
    snapshot: &PoolSnapshot,
    request: Request,
    blocks: &[(McHandle, Allocation)],
) -> BankExplanation {
    let own = Own {
        process: Some(THIS),
        blocks: facts(blocks),
        ..Own::default()
    };
    explained_for(snapshot, request, own)
}

fn explained_for(snapshot: &PoolSnapshot, request: Request, own: Own) -> BankExplanation {
    let cores = |channel: Channel| [0, 1].map(|n| CoreId::new(channel.get() * 2 + n)).to_vec();
    BankExplanation::new(snapshot.clone(), request, own, cores).unwrap()
}

fn explained(snapshot: &PoolSnapshot, request: Request) -> BankExplanation {
    explained_by(snapshot, request, &[])
}

/// The bank alone.
fn bank(main: &[Part], small: &[Part], request: Request) -> BankExplanation {
    explained(&snapshot(vec![channel(0, 0, main, small)]), request)
}

/// First pages of what is to be freed.
fn to_free(opening: Option<&Opening>) -> Option<Vec<u64>> {
    let blocks = &opening?.blocks;
    let starts = blocks.iter().map(|block| block.span.start().get());
    Some(starts.map(|at| at / PAGE_SIZE_BYTES).collect())
}

const TWO: &[Part] = &[Chunk(1, DRIVER), Chunk(7, THIS)];

#[test]
fn a_full_bank_wants_capacity_and_names_the_smallest_blocks_beside_each_other() {
    let main = [
        Chunk(4, DRIVER),
        Chunk(5, THIS),
        Chunk(2, THIS),
        Hole(1),
        Chunk(3, OTHER),
    ];
    let found = bank(&main, &[], request(3, 0));
    assert_eq!(found.cause, Cause::Capacity);
    assert_eq!(to_free(found.opening.as_ref()), Some(vec![9]));
    assert_eq!(found.opening.as_ref().unwrap().freed_bytes, 2 * 4096);
    assert_eq!(found.own_opening, None);
    assert_eq!((found.usable_bytes, found.largest_hole_bytes), (4096, 4096));
    assert_eq!(found.most_bytes, Some(11 * 4096));
    assert_eq!(found.neighbour_bytes(), 3 * 4096);
}

#[test]
fn a_neighbour_is_another_logical_core() {
    // NC 1 has three pages. It is a neighbour of NC 0 as long as each is a logical core.
    let main = [Chunk(4, DRIVER), Chunk(5, THIS), Chunk(3, OTHER)];
    let of_lnc = |lnc_size| {
        let request = Request {
            lnc_size,
            ..request(3, 0)
        };
        let found = bank(&main, &[], request);
        let words = Explanation::Bank(Box::new(found.clone())).words();
        (found.neighbour_bytes(), words.contains("neighbours:"))
    };
    assert_eq!(of_lnc(1), (3 * 4096, true));
    assert_eq!(of_lnc(2), (0, false));
}

#[test]
fn what_can_never_fit_has_nothing_to_free() {
    let main = [Chunk(4, DRIVER), Chunk(8, THIS)];
    let found = bank(&main, &[Hole(4)], request(9, 0));
    assert_eq!(
        (found.cause, found.opening.is_none()),
        (Cause::Capacity, true)
    );
    assert_eq!(found.most_bytes, Some(8 * 4096));
    let text = Explanation::Bank(Box::new(found)).words();
    assert!(
        text.starts_with("Why: nd 0 HBM 0 is too small for this. 36.000KB are needed; even with everything freed that can be, no block of more than 32.000KB has room.\n"),
        "{text}"
    );
}

#[test]
fn with_room_on_another_bank_it_is_the_wrong_bank() {
    let channels = vec![
        channel(0, 0, TWO, &[]),
        channel(1, 1000, TWO, &[]),
        channel(2, 2000, &[Chunk(1, DRIVER), Hole(7)], &[]),
    ];
    let found = explained(&snapshot(channels), request(3, 0));
    assert_eq!(found.cause, Cause::WrongBank);
    let roomy: Vec<bool> = found.banks.iter().map(|bank| bank.has_room).collect();
    assert_eq!(roomy, [false, false, true]);
    assert_eq!(found.device_free_bytes, 7 * 4096);
    let text = Explanation::Bank(Box::new(found)).words();
    assert!(
        text.contains("fits on:      HBM 2 (NC 4, NC 5)\n"),
        "{text}"
    );
}

#[test]
fn free_bytes_on_both_sides_of_the_border_are_of_no_use_together() {
    let main = [Chunk(5, THIS), Hole(3)];
    let found = bank(&main, &[Hole(3), Chunk(1, THIS)], request(4, 0));
    assert_eq!(found.cause, Cause::WrongPool);
    assert_eq!(to_free(found.opening.as_ref()), Some(vec![11]));
}

#[test]
fn enough_bytes_in_pieces_are_fragmentation() {
    let main = [Hole(2), Chunk(3, THIS), Hole(2), Chunk(1, OTHER), Hole(2)];
    let found = bank(&main, &[], request(4, 0));
    assert_eq!(found.cause, Cause::Fragmentation);
    assert_eq!(to_free(found.opening.as_ref()), Some(vec![7]));
    assert_eq!(found.opening.unwrap().at, BusAddr::new(5 * 4096));
    // The block between is another process'; without it, this one has to give more.
    assert_eq!(to_free(found.own_opening.as_ref()), Some(vec![2]));
    assert_eq!(found.own_opening.unwrap().freed_bytes, 3 * 4096);
}

#[test]
fn a_hole_that_is_large_enough_only_where_it_is_not_aligned_wants_alignment() {
    let main = [Chunk(1, THIS), Hole(4), Chunk(3, THIS)];
    let found = bank(&main, &[], request(4, 4 * 4096));
    assert_eq!(found.cause, Cause::Alignment);
    assert_eq!(
        (found.largest_hole_bytes, found.largest_fit_bytes),
        (4 * 4096, Some(4096))
    );
    // Page 0 is aligned, and one page less than page 4 and its successors.
    assert_eq!(to_free(found.opening.as_ref()), Some(vec![0]));
}

#[test]
fn an_alignment_that_is_no_power_of_two_is_judged_as_the_driver_does() {
    // By the driver's arithmetic a block may begin at pages 0, 1, 4 and 5.
    let main = [Chunk(2, THIS), Hole(2), Chunk(1, THIS)];
    let found = bank(&main, &[], request(2, 3 * 4096));
    assert_eq!(
        (found.cause, found.largest_fit_bytes),
        (Cause::Alignment, None)
    );
    let text = Explanation::Bank(Box::new(found)).words();
    assert!(text.contains("12288 bytes is no power of two"), "{text}");
}

fn page(pages: u64) -> Request {
    Request {
        is_scratchpad_page: true,
        ..request(pages, 0)
    }
}

#[test]
fn a_block_at_the_only_place_of_a_scratchpad_page_is_named() {
    let main = [Hole(4), Chunk(1, OTHER), Hole(1), Page(2)];
    let found = bank(&main, &[Hole(9)], page(2));
    assert_eq!(found.cause, Cause::ScratchpadPlace);
    assert_eq!(found.page_at, Some(BusAddr::new(4 * 4096)));
    assert_eq!(to_free(found.opening.as_ref()), Some(vec![4]));
    assert_eq!(found.usable_bytes, 5 * 4096);
}

#[test]
fn a_live_page_at_the_place_of_the_next_one_means_that_the_order_is_broken() {
    // The page above was freed first: the counter says 2 pages, and those are taken.
    let main = [Hole(6), Page(2), Hole(2)];
    let found = bank(&main, &[], page(2));
    assert_eq!(found.cause, Cause::ScratchpadOrder);
    assert_eq!(to_free(found.opening.as_ref()), Some(vec![6]));
    assert_eq!(found.opening.unwrap().at, BusAddr::new(8 * 4096));
}

#[test]
fn to_free_one_more_page_out_of_order_may_be_enough() {
    // Of three pages the one above was freed first. Freeing the middle one leaves the counter at one
    // page, and two are free above the lowest.
    let main = [Hole(6), Page(2), Page(2), Hole(2)];
    let found = bank(&main, &[], page(2));
    assert_eq!(found.cause, Cause::ScratchpadOrder);
    assert_eq!(found.opening.as_ref().unwrap().freed_bytes, 2 * 4096);
    assert_eq!(to_free(found.opening.as_ref()), Some(vec![8]));
}

#[test]
fn pages_of_several_sizes_are_not_judged() {
    let main = [Hole(4), Chunk(2, THIS), Page(1), Page(2)];
    let found = bank(&main, &[], page(2));
    assert_eq!((found.cause, found.opening), (Cause::ScratchpadPlace, None));
}

#[test]
fn a_main_pool_without_bytes_for_a_page_wants_capacity() {
    let found = bank(&[Chunk(3, THIS), Hole(1)], &[Hole(9)], page(2));
    assert_eq!((found.cause, found.usable_bytes), (Cause::Capacity, 4096));
}

#[test]
fn room_that_has_come_meanwhile_is_said_to_be_there() {
    let found = bank(&[Hole(4)], &[], request(4, 4096));
    assert_eq!((found.cause, found.opening), (Cause::Passing, None));
    let found = bank(&[Hole(4)], &[], request(0, 0));
    assert_eq!(found.cause, Cause::ZeroSize);
}

#[test]
fn what_only_others_can_free_is_said_to_be_theirs() {
    let found = bank(&[Chunk(3, OTHER), Hole(1)], &[], request(3, 0));
    assert_eq!(to_free(found.opening.as_ref()), Some(vec![0]));
    assert_eq!(found.own_opening, None);
    let text = Explanation::Bank(Box::new(found)).words();
    assert!(
        text.contains("  what this process holds does not suffice\n"),
        "{text}"
    );
}

#[test]
fn memory_that_no_list_has_cannot_be_freed() {
    let main = [Hole(2), Gap(1), Hole(2), Chunk(3, THIS)];
    let found = bank(&main, &[], request(4, 0));
    assert_eq!(to_free(found.opening.as_ref()), Some(vec![5]));
}

#[test]
fn several_blocks_are_explained_as_a_whole() {
    // Three blocks of four pages: one fits.
    let main = [
        Chunk(1, DRIVER),
        Hole(5),
        Chunk(4, THIS),
        Hole(4),
        Chunk(6, OTHER),
        Hole(2),
    ];
    let found = bank(&main, &[], request_of(&[(3, 4, 1)]));
    assert_eq!(found.cause, Cause::Capacity);
    assert_eq!((found.whole_blocks, found.whole_bytes), (3, 12 * 4096));
    // Pages 1 to 12 are three places once page 6 to 9 is free.
    assert_eq!(to_free(found.opening.as_ref()), Some(vec![6]));
    let text = Explanation::Bank(Box::new(found)).words();
    let why = "Why: nd 0 HBM 0 has too little free. 48.000KB in 3 blocks are needed, 44.000KB are free here: 4.000KB too few.\n  asked:        16.000KB for tensors \"kv\" on NC 0, alignment 4.000KB; one of 3 blocks that the reservation lacks, 48.000KB in all\n  to make room: free 16.000KB in 1 block, the least that helps:\n";
    assert!(text.starts_with(why), "{text}");
    // Two fit, and so nothing is wanting.
    let found = bank(&main, &[], request_of(&[(2, 4, 1)]));
    assert_eq!((found.cause, found.opening), (Cause::Passing, None));
    // What has to be kept is not named.
    let kept = Request {
        kept: vec![BusAddr::new(6 * 4096)],
        ..request_of(&[(3, 4, 1)])
    };
    let found = bank(&main, &[], kept);
    assert_eq!(to_free(found.opening.as_ref()), Some(vec![14]));
}

#[test]
fn several_blocks_may_want_alignment_or_be_in_pieces() {
    let main = [Chunk(1, THIS), Hole(8), Chunk(1, THIS), Hole(3)];
    let found = bank(&main, &[], request_of(&[(2, 4, 4)]));
    assert_eq!(found.cause, Cause::Alignment);
    let found = bank(&main, &[], request_of(&[(2, 4, 1), (1, 3, 1)]));
    assert_eq!(found.cause, Cause::Passing);
    let found = bank(&main, &[], request_of(&[(1, 4, 1), (1, 7, 1)]));
    assert_eq!(found.cause, Cause::Fragmentation);
    let text = Explanation::Bank(Box::new(found)).words();
    assert!(
        text.contains("44.000KB are free, in 2 holes, and the largest has 32.000KB; 44.000KB in 2 blocks are needed."),
        "{text}"
    );
}

fn own_block(page: u64, size_bytes: u64) -> Allocation {
    let at = BusAddr::new(page * PAGE_SIZE_BYTES);
    Allocation {
        size_bytes,
        allocated_bytes: size_bytes,
        pa: at,
        align_offset_bytes: 0,
        location: Location::Device,
        usage: MemUsage::Weight,
        core: CoreId::new(0),
        channel: Channel::new(0),
        model: Some(ModelId(1001)),
        hint: Some("layer.3\n\"w\"".into()),
        site: None,
    }
}

#[test]
fn the_words_say_why_first_and_then_what_to_do() {
    let main = [
        Chunk(4, DRIVER),
        Hole(1),
        Chunk(2, THIS),
        Hole(2),
        Chunk(1, OTHER),
        Hole(1),
    ];
    let channels = vec![
        channel(0, 0, &main, &[Hole(1), Chunk(1, THIS)]),
        channel(1, 1000, TWO, &[]),
    ];
    // In the order of their births.
    let handles = [2, 4].map(|number| McHandle::new(number).unwrap());
    let blocks = [
        (handles[0], own_block(5, 5000)),
        (handles[1], own_block(12, 300)),
    ];
    let found = explained_by(&snapshot(channels), request(4, 4096), &blocks);
    let text = Explanation::Bank(Box::new(found)).words();
    assert_eq!(text, "\
Why: nd 0 HBM 0 is fragmented. 20.000KB are free, in 4 holes, and the largest has 8.000KB; 16.000KB are needed in one piece.
  asked:        16.000KB for tensors \"kv\" on NC 0, alignment 4.000KB
  to make room: free 4.000KB in 1 block, the least that helps:
                4.000KB at 0x9000, pid 8, NC 1: tensors_device, usage and name not known here; 97 newer allocations
  or:           this process alone: free 8.000KB in 1 block: \"layer.3\\n\\\"w\\\"\" 8.000KB
  fits here:    up to 8.000KB without freeing anything
  free here:    16.000KB in the main pool (3 holes, largest 8.000KB), 4.000KB in the small pool (1 hole, largest 4.000KB); on the device 20.000KB
  held here:    16.000KB (driver, 1 block), NC 0 12.000KB (this process, pid 7, 2 blocks), NC 1 4.000KB (pid 8, 1 block)
  neighbours:   other cores than NC 0 hold 4.000KB of this HBM, 7.7%
  other HBMs:   HBM 1 100.0% full, 0.000B free
  rounding:     this process asked for 5.176KB on this HBM, and the pools took 12.000KB: 6.824KB more, since blocks are whole pages
");
}

#[test]
fn host_memory_handles_and_slots_have_their_own_words() {
    let mut snapshot = snapshot(vec![channel(0, 0, &[Hole(8)], &[])]);
    snapshot.host_chunks = channel(0, 5000, &[Chunk(2, OTHER), Chunk(1, THIS)], &[]).chunks;
    snapshot.host_bytes = 3 * 4096;
    snapshot.reserves.push(ReserveSnapshot {
        page_size_bytes: 256 << 10,
        free_bytes: 512 << 10,
        largest_bytes: 200 << 10,
    });
    snapshot.handles_are_down = true;
    snapshot.processes.push(AttachedProcess {
        pid: OTHER,
        opens: 2,
    });
    snapshot.process_limit = 1;
    let own = Own {
        process: Some(THIS),
        ..Own::default()
    };
    let device = DeviceId::new(3);
    let host = Explanation::of_host(device, 1 << 30, &snapshot, &own);
    assert_eq!(host.cause(), Cause::HostMemory);
    assert_eq!(host.words(), "\
Why: the host has no 1.000GB in one piece that nd 3 could reach. This is host memory; 32.000KB of HBM are free and do not help.
  reserve:      512.000KB free, in pages; the largest request that it could serve now: 200.000KB
  held:         12.000KB for this device: 8.000KB (pid 8, 1 block), 4.000KB (this process, pid 7, 1 block)
  what helps:   ask for less at once, free host memory, or put the tensor in HBM
");
    let handles = Explanation::of_handles(device, &snapshot, &own);
    assert_eq!(handles.cause(), Cause::HandleTable);
    assert!(
        handles
            .words()
            .contains("at most:      4194302 handles at the same time\n")
    );
    let slots = Explanation::of_slots(device, Some(THIS), &snapshot);
    assert_eq!(slots.cause(), Cause::ProcessSlots);
    assert_eq!(slots.words(), "\
Why: all 1 attach slots of nd 3 are taken: so many processes have it open. This is not want of memory; one of them must end.
  pid 8         has it open 2 times, holds 0.000B of HBM and 8.000KB of host memory
");
}

#[test]
fn however_much_is_in_the_way_the_words_stay_short() {
    let mut main = vec![Chunk(1, DRIVER)];
    for number in 0..200 {
        main.push(Chunk(1, Pid::new(100 + number)));
    }
    let channels = (0..4).map(|number| channel(number, u64::from(number) * 5000, &main, &[]));
    let found = explained(&snapshot(channels.collect()), request(150, 0));
    assert_eq!(found.opening.as_ref().unwrap().blocks.len(), 150);
    let text = Explanation::Bank(Box::new(found)).words();
    assert!(
        text.lines().count() <= 20 && text.contains("and 145 blocks, 580.000KB\n"),
        "{text}"
    );
}

#[test]
fn causes_have_names_of_their_own() {
    let names: std::collections::BTreeSet<_> =
        Cause::ALL.iter().map(|cause| cause.name()).collect();
    assert_eq!(names.len(), Cause::ALL.len());
}

// What follows tries everything.

fn any_part() -> impl Strategy<Value = Part> {
    let owner = prop_oneof![3 => Just(THIS), 2 => Just(OTHER), 1 => Just(DRIVER)];
    prop_oneof![
        3 => (1..5_u64).prop_map(Hole),
        4 => (1..5_u64, owner).prop_map(|(pages, owner)| Chunk(pages, owner)),
        1 => (1..3_u64).prop_map(Gap),
    ]
}

/// Neighbouring holes are one.
fn joined(parts: Vec<Part>) -> Vec<Part> {
    let mut joined: Vec<Part> = Vec::new();
    for part in parts {
        match (joined.last_mut(), part) {
            (Some(Hole(pages)), Hole(more)) => *pages += more,
            _ => joined.push(part),
        }
    }
    joined
}

/// The pages of a pool: whether each is free once some chunks, by their place in the channel, are.
fn free_pages(channel: &ChannelSnapshot, freed: &[usize], from: u64, to: u64) -> Vec<bool> {
    let freed = freed.iter().map(|&number| channel.chunks[number].span);
    let spans: Vec<_> = channel.free.iter().copied().chain(freed).collect();
    (from..to)
        .map(|page| {
            let at = BusAddr::new(page * PAGE_SIZE_BYTES);
            spans.iter().any(|span| span.contains(at))
        })
        .collect()
}

/// Both pools, in pages.
fn borders(channel: &ChannelSnapshot) -> [(u64, u64); 2] {
    let page = |at: BusAddr| at.get() / PAGE_SIZE_BYTES;
    let (start, border, end) = (
        channel.region.start(),
        channel.main_end,
        channel.region.end(),
    );
    [(page(start), page(border)), (page(border), page(end))]
}

/// The most pages that fit at a multiple of `step` pages.
fn largest(channel: &ChannelSnapshot, freed: &[usize], step: u64) -> u64 {
    let mut most = 0;
    for (from, to) in borders(channel) {
        let free = free_pages(channel, freed, from, to);
        for at in (from..to).filter(|at| at % step == 0) {
            let run = free[(at - from) as usize..]
                .iter()
                .take_while(|&&free| free)
                .count();
            most = most.max(run as u64);
        }
    }
    most
}

/// Fewest bytes, and then blocks, of all sets of chunks that make room.
fn least_of_all(
    channel: &ChannelSnapshot,
    may: impl Fn(&ChunkFacts) -> bool,
    pages: u64,
    step: u64,
) -> Option<(u64, usize)> {
    let candidates: Vec<usize> = (0..channel.chunks.len())
        .filter(|&n| may(&channel.chunks[n]))
        .collect();
    let sets = 0..1_u32 << candidates.len();
    let sets = sets.filter_map(|set| {
        let set = candidates
            .iter()
            .enumerate()
            .filter(|(bit, _)| set >> bit & 1 == 1);
        let set: Vec<usize> = set.map(|(_, &number)| number).collect();
        let bytes = set
            .iter()
            .map(|&number| channel.chunks[number].span.size_bytes())
            .sum();
        (largest(channel, &set, step) >= pages).then_some((bytes, set.len()))
    });
    sets.min()
}

fn numbers(channel: &ChannelSnapshot, opening: &Opening) -> Vec<usize> {
    let number = |block: Block| {
        let mut chunks = channel.chunks.iter();
        chunks.position(|chunk| chunk.span == block.span).unwrap()
    };
    opening.blocks.iter().map(number).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn holes_and_sets_to_free_are_those_that_trying_everything_finds(
        base in 0..40_u64,
        main in proptest::collection::vec(any_part(), 1..8),
        small in proptest::collection::vec(any_part(), 0..4),
        pages in 1..12_u64,
        step_bits in 0..4_u32,
    ) {
        let bank = channel(0, base, &joined(main), &joined(small));
        let step = 1 << step_bits;
        let pools = snapshot(vec![bank.clone()]);
        let found = explained(&pools, request(pages, step * PAGE_SIZE_BYTES));

        let in_pages = |bytes: u64| bytes / PAGE_SIZE_BYTES;
        let (hole, fit) = (largest(&bank, &[], 1), largest(&bank, &[], step));
        prop_assert_eq!(in_pages(found.largest_hole_bytes), hole);
        prop_assert_eq!(found.largest_fit_bytes.map(in_pages), Some(fit));
        let can_go = |chunk: &ChunkFacts| chunk.owner != DRIVER;
        let all: Vec<usize> = (0..bank.chunks.len()).filter(|&n| can_go(&bank.chunks[n])).collect();
        prop_assert_eq!(found.most_bytes.map(in_pages), Some(largest(&bank, &all, step)));

        let free = borders(&bank).map(|(from, to)| {
            free_pages(&bank, &[], from, to).iter().filter(|&&free| free).count() as u64
        });
        let cause = match () {
            () if fit >= pages => Cause::Passing,
            () if hole >= pages => Cause::Alignment,
            () if largest(&bank, &all, step) < pages => Cause::Capacity,
            () if free.iter().any(|&free| free >= pages) => Cause::Fragmentation,
            () if free.iter().sum::<u64>() >= pages => Cause::WrongPool,
            () => Cause::Capacity,
        };
        prop_assert_eq!(found.cause, cause);
        if cause == Cause::Passing {
            prop_assert_eq!(found.opening, None);
            return Ok(());
        }
        let least = least_of_all(&bank, can_go, pages, step);
        let opening = found.opening.as_ref();
        prop_assert_eq!(opening.map(|one| (one.freed_bytes, one.blocks.len())), least);
        if let Some(opening) = opening {
            let set = numbers(&bank, opening);
            prop_assert!(largest(&bank, &set, step) >= pages);
            let at = in_pages(opening.at.get());
            prop_assert_eq!(at % step, 0);
            let place = free_pages(&bank, &set, at, at + pages);
            prop_assert!(place.iter().all(|&free| free), "the place that is named is free");
            let is_mixed = opening.blocks.iter().any(|block| block.owner != Owner::This);
            let own = least_of_all(&bank, |chunk| chunk.owner == THIS, pages, step);
            let told = found.own_opening.as_ref();
            let told = told.map(|one| (one.freed_bytes, one.blocks.len()));
            prop_assert_eq!(told, own.filter(|_| is_mixed));
        }
    }

    /// The driver's loop on a bitmap, whatever the alignment is.
    #[test]
    fn room_is_where_the_drivers_search_finds_it(
        base in 0..40_u64,
        main in proptest::collection::vec(any_part(), 1..8),
        small in proptest::collection::vec(any_part(), 0..4),
        pages in 1..6_u64,
        align in 2..12_u64,
        odd in 0..2_u64,
        small_first in any::<bool>(),
    ) {
        let bank = channel(0, base, &joined(main), &joined(small));
        let mut pools = snapshot(vec![bank.clone()]);
        pools.small_alloc_max_bytes = if small_first { 1 << 20 } else { 0 };
        let align_bytes = align * PAGE_SIZE_BYTES + odd * 512;
        let found = explained(&pools, request(pages, align_bytes));

        let search = |(from, to): (u64, u64)| -> Option<u64> {
            let free = free_pages(&bank, &[], from, to);
            let mask = align_bytes.div_ceil(PAGE_SIZE_BYTES) - 1;
            let offset = ((from * PAGE_SIZE_BYTES) & (align_bytes - 1)) / PAGE_SIZE_BYTES;
            let mut start = 0;
            loop {
                let next = (start..to - from).find(|&unit| free[unit as usize])?;
                let at = ((next + offset + mask) & !mask) - offset;
                if at + pages > to - from {
                    return None;
                }
                match (at..at + pages).find(|&unit| !free[unit as usize]) {
                    None => return Some((from + at) * PAGE_SIZE_BYTES),
                    Some(taken) => start = taken + 1,
                }
            }
        };
        let mut order = borders(&bank);
        if small_first {
            order.reverse();
        }
        let place = order.into_iter().find_map(search);
        let is_given = place.is_some_and(|at| at & (align_bytes - 1) == 0);
        prop_assert_eq!(found.cause == Cause::Passing, is_given);
    }
}

/// Whether a page of so many pages would have its place if these chunks were gone, by the driver's
/// counter of the bytes of those that are left.
fn has_page_room(bank: &ChannelSnapshot, gone: &[usize], pages: u64) -> bool {
    let is_page = |chunk: &ChunkFacts| chunk.category == Category::CONTIGUOUS_SCRATCHPAD_DEVICE;
    let chunks = bank.chunks.iter().enumerate();
    let left = chunks.filter(|(number, chunk)| !gone.contains(number) && is_page(chunk));
    let left_bytes: u64 = left.map(|(_, chunk)| chunk.span.size_bytes()).sum();
    let [(from, to), _] = borders(bank);
    let Some(at) = (to - from).checked_sub(left_bytes / PAGE_SIZE_BYTES + pages) else {
        return false;
    };
    let free = free_pages(bank, gone, from, to);
    let slot = usize::try_from(at).unwrap()..usize::try_from(at + pages).unwrap();
    free[slot].iter().all(|&free| free)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_least_set_for_a_scratchpad_page_is_that_which_trying_everything_finds(
        parts in proptest::collection::vec((any_part(), 0..2_u8), 1..9),
        page_size in 1..3_u64,
        pages in 1..4_u64,
    ) {
        let parts = parts.into_iter().map(|(part, is_page)| match is_page {
            0 => part,
            _ => Page(page_size),
        });
        let bank = channel(0, 0, &joined(parts.collect()), &[]);
        let pools = snapshot(vec![bank.clone()]);
        let found = explained(&pools, page(pages));

        let can_go: Vec<usize> = (0..bank.chunks.len())
            .filter(|&number| bank.chunks[number].owner != DRIVER)
            .collect();
        let sets = (0..1_u32 << can_go.len()).map(|bits| {
            let picked = can_go.iter().enumerate().filter(|(bit, _)| bits & (1 << bit) != 0);
            picked.map(|(_, &number)| number).collect::<Vec<_>>()
        });
        let bytes = |set: &Vec<usize>| -> u64 {
            set.iter().map(|&number| bank.chunks[number].span.size_bytes()).sum()
        };
        let least = sets.filter(|set| has_page_room(&bank, set, pages)).map(|set| bytes(&set)).min();
        match found.opening {
            Some(opening) => {
                prop_assert_eq!(Some(opening.freed_bytes), least);
                prop_assert!(has_page_room(&bank, &numbers(&bank, &opening), pages));
            }
            // There is room, or nothing helps.
            None => prop_assert!(matches!(least, None | Some(0)), "{:?}", least),
        }
    }
}

/// Blocks of up to so many pages look for room in the small pool first.
const SMALL_PAGES_MAX: u64 = 2;

/// Whether the driver would give all of these blocks, one after the other, if these chunks were gone.
fn gives_all(bank: &ChannelSnapshot, gone: &[usize], blocks: &[(u64, u64)]) -> bool {
    let pools = borders(bank);
    let mut free = pools.map(|(from, to)| free_pages(bank, gone, from, to));
    blocks.iter().all(|&(pages, step)| {
        let order = match pages <= SMALL_PAGES_MAX {
            true => [1, 0],
            false => [0, 1],
        };
        order.into_iter().any(|pool| {
            let (from, to) = pools[pool];
            let has_room = |at: &u64| {
                let place = (*at - from) as usize..(*at - from + pages) as usize;
                at.is_multiple_of(step)
                    && free[pool]
                        .get(place)
                        .is_some_and(|free| free.iter().all(|&f| f))
            };
            let Some(at) = (from..to).find(has_room) else {
                return false;
            };
            free[pool][(at - from) as usize..(at - from + pages) as usize].fill(false);
            true
        })
    })
}

/// A bank, blocks that are wanted together, and which chunk is to be kept. Whether there is a set to
/// free that is said to be the least.
fn judge_whole(bank: &ChannelSnapshot, pieces: &[(u64, u64, u64)], kept: usize) -> bool {
    let kept = bank.chunks.get(kept).map(|chunk| chunk.span.start());
    let request = Request {
        kept: kept.into_iter().collect(),
        ..request_of(pieces)
    };
    let mut pools = snapshot(vec![bank.clone()]);
    pools.small_alloc_max_bytes = SMALL_PAGES_MAX * PAGE_SIZE_BYTES;
    let found = explained(&pools, request);
    let blocks = pieces.iter();
    let blocks: Vec<(u64, u64)> = blocks
        .flat_map(|&(count, pages, step)| (0..count).map(move |_| (pages, step)))
        .collect();

    let has_room = gives_all(bank, &[], &blocks);
    assert_eq!(found.cause == Cause::Passing, has_room);
    let Some(opening) = &found.opening else {
        // There is room, or nothing helps.
        let can_go = |chunk: &ChunkFacts| chunk.owner != DRIVER && Some(chunk.span.start()) != kept;
        let all: Vec<usize> = (0..bank.chunks.len())
            .filter(|&n| can_go(&bank.chunks[n]))
            .collect();
        assert!(has_room || !gives_all(bank, &all, &blocks));
        return false;
    };
    let set = numbers(bank, opening);
    assert!(gives_all(bank, &set, &blocks), "{found:?}");
    let bytes = |set: &[usize]| -> u64 {
        set.iter()
            .map(|&number| bank.chunks[number].span.size_bytes())
            .sum()
    };
    assert_eq!(opening.freed_bytes, bytes(&set));
    assert!(
        opening
            .blocks
            .iter()
            .all(|block| Some(block.span.start()) != kept)
    );
    if !opening.is_least {
        for spare in &set {
            let rest: Vec<usize> = set.iter().copied().filter(|one| one != spare).collect();
            assert!(!gives_all(bank, &rest, &blocks), "{spare} is spare");
        }
        return false;
    }
    let can_go: Vec<usize> = (0..bank.chunks.len())
        .filter(|&n| bank.chunks[n].owner != DRIVER)
        .filter(|&n| Some(bank.chunks[n].span.start()) != kept)
        .collect();
    // No set that is cheaper is enough. One that is not has none beyond it.
    let least = (opening.freed_bytes, set.len());
    let mut sets = vec![(Vec::new(), &can_go[..])];
    while let Some((set, others)) = sets.pop() {
        let is_cheaper = (bytes(&set), set.len()) < least;
        if !is_cheaper {
            continue;
        }
        assert!(!gives_all(bank, &set, &blocks), "{set:?} is enough");
        for (at, &other) in others.iter().enumerate() {
            sets.push(([&set[..], &[other]].concat(), &others[at + 1..]));
        }
    }
    true
}

#[test]
fn a_set_for_blocks_that_differ_is_known_to_be_the_least_where_more_than_twelve_can_go() {
    let mut main = [Chunk(3, THIS), Chunk(1, DRIVER)].repeat(14);
    main.extend([Hole(1), Chunk(6, THIS), Chunk(1, DRIVER), Hole(4)]);
    main.extend([Chunk(5, OTHER), Chunk(1, DRIVER), Hole(5)]);
    let bank = channel(0, 0, &main, &[]);
    // The driver puts a block of four into each hole, and there is none left for that of five.
    assert!(judge_whole(&bank, &[(2, 4, 1), (1, 5, 1)], usize::MAX));
    assert!(judge_whole(&bank, &[(3, 4, 2), (1, 5, 1)], usize::MAX));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_least_set_for_blocks_that_are_alike_is_that_which_trying_everything_finds(
        base in 0..40_u64,
        main in proptest::collection::vec(any_part(), 1..11),
        small in proptest::collection::vec(any_part(), 0..4),
        (count, pages, step_bits) in (2..6_u64, 1..6_u64, 0..3_u32),
        kept in 0..20_usize,
    ) {
        let bank = channel(0, base, &joined(main), &joined(small));
        judge_whole(&bank, &[(count, pages, 1 << step_bits)], kept);
    }

    #[test]
    fn a_set_for_blocks_that_differ_is_the_least_where_few_can_go(
        main in proptest::collection::vec(any_part(), 1..9),
        small in proptest::collection::vec(any_part(), 0..3),
        (count, pages) in (1..4_u64, 1..4_u64),
        others in proptest::collection::vec(1..7_u64, 1..3),
        kept in 0..20_usize,
    ) {
        let bank = channel(0, 0, &joined(main), &joined(small));
        let mut pieces = vec![(count, pages, 2)];
        pieces.extend(others.into_iter().map(|pages| (1, pages, 1)));
        judge_whole(&bank, &pieces, kept);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_set_for_blocks_that_differ_is_the_least_where_more_can_go(
        main in proptest::collection::vec(any_part(), 30..50),
        (count, pages) in (1..4_u64, 3..7_u64),
        others in proptest::collection::vec(3..9_u64, 1..5),
    ) {
        let bank = channel(0, 0, &joined(main), &[]);
        let mut pieces = vec![(count, pages, 2)];
        pieces.extend(others.into_iter().map(|pages| (1, pages, 1)));
        let can_go = bank.chunks.iter().filter(|chunk| chunk.owner != DRIVER);
        prop_assume!(can_go.count() > 12);
        judge_whole(&bank, &pieces, usize::MAX);
    }

    #[test]
    fn a_set_for_very_many_blocks_that_differ_is_enough_and_nothing_of_it_is_spare(
        main in proptest::collection::vec(any_part(), 60..90),
    ) {
        let bank = channel(0, 0, &joined(main), &[]);
        let pieces = (1..9).flat_map(|pages| [1, 2, 4].map(|step| (1, pages, step)));
        let pieces: Vec<_> = pieces.collect();
        let can_go = bank.chunks.iter().filter(|chunk| chunk.owner != DRIVER);
        prop_assume!(can_go.count() > 12);
        judge_whole(&bank, &pieces, usize::MAX);
    }
}
