//! Every refusal: its number, its place in the order of checks, and what it says.

use std::sync::Arc;

use glia_abi::arch::{Arch, MemoryLayout, Scale};
use glia_abi::errno::Errno;
use glia_abi::fault::NoFaults;
use glia_abi::handle::{Channel, CoreId, Pid, Region};
use glia_abi::mem::Lifespan;
use glia_abi::params::ModuleParams;
use glia_abi::usage::Category;
use glia_driver::alloc::{AllocError, AllocRequest};
use glia_driver::memory::{DeviceMemory, InitError, MemoryConfig};

use crate::support::{MIB, PID, TestHost, fresh, small_device};

fn device(size_bytes: u64) -> AllocRequest {
    AllocRequest::device(size_bytes, Channel::new(0))
}

fn refusal(request: AllocRequest) -> AllocError {
    fresh().alloc(PID, &request).unwrap_err()
}

/// Each request breaks the rule of its row and of every row below, so that the first check decides.
#[test]
fn the_first_check_that_fails_decides() {
    let not_attached = AllocRequest {
        lifespan: Lifespan::CurrentProcess,
        ..device(32 * MIB)
    };
    let align = AllocRequest {
        align_bytes: 1 << 31,
        ..not_attached
    };
    let core = AllocRequest {
        core: CoreId::new(8),
        ..align
    };
    let channel = AllocRequest {
        channel: Channel::new(2),
        ..core
    };
    let size = AllocRequest {
        size_bytes: 1 << 63,
        ..channel
    };
    let refusals = [size, channel, core, align, not_attached].map(refusal);
    assert!(matches!(
        refusals,
        [
            AllocError::SizeTooLarge {
                size_bytes: 0x8000_0000_0000_0000
            },
            AllocError::NoChannel { channels: 2, .. },
            AllocError::NoCore { .. },
            AllocError::AlignTooLarge {
                align_bytes: 0x8000_0000
            },
            AllocError::NoDeviceMemory { .. },
        ]
    ));
    assert_eq!(
        refusals.map(|error| error.errno()),
        [
            Errno::EINVAL,
            Errno::EINVAL,
            Errno::EINVAL,
            Errno::EINVAL,
            Errno::ENOMEM
        ]
    );
}

#[test]
fn host_requests_are_checked_for_alignment_then_size_then_category() {
    let scratchpad = AllocRequest {
        category: Category::CONTIGUOUS_SCRATCHPAD_DEVICE,
        ..AllocRequest::host(4096)
    };
    let empty = AllocRequest {
        size_bytes: 0,
        ..scratchpad
    };
    let aligned = AllocRequest {
        align_bytes: 1,
        ..empty
    };
    let refusals = [aligned, empty, scratchpad].map(refusal);
    assert_eq!(
        refusals,
        [
            AllocError::HostAligned { align_bytes: 1 },
            AllocError::ZeroSize,
            AllocError::HostScratchpad,
        ]
    );
    assert_eq!(
        refusals.map(|error| error.errno()),
        [Errno::EINVAL, Errno::ENOMEM, Errno::EINVAL]
    );
}

#[test]
fn a_channel_is_checked_for_host_memory_too() {
    let request = AllocRequest {
        channel: Channel::new(2),
        ..AllocRequest::host(4096)
    };
    assert_eq!(refusal(request).errno(), Errno::EINVAL);
}

#[test]
fn any_region_number_is_taken() {
    let memory = fresh();
    for region in [0, 1, 4, 1000, u32::MAX] {
        let request = AllocRequest {
            region: Region::new(region),
            ..device(4096)
        };
        assert!(memory.alloc(PID, &request).is_ok());
    }
}

#[test]
fn a_scratchpad_request_ignores_its_alignment() {
    let request = AllocRequest {
        category: Category::CONTIGUOUS_SCRATCHPAD_DEVICE,
        align_bytes: u64::MAX,
        ..device(4096)
    };
    assert!(fresh().alloc(PID, &request).is_ok());
}

#[test]
fn an_unattached_process_is_told_last_and_nothing_is_taken() {
    let memory = fresh();
    let before = memory.stats();
    let request = AllocRequest {
        lifespan: Lifespan::CurrentProcess,
        ..device(4096)
    };
    let scratchpad = AllocRequest {
        category: Category::CONTIGUOUS_SCRATCHPAD_DEVICE,
        ..request
    };
    for request in [request, scratchpad] {
        assert_eq!(
            memory.alloc(PID, &request),
            Err(AllocError::NotAttached { pid: PID })
        );
    }
    assert_eq!(memory.stats(), before);
    memory.open(PID).unwrap();
    assert!(memory.alloc(PID, &request).is_ok());
    assert!(memory.alloc(Pid::new(1), &request).is_err());
}

#[test]
fn a_refusal_says_what_was_asked_and_what_there_is() {
    let text = refusal(AllocRequest {
        align_bytes: 65_536,
        ..device(40 * MIB)
    })
    .to_string();
    assert_eq!(
        text,
        "no room for 41943040 bytes aligned to 65536 on channel 0: \
         main pool 12582912 free, largest hole 12582912; small pool 4194304 free, largest hole 4194304"
    );
    let text = refusal(AllocRequest {
        core: CoreId::new(9),
        ..device(4096)
    })
    .to_string();
    assert_eq!(
        text,
        "core 9 cannot be charged: cores 0 to 7 can, on every arch"
    );
    let text = refusal(AllocRequest {
        channel: Channel::new(7),
        ..device(4096)
    })
    .to_string();
    assert_eq!(
        text,
        "channel 7 does not exist: the device has channels 0 to 1"
    );
}

#[test]
fn parameters_that_stop_the_reference_do_not_build_a_device() {
    let params = ModuleParams {
        mempool_min_alloc_size: 6000,
        ..ModuleParams::default()
    };
    let config = MemoryConfig {
        params,
        ..small_device()
    };
    let error = DeviceMemory::<glia_driver::arena::ExtentTree>::new(
        config,
        TestHost::new(0),
        Arc::new(NoFaults),
    );
    let error = error.err().unwrap();
    assert!(matches!(error, InitError::Params(_)), "{error}");
    assert_eq!(error.errno(), Errno::EINVAL);
}

/// Regions of the emulator can be smaller than the carveout.
#[test]
fn a_region_without_room_for_its_carveout_builds_no_device() {
    let build = |bar_size_bytes, small_pool_bytes| {
        let layout = MemoryLayout::new(Arch::V3, Scale::EmulatorBar { bar_size_bytes }).unwrap();
        let params = ModuleParams {
            mempool_small_pool_size: small_pool_bytes,
            ..ModuleParams::default()
        };
        let host = TestHost::new(512 * MIB);
        let config = MemoryConfig {
            params,
            ..MemoryConfig::new(layout)
        };
        let result = DeviceMemory::<glia_driver::arena::ExtentTree>::new(
            config,
            host.clone(),
            Arc::new(NoFaults),
        );
        assert!(result.is_ok() || host.used_bytes() == 0);
        result.err().map(|error| error.errno())
    };
    assert_eq!(build(64 * MIB, 0), None);
    assert_eq!(build(32 * MIB, 0), Some(Errno::ENOMEM));
    assert_eq!(
        build(80 * MIB, 16 * MIB),
        Some(Errno::EINVAL),
        "the carveout lands in the small pool"
    );
    assert_eq!(build(0, 0), Some(Errno::ENOMEM));
}

#[test]
fn a_device_that_is_gone_refuses_everything() {
    let memory = fresh();
    let chunk = memory.alloc(PID, &device(4096)).unwrap();
    let handle = memory.publish(chunk).unwrap();
    memory.teardown(PID);
    assert_eq!(memory.alloc(PID, &device(4096)), Err(AllocError::Gone));
    assert_eq!(memory.open(PID).unwrap_err().errno(), Errno::ENODEV);
    assert!(memory.free(PID, chunk).is_err());
    assert!(memory.add_ref(chunk).is_err());
    assert!(memory.check_access(chunk, 0, 1).is_err());
    assert!(memory.publish(chunk).is_err());
    assert_eq!((memory.resolve(handle), memory.chunk(chunk)), (None, None));
    assert!(memory.teardown(PID).freed.is_empty());
}
