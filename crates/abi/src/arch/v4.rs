//! V4: Trn3 (driver 2.27 address map). The numbers come from a header newer than 2.27.4 (uncertain
//! for that release); the bases are those of V3.

use super::v3::{ENGINE_ROWS, SIDE_ROWS};
use super::{Arch, ArchProfile, WaitTimes};

/// V4.
pub const PROFILE: ArchProfile = ArchProfile {
    arch: Arch::V4,
    instances: "Trn3",
    region_bases: &[0, 0x40_0000_0000, 0x8000_0000_0000, 0x8040_0000_0000],
    regions_per_channel: 1,
    region_size_bytes: 36 << 30,
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
