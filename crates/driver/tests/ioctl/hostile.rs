//! Handles that name nothing, on every command that takes one; offsets and sizes that only together
//! leave their chunk, on every command that takes both. All are refused, and nothing is touched.

use std::collections::BTreeSet;

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::ioctl::{
    self, DmaDescriptorCopyout, MemBufZerocopy64Batches, ZerocopyBatch, ZerocopyOp,
};
use zerocopy::IntoBytes;

use crate::by_layout::{MOVED, SIZE, Scene, commands, filled};
use crate::client::{Client, NOWHERE};
use crate::queue_rig::{DESCS, ENGINE, QUEUE, Rings};
use crate::support::{PAGE, Rig};

/// What a command that is in order answers here.
fn good_answer(word: u32) -> Result<(), Errno> {
    match word {
        // User memory, which zero copies look at last of all, is not there.
        ioctl::MEM_BUF_ZEROCOPY64 => Err(Errno::EFAULT),
        _ => Ok(()),
    }
}

#[test]
fn a_handle_of_nobody_is_refused_by_every_command_that_takes_one() {
    for arch in Arch::ALL {
        let mut seen = BTreeSet::new();
        for (command, layout) in commands() {
            let handles: Vec<_> = filled(layout)
                .into_iter()
                .filter(|it| it.is_handle())
                .collect();
            if handles.is_empty() {
                continue;
            }
            seen.insert(command.name);
            let rig = Rig::new(arch);
            let scene = Scene::new(&rig);
            let bad = scene.bad_handles(arch);
            scene.begin(command);
            let good = || scene.good(command, layout);
            let is_ring = matches!(
                command.word,
                ioctl::DMA_QUEUE_INIT | ioctl::DMA_QUEUE_INIT_BATCH
            );
            let before = scene.books();
            for handle in &handles {
                // The commands for rings take any bad handle for none, whatever comes of that.
                let mut bytes = good();
                handle.set(&mut bytes, 0);
                let without = scene.send(command.word, &bytes);
                for &value in &bad {
                    let mut bytes = good();
                    handle.set(&mut bytes, value);
                    let text = format!(
                        "{arch:?} {}.{} = {value:#x}",
                        command.name, handle.field.name
                    );
                    let answer = scene.send(command.word, &bytes);
                    if is_ring {
                        assert_eq!(answer, without, "{text}");
                        continue;
                    }
                    assert_eq!(answer, Err(Errno::EINVAL), "{text}");
                    assert_eq!(scene.books(), before, "{text}");
                }
            }
            let bytes = good();
            let answer = scene.send(command.word, &bytes);
            assert_eq!(
                answer,
                good_answer(command.word),
                "{arch:?} {}",
                command.name
            );
        }
        let expected = [
            "DMA_COPY_DESCRIPTORS",
            "DMA_COPY_DESCRIPTORS64",
            "DMA_QUEUE_INIT",
            "DMA_QUEUE_INIT_BATCH",
            "MEMSET",
            "MEMSET64",
            "MEM_BUF_COPY",
            "MEM_BUF_COPY64",
            "MEM_BUF_ZEROCOPY64",
            "MEM_COPY",
            "MEM_COPY64",
            "MEM_COPY_ASYNC",
            "MEM_COPY_ASYNC64",
            "MEM_COPY_ASYNC_WAIT",
            "MEM_FREE",
            "MEM_GET_EXTENDED_INFO",
            "MEM_GET_INFO",
            "MEM_GET_PA",
        ];
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected);
    }
}

/// `offset = 2^64 - k` and `size = k + 1`, or of 32 bits where the fields have no more: the sum is
/// small.
#[test]
fn an_offset_and_a_size_that_wrap_together_are_refused_by_every_command_that_takes_both() {
    const KS: [u64; 6] = [1, 16, 100, PAGE, SIZE, 65_536];
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let scene = Scene::new(&rig);
        let mut seen = BTreeSet::new();
        for (command, layout) in commands() {
            let fields = filled(layout);
            let named = |name: &str| fields.iter().find(|it| it.field.name == name);
            let offsets = fields.iter().filter(|it| it.is_offset());
            for offset in offsets {
                seen.insert((command.name, offset.field.name));
                let before = scene.books();
                // (The last one is of the field's own width.)
                for k in KS.into_iter().chain([1 << (offset.bits() - 1)]) {
                    let (count, unit) = match (named("size"), named("num_descs")) {
                        (Some(size), _) => (size, 1),
                        (None, Some(descs)) => (descs, 16),
                        (None, None) => unreachable!("{}", command.name),
                    };
                    let size = (k + 1).min(u64::MAX >> (64 - count.bits()));
                    // (Cut to the field's width, it wraps there.)
                    let value = 0_u64.wrapping_sub(k.wrapping_mul(unit));
                    let mut bytes = scene.good(command, layout);
                    offset.set(&mut bytes, value);
                    count.set(&mut bytes, size);
                    let text = format!(
                        "{arch:?} {}: {} {value:#x}, size {size:#x}",
                        command.name, offset.field.name
                    );
                    let expected = match named("dst").map(|dst| dst.is_handle()) {
                        Some(false) => Errno::ENOMEM,
                        _ => Errno::EINVAL,
                    };
                    let answer = scene.send(command.word, &bytes);
                    assert_eq!(answer, Err(expected), "{text}");
                    assert_eq!(scene.books(), before, "{text}");
                }
            }
        }
        let expected = [
            ("DMA_COPY_DESCRIPTORS", "offset"),
            ("DMA_COPY_DESCRIPTORS64", "offset"),
            ("MEMSET", "offset"),
            ("MEMSET64", "offset"),
            ("MEM_BUF_COPY", "offset"),
            ("MEM_BUF_COPY64", "offset"),
            ("MEM_BUF_ZEROCOPY64", "offset"),
            ("MEM_COPY", "dst_offset"),
            ("MEM_COPY", "src_offset"),
            ("MEM_COPY64", "dst_offset"),
            ("MEM_COPY64", "src_offset"),
            ("MEM_COPY_ASYNC", "dst_offset"),
            ("MEM_COPY_ASYNC", "src_offset"),
            ("MEM_COPY_ASYNC64", "dst_offset"),
            ("MEM_COPY_ASYNC64", "src_offset"),
            ("PROGRAM_ENGINE", "offset"),
            ("PROGRAM_ENGINE_NC", "offset"),
            ("PROGRAM_ENGINE_NC64", "offset"),
        ];
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn sums_that_wrap_between_more_than_two_fields_are_refused_too() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let scene = Scene::new(&rig);
        let before = scene.books();
        let client = &scene.client;
        for k in [1, 16, PAGE, SIZE + 1] {
            let wrapping = 0_u64.wrapping_sub(k);
            // The address of the engine's program.
            let words = [
                ioctl::PROGRAM_ENGINE,
                ioctl::PROGRAM_ENGINE_NC,
                ioctl::PROGRAM_ENGINE_NC64,
            ];
            for (command, layout) in commands().filter(|(it, _)| words.contains(&it.word)) {
                let fields = filled(layout);
                let mut bytes = scene.good(command, layout);
                for (name, value) in [("dst", wrapping), ("size", k + 1)] {
                    let field = fields.iter().find(|it| it.field.name == name);
                    field.unwrap().set(&mut bytes, value);
                }
                let answer = scene.send(command.word, &bytes);
                assert_eq!(answer, Err(Errno::ENOMEM), "{} {k}", command.name);
            }
            // The two offsets of a piece of a batch, and either with the size.
            let pieces = [
                (wrapping, k, MOVED),
                (k, wrapping, MOVED),
                (wrapping, 0, k + 1),
                (0, wrapping, k + 1),
                (wrapping, k - 1, 2),
            ];
            for (mem_handle_offset, offset, size) in pieces {
                let op = ZerocopyOp {
                    offset,
                    size,
                    buffer: NOWHERE,
                };
                let batch = ZerocopyBatch {
                    mem_handle: scene.own[1],
                    mem_handle_offset,
                    ops_ptr: client.space.put(op.as_bytes()),
                    num_ops: 1,
                    ..ZerocopyBatch::default()
                };
                for sequence_num in [0, 5] {
                    let argument = MemBufZerocopy64Batches {
                        sequence_num,
                        batches: client.space.put(batch.as_bytes()),
                        num_batches: 1,
                        is_copy_to_device: 1,
                        h2t_qid: -1,
                        ..MemBufZerocopy64Batches::default()
                    };
                    let word = ioctl::MEM_BUF_ZEROCOPY64_BATCHES;
                    let answer = client.ioctl(scene.file, word, argument).map(drop);
                    assert_eq!(answer, Err(Errno::EINVAL), "{arch:?} {op:?} {batch:?}");
                }
            }
            // A mapping.
            let offset = 0_u64.wrapping_sub(k.next_multiple_of(PAGE));
            let size = k.next_multiple_of(PAGE) + 1;
            let answer = client.mmap(scene.file, offset, size);
            assert_eq!(answer, Err(Errno::EPERM), "{offset:#x} {size:#x}");
        }
        assert_eq!(scene.books(), before, "{arch:?}");
    }
}

#[test]
fn descriptors_are_not_read_out_of_a_ring_by_numbers_that_wrap() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let rings = Rings::new(&rig, 7);
        rings.init(rings.request()).unwrap();
        let buffer = rings.client.space.put(&[0x5a; 16 * DESCS as usize]);
        for (start_index, count) in [
            (0_u32.wrapping_sub(1), 2),
            (0_u32.wrapping_sub(DESCS), DESCS + 1),
            (1, u32::MAX),
            (u32::MAX, u32::MAX),
            (DESCS, 1),
        ] {
            let argument = DmaDescriptorCopyout {
                eng: ENGINE,
                qid: QUEUE,
                queue_type: 0,
                start_index,
                count,
                pad: 0,
                buffer,
            };
            let word = ioctl::DMA_DESCRIPTOR_COPYOUT;
            let answer = rings.client.ioctl(rings.file, word, argument).map(drop);
            assert_eq!(answer, Err(Errno::EFBIG), "{start_index} {count}");
        }
        assert!(
            rings
                .client
                .space
                .get(buffer)
                .iter()
                .all(|&byte| byte == 0x5a)
        );
    }
}

/// A batch's handle is behind a pointer, where no layout leads.
#[test]
fn a_batch_for_a_chunk_of_nobody_is_refused_and_moves_nothing() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let scene = Scene::new(&rig);
        let client: &Client<'_> = &scene.client;
        let bad = scene.bad_handles(arch);
        let before = scene.books();
        for mem_handle in bad {
            let op = ZerocopyOp {
                offset: 0,
                size: MOVED,
                buffer: client.space.put(&[0; MOVED as usize]),
            };
            let batch = ZerocopyBatch {
                mem_handle,
                ops_ptr: client.space.put(op.as_bytes()),
                num_ops: 1,
                bar4_wr_threshold: 64,
                ..ZerocopyBatch::default()
            };
            for (is_copy_to_device, sequence_num) in [(0, 0), (1, 0), (0, 3), (1, 3)] {
                let argument = MemBufZerocopy64Batches {
                    sequence_num,
                    batches: client.space.put(batch.as_bytes()),
                    num_batches: 1,
                    is_copy_to_device,
                    h2t_qid: -1,
                    ..MemBufZerocopy64Batches::default()
                };
                let word = ioctl::MEM_BUF_ZEROCOPY64_BATCHES;
                let answer = client.ioctl(scene.file, word, argument).map(drop);
                assert_eq!(answer, Err(Errno::EINVAL), "{arch:?} {mem_handle:#x}");
            }
        }
        assert_eq!(scene.books(), before, "{arch:?}");
    }
}
