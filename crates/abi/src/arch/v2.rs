//! V2: Trn1 and Inf2 (driver 2.27 address map).

use super::{Arch, ArchProfile};

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
};
