//! mmap: what may be mapped, how, and what a mapping holds.

use glia_abi::addr::BusAddr;
use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::{Channel, Pid};
use glia_abi::ioctl::MemAllocV2Mt64;
use glia_abi::transport::OpenMode;
use glia_driver::alloc::AllocRequest;

use crate::client::{Client, device_memory, host_memory};
use crate::support::{MIB, PAGE, Rig};

#[test]
fn any_offset_in_a_chunk_maps_it_from_its_first_byte() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        for request in [device_memory(MIB), host_memory(MIB)] {
            let handle = client.alloc(file, request).unwrap();
            let at = client.get_pa(file, handle).unwrap();
            for offset in [at, at + PAGE, at + MIB - PAGE] {
                let grant = client.mmap(file, offset, MIB).unwrap();
                assert_eq!((grant.at, grant.size_bytes), (BusAddr::new(at), MIB));
                assert!(grant.writable);
            }
        }
    }
}

#[test]
fn what_is_not_a_whole_chunk_is_not_permitted() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let handle = client.alloc(file, device_memory(2 * PAGE)).unwrap();
        let at = client.get_pa(file, handle).unwrap();
        for size in [PAGE, 3 * PAGE, 1 << 62] {
            assert_eq!(client.mmap(file, at, size), Err(Errno::EPERM));
        }
        let hole = at + 2 * PAGE;
        assert_eq!(client.mmap(file, hole, PAGE), Err(Errno::EPERM));
        assert_eq!(client.mmap(file, at, 0), Err(Errno::EINVAL));
        assert_eq!(client.mmap(file, at + 1, 2 * PAGE), Err(Errno::EINVAL));
        assert_eq!(client.mmap(file, at, u64::MAX), Err(Errno::ENOMEM));
        let grant = client.mmap(file, at, PAGE + 1).unwrap();
        assert_eq!(grant.size_bytes, 2 * PAGE, "lengths are whole pages");
    }
}

#[test]
fn a_scratchpad_page_is_mapped_up_to_the_end_of_the_scratchpad() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let page = MemAllocV2Mt64 {
            mem_type: 19,
            ..device_memory(2 * PAGE)
        };
        client.alloc(file, page).unwrap();
        let young = client.alloc(file, page).unwrap();
        let at = client.get_pa(file, young).unwrap();
        for size in [PAGE, 2 * PAGE, 4 * PAGE] {
            assert_eq!(client.mmap(file, at, size).unwrap().size_bytes, size);
        }
        assert_eq!(client.mmap(file, at, 5 * PAGE), Err(Errno::EPERM));
    }
}

#[test]
fn others_map_a_chunk_for_reading_unless_it_lives_as_long_as_the_device() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (owner, file) = Client::attached(&rig, 7);
        let (other, other_file) = Client::attached(&rig, 8);
        let handle = owner.alloc(file, device_memory(PAGE)).unwrap();
        let at = owner.get_pa(file, handle).unwrap();
        assert!(!other.mmap(other_file, at, PAGE).unwrap().writable);
        let read_only = owner.open(OpenMode::ReadOnly).unwrap();
        assert!(!owner.mmap(read_only, at, PAGE).unwrap().writable);
        let request = AllocRequest::device(PAGE, Channel::new(0));
        let chunk = rig.memory().alloc(Pid::new(0), &request).unwrap();
        let at = rig.memory().chunk(chunk).unwrap().at();
        assert!(other.mmap(other_file, at.get(), PAGE).unwrap().writable);
    }
}

#[test]
fn a_write_only_file_maps_nothing() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let client = Client::new(&rig, 7);
        let file = client.open(OpenMode::WriteOnly).unwrap();
        assert_eq!(client.mmap(file, 0, 16 * MIB), Err(Errno::EACCES));
    }
}

#[test]
fn a_mapping_holds_freed_memory_until_it_goes() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let handle = client.alloc(file, device_memory(PAGE)).unwrap();
        let at = client.get_pa(file, handle).unwrap();
        let grant = client.mmap(file, at, PAGE).unwrap();
        client.free(file, handle).unwrap();
        assert_eq!(client.mmap(file, at, PAGE), Err(Errno::EPERM), "it is dead");
        let next = client.alloc(file, device_memory(PAGE)).unwrap();
        assert_ne!(client.get_pa(file, next), Ok(at));
        rig.driver.munmap(grant.map);
        rig.driver.munmap(grant.map);
        let next = client.alloc(file, device_memory(PAGE)).unwrap();
        assert_eq!(client.get_pa(file, next), Ok(at));
    }
}

#[test]
fn mappings_go_with_their_process() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let (other, other_file) = Client::attached(&rig, 8);
        let handle = client.alloc(file, device_memory(PAGE)).unwrap();
        let at = client.get_pa(file, handle).unwrap();
        let mine = client.mmap(file, at, PAGE).unwrap();
        let others = other.mmap(other_file, at, PAGE).unwrap();
        assert_ne!(mine.map, others.map);
        client.close(file);
        assert_eq!(rig.memory().stats().held_chunks, 1, "the other one holds");
        rig.driver.munmap(others.map);
        assert_eq!(rig.memory().stats().held_chunks, 0);
        rig.driver.munmap(mine.map);
    }
}

#[test]
fn a_process_that_is_not_attached_maps_for_reading_until_it_unmaps() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (parent, file) = Client::attached(&rig, 7);
        let handle = parent.alloc(file, host_memory(PAGE)).unwrap();
        let at = parent.get_pa(file, handle).unwrap();
        let child = Client::new(&rig, 8);
        let grant = child.mmap(file, at, PAGE).unwrap();
        assert!(!grant.writable);
        child.flush(file);
        parent.free(file, handle).unwrap();
        assert_eq!(
            rig.memory().stats().held_chunks,
            1,
            "its close ends nothing"
        );
        rig.driver.munmap(grant.map);
        assert_eq!(rig.memory().stats().held_chunks, 0);
    }
}
