//! The real system calls, on files that are no devices.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use glia::node::{DeviceNode, Linux};
use glia_abi::conformance;
use glia_abi::errno::Errno;
use glia_abi::handle::{DeviceId, Fd};
use glia_abi::ioctl::{self, DeviceBasicInfo};
use glia_abi::transport::{MappingError, OpenMode, Transport};
use glia_runtime::{Runtime, RuntimeConfig};
use tempfile::TempDir;
use zerocopy::IntoBytes;

const DEVICE: DeviceId = DeviceId::new(5);
const SIZE_BYTES: u64 = 16 << 10;

/// A directory with a file in the place of a device's node, and the nodes there.
fn node() -> (DeviceNode, PathBuf, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("neuron5");
    fs::write(&path, [0xa5; 16 << 10]).unwrap();
    let node = DeviceNode::over(Linux, dir.path().join("neuron")).unwrap();
    (node, path, dir)
}

/// How many of our descriptors are of a file.
fn open_count(path: &Path) -> usize {
    let links = fs::read_dir("/proc/self/fd").unwrap();
    let targets = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
    targets.filter(|target| target == path).count()
}

/// How many of our mappings are of a file.
fn mapping_count(path: &Path) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let name = path.to_str().unwrap();
    maps.lines().filter(|line| line.ends_with(name)).count()
}

#[test]
fn a_node_that_is_not_there_is_enoent() {
    let (node, _, _dir) = node();
    for mode in [OpenMode::ReadOnly, OpenMode::WriteOnly, OpenMode::ReadWrite] {
        assert_eq!(node.open(DeviceId::new(6), mode), Err(Errno::ENOENT));
    }
    assert!(node.insight(DEVICE).is_none());
}

#[test]
fn a_host_without_a_device_says_so() {
    if Path::new("/dev/neuron0").exists() {
        return;
    }
    let node = std::sync::Arc::new(DeviceNode::new().unwrap());
    let refused = Runtime::open(node, &[DeviceId::new(0)], RuntimeConfig::default());
    let text = refused.err().unwrap().to_string();
    assert_eq!(text, "nd 0: open answered ENOENT");
}

#[test]
fn a_file_that_is_no_device_answers_enotty_and_the_struct_is_as_it_was() {
    let (node, _, _dir) = node();
    let fd = node.open(DEVICE, OpenMode::ReadWrite).unwrap();
    let mut info = DeviceBasicInfo {
        architecture: 17,
        revision: 4,
    };
    let word = ioctl::DEVICE_BASIC_INFO;
    let answer = node.ioctl(fd, word, info.as_mut_bytes(), &mut []);
    assert_eq!(answer, Err(Errno::ENOTTY));
    assert_eq!((info.architecture, info.revision), (17, 4));
}

#[test]
fn a_mapping_is_the_file_and_is_unmapped_when_it_is_dropped() {
    let (node, path, _dir) = node();
    let fd = node.open(DEVICE, OpenMode::ReadWrite).unwrap();
    let mapping = node.mmap(fd, 4096, SIZE_BYTES - 4096).unwrap();
    assert_eq!(mapping_count(&path), 1);
    assert!(mapping.is_writable());
    let mut byte = [0];
    mapping.read(4096, &mut byte).unwrap();
    assert_eq!(byte, [0xa5]);
    mapping.write(1, b"into the second page").unwrap();
    let file = fs::File::open(&path).unwrap();
    let mut found = [0; 22];
    file.read_exact_at(&mut found, 4096).unwrap();
    assert_eq!(&found, b"\xa5into the second page\xa5");
    conformance::mapping::check(&*mapping).unwrap();
    let whole = node.mmap(fd, 0, SIZE_BYTES).unwrap();
    let again = node.mmap(fd, 0, SIZE_BYTES).unwrap();
    conformance::mapping::check_shared(&*whole, &*again).unwrap();

    // It needs its descriptor no longer.
    node.close(fd).unwrap();
    mapping.read(0, &mut byte).unwrap();
    drop((mapping, whole, again));
    assert_eq!(mapping_count(&path), 0);
}

#[test]
fn a_file_for_reading_is_mapped_for_reading_and_one_for_writing_is_not_mapped() {
    let (node, _, _dir) = node();
    let fd = node.open(DEVICE, OpenMode::ReadOnly).unwrap();
    let mapping = node.mmap(fd, 0, SIZE_BYTES).unwrap();
    assert!(!mapping.is_writable());
    assert_eq!(mapping.write(0, &[1]), Err(MappingError::ReadOnly));
    conformance::mapping::check(&*mapping).unwrap();
    let fd = node.open(DEVICE, OpenMode::WriteOnly).unwrap();
    assert_eq!(node.mmap(fd, 0, SIZE_BYTES).err(), Some(Errno::EACCES));
}

#[test]
fn mappings_that_cannot_be_are_refused() {
    let (node, path, _dir) = node();
    let fd = node.open(DEVICE, OpenMode::ReadWrite).unwrap();
    for (offset, size_bytes) in [(0, 0), (1, 4096), (u64::MAX, 4096)] {
        let refused = node.mmap(fd, offset, size_bytes).err();
        assert_eq!(refused, Some(Errno::EINVAL), "{size_bytes} at {offset}");
    }
    assert_eq!(node.mmap(fd, 0, 1 << 62).err(), Some(Errno::ENOMEM));
    assert_eq!(mapping_count(&path), 0);
}

#[test]
fn a_buffer_is_fresh_memory_of_this_process() {
    let (node, _, _dir) = node();
    for size_bytes in [4096, 20_480, 5000] {
        let buffer = node.buffer(size_bytes).unwrap();
        conformance::mapping::check_buffer(&*buffer, size_bytes).unwrap();
    }
    for size_bytes in [0, 1 << 62, u64::MAX] {
        assert_eq!(node.buffer(size_bytes).err(), Some(Errno::ENOMEM));
    }
}

#[test]
fn every_descriptor_is_closed_once_and_with_its_node() {
    let (node, path, _dir) = node();
    let first = node.open(DEVICE, OpenMode::ReadWrite).unwrap();
    let second = node.dup(first).unwrap();
    assert_eq!((first, second), (Fd(0), Fd(1)));
    assert_eq!(open_count(&path), 2);
    node.close(first).unwrap();
    assert_eq!(open_count(&path), 1);
    for fd in [first, Fd(2), Fd(-1), Fd(i32::MAX)] {
        assert_eq!(node.close(fd), Err(Errno::EBADF));
        assert_eq!(node.dup(fd), Err(Errno::EBADF));
    }
    assert_eq!(open_count(&path), 1);
    drop(node);
    assert_eq!(open_count(&path), 0);
}
