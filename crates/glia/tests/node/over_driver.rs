//! A node whose system calls the software driver answers.

use std::path::Path;
use std::sync::Arc;

use glia::machine::Model;
use glia::node::DeviceNode;
use glia_abi::conformance;
use glia_abi::conformance::transport::TransportFixture;
use glia_abi::errno::Errno;
use glia_abi::handle::{CoreId, DeviceId, Fd};
use glia_abi::ioctl::{
    self, DeviceBasicInfo, MemAllocV2Mt64, MemBufZerocopy64Batches, MemGetPa, ZerocopyBatch,
    ZerocopyOp,
};
use glia_abi::transport::{Lent, OpenMode, Transport, user_addr};
use glia_abi::usage::Category;
use glia_runtime::{Core, Placement, Runtime, RuntimeConfig, Tensor};
use zerocopy::IntoBytes;

use super::fake::{DEVICE, Fake};

/// A chunk of HBM.
fn alloc(node: &DeviceNode<Fake>, fd: Fd, size: u64) -> u64 {
    let mut handle = [0; 8];
    let mut arg = MemAllocV2Mt64 {
        size,
        mem_type: Category::TENSORS_DEVICE.0,
        mem_handle: user_addr(&handle).get(),
        ..MemAllocV2Mt64::default()
    };
    let lent = &mut [Lent::Out(&mut handle)];
    let word = ioctl::MEM_ALLOC_V2MT64;
    node.ioctl(fd, word, arg.as_mut_bytes(), lent).unwrap();
    u64::from_le_bytes(handle)
}

#[test]
fn a_node_is_a_transport() {
    for model in [Model::Trn1, Model::Trn2] {
        let fake = Fake::new(model);
        let node = fake.node();
        let fixture = TransportFixture {
            transport: &*node,
            device: DEVICE,
            missing: DeviceId::new(1),
        };
        conformance::transport::check(&fixture).unwrap();
        conformance::transport::check_copies(&fixture).unwrap();
        assert!(fake.log.lock().unwrap().buffers > 0);
    }
}

#[test]
fn the_runtime_allocates_writes_reads_and_frees_through_a_node() {
    let fake = Fake::new(Model::Trn2);
    let before = fake.taken_bytes();
    let runtime = Runtime::open(fake.node(), &[DEVICE], RuntimeConfig::default()).unwrap();
    let core = Core {
        device: DEVICE,
        core: CoreId::new(2),
    };
    // Staged in pieces, and at an odd offset.
    let bytes: Vec<u8> = (0..=250).cycle().take(5 << 20).collect();
    let tensor = Tensor::allocate(&runtime, core, Placement::Device, 6 << 20, "input").unwrap();
    tensor.write(4097, &bytes).unwrap();
    let mut back = vec![0; bytes.len()];
    tensor.read(4097, &mut back).unwrap();
    assert!(back == bytes);
    assert_eq!(tensor.memory().unwrap().pa().get(), 0x40_0100_0000);
    assert_ne!(fake.taken_bytes(), before);

    drop(tensor);
    drop(runtime);
    assert_eq!(fake.taken_bytes(), before);
    let log = fake.log.lock().unwrap();
    let node = Path::new("/dev/neuron0").to_path_buf();
    let opened = [
        (node.clone(), OpenMode::WriteOnly),
        (node, OpenMode::ReadWrite),
    ];
    assert_eq!(log.opened, opened);
    let mut closed = log.closed.clone();
    closed.sort_unstable();
    assert_eq!(closed, [Fd(0), Fd(1)]);
}

#[test]
fn what_an_open_answers_reaches_the_program() {
    let fake = Fake::new(Model::Trn2);
    for refusal in [Errno::EACCES, Errno::EBUSY, Errno::ENODEV, Errno::EINTR] {
        fake.log.lock().unwrap().refusal = Some(refusal);
        let node = fake.node();
        assert_eq!(node.open(DEVICE, OpenMode::ReadWrite), Err(refusal));
    }
    fake.log.lock().unwrap().refusal = Some(Errno::EACCES);
    let refused = Runtime::open(fake.node(), &[DEVICE], RuntimeConfig::default());
    let text = refused.err().unwrap().to_string();
    assert_eq!(text, "nd 0: open answered EACCES");
    let missing = DeviceId::new(3);
    let refused = Runtime::open(fake.node(), &[missing], RuntimeConfig::default());
    let text = refused.err().unwrap().to_string();
    assert_eq!(text, "nd 3: open answered ENOENT");
    let log = fake.log.lock().unwrap();
    assert!(log.closed.is_empty(), "nothing was opened");
    assert_eq!(log.opened.last().unwrap().0, Path::new("/dev/neuron3"));
}

#[test]
fn pointers_are_sent_as_they_are_and_forged_ones_are_not() {
    let fake = Fake::new(Model::Trn2);
    let node = fake.node();
    let fd = node.open(DEVICE, OpenMode::ReadWrite).unwrap();
    let mem_handle = alloc(&node, fd, 1 << 20);
    let mut pa = [0; 8];
    let mut arg = MemGetPa {
        mem_handle,
        pa: user_addr(&pa).get(),
    };
    let lent = &mut [Lent::Out(&mut pa)];
    let word = ioctl::MEM_GET_PA;
    assert_eq!(node.ioctl(fd, word, arg.as_mut_bytes(), lent), Ok(0));
    {
        let log = fake.log.lock().unwrap();
        assert_eq!(log.lent, [user_addr(&pa).get()]);
        assert_eq!(log.sent[8..], user_addr(&pa).get().to_le_bytes());
    }
    // Channel 0 is behind its carveout.
    assert_eq!(u64::from_le_bytes(pa), 0x100_0000);

    // A local variable that is not lent: the kernel could write there.
    let secret = [7; 8];
    arg.pa = user_addr(&secret).get();
    let forged = arg;
    let answer = node.ioctl(fd, word, arg.as_mut_bytes(), &mut []);
    assert_eq!(answer, Err(Errno::EFAULT));
    assert_eq!(arg, forged, "the caller's struct is as it was");
    assert_eq!(
        fake.log.lock().unwrap().sent[8..],
        [0, 0, 0, 0, 0, 0x80, 0xff, 0xff]
    );
    assert_eq!(secret, [7; 8]);
}

#[test]
fn commands_whose_struct_is_not_known_are_not_sent() {
    let fake = Fake::new(Model::Trn2);
    let node = fake.node();
    let fd = node.open(DEVICE, OpenMode::ReadWrite).unwrap();
    for word in [ioctl::BAR_READ, ioctl::POD_INFO, 0xc008_4eff] {
        let answer = node.ioctl(fd, word, &mut [0; 512], &mut []);
        assert_eq!(answer, Err(Errno::EINVAL));
    }
    assert_eq!(fake.log.lock().unwrap().commands, 0);
}

#[test]
fn a_mapping_that_is_too_short_is_not_taken() {
    let fake = Fake::new(Model::Trn2);
    let node = fake.node();
    let before = fake.taken_bytes();
    fake.log.lock().unwrap().missing_bytes = 4096;
    let refused = Runtime::open(
        Arc::<DeviceNode<Fake>>::clone(&node),
        &[DEVICE],
        RuntimeConfig::default(),
    );
    let text = refused.err().unwrap().to_string();
    assert_eq!(text, "nd 0: mmap answered EIO");
    // It was unmapped, and its chunk is free again.
    assert_eq!(fake.taken_bytes(), before);
}

#[test]
fn a_descriptor_that_is_closed_during_a_call_is_closed_once_and_after_it() {
    let fake = Fake::new(Model::Trn2);
    let node = fake.node();
    let fd = node.open(DEVICE, OpenMode::ReadWrite).unwrap();
    let (closer, log) = (Arc::clone(&node), Arc::clone(&fake.log));
    fake.log.lock().unwrap().meanwhile = Some(Box::new(move || {
        closer.close(fd).unwrap();
        assert_eq!(closer.close(fd), Err(Errno::EBADF));
        assert!(log.lock().unwrap().closed.is_empty());
    }));
    let mut info = DeviceBasicInfo::default();
    let word = ioctl::DEVICE_BASIC_INFO;
    let answer = node.ioctl(fd, word, info.as_mut_bytes(), &mut []);
    assert_eq!((answer, info.architecture), (Ok(0), 3));
    assert_eq!(fake.log.lock().unwrap().closed, [Fd(0)]);
    let answer = node.ioctl(fd, word, info.as_mut_bytes(), &mut []);
    assert_eq!(answer, Err(Errno::EBADF));
}

/// Sends a batch of one, of the whole buffer.
fn write_batch(
    node: &DeviceNode<Fake>,
    fd: Fd,
    mem_handle: u64,
    (buffer, size): (u64, u64),
    sequence_num: u64,
) -> Result<i32, Errno> {
    let ops = [ZerocopyOp {
        offset: 0,
        size,
        buffer,
    }];
    let batches = [ZerocopyBatch {
        mem_handle,
        ops_ptr: user_addr(ops.as_bytes()).get(),
        num_ops: 1,
        ..ZerocopyBatch::default()
    }];
    let mut arg = MemBufZerocopy64Batches {
        sequence_num,
        batches: user_addr(batches.as_bytes()).get(),
        num_batches: 1,
        is_copy_to_device: 1,
        h2t_qid: -1,
        ..MemBufZerocopy64Batches::default()
    };
    let lent = &mut [Lent::In(ops.as_bytes()), Lent::In(batches.as_bytes())];
    let word = ioctl::MEM_BUF_ZEROCOPY64_BATCHES;
    node.ioctl(fd, word, arg.as_mut_bytes(), lent)
}

#[test]
fn a_buffer_of_an_asynchronous_copy_is_kept_until_the_last_close_and_no_other() {
    let fake = Fake::new(Model::Trn2);
    let node = fake.node();
    let fd = node.open(DEVICE, OpenMode::ReadWrite).unwrap();
    let other = node.dup(fd).unwrap();
    let mem_handle = alloc(&node, fd, 8192);
    let buffers = [node.buffer(8192).unwrap(), node.buffer(8192).unwrap()];
    for (buffer, sequence) in buffers.iter().zip([0, 1]) {
        let range = (buffer.address().get(), 8192);
        assert_eq!(write_batch(&node, fd, mem_handle, range, sequence), Ok(0));
    }
    // One byte more than it has, and what the address was of.
    let outside = (buffers[0].address().get() + 1, 8192);
    let refused = write_batch(&node, fd, mem_handle, outside, 0);
    assert_eq!(refused, Err(Errno::EFAULT));
    let [waited, asynchronous] = buffers.each_ref().map(Arc::downgrade);
    let gone = (buffers[0].address().get(), 8192);
    drop(buffers);
    assert_eq!(waited.strong_count(), 0);
    let refused = write_batch(&node, fd, mem_handle, gone, 0);
    assert_eq!(refused, Err(Errno::EFAULT));

    assert_eq!(asynchronous.strong_count(), 1);
    node.close(fd).unwrap();
    assert_eq!(asynchronous.strong_count(), 1);
    node.close(other).unwrap();
    assert_eq!(asynchronous.strong_count(), 0);
}
