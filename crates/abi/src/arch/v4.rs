//! V4: Trn3 (driver 2.27 address map). The numbers come from a header newer than 2.27.4 (uncertain
//! for that release); all but the size of the HBM are those of V3.

use super::{Arch, ArchProfile, v3};

/// V4.
pub const PROFILE: ArchProfile = ArchProfile {
    arch: Arch::V4,
    instances: "Trn3",
    region_size_bytes: 36 << 30,
    ..v3::PROFILE
};
