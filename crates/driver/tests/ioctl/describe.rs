//! What is told of chunks, by handle, by address and by channel.

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::FileId;
use glia_abi::ioctl::{
    self, DumpMemChunks, MemChunkInfo, MemGetExtendedInfo, MemMcGetInfo, MemMcGetInfoV2,
    ResourceMmapInfo,
};
use glia_abi::transport::OpenMode;
use zerocopy::{FromBytes, IntoBytes};

use crate::client::{Client, NOWHERE, device_memory, host_memory};
use crate::support::{MIB, ND1, PAGE, Rig};

/// Bytes of the carveout at the start of each region.
const CARVEOUT: u64 = 16 * MIB;

fn extended(client: &Client<'_>, file: FileId, handle: u64) -> Result<MemGetExtendedInfo, Errno> {
    let argument = MemGetExtendedInfo {
        mem_handle: handle,
        version: 99,
        ..MemGetExtendedInfo::default()
    };
    client.ioctl(file, ioctl::MEM_GET_EXTENDED_INFO, argument)
}

fn at_address(client: &Client<'_>, file: FileId, pa: u64) -> Result<MemMcGetInfoV2, Errno> {
    let argument = MemMcGetInfoV2 {
        pa,
        ..MemMcGetInfoV2::default()
    };
    client.ioctl(file, ioctl::MEM_MC_GET_INFO_V2, argument)
}

fn dump(client: &Client<'_>, file: FileId, argument: DumpMemChunks) -> (u32, Result<i32, Errno>) {
    let at = client.space.put(argument.as_bytes());
    let answer = client.raw_ioctl(file, ioctl::DUMP_MEM_CHUNKS, at);
    let after = DumpMemChunks::read_from_bytes(&client.space.get(at)).unwrap();
    (after.num_entries_out, answer)
}

#[test]
fn the_extended_info_is_the_chunks_record() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (owner, owner_file) = Client::attached(&rig, 7);
        let hbm = owner.alloc(owner_file, device_memory(5000)).unwrap();
        let host = owner.alloc(owner_file, host_memory(PAGE)).unwrap();
        // Whoever inherits a descriptor may ask: there is no gate.
        let child = Client::new(&rig, 8);
        for (mem_handle, host_memory, size) in [(hbm, 0, 2 * PAGE), (host, 1, PAGE)] {
            let pa = owner.get_pa(owner_file, mem_handle).unwrap();
            let expected = MemGetExtendedInfo {
                mem_handle,
                version: 1,
                host_memory,
                mmap_offset: pa,
                pa,
                pid: 7,
                size,
            };
            assert_eq!(extended(&child, owner_file, mem_handle), Ok(expected));
        }
        owner.free(owner_file, hbm).unwrap();
        for handle in [0, hbm, hbm + (1 << 32), u64::MAX] {
            assert_eq!(extended(&owner, owner_file, handle), Err(Errno::EINVAL));
        }
    }
}

#[test]
fn a_handle_of_another_device_names_nothing_here() {
    for arch in Arch::ALL {
        let rig = Rig::pair(arch);
        let (client, file) = Client::attached(&rig, 7);
        let other = client.open_device(ND1, OpenMode::ReadWrite).unwrap();
        let handle = client.alloc(file, device_memory(PAGE)).unwrap();
        assert_eq!(extended(&client, other, handle), Err(Errno::EINVAL));
        assert_eq!(client.free(other, handle), Err(Errno::EINVAL));
        assert!(extended(&client, file, handle).is_ok());
    }
}

#[test]
fn any_address_in_a_chunk_finds_it() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        for request in [device_memory(MIB), host_memory(MIB)] {
            let handle = client.alloc(file, request).unwrap();
            let start = client.get_pa(file, handle).unwrap();
            for pa in [start, start + 1, start + MIB - 1] {
                let found = at_address(&client, file, pa).unwrap();
                assert_eq!((found.pa, found.mmap_offset), (pa, start));
                assert_eq!((found.size, found.mem_handle), (MIB, handle));
                let short = MemMcGetInfo {
                    pa,
                    ..MemMcGetInfo::default()
                };
                let short = client.ioctl(file, ioctl::MEM_MC_GET_INFO, short).unwrap();
                assert_eq!((short.pa, short.mmap_offset, short.size), (pa, start, MIB));
            }
            client.free(file, handle).unwrap();
            assert_eq!(at_address(&client, file, start), Err(Errno::ENOMEM));
        }
        for pa in [24 * MIB, 1 << 60, u64::MAX] {
            assert_eq!(at_address(&client, file, pa), Err(Errno::ENOMEM), "{pa:#x}");
            let argument = [pa, 0, 0];
            let short = client.ioctl(file, ioctl::MEM_MC_GET_INFO, argument);
            assert_eq!(short, Err(Errno::ENOMEM));
        }
    }
}

#[test]
fn the_drivers_own_chunks_get_a_handle_when_somebody_asks() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let carveout = at_address(&client, file, PAGE).unwrap();
        assert_eq!((carveout.size, carveout.mem_handle), (CARVEOUT, 1));
        assert_eq!(at_address(&client, file, 2 * PAGE).unwrap().mem_handle, 1);
        assert_eq!(client.get_pa(file, 1), Ok(0));
    }
}

#[test]
fn without_a_handle_left_the_address_alone_is_told() {
    for arch in Arch::ALL {
        let rig = Rig::with(arch, |config| config.handle_limit = 3);
        let (client, file) = Client::attached(&rig, 7);
        client.alloc(file, device_memory(PAGE)).unwrap();
        client.alloc(file, device_memory(PAGE)).unwrap_err();
        assert_eq!(at_address(&client, file, 0), Err(Errno::ENOENT));
        let short = client.ioctl(file, ioctl::MEM_MC_GET_INFO, [0_u64; 3]);
        assert_eq!(short, Ok([0, 0, CARVEOUT]));
    }
}

#[test]
fn the_chunks_of_a_channel_are_told_by_address() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        // Of the small pool, at the end of the region, and then of the main one.
        client.alloc(file, device_memory(PAGE)).unwrap();
        client.alloc(file, device_memory(MIB)).unwrap();
        client.alloc(file, host_memory(PAGE)).unwrap();
        let room = client.space.put(&[0xaa; 4 * size_of::<MemChunkInfo>()]);
        let argument = DumpMemChunks {
            num_entries_in: u32::MAX,
            data: room,
            ..DumpMemChunks::default()
        };
        assert_eq!(
            dump(&client, file, argument),
            (3, Ok(0)),
            "no more is looked at"
        );
        let entry = |pa, size, mem_type| MemChunkInfo {
            pa,
            size,
            mem_type,
            pad: 0,
        };
        let bytes = client.space.get(room);
        let (told, rest) = bytes.split_at(3 * size_of::<MemChunkInfo>());
        let told = <[MemChunkInfo]>::ref_from_bytes(told).unwrap();
        assert_eq!((told[0].pa, told[0].size), (0, CARVEOUT));
        assert_eq!(told[1], entry(16 * MIB, MIB, 9));
        assert_eq!(told[2], entry(28 * MIB, PAGE, 9));
        assert_eq!(rest, [0xaa; size_of::<MemChunkInfo>()]);
    }
}

#[test]
fn too_little_room_is_told_and_nothing_else() {
    let rig = Rig::new(Arch::V3);
    let (client, file) = Client::attached(&rig, 7);
    client.alloc(file, device_memory(PAGE)).unwrap();
    let ask = |hbm_index, num_entries_in| {
        let argument = DumpMemChunks {
            hbm_index,
            num_entries_in,
            data: NOWHERE,
            ..DumpMemChunks::default()
        };
        dump(&client, file, argument)
    };
    assert_eq!(ask(0, 1), (2, Err(Errno::EAGAIN)));
    assert_eq!(ask(0, 2), (2, Err(Errno::EFAULT)));
    assert_eq!(ask(1, 0), (1, Err(Errno::EAGAIN)));
    for no_channel in [4, u32::MAX] {
        assert_eq!(ask(no_channel, 0), (0, Ok(0)));
    }
}

#[test]
fn no_block_has_a_resource_to_map() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        for (block, resource) in [(0, 0), (1, 1), (2, 3), (u32::MAX, u32::MAX)] {
            let argument = ResourceMmapInfo {
                block,
                resource,
                ..ResourceMmapInfo::default()
            };
            let answer = client.ioctl(file, ioctl::RESOURCE_MMAP_INFO, argument);
            assert_eq!(answer, Err(Errno::EINVAL));
        }
    }
}

#[test]
fn structs_that_cannot_be_read_or_written_are_faults() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let words = [
            ioctl::MEM_GET_EXTENDED_INFO,
            ioctl::MEM_MC_GET_INFO,
            ioctl::MEM_MC_GET_INFO_V2,
            ioctl::DUMP_MEM_CHUNKS,
            ioctl::RESOURCE_MMAP_INFO,
        ];
        let short = client.space.put(&[0; 23]);
        for word in words {
            for at in [0, NOWHERE, u64::MAX, short] {
                let answer = client.raw_ioctl(file, word, at);
                assert_eq!(answer, Err(Errno::EFAULT), "{:?}", ioctl::name(word));
            }
        }
        let handle = client.alloc(file, device_memory(PAGE)).unwrap();
        let structs = [
            (ioctl::MEM_GET_EXTENDED_INFO, handle),
            (ioctl::MEM_MC_GET_INFO, 0),
            (ioctl::MEM_MC_GET_INFO_V2, 0),
            (ioctl::DUMP_MEM_CHUNKS, 0),
        ];
        for (word, first) in structs {
            let at = client
                .space
                .put_read_only([first, 0, 0, 0, 0, 0].as_bytes());
            let answer = client.raw_ioctl(file, word, at);
            assert_eq!(answer, Err(Errno::EFAULT), "{:?}", ioctl::name(word));
        }
    }
}
