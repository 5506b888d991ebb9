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

use crate::addr::{BusAddr, HostPa, RegOffset, Span};
use crate::handle::{Channel, CoreId, EngineId, QueueId};
use crate::port::Budget;
use crate::sched::Micros;

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
    /// UDMA engines of a device: 16 per core, and those that move data between host and device.
    pub engines: u32,
    /// Where the engines' register blocks lie in BAR0, in the order of their numbers.
    pub engine_rows: &'static [EngineRow],
    /// Bytes of an engine's register block.
    pub engine_size_bytes: u64,
    /// Where an engine has registers outside its block: the DMA side block on V2, interrupt masks of
    /// compute engines since V3.
    pub side_rows: &'static [SideRow],
    /// Bytes of such a block, and from one to the next in a row.
    pub side_size_bytes: u64,
    /// Cores that share an engine for the driver's own copies, each with a queue of its own.
    pub cores_per_h2t_engine: u32,
    /// The first engine for the driver's own copies; the others follow.
    pub h2t_engine_first: u32,
    /// Cores that use one HBM channel by default.
    pub cores_per_channel: u32,
    /// Where misc RAM begins in BAR0: the words by which driver and firmware speak (driver 2.24.7
    /// address maps), see [`FirmwareReg`](crate::regs::FirmwareReg).
    pub misc_ram_base: u64,
    /// Bytes of BAR0: up to the last address that the driver uses. (uncertain: the real size)
    pub bar0_size_bytes: u64,
    /// From one channel's HBM to the next in BAR4.
    pub bar4_channel_stride_bytes: u64,
    /// Whether a copy that fell into a reset is tried again.
    pub retry_memcpy: bool,
    /// How long the driver waits for a copy.
    pub wait: WaitTimes,
    /// Protocol versions that the driver accepts, least and greatest (driver 2.27,
    /// `COMPATIBLE_VERSION`; V4 uncertain: that of V3).
    pub compatible_versions: (u32, u32),
}

/// Engines whose register blocks follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineRow {
    /// The first engine's number; the row ends where the next begins.
    pub first: u32,
    /// Offset of its block in BAR0.
    pub base: u64,
}

/// Engines whose blocks of further registers follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SideRow {
    /// The first engine's number; the row ends before the number `end`.
    pub first: u32,
    /// One past the last engine's number.
    pub end: u32,
    /// Offset of the first engine's further block in BAR0.
    pub base: u64,
}

/// How long the driver waits for a batch of descriptors (driver 2.24.7 and 2.27.4, per arch), see
/// [`budget`](Self::budget).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitTimes {
    /// Estimated time of a data descriptor.
    pub desc_us: u32,
    /// By how much the first look comes before the estimate.
    pub early_us: u32,
    /// How many times the estimate may pass. On V3 it is 100 in 2.24.7 and 400 in 2.28; 2.27.4
    /// uncertain, 100 here: it matters for time-outs only.
    pub patience: u32,
}

impl WaitTimes {
    /// How long to wait for `descs` descriptors, the marker included; `pipelined` if another batch
    /// was staged meanwhile, which makes the first look come at once.
    ///
    /// Fewer than 2 descriptors count as 2: the reference's arithmetic underflows there.
    #[must_use]
    pub fn budget(&self, descs: u32, pipelined: bool) -> Budget {
        let data_descs = u64::from(descs.max(2) - 1);
        let estimate_us = u64::from(self.desc_us) * data_descs;
        let first_us = if pipelined {
            1
        } else {
            estimate_us - u64::from(self.early_us)
        };
        Budget {
            first: Micros(first_us),
            following: Micros((estimate_us * u64::from(self.patience) - first_us) * 100),
        }
    }
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
        self.profile.host_to_bus(at)
    }

    /// The channel and the offset in it of an HBM address; `None` if the device has no HBM there.
    #[must_use]
    pub fn hbm_offset(&self, at: BusAddr) -> Option<(Channel, u64)> {
        (0..)
            .zip(self.regions())
            .find_map(|(number, region)| Some((Channel::new(number), region.offset_of(at)?)))
    }
}

impl ArchProfile {
    /// A host address as the device sees it: with the host base.
    #[must_use]
    pub const fn host_to_bus(&self, at: HostPa) -> BusAddr {
        BusAddr::new(at.get() | self.host_base)
    }

    /// The host address that the device sees as `at`; `None` if that is HBM.
    #[must_use]
    pub const fn bus_to_host(&self, at: BusAddr) -> Option<HostPa> {
        if at.get() & self.host_base == self.host_base {
            Some(HostPa::new(at.get() & !self.host_base))
        } else {
            None
        }
    }

    /// Offset of the engine's register block in BAR0; `None` if the device has no such engine.
    #[must_use]
    pub fn engine_block(&self, engine: EngineId) -> Option<RegOffset> {
        if engine.get() >= self.engines {
            return None;
        }
        let row = self
            .engine_rows
            .iter()
            .rfind(|row| row.first <= engine.get())?;
        let in_row = u64::from(engine.get() - row.first) * self.engine_size_bytes;
        Some(RegOffset::new(row.base + in_row))
    }

    /// The engine whose register block holds this offset of BAR0, and the offset in the block.
    #[must_use]
    pub fn engine_at(&self, at: RegOffset) -> Option<(EngineId, u64)> {
        let ends = self.engine_rows.iter().skip(1).map(|next| next.first);
        self.engine_rows
            .iter()
            .zip(ends.chain([self.engines]))
            .find_map(|(row, end)| {
                let in_row = at.get().checked_sub(row.base)?;
                // Compared before divided: a doorbell comes this way, past the other rows.
                if in_row >= u64::from(end - row.first) * self.engine_size_bytes {
                    return None;
                }
                let number = u32::try_from(in_row / self.engine_size_bytes).ok()?;
                let engine = EngineId::new(row.first + number);
                Some((engine, in_row % self.engine_size_bytes))
            })
    }

    /// Offset in BAR0 of the registers that an engine has outside its block; `None` if it has none.
    #[must_use]
    pub fn side_block(&self, engine: EngineId) -> Option<RegOffset> {
        let number = engine.get();
        let covers = |row: &&SideRow| (row.first..row.end).contains(&number);
        let row = self.side_rows.iter().find(covers)?;
        let in_row = u64::from(number - row.first) * self.side_size_bytes;
        Some(RegOffset::new(row.base + in_row))
    }

    /// The engine that has this offset of BAR0 outside its block, and the offset in what it has
    /// there.
    #[must_use]
    pub fn side_at(&self, at: RegOffset) -> Option<(EngineId, u64)> {
        self.side_rows.iter().find_map(|row| {
            let in_row = at.get().checked_sub(row.base)?;
            let number = u64::from(row.first) + in_row / self.side_size_bytes;
            let engine = u32::try_from(number).ok().filter(|&it| it < row.end)?;
            Some((EngineId::new(engine), in_row % self.side_size_bytes))
        })
    }

    /// The queue of the driver's own copies for a core ("host to tensor", whichever way they go);
    /// `None` if the device has no such core.
    #[must_use]
    pub fn h2t_queue(&self, core: CoreId) -> Option<QueueId> {
        if core.get() >= self.cores {
            return None;
        }
        let engine = self.h2t_engine_first + core.get() / self.cores_per_h2t_engine;
        Some(QueueId::new(
            EngineId::new(engine),
            core.get() % self.cores_per_h2t_engine,
        ))
    }

    /// The HBM channel that a core's memory is on by default (runtime 2.31).
    #[must_use]
    pub const fn default_channel(&self, core: CoreId) -> Channel {
        Channel::new(core.get() / self.cores_per_channel)
    }

    /// The number by which ioctls name the generation (V4 uncertain).
    #[must_use]
    pub const fn number(&self) -> u32 {
        match self.arch {
            Arch::V2 => 2,
            Arch::V3 => 3,
            Arch::V4 => 4,
        }
    }

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
    fn the_drivers_own_copies_have_the_queues_of_the_reference() {
        let queues = |arch: Arch| -> Vec<(u32, u32)> {
            (0..8)
                .filter_map(|core| arch.profile().h2t_queue(CoreId::new(core)))
                .map(|queue| (queue.engine.get(), queue.number))
                .collect()
        };
        assert_eq!(queues(Arch::V2), [(32, 0), (33, 0)]);
        let v3 = [
            (128, 0),
            (128, 1),
            (129, 0),
            (129, 1),
            (130, 0),
            (130, 1),
            (131, 0),
            (131, 1),
        ];
        assert_eq!(queues(Arch::V3), v3);
        assert_eq!(queues(Arch::V4), v3);
    }

    #[test]
    fn engine_blocks_lie_where_the_reference_has_them_and_are_found_again() {
        let block = |arch: Arch, engine| {
            arch.profile()
                .engine_block(EngineId::new(engine))
                .map(RegOffset::get)
        };
        assert_eq!(block(Arch::V2, 15), Some(0x303c_0000));
        assert_eq!(block(Arch::V2, 16), Some(0x3070_0000));
        assert_eq!(block(Arch::V2, 32), Some(0x3060_0000));
        assert_eq!(block(Arch::V3, 33), Some(0x9410_0000));
        assert_eq!(block(Arch::V3, 131), Some(0x4690_0000));
        assert_eq!(block(Arch::V3, 132), None);
        for arch in Arch::ALL {
            let profile = arch.profile();
            for number in 0..profile.engines {
                let engine = EngineId::new(number);
                let start = profile.engine_block(engine).unwrap();
                let last = start.checked_add(profile.engine_size_bytes - 1).unwrap();
                assert_eq!(profile.engine_at(start), Some((engine, 0)));
                assert_eq!(
                    profile.engine_at(last),
                    Some((engine, profile.engine_size_bytes - 1))
                );
                assert!(last.get() < profile.bar0_size_bytes);
            }
        }
    }

    #[test]
    fn further_registers_are_found_again_and_lie_in_no_block() {
        let side = |arch: Arch, engine| {
            let side = arch.profile().side_block(EngineId::new(engine));
            side.map(RegOffset::get)
        };
        assert_eq!(side(Arch::V2, 15), Some(0x3046_9000));
        assert_eq!(side(Arch::V2, 33), Some(0x30d4_0000));
        assert_eq!(side(Arch::V3, 33), Some(0x9c42_0000));
        assert_eq!(side(Arch::V3, 127), Some(0xbc7e_0000));
        assert_eq!(side(Arch::V3, 128), None);
        for arch in Arch::ALL {
            let profile = arch.profile();
            for engine in (0..profile.engines).map(EngineId::new) {
                let Some(start) = profile.side_block(engine) else {
                    continue;
                };
                let last = start.checked_add(profile.side_size_bytes - 1).unwrap();
                assert_eq!(profile.side_at(start), Some((engine, 0)));
                assert_eq!(
                    profile.side_at(last),
                    Some((engine, profile.side_size_bytes - 1))
                );
                assert_eq!(profile.engine_at(start), None);
                assert!(last.get() < profile.bar0_size_bytes);
            }
        }
    }

    /// The table of the sheet.
    #[test]
    fn wait_times_are_those_of_the_reference() {
        let budget = |arch: Arch, descs, pipelined| {
            let budget = arch.profile().wait.budget(descs, pipelined);
            (budget.first.0, budget.following.0)
        };
        assert_eq!(budget(Arch::V2, 2, false), (1, 39_900));
        assert_eq!(budget(Arch::V2, 2, true), (1, 39_900));
        assert_eq!(budget(Arch::V3, 2, false), (1, 19_900));
        assert_eq!(budget(Arch::V2, 2033, false), (8125, 80_467_500));
        assert_eq!(budget(Arch::V2, 2033, true), (1, 81_279_900));
        assert_eq!(budget(Arch::V3, 2033, false), (4063, 40_233_700));
        assert_eq!(budget(Arch::V3, 2033, true), (1, 40_639_900));
        assert_eq!(budget(Arch::V3, 0, false), budget(Arch::V3, 2, false));
    }

    #[test]
    fn a_host_address_survives_the_round_trip_and_hbm_is_none() {
        for arch in Arch::ALL {
            let profile = arch.profile();
            let at = HostPa::new(0xffff_f000);
            assert_eq!(profile.bus_to_host(profile.host_to_bus(at)), Some(at));
            for region in MemoryLayout::new(arch, Scale::Full).unwrap().regions() {
                assert_eq!(profile.bus_to_host(region.start()), None);
            }
        }
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
