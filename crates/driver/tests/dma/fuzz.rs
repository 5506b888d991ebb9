//! Descriptors of a hostile process, by the thousand: each is stored byte for byte, or the driver
//! refuses and nothing changes.

use std::sync::Arc;

use glia_abi::addr::{BusAddr, UserAddr};
use glia_abi::arch::{Arch, MemoryLayout, Scale};
use glia_abi::chance::Chance;
use glia_abi::fault::NoFaults;
use glia_abi::handle::{DeviceId, Pid};
use glia_abi::params::ModuleParams;
use glia_abi::transport::{Caller, CapturedMemory, PinFault, PinnedUser, UserFault, UserMemory};
use glia_abi::udma::Direction;
use glia_driver::alloc::AllocRequest;
use glia_driver::dma::descriptors::{DescriptorCopy, DescriptorError, is_host_address};
use glia_driver::memory::{DeviceMemory, MemoryConfig};

use crate::rig::{PID, Rig, hbm};

const CASES: u32 = 4000;
/// Where the process keeps its descriptors.
const USER: u64 = 0x7fff_0000_0000;
/// Bytes around the target that are looked at: all that a case can write, and more.
const WINDOW: usize = 24 << 10;
const TARGET: u64 = 8 << 10;
/// In the scratch part of host memory, behind the staging buffer.
const TARGET_IN_HOST: u64 = 1 << 20;

/// Random numbers that are the same in every run.
struct Dice(Chance);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0.number()
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    /// True once in so many times.
    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// A process with one range of memory.
struct Process(Vec<u8>);

impl UserMemory for Process {
    fn copy_in(&self, from: UserAddr, into: &mut [u8]) -> Result<(), UserFault> {
        let size_bytes = into.len() as u64;
        let fault = UserFault {
            at: from,
            size_bytes,
        };
        let start = from.get().checked_sub(USER).ok_or(fault)? as usize;
        let end = start.checked_add(into.len()).ok_or(fault)?;
        into.copy_from_slice(self.0.get(start..end).ok_or(fault)?);
        Ok(())
    }

    fn copy_out(&self, to: UserAddr, bytes: &[u8]) -> Result<(), UserFault> {
        let size_bytes = bytes.len() as u64;
        Err(UserFault { at: to, size_bytes })
    }

    fn check(&self, at: UserAddr, size_bytes: u64, _write: bool) -> Result<(), UserFault> {
        self.copy_in(at, &mut vec![0; size_bytes as usize])
    }

    fn pin(&self, at: UserAddr, size_bytes: u64, _write: bool) -> Result<PinnedUser, PinFault> {
        Err(UserFault { at, size_bytes }.into())
    }

    fn capture(&self, _at: UserAddr, _size_bytes: u64) -> Option<Arc<dyn CapturedMemory>> {
        None
    }
}

/// A machine with two devices that are open and one that nobody has open.
struct World {
    rig: Rig,
    memories: Vec<Arc<DeviceMemory>>,
    /// Chunks of host memory: first byte, size, and whether a process has the device open.
    chunks: Vec<(u64, u64, bool)>,
}

fn world(arch: Arch) -> World {
    let rig = Rig::bare(arch);
    rig.dma.init_cores(u32::MAX, true).unwrap();
    let memories = [3, 4, 60].map(|number| {
        let size_bytes = 32 << 20;
        let layout = MemoryLayout::new(arch, Scale::RegionSize { size_bytes });
        let config = MemoryConfig {
            device: DeviceId::new(number),
            params: ModuleParams {
                mempool_small_pool_size: 4 << 20,
                mempool_host_memory_size: 0,
                ..ModuleParams::default()
            },
            ..MemoryConfig::new(layout.unwrap())
        };
        let host = Arc::clone(&rig.machine) as _;
        Arc::new(DeviceMemory::new(config, host, Arc::new(NoFaults)).unwrap())
    });
    let mut chunks = Vec::new();
    for (number, memory) in memories.iter().enumerate() {
        let is_open = number < 2;
        if is_open {
            memory.open(PID).unwrap();
        }
        for size_bytes in [4096, 12_288, 4096] {
            let chunk = memory.alloc(Pid::default(), &AllocRequest::host(size_bytes));
            let record = memory.chunk(chunk.unwrap()).unwrap();
            chunks.push((record.at().get(), size_bytes, is_open));
        }
    }
    let memories = memories.into();
    World {
        rig,
        memories,
        chunks,
    }
}

impl World {
    /// The rule, said once more: what is no host address may be anywhere, host memory where a
    /// device that is open has a chunk.
    fn is_allowed(&self, at: u64) -> bool {
        let mut chunks = self.chunks.iter();
        !is_host_address(self.rig.profile, BusAddr::new(at))
            || chunks.any(|&(start, size_bytes, is_open)| {
                is_open && (start..start + size_bytes).contains(&at)
            })
    }

    /// An address: mostly one that may be, else near one, or anything.
    fn address(&self, dice: &mut Dice, is_hostile: bool) -> u64 {
        let open = self.chunks.iter().filter(|chunk| chunk.2).count() as u64;
        let (start, size_bytes, _) = self.chunks[dice.below(open) as usize];
        if !is_hostile {
            let hbm = dice.below(64 << 30);
            return [start + dice.below(size_bytes), hbm][dice.below(2) as usize];
        }
        let (closed, _, _) = self.chunks[open as usize + dice.below(3) as usize];
        let near = dice.below(33).wrapping_sub(16);
        match dice.below(7) {
            0 => start.wrapping_add(near),
            1 => (start + size_bytes).wrapping_add(near),
            2 => closed + dice.below(4096),
            3 => u64::MAX - dice.below(64),
            4 => self.rig.profile.host_base.wrapping_add(near),
            5 => start ^ 1 << dice.below(64),
            _ => dice.roll(),
        }
    }
}

/// What a case came to.
#[derive(Debug, Default)]
struct Tally {
    accepted: u32,
    uneven: u32,
    address: u32,
    user: u32,
    place: u32,
}

fn fuzz(arch: Arch) -> Tally {
    let world = world(arch);
    let rig = &world.rig;
    let mut dice = Dice(Chance::new(u64::from(arch.profile().engines)));
    let mut tally = Tally::default();
    let windows = [rig.host(TARGET_IN_HOST), hbm(0)];
    let before: Vec<u8> = (0..WINDOW).map(|_| dice.roll() as u8).collect();
    for number in 0..CASES {
        let direction = Direction::BOTH[dice.below(2) as usize];
        let is_long = dice.once_in(40);
        let descs = dice.below(if is_long { 700 } else { 20 });
        let is_hostile = dice.once_in(2);
        let mut addresses = Vec::new();
        let mut bytes = Vec::new();
        for _ in 0..descs {
            let is_odd = is_hostile && dice.once_in(descs.min(8));
            let at = world.address(&mut dice, is_odd);
            // Length and flags are the process's own business.
            bytes.extend(dice.roll().to_le_bytes());
            bytes.extend(at.to_le_bytes());
            addresses.push(at);
        }
        let odd_bytes = if dice.once_in(8) { dice.below(16) } else { 0 };
        bytes.extend(vec![7; odd_bytes as usize]);
        let size_bytes = bytes.len() as u64;
        let lost_bytes = if dice.once_in(8) { dice.below(20) } else { 0 };
        let is_unreadable = lost_bytes > 0 && size_bytes > 0;
        let from = match dice.below(16) {
            0 if size_bytes > 0 => u64::MAX - dice.below(64),
            _ => USER,
        };
        let mut process = Process(bytes.clone());
        process
            .0
            .truncate(bytes.len().saturating_sub(lost_bytes as usize));

        let mut target = windows[dice.below(2) as usize];
        target.at = target.at.checked_add(TARGET + dice.below(4096)).unwrap();
        let is_nowhere = dice.once_in(12) && size_bytes >= 64;
        if is_nowhere {
            // The end wraps, or is no memory.
            target.at = BusAddr::new(u64::MAX - dice.below(48));
        }
        for place in windows {
            rig.machine.store(place.at, &before);
        }
        let caller = Caller {
            pid: PID,
            memory: &process,
            killed: &|| false,
        };
        let copy = DescriptorCopy {
            target,
            size_bytes,
            direction,
        };
        let given = rig.dma.copy_descriptors_in(
            &caller,
            &world.memories,
            UserAddr::new(from),
            rig.host(0),
            copy,
        );

        let is_even = size_bytes.is_multiple_of(16);
        let is_readable = from == USER && !is_unreadable;
        let are_allowed = addresses.iter().all(|&at| world.is_allowed(at));
        let counter = match given {
            Ok(()) => &mut tally.accepted,
            Err(DescriptorError::Uneven { .. }) => &mut tally.uneven,
            Err(DescriptorError::Address { .. }) => &mut tally.address,
            Err(DescriptorError::User(_)) => &mut tally.user,
            Err(DescriptorError::Memory(_) | DescriptorError::Copy(_)) => &mut tally.place,
        };
        *counter += 1;
        let expected = match given {
            Ok(()) => is_even && is_readable && are_allowed && !is_nowhere,
            Err(DescriptorError::Uneven { .. }) => !is_even,
            Err(DescriptorError::User(_)) => is_even && !is_readable,
            Err(DescriptorError::Address { at }) => {
                let first = addresses.iter().find(|&&at| !world.is_allowed(at));
                is_even && is_readable && first == Some(&at.get())
            }
            Err(DescriptorError::Memory(_) | DescriptorError::Copy(_)) => {
                is_even && is_readable && are_allowed && is_nowhere
            }
        };
        assert!(expected, "{arch}, case {number}: {given:?}");
        for place in windows {
            let mut wanted = before.clone();
            if given.is_ok() && place.location == target.location {
                let start = target.at.checked_offset_from(place.at).unwrap() as usize;
                wanted[start..start + bytes.len()].copy_from_slice(&bytes);
            }
            let found = rig.machine.load(place.at, WINDOW);
            assert!(found == wanted, "{arch}, case {number}: {given:?}");
        }
    }
    tally
}

/// The bounds see to it that the cases do not all take the same way.
#[test]
fn thousands_of_descriptor_lists_are_stored_whole_or_not_at_all() {
    for arch in Arch::ALL {
        let tally = fuzz(arch);
        let Tally {
            accepted,
            uneven,
            address,
            user,
            place,
        } = tally;
        assert_eq!(accepted + uneven + address + user + place, CASES);
        assert!(accepted > CASES / 4, "{arch}: {tally:?}");
        assert!(address > CASES / 8, "{arch}: {tally:?}");
        for few in [uneven, user, place] {
            assert!(few > CASES / 50, "{arch}: {tally:?}");
        }
    }
}
