//! The hardware generations, as data.
//!
//! | profile | instances | channels | region | host base | cores |
//! | --- | --- | --- | --- | --- | --- |
//! | [`V2`](v2::PROFILE) | Trn1, Inf2 | 2 | 16 GiB | 2^44 | 2 |
//! | [`V3`](v3::PROFILE) | Trn2 | 4 | 24 GiB | 2^46 | 8 |
//! | [`V4`](v4::PROFILE) | Trn3 | 4 | 36 GiB | 2^46 | 8 |
//!
//! A profile is what the silicon is; a [`MemoryLayout`] is what one device has: the profile at a
//! [`Scale`]. V1 is not modelled (newer drivers dropped it).

pub mod v2;
pub mod v3;
pub mod v4;

use std::fmt;

use crate::addr::{BusAddr, HostPa, Span};

/// A hardware generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arch {
    /// Trn1 and Inf2.
    V2,
    /// Trn2.
    V3,
    /// Trn3.
    V4,
}

impl Arch {
    /// All generations that Glia models.
    pub const ALL: [Self; 3] = [Self::V2, Self::V3, Self::V4];

    /// The generation's profile.
    #[must_use]
    pub const fn profile(self) -> &'static ArchProfile {
        match self {
            Self::V2 => &v2::PROFILE,
            Self::V3 => &v3::PROFILE,
            Self::V4 => &v4::PROFILE,
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V2 => "v2",
            Self::V3 => "v3",
            Self::V4 => "v4",
        })
    }
}

/// What one hardware generation is, for the memory side (driver 2.27, per-arch address maps).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchProfile {
    /// Which generation.
    pub arch: Arch,
    /// The instance families that carry it.
    pub instances: &'static str,
    /// First HBM address of each channel's only region; its length is the number of channels.
    pub region_bases: &'static [u64],
    /// Regions in a channel; 1 on every generation here, and then the driver takes any region
    /// number for 0.
    pub regions_per_channel: u32,
    /// Bytes of HBM in a region.
    pub region_size_bytes: u64,
    /// Bits that a host address carries as the device sees it.
    pub host_base: u64,
    /// `NeuronCores` of a device. (The driver accepts core numbers up to 7 on every generation.)
    pub cores: u32,
    /// Whether a small pool is cut from each region. (uncertain for V4: presumed.)
    pub small_pool: bool,
}

/// How large the modelled device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// As the silicon.
    #[default]
    Full,
    /// Every region has this many bytes instead, a multiple of 16 MiB: for tests on small devices.
    RegionSize {
        /// Bytes per region.
        size_bytes: u64,
    },
    /// V3 under the reference's own emulator platform: every region has a quarter of the DRAM BAR,
    /// whatever that gives.
    EmulatorBar {
        /// Bytes of the BAR.
        bar_size_bytes: u64,
    },
}

/// A scale that an arch cannot have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScaleError {
    /// The region size is 0 or no multiple of 16 MiB.
    #[error("region size {size_bytes} is not a positive multiple of 16777216 bytes (16 MiB)")]
    NotMultiple {
        /// The size asked for.
        size_bytes: u64,
    },
    /// The regions would overlap, or reach into host addresses.
    #[error(
        "a region of {size_bytes} bytes does not fit {arch}: at most {max_bytes} bytes lie between two regions"
    )]
    TooLarge {
        /// The generation.
        arch: Arch,
        /// The size asked for.
        size_bytes: u64,
        /// The most there is room for.
        max_bytes: u64,
    },
    /// Only V3 has the emulator platform.
    #[error("{arch} has no emulator platform; it exists for v3 only")]
    NoEmulator {
        /// The generation.
        arch: Arch,
    },
}

/// The address map of one device: a profile at a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLayout {
    profile: &'static ArchProfile,
    region_size_bytes: u64,
}

impl MemoryLayout {
    /// The layout of `arch` at `scale`.
    ///
    /// # Errors
    /// [`ScaleError`] if the scale's rule is broken or its regions would overlap.
    pub fn new(arch: Arch, scale: Scale) -> Result<Self, ScaleError> {
        const STEP_BYTES: u64 = 16 << 20;
        let profile = arch.profile();
        let region_size_bytes = match scale {
            Scale::Full => profile.region_size_bytes,
            Scale::RegionSize { size_bytes } => {
                if size_bytes == 0 || !size_bytes.is_multiple_of(STEP_BYTES) {
                    return Err(ScaleError::NotMultiple { size_bytes });
                }
                size_bytes
            }
            Scale::EmulatorBar { bar_size_bytes } => {
                if arch != Arch::V3 {
                    return Err(ScaleError::NoEmulator { arch });
                }
                bar_size_bytes / profile.region_bases.len() as u64
            }
        };
        let max_bytes = profile.region_size_max_bytes();
        if region_size_bytes > max_bytes {
            return Err(ScaleError::TooLarge {
                arch,
                size_bytes: region_size_bytes,
                max_bytes,
            });
        }
        Ok(Self {
            profile,
            region_size_bytes,
        })
    }

    /// The generation.
    #[must_use]
    pub fn arch(&self) -> Arch {
        self.profile.arch
    }

    /// The generation's profile.
    #[must_use]
    pub fn profile(&self) -> &'static ArchProfile {
        self.profile
    }

    /// Number of channels.
    #[must_use]
    pub fn channels(&self) -> u32 {
        u32::try_from(self.profile.region_bases.len()).unwrap_or(u32::MAX)
    }

    /// The region of each channel, in channel order.
    pub fn regions(&self) -> impl ExactSizeIterator<Item = Span<BusAddr>> {
        let size_bytes = self.region_size_bytes;
        self.profile.region_bases.iter().map(move |&base| {
            // PANIC: `new` has bounded the size by `region_size_max_bytes`, and no base lies within
            // that of 2^64.
            #[expect(clippy::unwrap_used, reason = "see PANIC")]
            Span::new(BusAddr::new(base), size_bytes).unwrap()
        })
    }

    /// Bytes of HBM in a region.
    #[must_use]
    pub fn region_size_bytes(&self) -> u64 {
        self.region_size_bytes
    }

    /// A host address as the device sees it: with the host base (driver 2.27 sets the bits, it does
    /// not add).
    #[must_use]
    pub fn host_to_bus(&self, at: HostPa) -> BusAddr {
        BusAddr::new(at.get() | self.profile.host_base)
    }
}

impl ArchProfile {
    /// The most bytes a region can have before it meets the next one or the host base.
    fn region_size_max_bytes(&self) -> u64 {
        let mut edges: Vec<u64> = self.region_bases.to_vec();
        edges.push(self.host_base);
        edges.sort_unstable();
        edges
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .min()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn full_layouts_have_the_sizes_of_the_silicon() {
        let totals = Arch::ALL.map(|arch| {
            let layout = MemoryLayout::new(arch, Scale::Full).unwrap();
            u64::from(layout.channels()) * layout.region_size_bytes()
        });
        assert_eq!(totals, [32 * GIB, 96 * GIB, 144 * GIB]);
    }

    #[test]
    fn no_two_regions_overlap_on_any_arch() {
        for arch in Arch::ALL {
            let regions: Vec<_> = MemoryLayout::new(arch, Scale::Full)
                .unwrap()
                .regions()
                .collect();
            for (index, region) in regions.iter().enumerate() {
                assert!(
                    regions[index + 1..]
                        .iter()
                        .all(|other| !region.overlaps(*other))
                );
            }
        }
    }

    #[test]
    fn a_small_device_keeps_its_region_bases() {
        let layout = MemoryLayout::new(
            Arch::V3,
            Scale::RegionSize {
                size_bytes: 64 << 20,
            },
        )
        .unwrap();
        let spans: Vec<_> = layout
            .regions()
            .map(|region| (region.start().get(), region.size_bytes()))
            .collect();
        assert_eq!(spans[1], (0x40_0000_0000, 64 << 20));
        assert_eq!(spans[3], (0x8040_0000_0000, 64 << 20));
    }

    #[test]
    fn the_emulator_has_a_quarter_of_its_bar_per_channel() {
        let layout = MemoryLayout::new(
            Arch::V3,
            Scale::EmulatorBar {
                bar_size_bytes: GIB,
            },
        )
        .unwrap();
        assert_eq!(layout.region_size_bytes(), 256 << 20);
    }

    #[test]
    fn scales_that_make_no_device_are_refused_with_the_rule() {
        let odd = MemoryLayout::new(
            Arch::V2,
            Scale::RegionSize {
                size_bytes: 17 << 20,
            },
        );
        assert_eq!(
            odd.unwrap_err(),
            ScaleError::NotMultiple {
                size_bytes: 17 << 20
            }
        );
        let huge = MemoryLayout::new(
            Arch::V2,
            Scale::RegionSize {
                size_bytes: 128 * GIB,
            },
        );
        assert_eq!(
            huge.unwrap_err(),
            ScaleError::TooLarge {
                arch: Arch::V2,
                size_bytes: 128 * GIB,
                max_bytes: 64 * GIB
            }
        );
        let emulator = MemoryLayout::new(
            Arch::V2,
            Scale::EmulatorBar {
                bar_size_bytes: GIB,
            },
        );
        assert_eq!(
            emulator.unwrap_err(),
            ScaleError::NoEmulator { arch: Arch::V2 }
        );
    }

    #[test]
    fn the_host_base_is_set_in_host_addresses() {
        let layout = MemoryLayout::new(Arch::V2, Scale::Full).unwrap();
        assert_eq!(
            layout.host_to_bus(HostPa::new(0x1000)),
            BusAddr::new(0x1000_0000_1000)
        );
    }
}
