//! Descriptors that a process gives to the driver.

use std::sync::Arc;

use glia_abi::addr::{BusAddr, UserAddr};
use glia_abi::arch::{Arch, MemoryLayout, Scale};
use glia_abi::errno::Errno;
use glia_abi::fault::NoFaults;
use glia_abi::handle::{DeviceId, Pid};
use glia_abi::params::ModuleParams;
use glia_abi::transport::{Caller, CapturedMemory, PinFault, PinnedUser, UserFault, UserMemory};
use glia_abi::udma::Direction;
use glia_driver::alloc::AllocRequest;
use glia_driver::dma::descriptors::{DescriptorCopy, DescriptorError, is_host_address};
use glia_driver::memory::{DeviceMemory, MemoryConfig};

use crate::rig::{PID, Rig, hbm};

/// A device with two neighbours, all open.
struct Neighbours {
    rig: Rig,
    memories: Vec<Arc<DeviceMemory>>,
}

/// The rig's own device has number 3.
fn neighbours() -> Neighbours {
    let rig = Rig::new();
    let other = |number| {
        let scale = Scale::RegionSize {
            size_bytes: 32 << 20,
        };
        let config = MemoryConfig {
            device: DeviceId::new(number),
            params: ModuleParams {
                mempool_small_pool_size: 4 << 20,
                mempool_host_memory_size: 0,
                ..ModuleParams::default()
            },
            ..MemoryConfig::new(MemoryLayout::new(Arch::V2, scale).unwrap())
        };
        let host = Arc::clone(&rig.machine);
        Arc::new(DeviceMemory::new(config, host as _, Arc::new(NoFaults)).unwrap())
    };
    let memories = vec![other(3), other(4), other(60)];
    for memory in &memories {
        memory.open(PID).unwrap();
    }
    Neighbours { rig, memories }
}

impl Neighbours {
    /// First byte of a new chunk of 8 KiB of host memory.
    fn chunk(&self, number: usize) -> u64 {
        let memory = &self.memories[number];
        let chunk = memory.alloc(PID, &AllocRequest::host(8192)).unwrap();
        memory.chunk(chunk).unwrap().at().get()
    }

    fn copy(&self, addresses: &[u64], direction: Direction) -> Result<(), DescriptorError> {
        let bytes = descriptors(addresses);
        let rig = &self.rig;
        rig.machine.store(rig.host(0).at, &bytes);
        rig.dma.copy_descriptors(
            PID,
            &self.memories,
            rig.host(0),
            DescriptorCopy {
                target: hbm(0),
                size_bytes: bytes.len() as u64,
                direction,
            },
        )
    }
}

fn descriptors(addresses: &[u64]) -> Vec<u8> {
    let desc = |at: &u64| [0x0d00_1000_u64.to_le_bytes(), at.to_le_bytes()].concat();
    addresses.iter().flat_map(desc).collect()
}

/// A process whose memory is all one vector.
struct Memory(Vec<u8>);

impl UserMemory for Memory {
    fn copy_in(&self, from: UserAddr, into: &mut [u8]) -> Result<(), UserFault> {
        let start = from.get() as usize;
        let fault = UserFault {
            at: from,
            size_bytes: into.len() as u64,
        };
        let bytes = self.0.get(start..start + into.len()).ok_or(fault)?;
        into.copy_from_slice(bytes);
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

#[test]
fn descriptors_reach_the_ring_if_they_point_to_what_the_driver_has_given_out() {
    let all = neighbours();
    let own = all.chunk(0);
    let targets = [0x100_0000, own, own + 8191, all.chunk(1), all.chunk(2)];
    for direction in Direction::BOTH {
        all.rig.machine.store(hbm(0).at, &[0; 80]);
        all.copy(&targets, direction).unwrap();
        assert_eq!(all.rig.machine.load(hbm(0).at, 80), descriptors(&targets));
    }
}

#[test]
fn one_address_that_nobody_has_keeps_all_of_them_out() {
    let all = neighbours();
    let own = all.chunk(0);
    let stray = own + 0x10_0000;
    let announced = all.rig.queue().announced;
    let refused = all.copy(&[own, stray, own], Direction::Tx).unwrap_err();
    let at = BusAddr::new(stray);
    assert_eq!(refused, DescriptorError::Address { at });
    assert_eq!(refused.errno(), Errno::EINVAL);
    assert_eq!(all.rig.queue().announced, announced);
}

#[test]
fn a_device_that_no_process_has_open_does_not_count() {
    let all = neighbours();
    let far = all.chunk(2);
    all.copy(&[far], Direction::Rx).unwrap();
    // The chunk itself lives on.
    all.memories[2].open(Pid::new(5)).unwrap();
    all.memories[2].flush(PID);
    let kept = all.memories[2].alloc(Pid::new(5), &AllocRequest::host(4096));
    let kept = all.memories[2].chunk(kept.unwrap()).unwrap().at().get();
    all.copy(&[kept], Direction::Rx).unwrap();
    all.memories[2].flush(Pid::new(5));
    assert!(!all.memories[2].is_attached());
    assert!(all.copy(&[kept], Direction::Rx).is_err());
}

#[test]
fn host_addresses_are_told_by_the_mask_of_the_generation() {
    let is_host = |arch: Arch, at| is_host_address(arch.profile(), BusAddr::new(at));
    for at in [0x1000_0000_0000, 0x1100_0000_0000, 0x1f00_0000_0000] {
        assert!(is_host(Arch::V2, at));
    }
    for at in [0, 0x100_0000, 0x3000_0000_0000, 0x4000_1234_5000] {
        assert!(!is_host(Arch::V2, at));
    }
    assert!(is_host(Arch::V3, 0x4000_1234_5000) && is_host(Arch::V3, 0x7000_0000_0000));
    assert!(!is_host(Arch::V3, 0x1000_0000_0000));
}

#[test]
fn what_is_no_whole_number_of_descriptors_is_refused_and_none_is_nothing() {
    let all = neighbours();
    let copy = |size_bytes| {
        let (rig, devices) = (&all.rig, &all.memories);
        let copy = DescriptorCopy {
            target: hbm(0),
            size_bytes,
            direction: Direction::Tx,
        };
        rig.dma.copy_descriptors(PID, devices, rig.host(0), copy)
    };
    assert_eq!(copy(24).unwrap_err().errno(), Errno::EINVAL);
    let announced = all.rig.queue().announced;
    copy(0).unwrap();
    assert_eq!(all.rig.queue().announced, announced);
}

#[test]
fn a_process_gives_its_descriptors_piece_by_piece() {
    let all = neighbours();
    let rig = &all.rig;
    // One and a half pieces, the last descriptor at fault.
    let mut addresses = vec![0x100_0000; 6144];
    let give = |addresses: &[u64], to_host: bool| {
        let memory = Memory(descriptors(addresses));
        let caller = Caller {
            pid: PID,
            memory: &memory,
            killed: &|| false,
        };
        let target = if to_host { rig.host(0x10_0000) } else { hbm(0) };
        let size_bytes = 16 * 6144;
        let given = rig.dma.copy_descriptors_in(
            &caller,
            &all.memories,
            UserAddr::new(0),
            rig.host(0),
            DescriptorCopy {
                target,
                size_bytes,
                direction: Direction::Tx,
            },
        );
        given.map(|()| rig.machine.load(target.at, size_bytes as usize))
    };
    let whole = descriptors(&addresses);
    assert_eq!(give(&addresses, false).unwrap(), whole);
    assert_eq!(give(&addresses, true).unwrap(), whole);
    let short = give(&addresses[..6000], false).unwrap_err();
    assert_eq!(short.errno(), Errno::EFAULT);

    rig.machine.store(hbm(0).at, &vec![0; whole.len()]);
    addresses[6143] = rig.host(0).at.get();
    assert_eq!(give(&addresses, false).unwrap_err().errno(), Errno::EINVAL);
    let left = rig.machine.load(hbm(0).at, whole.len());
    assert_eq!(left[..65_536], whole[..65_536]);
    assert!(left[65_536..].iter().all(|byte| *byte == 0));
}
