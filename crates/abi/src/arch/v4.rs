//! V4: Trn3 (driver 2.27 address map). The numbers come from a header newer than 2.27.4 (uncertain
//! for that release); the bases are those of V3.

use super::{Arch, ArchProfile};

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
};
