//! Synchronous copies: between chunks, and between chunks and user memory.

use glia_abi::addr::BusAddr;
use glia_abi::arch::{Arch, MemoryLayout, Scale};
use glia_abi::errno::Errno;
use glia_abi::event::Event;
use glia_abi::handle::FileId;
use glia_abi::ioctl::{self, MemAllocV2Mt64, MemBufCopy64, MemCopy64};

use crate::client::{Client, NOWHERE, device_memory, host_memory};
use crate::support::{MIB, PAGE, Rig};

/// Bytes of which no two pages are alike.
fn pattern(size_bytes: u64) -> Vec<u8> {
    (0..size_bytes)
        .map(|at| (at ^ at >> 8 ^ at >> 16) as u8)
        .collect()
}

fn copy(client: &Client<'_>, file: FileId, argument: MemCopy64) -> Result<(), Errno> {
    client.ioctl(file, ioctl::MEM_COPY64, argument).map(drop)
}

fn to_chunk(mem_handle: u64, buffer: u64, size: u64) -> MemBufCopy64 {
    MemBufCopy64 {
        mem_handle,
        buffer,
        size,
        copy_to_mem_handle: 1,
        ..MemBufCopy64::default()
    }
}

fn from_chunk(mem_handle: u64, buffer: u64, size: u64) -> MemBufCopy64 {
    MemBufCopy64 {
        copy_to_mem_handle: 0,
        ..to_chunk(mem_handle, buffer, size)
    }
}

fn buf_copy(client: &Client<'_>, file: FileId, argument: MemBufCopy64) -> Result<(), Errno> {
    client
        .ioctl(file, ioctl::MEM_BUF_COPY64, argument)
        .map(drop)
}

#[test]
fn all_four_ways_between_host_memory_and_hbm_move_the_bytes() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let requests = [host_memory(MIB), device_memory(MIB)];
        for request in requests {
            for other in requests {
                let src = client.alloc(file, request).unwrap();
                let dst = client.alloc(file, other).unwrap();
                let from = BusAddr::new(client.get_pa(file, src).unwrap());
                let to = BusAddr::new(client.get_pa(file, dst).unwrap() + 12);
                rig.port.poke(from, &pattern(MIB));
                let argument = MemCopy64 {
                    src,
                    dst,
                    size: 200_001,
                    src_offset: 3,
                    dst_offset: 12,
                };
                assert_eq!(copy(&client, file, argument), Ok(()));
                assert!(rig.port.peek(to, 200_001) == pattern(MIB)[3..200_004]);
            }
        }
    }
}

#[test]
fn copies_take_the_queue_of_the_targets_core_in_hbm_else_of_the_sources() {
    for arch in [Arch::V3, Arch::V4] {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let take = |request, nc_id| {
            let argument = MemAllocV2Mt64 { nc_id, ..request };
            client.alloc(file, argument).unwrap()
        };
        let (hbm_1, hbm_6) = (take(device_memory(PAGE), 1), take(device_memory(PAGE), 6));
        let (host_2, host_3) = (take(host_memory(PAGE), 2), take(host_memory(PAGE), 3));
        let cases = [
            (hbm_1, hbm_6, 6),
            (hbm_1, host_2, 1),
            (host_2, hbm_6, 6),
            (host_2, host_3, 3),
        ];
        for (src, dst, core) in cases {
            rig.heard.take();
            let argument = MemCopy64 {
                src,
                dst,
                size: 8,
                ..MemCopy64::default()
            };
            copy(&client, file, argument).unwrap();
            let heard = rig.heard.take();
            let staged = |(_, event): &&(_, Event)| matches!(event, Event::BatchStaged { .. });
            let (ids, _) = heard.iter().find(staged).unwrap();
            assert_eq!(ids.core.unwrap().get(), core);
            assert_eq!(ids.process.unwrap().get(), 7);
        }
    }
}

#[test]
fn a_copy_is_refused_handle_by_handle_then_bound_by_bound() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let src = client.alloc(file, host_memory(PAGE)).unwrap();
        let dst = client.alloc(file, device_memory(2 * PAGE)).unwrap();
        let good = MemCopy64 {
            src,
            dst,
            size: PAGE,
            ..MemCopy64::default()
        };
        let k = 100;
        let wrong = [
            MemCopy64 { src: 99, ..good },
            MemCopy64 { dst: 0, ..good },
            MemCopy64 {
                size: PAGE + 1,
                ..good
            },
            MemCopy64 {
                src_offset: 1,
                ..good
            },
            MemCopy64 {
                dst_offset: PAGE + 1,
                ..good
            },
            MemCopy64 {
                size: u64::MAX,
                ..good
            },
            MemCopy64 {
                src_offset: 0_u64.wrapping_sub(k),
                size: k + 1,
                ..good
            },
            MemCopy64 {
                dst_offset: 0_u64.wrapping_sub(k),
                size: k + 1,
                ..good
            },
        ];
        for argument in wrong {
            let answer = copy(&client, file, argument);
            assert_eq!(answer, Err(Errno::EINVAL), "{argument:?}");
        }
        assert_eq!(copy(&client, file, good), Ok(()));
    }
}

#[test]
fn a_copy_of_nothing_passes_the_same_checks_and_moves_nothing() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let src = client.alloc(file, device_memory(PAGE)).unwrap();
        let dst = client.alloc(file, device_memory(PAGE)).unwrap();
        let at = BusAddr::new(client.get_pa(file, dst).unwrap());
        rig.port.poke(at, &pattern(PAGE));
        let nothing = MemCopy64 {
            src,
            dst,
            src_offset: PAGE,
            ..MemCopy64::default()
        };
        assert_eq!(copy(&client, file, nothing), Ok(()));
        let beyond = MemCopy64 {
            src_offset: PAGE + 1,
            ..nothing
        };
        assert_eq!(copy(&client, file, beyond), Err(Errno::EINVAL));
        let argument = to_chunk(dst, NOWHERE, 0);
        assert_eq!(buf_copy(&client, file, argument), Ok(()));
        assert_eq!(rig.port.peek(at, PAGE), pattern(PAGE));
    }
}

#[test]
fn an_engine_that_does_not_answer_is_a_timeout() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let handle = client.alloc(file, device_memory(PAGE)).unwrap();
        let argument = MemCopy64 {
            src: handle,
            dst: handle,
            size: 8,
            ..MemCopy64::default()
        };
        rig.port.set_stuck(true);
        assert_eq!(copy(&client, file, argument), Err(Errno::ETIMEDOUT));
        rig.port.set_stuck(false);
        assert_eq!(copy(&client, file, argument), Ok(()));
    }
}

#[test]
fn a_scratchpad_page_reaches_across_the_older_ones() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let page = MemAllocV2Mt64 {
            mem_type: 19,
            ..device_memory(PAGE)
        };
        client.alloc(file, page).unwrap();
        let young = client.alloc(file, page).unwrap();
        let buffer = client.space.put(&pattern(2 * PAGE + 1));
        let argument = to_chunk(young, buffer, 2 * PAGE);
        assert_eq!(buf_copy(&client, file, argument), Ok(()));
        let argument = to_chunk(young, buffer, 2 * PAGE + 1);
        assert_eq!(buf_copy(&client, file, argument), Err(Errno::EINVAL));
    }
}

#[test]
fn user_memory_reaches_a_chunk_and_comes_back() {
    let size_bytes = 200_001;
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        for request in [host_memory(MIB), device_memory(MIB)] {
            let handle = client.alloc(file, request).unwrap();
            let at = client.get_pa(file, handle).unwrap() + 5;
            let there = client.space.put(&pattern(size_bytes));
            let mut argument = to_chunk(handle, there, size_bytes);
            argument.offset = 5;
            assert_eq!(buf_copy(&client, file, argument), Ok(()));
            let moved = rig.port.peek(BusAddr::new(at), size_bytes);
            assert!(moved == pattern(size_bytes));
            let back = client.space.put(&vec![0; size_bytes as usize]);
            let mut argument = from_chunk(handle, back, size_bytes);
            argument.offset = 5;
            assert_eq!(buf_copy(&client, file, argument), Ok(()));
            assert!(client.space.get(back) == pattern(size_bytes));
        }
    }
}

#[test]
fn a_buffer_copy_is_refused_before_anything_moves() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let handle = client.alloc(file, device_memory(PAGE)).unwrap();
        let buffer = client.space.put(&pattern(PAGE));
        let good = to_chunk(handle, buffer, PAGE);
        let wrong = [
            MemBufCopy64 {
                mem_handle: 99,
                ..good
            },
            MemBufCopy64 {
                size: PAGE + 1,
                ..good
            },
            MemBufCopy64 {
                offset: u64::MAX - 6,
                size: 8,
                ..good
            },
            MemBufCopy64 {
                size: (1 << 32) + 8,
                ..good
            },
        ];
        for argument in wrong {
            let answer = buf_copy(&client, file, argument);
            assert_eq!(answer, Err(Errno::EINVAL), "{argument:?}");
        }
    }
}

#[test]
fn a_fault_in_the_middle_leaves_the_earlier_pieces_done() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let before = rig.memory().stats().chunks;
        let handle = client.alloc(file, device_memory(MIB)).unwrap();
        let at = client.get_pa(file, handle).unwrap();
        let short = client.space.put(&pattern(100_000));
        for argument in [
            to_chunk(handle, short, MIB),
            from_chunk(handle, short, MIB),
            to_chunk(handle, u64::MAX - 10, PAGE),
            to_chunk(handle, NOWHERE, PAGE),
        ] {
            let answer = buf_copy(&client, file, argument);
            assert_eq!(answer, Err(Errno::EFAULT), "{argument:?}");
        }
        let piece = rig.port.peek(BusAddr::new(at), 64 << 10);
        assert!(piece == pattern(64 << 10));
        let next = rig.port.peek(BusAddr::new(at + (64 << 10)), 1);
        assert_eq!(next, [0xee], "the piece with the fault was not moved");
        assert_eq!(rig.memory().stats().chunks, before + 1, "no bounce buffer");
    }
}

#[test]
fn without_a_bounce_buffer_hbm_is_out_of_reach() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let hbm = client.alloc(file, device_memory(PAGE)).unwrap();
        let host = client.alloc(file, host_memory(PAGE)).unwrap();
        let buffer = client.space.put(&pattern(PAGE));
        rig.host.set_full(true);
        let answer = buf_copy(&client, file, to_chunk(hbm, buffer, PAGE));
        assert_eq!(answer, Err(Errno::ENOMEM));
        assert_eq!(
            buf_copy(&client, file, to_chunk(host, buffer, PAGE)),
            Ok(())
        );
    }
}

/// The reference counts these bytes in 32 bits, and would move 16.
#[test]
fn a_buffer_copy_of_more_than_4_gib_is_not_cut_to_32_bits() {
    let rig = Rig::with(Arch::V3, |memory| {
        memory.layout = MemoryLayout::new(Arch::V3, Scale::Full).unwrap();
    });
    let (client, file) = Client::attached(&rig, 7);
    let handle = client.alloc(file, device_memory(5 << 30)).unwrap();
    let buffer = client.space.put(&pattern(16));
    let mut argument = to_chunk(handle, buffer, (4 << 30) + 16);
    assert_eq!(buf_copy(&client, file, argument), Err(Errno::EFAULT));

    argument.size = 16;
    argument.offset = (4 << 30) + 8;
    assert_eq!(buf_copy(&client, file, argument), Ok(()));
    let at = client.get_pa(file, handle).unwrap();
    let there = BusAddr::new(at + argument.offset);
    assert_eq!(rig.port.peek(there, 16), pattern(16));
    assert_eq!(rig.port.peek(BusAddr::new(at), 32), [0xee; 32]);
}
