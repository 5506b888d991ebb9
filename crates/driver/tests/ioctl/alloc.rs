//! Taking, freeing and describing chunks.

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::ioctl::{self, MemAllocV2Mt64, MemFree, MemGetInfo, MemGetPa};
use glia_abi::usage::Category;
use zerocopy::IntoBytes;

use crate::client::{Client, NOWHERE, device_memory, host_memory};
use crate::support::{MIB, PAGE, Rig};

#[test]
fn a_chunk_is_taken_described_and_freed() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let small = client.alloc(file, device_memory(PAGE)).unwrap();
        let large = client.alloc(file, device_memory(MIB)).unwrap();
        let host = client.alloc(file, host_memory(5000)).unwrap();
        assert_eq!([small, large, host], [1, 2, 3]);
        assert_eq!(client.get_pa(file, small), Ok(28 * MIB));
        assert_eq!(client.get_pa(file, large), Ok(16 * MIB));
        let host_pa = client.get_pa(file, host).unwrap();
        assert_ne!(host_pa & arch.profile().host_base, 0);
        for handle in [small, large, host] {
            client.free(file, handle).unwrap();
        }
        assert_eq!(client.get_pa(file, large), Err(Errno::EINVAL));
    }
}

#[test]
fn the_request_reaches_the_allocator_field_by_field() {
    for arch in [Arch::V3, Arch::V4] {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let handle = client
            .alloc(
                file,
                MemAllocV2Mt64 {
                    size: 5000,
                    align: MIB,
                    dram_channel: 3,
                    dram_region: 77,
                    nc_id: 6,
                    mem_type: 12,
                    ..MemAllocV2Mt64::default()
                },
            )
            .unwrap();
        let at = client.get_pa(file, handle).unwrap();
        let (_, record) = rig
            .memory()
            .search(glia_abi::addr::BusAddr::new(at))
            .unwrap();
        assert_eq!(at % MIB, 0);
        assert_eq!((record.size_bytes(), record.channel().get()), (8192, 3));
        assert_eq!((record.core().get(), record.owner().get()), (6, 7));
        assert_eq!(record.category(), Category::MISC_DEVICE);
    }
}

#[test]
fn refusals_come_in_the_order_of_the_reference() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let channels = arch.profile().region_bases.len() as u32;
        let refused = [
            (
                MemAllocV2Mt64 {
                    size: 1 << 63,
                    dram_channel: channels,
                    ..device_memory(0)
                },
                Errno::EINVAL,
            ),
            (
                MemAllocV2Mt64 {
                    dram_channel: channels,
                    ..host_memory(PAGE)
                },
                Errno::EINVAL,
            ),
            (
                MemAllocV2Mt64 {
                    nc_id: 8,
                    ..device_memory(PAGE)
                },
                Errno::EINVAL,
            ),
            (
                MemAllocV2Mt64 {
                    align: 1,
                    ..host_memory(PAGE)
                },
                Errno::EINVAL,
            ),
            (
                MemAllocV2Mt64 {
                    mem_type: 19,
                    ..host_memory(PAGE)
                },
                Errno::EINVAL,
            ),
            (
                MemAllocV2Mt64 {
                    align: 1 << 31,
                    ..device_memory(PAGE)
                },
                Errno::EINVAL,
            ),
            (device_memory(0), Errno::ENOMEM),
            (device_memory(33 * MIB), Errno::ENOMEM),
            (host_memory(64 * MIB), Errno::ENOMEM),
        ];
        let before = rig.memory().stats();
        for (argument, errno) in refused {
            assert_eq!(client.alloc(file, argument), Err(errno), "{argument:?}");
        }
        assert_eq!(rig.memory().stats(), before);
    }
}

#[test]
fn a_struct_that_cannot_be_read_is_a_fault() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let words = [
            ioctl::MEM_ALLOC_V2MT64,
            ioctl::MEM_FREE,
            ioctl::MEM_GET_PA,
            ioctl::MEM_GET_INFO,
            ioctl::MEM_COPY64,
            ioctl::MEM_BUF_COPY64,
            ioctl::MEM_COPY_ASYNC64,
            ioctl::MEM_COPY_ASYNC_WAIT,
        ];
        let short = client.space.put(&[0; 7]);
        for word in words {
            for at in [0, NOWHERE, u64::MAX, short] {
                let answer = client.raw_ioctl(file, word, at);
                assert_eq!(answer, Err(Errno::EFAULT), "{:?}", ioctl::name(word));
            }
        }
    }
}

#[test]
fn a_handle_that_cannot_be_written_leaves_no_chunk_behind() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let before = (rig.memory().stats(), rig.memory().handle_stats());
        let argument = MemAllocV2Mt64 {
            mem_handle: NOWHERE,
            ..device_memory(MIB)
        };
        let answer = client.ioctl(file, ioctl::MEM_ALLOC_V2MT64, argument);
        assert_eq!(answer, Err(Errno::EFAULT));
        let mut after = (rig.memory().stats(), rig.memory().handle_stats());
        assert_eq!(after.0.processes[0].device.total_bytes, 0);
        after.0.processes.clone_from(&before.0.processes);
        assert_eq!(after, before);
    }
}

#[test]
fn a_chunk_without_a_handle_is_given_back() {
    for arch in Arch::ALL {
        let rig = Rig::with(arch, |config| config.handle_limit = 3);
        let (client, file) = Client::attached(&rig, 7);
        client.alloc(file, device_memory(PAGE)).unwrap();
        let bytes = rig.memory().stats().device_bytes;
        let answer = client.alloc(file, device_memory(PAGE));
        assert_eq!(answer, Err(Errno::ENOENT));
        assert_eq!(rig.memory().stats().device_bytes, bytes);
    }
}

#[test]
fn only_an_attached_process_takes_memory_that_dies_with_it() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (_parent, file) = Client::attached(&rig, 7);
        let child = Client::new(&rig, 8);
        let answer = child.alloc(file, device_memory(PAGE));
        assert_eq!(answer, Err(Errno::EACCES));
        let answer = child.alloc(file, device_memory(0));
        assert_eq!(answer, Err(Errno::ENOMEM), "this is tested last");
    }
}

#[test]
fn anybody_frees_a_chunk_and_nobody_frees_it_twice() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (owner, file) = Client::attached(&rig, 7);
        let (other, other_file) = Client::attached(&rig, 8);
        let handle = owner.alloc(file, device_memory(PAGE)).unwrap();
        assert_eq!(other.free(other_file, handle), Ok(()));
        assert_eq!(owner.free(file, handle), Err(Errno::EINVAL));
        let next = other.alloc(other_file, device_memory(PAGE)).unwrap();
        assert_eq!(next, handle, "the number is used again at once");
        assert_eq!(owner.free(file, handle), Ok(()));
    }
}

#[test]
fn numbers_that_name_no_chunk_are_refused() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let issued = client.alloc(file, device_memory(PAGE)).unwrap();
        let other = rig.memory().issue_handle(5).unwrap();
        for handle in [0, issued + (1 << 32), 4096, u64::MAX, other.get().into()] {
            assert_eq!(client.free(file, handle), Err(Errno::EINVAL), "{handle}");
            assert_eq!(client.get_pa(file, handle), Err(Errno::EINVAL), "{handle}");
        }
    }
}

#[test]
fn info_writes_the_address_first_and_the_offset_if_somebody_wants_it() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let mem_handle = client.alloc(file, host_memory(PAGE)).unwrap();
        let expected = client.get_pa(file, mem_handle).unwrap();
        let [pa, mmap_offset] = [(); 2].map(|()| client.space.put(&[0; 8]));
        let ask = |pa, mmap_offset| {
            let argument = MemGetInfo {
                mem_handle,
                mmap_offset,
                pa,
            };
            client.ioctl(file, ioctl::MEM_GET_INFO, argument).map(drop)
        };
        assert_eq!(ask(pa, 0), Ok(()));
        assert_eq!(client.space.number(pa), expected);
        assert_eq!(ask(pa, mmap_offset), Ok(()));
        assert_eq!(client.space.number(mmap_offset), expected);
        let fresh = client.space.put(&[0; 8]);
        assert_eq!(ask(fresh, NOWHERE), Err(Errno::EFAULT));
        assert_eq!(client.space.number(fresh), expected);
        assert_eq!(ask(NOWHERE, mmap_offset), Err(Errno::EFAULT));
    }
}

#[test]
fn commands_of_the_gate_ask_for_an_attached_process_first() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (parent, file) = Client::attached(&rig, 7);
        let mem_handle = parent.alloc(file, device_memory(PAGE)).unwrap();
        let child = Client::new(&rig, 8);
        let gated = [
            ioctl::MEM_FREE,
            ioctl::MEM_GET_PA,
            ioctl::MEM_GET_INFO,
            ioctl::MEM_COPY_ASYNC_WAIT,
            ioctl::MEM_ALLOC,
            ioctl::BAR_WRITE,
            ioctl::DRIVER_INFO_SET,
        ];
        for word in gated {
            let answer = child.raw_ioctl(file, word, NOWHERE);
            assert_eq!(answer, Err(Errno::EACCES), "{:?}", ioctl::name(word));
        }
        let bytes = MemFree { mem_handle };
        let at = parent.space.put(bytes.as_bytes());
        assert_eq!(parent.raw_ioctl(file, ioctl::MEM_FREE, at), Ok(0));
        let pa = MemGetPa::default();
        let gone = parent.ioctl(file, ioctl::MEM_GET_PA, pa).map(drop);
        assert_eq!(gone, Err(Errno::EINVAL));
    }
}
