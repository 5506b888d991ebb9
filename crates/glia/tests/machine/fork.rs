//! Children: what a fork gives them, and what they can do with it.

use std::sync::Arc;

use glia::machine::{Machine, MachineConfig, Model, Process};
use glia_abi::arch::Scale;
use glia_abi::errno::Errno;
use glia_abi::handle::{CoreId, DeviceId, Fd, Pid};
use glia_abi::ioctl::{
    self, CinitSetState, Crwl, MemCopy, MemCopy64, MemFree, MemGetExtendedInfo, Memset64, NcMap,
};
use glia_abi::mem::Location;
use glia_abi::transport::{MappingError, OpenMode, Transport};

use crate::books::{Books, enter_datastore, send, set_up_queue, take};

const DEVICE: DeviceId = DeviceId::new(0);
const SIZE: u64 = 8192;
const PARENT: Pid = Pid::new(7);
const CHILD: Pid = Pid::new(8);

fn machine(model: Model) -> Machine {
    let config = MachineConfig {
        scale: Scale::RegionSize {
            size_bytes: 64 << 20,
        },
        ..MachineConfig::new(model)
    };
    Machine::new(config).unwrap()
}

fn parent(machine: &Machine) -> (Arc<Process>, Fd) {
    let process = machine.process(PARENT);
    let fd = process.open(DEVICE, OpenMode::ReadWrite).unwrap();
    (process, fd)
}

/// Who took a chunk, by a command that asks nobody to be attached.
fn owner(process: &Process, fd: Fd, mem_handle: u64) -> Result<u64, Errno> {
    let argument = MemGetExtendedInfo {
        mem_handle,
        ..MemGetExtendedInfo::default()
    };
    let info = send(process, fd, ioctl::MEM_GET_EXTENDED_INFO, argument)?;
    Ok(info.pid)
}

fn mark(process: &Process, fd: Fd, core: u32) -> Result<u64, Errno> {
    let argument = NcMap {
        nc_count: 1,
        start_nc: core,
        end_nc: core,
        ..NcMap::default()
    };
    let marked = send(process, fd, ioctl::CRWL_NC_RANGE_MARK, argument)?;
    Ok(marked.bitmap)
}

#[test]
fn a_child_has_the_files_and_is_attached_to_nothing() {
    for model in Model::ALL {
        let machine = machine(model);
        let (parent, fd) = parent(&machine);
        let [(src, _), (dst, _)] =
            [(); 2].map(|()| take(&parent, fd, Location::Device, SIZE).unwrap());
        let child = parent.fork(CHILD).unwrap();
        assert_eq!(child.pid(), CHILD);
        // The gate stops it, by the exact word; so does the allocator, behind newer forms.
        let narrow = MemCopy {
            src,
            dst,
            size: 64,
            ..MemCopy::default()
        };
        let answer = send(&child, fd, ioctl::MEM_COPY, narrow).map(drop);
        assert_eq!(answer, Err(Errno::EACCES));
        let answer = send(&child, fd, ioctl::MEM_FREE, MemFree { mem_handle: src });
        assert_eq!(answer.map(drop), Err(Errno::EACCES));
        assert_eq!(take(&child, fd, Location::Device, SIZE), Err(Errno::EACCES));
        // The rest is open, to all handles.
        let fill = Memset64 {
            mem_handle: src,
            value: 0x5a,
            size: SIZE,
            ..Memset64::default()
        };
        send(&child, fd, ioctl::MEMSET64, fill).unwrap();
        let wide = MemCopy64 {
            src,
            dst,
            size: SIZE,
            ..MemCopy64::default()
        };
        send(&child, fd, ioctl::MEM_COPY64, wide).unwrap();
        assert_eq!(owner(&child, fd, dst), Ok(7));
        // By an open of its own it is like any other process.
        let own = child.open(DEVICE, OpenMode::ReadWrite).unwrap();
        assert_eq!(own, Fd(fd.0 + 1));
        let (handle, _) = take(&child, fd, Location::Device, SIZE).unwrap();
        assert_eq!(owner(&parent, fd, handle), Ok(8));
    }
}

#[test]
fn descriptors_are_the_childs_own_and_files_are_shared() {
    let machine = machine(Model::Trn2);
    let (parent, fd) = parent(&machine);
    let (handle, _) = take(&parent, fd, Location::Device, SIZE).unwrap();
    let child = parent.fork(CHILD).unwrap();
    let second = child.dup(fd).unwrap();
    assert_eq!(parent.close(second), Err(Errno::EBADF));
    child.close(fd).unwrap();
    assert_eq!(child.close(fd), Err(Errno::EBADF));
    assert_eq!(owner(&child, second, handle), Ok(7), "the file is open");
    child.close(second).unwrap();
    // A close by a process that is not attached ends nothing.
    assert_eq!(owner(&parent, fd, handle), Ok(7));
    let free = send(&parent, fd, ioctl::MEM_FREE, MemFree { mem_handle: handle });
    assert_eq!(free.map(drop), Ok(()));
}

#[test]
fn a_childs_death_ends_what_is_its_own_and_nothing_of_its_parents() {
    for model in Model::ALL {
        let machine = machine(model);
        let (parent, fd) = parent(&machine);
        crate::books::make_what_stays(&machine, DEVICE);
        let free_access = parent.open(DEVICE, OpenMode::WriteOnly).unwrap();
        take(&parent, fd, Location::Host, SIZE).unwrap();
        set_up_queue(&parent, fd, 5, 3).unwrap();
        enter_datastore(&parent, fd).unwrap();
        assert_eq!(mark(&parent, free_access, 0), Ok(0b1));
        let before = Books::of(&machine, DEVICE);
        let child = parent.fork(CHILD).unwrap();
        // Marks are of whoever makes them, by whatever file.
        assert_eq!(mark(&child, free_access, 0), Err(Errno::EBUSY));
        assert_eq!(mark(&child, free_access, 1), Ok(0b10));
        let own = child.open(DEVICE, OpenMode::ReadWrite).unwrap();
        take(&child, own, Location::Device, SIZE).unwrap();
        set_up_queue(&child, own, 5, 4).unwrap();
        enter_datastore(&child, own).unwrap();
        assert_ne!(Books::of(&machine, DEVICE), before);
        child.kill();
        assert_eq!(Books::of(&machine, DEVICE), before, "{model:?}");
        assert_eq!(
            machine.driver().core_holder(DEVICE, CoreId::new(0)),
            Some(PARENT)
        );
    }
}

/// The file is the child's, too: it stays open, and with it whatever lives as long as a file does.
#[test]
fn a_parent_dies_before_its_child_and_its_memory_goes_with_it() {
    for model in Model::ALL {
        let machine = machine(model);
        let before = Books::of(&machine, DEVICE);
        let (parent, fd) = parent(&machine);
        let (handle, _) = take(&parent, fd, Location::Device, SIZE).unwrap();
        let child = parent.fork(CHILD).unwrap();
        let grandchild = child.fork(Pid::new(9)).unwrap();
        drop(parent);
        assert_eq!(owner(&child, fd, handle), Err(Errno::EINVAL));
        assert_eq!(Books::of(&machine, DEVICE), before, "{model:?}");
        // The file serves those that have it still.
        assert_eq!(take(&child, fd, Location::Device, SIZE), Err(Errno::EACCES));
        child.open(DEVICE, OpenMode::ReadWrite).unwrap();
        let (handle, _) = take(&child, fd, Location::Device, SIZE).unwrap();
        drop(child);
        assert_eq!(owner(&grandchild, fd, handle), Err(Errno::EINVAL));
        drop(grandchild);
        assert_eq!(Books::of(&machine, DEVICE), before, "{model:?}");
    }
}

/// A copy of a descriptor does not count as an open: the first close of the two ends everything.
#[test]
fn the_close_of_a_copy_detaches_a_process_and_the_next_open_attaches_it_again() {
    for model in Model::ALL {
        let machine = machine(model);
        let (process, fd) = parent(&machine);
        let (handle, _) = take(&process, fd, Location::Device, SIZE).unwrap();
        let copy = process.dup(fd).unwrap();
        process.close(copy).unwrap();
        assert_eq!(owner(&process, fd, handle), Err(Errno::EINVAL));
        assert_eq!(
            take(&process, fd, Location::Device, SIZE),
            Err(Errno::EACCES)
        );
        let again = process.open(DEVICE, OpenMode::ReadOnly).unwrap();
        let (handle, _) = take(&process, fd, Location::Device, SIZE).unwrap();
        // Now the first file's close is the last one that counts.
        process.close(fd).unwrap();
        assert_eq!(owner(&process, again, handle), Err(Errno::EINVAL));
    }
}

#[test]
fn a_childs_mapping_is_for_reading_and_ends_with_it() {
    for model in Model::ALL {
        let machine = machine(model);
        let (parent, fd) = parent(&machine);
        let (handle, at) = take(&parent, fd, Location::Device, SIZE).unwrap();
        let own = parent.mmap(fd, at, SIZE).unwrap();
        own.write(0, b"the parent's").unwrap();
        let child = parent.fork(CHILD).unwrap();
        let mapping = child.mmap(fd, at, SIZE).unwrap();
        assert_eq!(mapping.write(0, b"x"), Err(MappingError::ReadOnly));
        let mut bytes = [0; 12];
        mapping.read(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"the parent's");
        // Its close of the descriptor leaves the mapping alone; it was never attached.
        child.close(fd).unwrap();
        mapping.read(0, &mut bytes).unwrap();
        drop(own);
        send(&parent, fd, ioctl::MEM_FREE, MemFree { mem_handle: handle }).unwrap();
        let held = || machine.driver().memory(DEVICE).unwrap().stats().held_chunks;
        assert_eq!(held(), 1);
        child.kill();
        assert_eq!(held(), 0);
        assert_eq!(mapping.read(0, &mut bytes), Err(MappingError::Gone));
    }
}

/// It can still take what is not gated, and nobody's close of a descriptor counts as its last one.
#[test]
fn what_a_process_took_without_being_attached_goes_with_it() {
    for model in Model::ALL {
        let machine = machine(model);
        crate::books::make_what_stays(&machine, DEVICE);
        let (parent, fd) = parent(&machine);
        let before = Books::of(&machine, DEVICE);
        let child = parent.fork(CHILD).unwrap();
        let lock = Crwl {
            nc_id: 1,
            uuid: [7; 32],
        };
        send(&child, fd, ioctl::CRWL_WRITER_ENTER, lock).unwrap();
        let starting = CinitSetState {
            nc_id: 1,
            state: 1,
            new_state: 0,
        };
        send(&child, fd, ioctl::CINIT_SET_STATE, starting).unwrap();
        enter_datastore(&child, fd).unwrap();
        assert_eq!(
            machine.driver().lock_holders(DEVICE),
            [(CoreId::new(1), CHILD)]
        );
        child.kill();
        assert_eq!(Books::of(&machine, DEVICE), before, "{model:?}");
        // Nobody is at it any more.
        let begun = send(&parent, fd, ioctl::CINIT_SET_STATE, starting).unwrap();
        assert_eq!(begun.new_state, 1);
        send(&parent, fd, ioctl::CRWL_WRITER_ENTER, lock).unwrap();
    }
}

#[test]
fn the_dead_have_no_children_and_a_child_needs_a_number() {
    let machine = machine(Model::Trn1);
    let (parent, fd) = parent(&machine);
    for pid in [0, (1 << 22) + 1, u32::MAX] {
        assert_eq!(
            parent.fork(Pid::new(pid)).err(),
            Some(Errno::EINVAL),
            "{pid}"
        );
    }
    let child = parent.fork(CHILD).unwrap();
    parent.kill();
    assert_eq!(parent.fork(Pid::new(9)).err(), Some(Errno::EBADF));
    assert_eq!(owner(&child, fd, 1), Err(Errno::EINVAL), "its file is open");
}
