//! Asynchronous copies: chains of handles, and what a copy under way holds.

use glia_abi::addr::BusAddr;
use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::FileId;
use glia_abi::ioctl::wait_handle::{ASYNC1, ASYNC2, NONE, SYNC};
use glia_abi::ioctl::{self, MemAllocV2Mt64, MemCopyAsync64, MemCopyAsyncWait};
use zerocopy::IntoBytes;

use crate::client::{Client, device_memory, host_memory};
use crate::support::{MIB, PAGE, Rig};

fn start(
    client: &Client<'_>,
    file: FileId,
    (src, dst): (u64, u64),
    pwait: u32,
) -> Result<u32, Errno> {
    let argument = MemCopyAsync64 {
        src,
        dst,
        size: PAGE,
        pwait,
        ..MemCopyAsync64::default()
    };
    let answer = client.ioctl(file, ioctl::MEM_COPY_ASYNC64, argument)?;
    Ok(answer.wait)
}

fn wait(
    client: &Client<'_>,
    file: FileId,
    (src, dst): (u64, u64),
    pwait: u32,
) -> Result<(), Errno> {
    let argument = MemCopyAsyncWait {
        src,
        dst,
        pwait,
        pad: 0,
    };
    client
        .ioctl(file, ioctl::MEM_COPY_ASYNC_WAIT, argument)
        .map(drop)
}

/// A host chunk and an HBM chunk of a page each.
fn pair(client: &Client<'_>, file: FileId) -> (u64, u64) {
    let host = client.alloc(file, host_memory(PAGE)).unwrap();
    let hbm = client.alloc(file, device_memory(PAGE)).unwrap();
    (host, hbm)
}

fn address(client: &Client<'_>, file: FileId, handle: u64) -> BusAddr {
    BusAddr::new(client.get_pa(file, handle).unwrap())
}

#[test]
fn a_chain_takes_the_contexts_in_turn() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        rig.port.set_lazy(true);
        let (client, file) = Client::attached(&rig, 7);
        let chunks = pair(&client, file);
        let source = address(&client, file, chunks.0);
        let target = address(&client, file, chunks.1);
        let mut handle = NONE;
        for (round, expected) in [ASYNC1, ASYNC2, ASYNC1].into_iter().enumerate() {
            rig.port.poke(source, &[round as u8 + 1]);
            handle = start(&client, file, chunks, handle).unwrap();
            assert_eq!(handle, expected);
        }
        assert_eq!(wait(&client, file, chunks, handle), Ok(()));
        assert_eq!(rig.port.peek(target, 1), [3]);
        assert_eq!(start(&client, file, chunks, SYNC), Ok(SYNC));
    }
}

#[test]
fn chains_are_refused_in_the_order_of_the_reference() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let (src, dst) = pair(&client, file);
        let good = MemCopyAsync64 {
            src,
            dst,
            size: PAGE,
            pwait: NONE,
            ..MemCopyAsync64::default()
        };
        let wrong = [
            MemCopyAsync64 { src: 99, ..good },
            MemCopyAsync64 { dst: 99, ..good },
            MemCopyAsync64 {
                src_offset: 1,
                ..good
            },
            MemCopyAsync64 {
                dst_offset: u64::MAX,
                size: 2,
                ..good
            },
            MemCopyAsync64 { pwait: 3, ..good },
            MemCopyAsync64 {
                pwait: u32::MAX - 1,
                ..good
            },
            MemCopyAsync64 {
                pwait: ASYNC2,
                ..good
            },
        ];
        for argument in wrong {
            let answer = client.ioctl(file, ioctl::MEM_COPY_ASYNC64, argument);
            assert_eq!(answer, Err(Errno::EINVAL), "{argument:?}");
        }
        let answer = client.ioctl(file, ioctl::MEM_COPY_ASYNC64, good);
        assert_eq!(answer.unwrap().wait, ASYNC1);
    }
}

#[test]
fn a_wait_asks_for_the_pair_then_for_the_handle() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let (src, dst) = pair(&client, file);
        start(&client, file, (src, dst), NONE).unwrap();
        for chunks in [(99, dst), (src, 99)] {
            assert_eq!(wait(&client, file, chunks, ASYNC1), Err(Errno::EINVAL));
        }
        for handle in [NONE, SYNC, 3, ASYNC2] {
            assert_eq!(wait(&client, file, (src, dst), handle), Err(Errno::EINVAL));
        }
        assert_eq!(wait(&client, file, (src, dst), ASYNC1), Ok(()));
        assert_eq!(wait(&client, file, (src, dst), ASYNC1), Err(Errno::EINVAL));
    }
}

#[test]
fn a_copy_of_nothing_has_its_place_in_the_chain() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let (src, dst) = pair(&client, file);
        let nothing = MemCopyAsync64 {
            src,
            dst,
            pwait: NONE,
            ..MemCopyAsync64::default()
        };
        let answer = client.ioctl(file, ioctl::MEM_COPY_ASYNC64, nothing);
        assert_eq!(answer.unwrap().wait, ASYNC1);
        assert_eq!(wait(&client, file, (src, dst), ASYNC1), Ok(()));
    }
}

#[test]
fn a_chunk_freed_under_a_copy_keeps_its_place_until_the_wait() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        rig.port.set_lazy(true);
        let (client, file) = Client::attached(&rig, 7);
        let (src, dst) = pair(&client, file);
        // A pair of the same core to wait with, since the first one will be gone.
        let others = pair(&client, file);
        let target = address(&client, file, dst);
        rig.port.poke(address(&client, file, src), &[0x5a]);
        start(&client, file, (src, dst), NONE).unwrap();
        client.free(file, dst).unwrap();
        client.free(file, src).unwrap();
        assert_eq!(rig.memory().stats().held_chunks, 2);
        let meanwhile = client.alloc(file, device_memory(PAGE)).unwrap();
        assert_ne!(address(&client, file, meanwhile), target);
        assert_eq!(wait(&client, file, others, ASYNC1), Ok(()));
        assert_eq!(rig.port.peek(target, 1), [0x5a]);
        assert_eq!(rig.memory().stats().held_chunks, 0);
        let next = client.alloc(file, device_memory(PAGE)).unwrap();
        assert_eq!(address(&client, file, next), target);
    }
}

#[test]
fn the_successor_in_a_chain_lets_the_predecessors_memory_go() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        rig.port.set_lazy(true);
        let (client, file) = Client::attached(&rig, 7);
        let (first, second) = (pair(&client, file), pair(&client, file));
        start(&client, file, first, NONE).unwrap();
        client.free(file, first.1).unwrap();
        assert_eq!(rig.memory().stats().held_chunks, 1);
        start(&client, file, second, ASYNC1).unwrap();
        assert_eq!(rig.memory().stats().held_chunks, 0);
    }
}

#[test]
fn a_lost_copy_lets_its_memory_go() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        rig.port.set_stuck(true);
        let (client, file) = Client::attached(&rig, 7);
        let (first, second) = (pair(&client, file), pair(&client, file));
        start(&client, file, first, NONE).unwrap();
        client.free(file, first.1).unwrap();
        assert_eq!(wait(&client, file, second, ASYNC1), Err(Errno::ETIMEDOUT));
        assert_eq!(rig.memory().stats().held_chunks, 0);
    }
}

#[test]
fn a_refused_copy_holds_nothing() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let chunks = pair(&client, file);
        assert_eq!(
            start(&client, file, chunks, ASYNC2),
            Err(Errno::EINVAL),
            "nothing is under way there"
        );
        client.free(file, chunks.1).unwrap();
        assert_eq!(rig.memory().stats().held_chunks, 0);
    }
}

#[test]
fn a_process_that_goes_has_its_copies_completed_and_its_memory_back() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        rig.port.set_lazy(true);
        let before = rig.memory().stats();
        let (stays, other_file) = Client::attached(&rig, 8);
        let (client, file) = Client::attached(&rig, 7);
        for nc_id in [0, 5] {
            let host = client.alloc(file, host_memory(MIB)).unwrap();
            let request = MemAllocV2Mt64 {
                nc_id,
                ..device_memory(MIB)
            };
            let hbm = client.alloc(file, request).unwrap();
            start(&client, file, (host, hbm), NONE).unwrap();
        }
        client.close(file);
        let stats = rig.memory().stats();
        assert_eq!(
            (stats.held_chunks, stats.device_bytes),
            (0, before.device_bytes)
        );
        stays.close(other_file);
    }
}

#[test]
fn a_handle_that_cannot_be_written_back_is_under_way_all_the_same() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let (src, dst) = pair(&client, file);
        let argument = MemCopyAsync64 {
            src,
            dst,
            size: PAGE,
            pwait: NONE,
            ..MemCopyAsync64::default()
        };
        let at = client.space.put_read_only(argument.as_bytes());
        let answer = client.raw_ioctl(file, ioctl::MEM_COPY_ASYNC64, at);
        assert_eq!(answer, Err(Errno::EFAULT));
        assert_eq!(wait(&client, file, (src, dst), ASYNC1), Ok(()));
    }
}
