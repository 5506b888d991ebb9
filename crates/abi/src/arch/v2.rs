//! V2: Trn1 and Inf2 (driver 2.27 address map).

use super::{Arch, ArchProfile, EngineRow, SideRow, WaitTimes};

/// V2.
pub const PROFILE: ArchProfile = ArchProfile {
    arch: Arch::V2,
    instances: "Trn1, Inf2",
    region_bases: &[0, 0x10_0000_0000],
    regions_per_channel: 1,
    region_size_bytes: 16 << 30,
    host_base: 1 << 44,
    cores: 2,
    small_pool: true,
    engines: 34,
    engine_rows: &[
        EngineRow {
            first: 0,
            base: 0x3000_0000,
        },
        EngineRow {
            first: 16,
            base: 0x3070_0000,
        },
        EngineRow {
            first: 32,
            base: 0x3060_0000,
        },
        EngineRow {
            first: 33,
            base: 0x30d0_0000,
        },
    ],
    engine_size_bytes: 0x4_0000,
    side_rows: &[
        SideRow {
            first: 0,
            end: 16,
            base: 0x3040_0000,
        },
        SideRow {
            first: 16,
            end: 32,
            base: 0x30b0_0000,
        },
        SideRow {
            first: 32,
            end: 33,
            base: 0x3064_0000,
        },
        SideRow {
            first: 33,
            end: 34,
            base: 0x30d4_0000,
        },
    ],
    side_size_bytes: 0x7000,
    cores_per_h2t_engine: 1,
    h2t_engine_first: 32,
    cores_per_channel: 1,
    misc_ram_base: 0x30fa_0000,
    bar0_size_bytes: 0x3100_0000,
    bar4_channel_stride_bytes: 16 << 30,
    retry_memcpy: true,
    wait: WaitTimes {
        desc_us: 4,
        early_us: 3,
        patience: 100,
    },
    compatible_versions: (5, 7),
};
