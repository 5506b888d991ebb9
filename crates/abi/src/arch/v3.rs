//! V3: Trn2 (driver 2.27 address map).

use super::{Arch, ArchProfile};

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
};
