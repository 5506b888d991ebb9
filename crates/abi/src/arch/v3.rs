//! V3: Trn2 (driver 2.27 address map).

use super::{Arch, ArchProfile, EngineRow, SideRow, WaitTimes};

/// V3.
pub const PROFILE: ArchProfile = ArchProfile {
    arch: Arch::V3,
    instances: "Trn2",
    region_bases: &[0, 0x40_0000_0000, 0x8000_0000_0000, 0x8040_0000_0000],
    regions_per_channel: 1,
    region_size_bytes: 24 << 30,
    host_base: 1 << 46,
    cores: 8,
    small_pool: true,
    engines: 132,
    engine_rows: &ENGINE_ROWS,
    engine_size_bytes: 0x10_0000,
    side_rows: &SIDE_ROWS,
    side_size_bytes: 0x2_0000,
    cores_per_h2t_engine: 2,
    h2t_engine_first: 128,
    cores_per_channel: 2,
    misc_ram_base: 0x06c8_4000,
    bar0_size_bytes: 0xf500_0000,
    bar4_channel_stride_bytes: 64 << 30,
    retry_memcpy: false,
    wait: WaitTimes {
        desc_us: 2,
        early_us: 1,
        patience: 100,
    },
    compatible_versions: (10, 11),
};

/// Four blocks of 32 compute engines, then the pair of each die that moves data between host and
/// device. V4 has the same.
const ENGINE_ROWS: [EngineRow; 8] = [
    EngineRow {
        first: 0,
        base: 0x8200_0000,
    },
    EngineRow {
        first: 32,
        base: 0x9400_0000,
    },
    EngineRow {
        first: 64,
        base: 0xa200_0000,
    },
    EngineRow {
        first: 96,
        base: 0xb400_0000,
    },
    EngineRow {
        first: 128,
        base: 0x0680_0000,
    },
    EngineRow {
        first: 129,
        base: 0x0690_0000,
    },
    EngineRow {
        first: 130,
        base: 0x4680_0000,
    },
    EngineRow {
        first: 131,
        base: 0x4690_0000,
    },
];

/// The interrupt masks of the compute engines (recorded register traffic of driver 2.24.7). V4 has
/// the same (uncertain).
const SIDE_ROWS: [SideRow; 4] = [
    SideRow {
        first: 0,
        end: 32,
        base: 0x8c00_0000,
    },
    SideRow {
        first: 32,
        end: 64,
        base: 0x9c40_0000,
    },
    SideRow {
        first: 64,
        end: 96,
        base: 0xac00_0000,
    },
    SideRow {
        first: 96,
        end: 128,
        base: 0xbc40_0000,
    },
];
