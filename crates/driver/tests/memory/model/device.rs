//! What a random device is: every arch, odd sizes, units that are no power of two, pools that are
//! left out, little host memory, small handle tables.

use glia_abi::arch::{Arch, MemoryLayout, Scale};
use glia_abi::params::ModuleParams;
use glia_driver::memory::MemoryConfig;
use proptest::prelude::*;
use proptest::sample::select;

use super::machine::{DEVICE, Order};
use crate::support::{MIB, PAGE};

#[derive(Debug, Clone)]
pub(super) struct Device {
    pub(super) config: MemoryConfig,
    /// Host memory of the machine.
    pub(super) host_bytes: u64,
    /// Host allocations refused while the reserve pools are filled.
    pub(super) bring_up_refusals: Order,
    /// Handles issued before the first operation.
    pub(super) handles_before: u32,
}

pub(super) fn any_device() -> impl Strategy<Value = Device> {
    let refusals = prop_oneof![
        3 => Just(Order::default()),
        1 => (0..12_u32, 0..6_u32).prop_map(|(skip, count)| Order { skip, count }),
    ];
    let handles = prop_oneof![
        2 => (0..60_u32).prop_map(|limit| (limit, 0)),
        1 => (8190..8230_u32, 8170..8190_u32),
        1 => (Just(1 << 20), 8180..8191_u32),
    ];
    let host = prop_oneof![1 => Just(0), 4 => 0..(20 * MIB)];
    (any_layout(), any_params(), host, refusals, handles).prop_map(
        |(layout, params, host_bytes, bring_up_refusals, (handle_limit, handles_before))| Device {
            config: MemoryConfig {
                device: DEVICE,
                params,
                handle_limit,
                ..MemoryConfig::new(layout)
            },
            host_bytes,
            bring_up_refusals,
            handles_before,
        },
    )
}

fn any_layout() -> impl Strategy<Value = MemoryLayout> {
    let round =
        (select(Arch::ALL.to_vec()), select(vec![16, 32, 32, 32, 48])).prop_map(|(arch, mib)| {
            let size_bytes = mib * MIB;
            MemoryLayout::new(arch, Scale::RegionSize { size_bytes }).unwrap()
        });
    let bar = prop_oneof![
        // Regions of any number of bytes, and of whole pages.
        1 => 68 * MIB..160 * MIB,
        1 => (4352..10_000_u64).prop_map(|pages| 4 * pages * PAGE + 3),
    ]
    .prop_map(|bar_size_bytes| {
        MemoryLayout::new(Arch::V3, Scale::EmulatorBar { bar_size_bytes }).unwrap()
    });
    prop_oneof![2 => round, 1 => bar]
}

fn any_params() -> impl Strategy<Value = ModuleParams> {
    let unit = select(vec![4096_u64, 4096, 8192, 12_288, 20_480, 65_536]);
    let small_alloc_max = prop_oneof![
        3 => Just(512 << 10),
        3 => 0..(3 * MIB),
        1 => select(vec![0, 1, 4095, 4096, 12_288, u64::MAX]),
    ];
    let host_reserve = prop_oneof![1 => Just(0), 3 => 0..(5 * MIB / 2), 1 => Just(2 * MIB)];
    (unit, any_small_pool(), small_alloc_max, host_reserve).prop_map(
        |(unit, (units, bytes), small_alloc_max, host_reserve)| ModuleParams {
            mempool_min_alloc_size: unit,
            mempool_host_memory_size: host_reserve,
            mempool_small_pool_size: units * unit + bytes,
            mempool_small_alloc_max: small_alloc_max,
            ..ModuleParams::default()
        },
    )
}

/// Units and bytes of the small pool. Some make it too large for its region, some no multiple of
/// the unit, and some leave no room for the carveout.
fn any_small_pool() -> impl Strategy<Value = (u64, u64)> {
    prop_oneof![
        2 => Just((0, 0)),
        4 => (0..40_u64).prop_map(|half| (2 * half + 1, 0)),
        3 => (1..600_u64).prop_map(|pages| (0, pages * PAGE)),
        1 => (0..40_u64, 1..PAGE),
        1 => (2000..8000_u64).prop_map(|pages| (0, pages * PAGE)),
        1 => Just((0, 1 << 30)),
    ]
}
