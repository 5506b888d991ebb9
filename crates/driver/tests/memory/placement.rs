//! Where things land: the worked examples of the reference, and the corners of its rules.

use std::sync::Arc;

use glia_abi::addr::BusAddr;
use glia_abi::arch::{Arch, MemoryLayout, Scale};
use glia_abi::fault::NoFaults;
use glia_abi::handle::Channel;
use glia_abi::params::ModuleParams;
use glia_abi::usage::Category;
use glia_driver::alloc::{AllocError, AllocRequest};
use glia_driver::chunk::{ChunkRef, Place};
use glia_driver::memory::{DeviceMemory, Freed, MemoryConfig};

use crate::support::{MIB, PID, TestHost, fresh, small_device};

fn full(arch: Arch) -> DeviceMemory {
    let config = MemoryConfig::new(MemoryLayout::new(arch, Scale::Full).unwrap());
    DeviceMemory::new(config, TestHost::new(256 * MIB), Arc::new(NoFaults)).unwrap()
}

fn with_params(params: ModuleParams) -> DeviceMemory {
    DeviceMemory::new(
        MemoryConfig {
            params,
            ..small_device()
        },
        TestHost::new(64 * MIB),
        Arc::new(NoFaults),
    )
    .unwrap()
}

fn place(memory: &DeviceMemory, request: AllocRequest) -> (u64, Place) {
    let record = memory.chunk(memory.alloc(PID, &request).unwrap()).unwrap();
    (record.at().get(), record.place())
}

fn plain(size_bytes: u64) -> AllocRequest {
    AllocRequest::device(size_bytes, Channel::new(0))
}

fn scratchpad(size_bytes: u64) -> AllocRequest {
    AllocRequest {
        category: Category::CONTIGUOUS_SCRATCHPAD_DEVICE,
        ..plain(size_bytes)
    }
}

fn at(memory: &DeviceMemory, chunk: ChunkRef) -> u64 {
    memory.chunk(chunk).unwrap().at().get()
}

#[test]
fn the_first_large_request_lands_behind_the_carveout_and_the_first_small_one_at_the_main_end() {
    for arch in Arch::ALL {
        let memory = full(arch);
        for (channel, facts) in (0..).map(Channel::new).zip(memory.channel_facts()) {
            let base = facts.region.start().get();
            let large = AllocRequest {
                channel,
                ..plain((512 << 10) + 1)
            };
            assert_eq!(place(&memory, large), (base + 0x100_0000, Place::Main));
            let small = AllocRequest {
                channel,
                ..plain(512 << 10)
            };
            assert_eq!(place(&memory, small), (facts.main_end.get(), Place::Small));
        }
    }
}

#[test]
fn main_pools_end_where_the_reference_says() {
    let ends = |arch| {
        full(arch)
            .channel_facts()
            .iter()
            .map(|facts| facts.main_end.get())
            .collect::<Vec<_>>()
    };
    assert_eq!(ends(Arch::V2), [0x3_C000_0000, 0x13_C000_0000]);
    assert_eq!(
        ends(Arch::V3),
        [
            0x5_C000_0000,
            0x45_C000_0000,
            0x8005_C000_0000,
            0x8045_C000_0000
        ]
    );
}

#[test]
fn each_pool_takes_what_the_other_has_no_room_for() {
    let memory = fresh();
    // 12 MiB of main and 4 MiB of small are left.
    assert_eq!(place(&memory, plain(12 * MIB)).1, Place::Main);
    assert_eq!(place(&memory, plain(3 * MIB)), (28 * MIB, Place::Small));
    assert_eq!(place(&memory, plain(MIB / 2)), (31 * MIB, Place::Small));
    assert_eq!(place(&memory, plain(MIB / 2)).1, Place::Small);
    assert!(memory.alloc(PID, &plain(4096)).is_err());
}

#[test]
fn nothing_spans_the_two_pools() {
    let memory = fresh();
    assert!(matches!(
        memory.alloc(PID, &plain(13 * MIB)),
        Err(AllocError::NoDeviceMemory { .. })
    ));
}

#[test]
fn the_scratchpad_grows_down_and_shrinks_back() {
    let memory = full(Arch::V2);
    let first = memory.alloc(PID, &scratchpad(2 * MIB)).unwrap();
    let second = memory.alloc(PID, &scratchpad(4096)).unwrap();
    assert_eq!(
        (at(&memory, first), at(&memory, second)),
        (0x3_BFE0_0000, 0x3_BFDF_F000)
    );
    assert_eq!(memory.stats().channels[0].scratchpad_bytes, 0x20_1000);
    assert_eq!(
        memory.free(PID, second),
        Ok(Freed::Gone { complaint: None })
    );
    assert_eq!(memory.stats().channels[0].scratchpad_bytes, 0x20_0000);
}

#[test]
fn a_scratchpad_freed_out_of_turn_is_blocked_by_the_page_that_lives() {
    let memory = full(Arch::V2);
    let end = 0x3_C000_0000;
    let a = memory.alloc(PID, &scratchpad(4096)).unwrap();
    let b = memory.alloc(PID, &scratchpad(4096)).unwrap();
    let Ok(Freed::Gone {
        complaint: Some(complaint),
    }) = memory.free(PID, a)
    else {
        panic!("no complaint")
    };
    assert_eq!(
        (complaint.at, complaint.expected_at),
        (BusAddr::new(end - 0x1000), BusAddr::new(end - 0x2000))
    );
    let blocked = AllocError::ScratchpadBlocked {
        size_bytes: 4096,
        channel: Channel::new(0),
        below: BusAddr::new(end - 0x1000),
    };
    assert_eq!(memory.alloc(PID, &scratchpad(4096)), Err(blocked));
    assert!(matches!(
        memory.free(PID, b),
        Ok(Freed::Gone { complaint: Some(_) })
    ));
    assert_eq!(place(&memory, scratchpad(4096)).0, end - 0x1000);
    assert_eq!(memory.stats().channels[0].scratchpad_complaints, 2);
}

#[test]
fn an_access_may_cross_older_scratchpad_pages_and_nothing_else() {
    let memory = full(Arch::V2);
    let older = memory.alloc(PID, &scratchpad(8192)).unwrap();
    let newer = memory.alloc(PID, &scratchpad(4096)).unwrap();
    assert!(memory.check_access(newer, 0, 12_288).is_ok());
    assert!(memory.check_access(newer, 0, 12_289).is_err());
    assert!(memory.check_access(older, 0, 8193).is_err());
    assert!(memory.check_access(older, 8192, 0).is_ok());
    assert!(memory.check_access(older, u64::MAX - 6, 8).is_err());
}

#[test]
fn a_unit_that_is_no_power_of_two_places_by_the_granule_below() {
    let memory = with_params(ModuleParams {
        mempool_min_alloc_size: 12_288,
        mempool_small_pool_size: 0,
        ..ModuleParams::default()
    });
    assert_eq!(memory.granule_bytes(), 8192);
    assert_eq!(place(&memory, plain(4096)), (16 * MIB, Place::Main));
    assert_eq!(place(&memory, plain(4096)), (16 * MIB + 8192, Place::Main));
    let stats = memory.stats();
    assert_eq!(stats.channels[0].allocated_bytes, 16 * MIB + 8192);
    assert_eq!(stats.channels[0].main_free_bytes, 16 * MIB - 16_384);
}

#[test]
fn a_scratchpad_page_that_is_no_granule_is_refused_with_its_offset() {
    let memory = with_params(ModuleParams {
        mempool_min_alloc_size: 8192,
        mempool_small_pool_size: 0,
        ..ModuleParams::default()
    });
    let error = memory.alloc(PID, &scratchpad(4096)).unwrap_err();
    assert_eq!(
        error,
        AllocError::ScratchpadMisaligned {
            size_bytes: 4096,
            offset_bytes: 32 * MIB - 4096,
            granule_bytes: 8192
        }
    );
    // More than is available is refused before the place is looked at.
    assert!(matches!(
        memory.alloc(PID, &scratchpad(16 * MIB + 4096)),
        Err(AllocError::ScratchpadBlocked { .. })
    ));
    assert_eq!(place(&memory, scratchpad(8192)).0, 32 * MIB - 8192);
}

#[test]
fn a_small_pool_that_does_not_divide_into_units_is_left_out() {
    for size in [0, 4097, 32 * MIB, 33 * MIB] {
        let memory = with_params(ModuleParams {
            mempool_small_pool_size: size,
            ..ModuleParams::default()
        });
        assert_eq!(memory.channel_facts()[0].small_size_bytes, 0);
    }
}

/// The reference looks at an odd base only through the bits of the mask, and the final check then
/// refuses.
#[test]
fn an_alignment_that_is_no_power_of_two_may_fail_its_final_check() {
    let odd = ModuleParams {
        mempool_small_pool_size: 4 * MIB + 4096,
        ..ModuleParams::default()
    };
    let memory = with_params(odd);
    let request = AllocRequest {
        align_bytes: 12_288,
        ..plain(4096)
    };
    let outcomes: Vec<_> = (0..4).map(|_| memory.alloc(PID, &request)).collect();
    let before = memory.stats();
    for outcome in &outcomes {
        match outcome {
            Ok(chunk) => assert_eq!(at(&memory, *chunk) & 12_287, 0),
            Err(error) => assert!(
                matches!(error, AllocError::PlacedMisaligned { .. }),
                "{error}"
            ),
        }
    }
    assert_eq!(
        before.channels[0].allocated_bytes
            + before.channels[0].main_free_bytes
            + before.channels[0].small_free_bytes,
        32 * MIB
    );
}

#[test]
fn host_requests_fall_back_on_the_smallest_reserve_page_that_holds_them() {
    // 8 MiB go to the reserve pools, nothing is left for coherent memory.
    let memory: DeviceMemory =
        DeviceMemory::new(small_device(), TestHost::new(8 * MIB), Arc::new(NoFaults)).unwrap();
    let page = |size| place(&memory, AllocRequest::host(size)).1;
    assert_eq!(page(4096), Place::Reserve { pool: 0, page: 7 });
    assert_eq!(page(256 << 10), Place::Reserve { pool: 0, page: 6 });
    assert_eq!(page(512 << 10), Place::Reserve { pool: 1, page: 3 });
    assert_eq!(page(2 * MIB), Place::Reserve { pool: 3, page: 0 });
    assert!(matches!(
        memory.alloc(PID, &AllocRequest::host(2 * MIB)),
        Err(AllocError::NoHostMemory { .. })
    ));
    assert!(memory.alloc(PID, &AllocRequest::host(2 * MIB + 1)).is_err());
    assert_eq!(
        memory.stats().reserves.map(|pool| pool.allocated_bytes),
        [4096 + (256 << 10), 512 << 10, 0, 2 * MIB]
    );
}

/// Regions of the emulator need not be multiples of a page; chunks of the small pool then start
/// between pages.
#[test]
fn chunks_between_pages_are_found_by_every_address_of_theirs() {
    let layout = MemoryLayout::new(
        Arch::V3,
        Scale::EmulatorBar {
            bar_size_bytes: 4 * (40 * MIB + 1000),
        },
    )
    .unwrap();
    let params = ModuleParams {
        mempool_small_pool_size: 4 * MIB,
        ..ModuleParams::default()
    };
    let config = MemoryConfig {
        params,
        ..MemoryConfig::new(layout)
    };
    let memory: DeviceMemory =
        DeviceMemory::new(config, TestHost::new(256 * MIB), Arc::new(NoFaults)).unwrap();
    let chunks: Vec<_> = (0..3)
        .map(|_| memory.alloc(PID, &plain(4096)).unwrap())
        .collect();
    for chunk in chunks {
        let record = memory.chunk(chunk).unwrap();
        assert_eq!(record.at().get() % 4096, 1000);
        for offset in [0, 1, 3095, 3096, 4095] {
            let found = memory.search(record.at().checked_add(offset).unwrap());
            assert_eq!(found, Some((chunk, record)), "offset {offset}");
        }
    }
    assert_eq!(
        memory.search(BusAddr::new(memory.channel_facts()[0].main_end.get() - 1)),
        None
    );
}

/// What the books promise to an alignment is what a request gets.
#[test]
fn the_largest_aligned_fit_can_be_had_and_not_a_page_more() {
    let odd = 4 * (40 * MIB + 1000);
    for bar_size_bytes in [160 * MIB, odd] {
        let layout = MemoryLayout::new(Arch::V3, Scale::EmulatorBar { bar_size_bytes }).unwrap();
        let params = ModuleParams {
            mempool_small_pool_size: 4 * MIB,
            ..ModuleParams::default()
        };
        let config = MemoryConfig {
            params,
            ..MemoryConfig::new(layout)
        };
        for align_bytes in [0, 4096, 8192, 2 * MIB, 16 * MIB, 1 << 30, 1 << 31, u64::MAX] {
            let fresh = || -> DeviceMemory {
                DeviceMemory::new(config, TestHost::new(0), Arc::new(NoFaults)).unwrap()
            };
            let take = |size_bytes| {
                let request = AllocRequest {
                    align_bytes,
                    ..plain(size_bytes)
                };
                fresh().alloc(PID, &request).is_ok()
            };
            let fit = fresh().largest_aligned_fit(Channel::new(0), align_bytes);
            assert_eq!(
                take(fit.max(1)),
                fit > 0,
                "{fit} bytes aligned to {align_bytes}"
            );
            assert!(
                !take(fit + 4096),
                "{fit} bytes and a page aligned to {align_bytes}"
            );
        }
    }
}
