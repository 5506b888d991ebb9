//! Descriptors into a ring and out of one.

use glia_abi::addr::BusAddr;
use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::ioctl::{
    self, DmaCopyDescriptors, DmaCopyDescriptors64, DmaDescriptorCopyout, DmaQueueInit,
};

use crate::client::{Client, NOWHERE, device_memory, host_memory};
use crate::queue_rig::{ARCHES, DESCS, ENGINE, QUEUE, Rings, descriptors};
use crate::support::{ND1, PAGE, Rig};

#[test]
fn descriptors_are_written_where_they_were_asked_for_in_both_forms() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let rings = Rings::new(&rig, 7);
        let (client, file) = (&rings.client, rings.file);
        let (tx, _) = descriptors(0x1000, 0x2000, 64);
        let bytes: Vec<u8> = tx.iter().flat_map(|word| word.to_le_bytes()).collect();
        let hbm = client.alloc(file, device_memory(PAGE)).unwrap();
        for mem_handle in [rings.tx, hbm] {
            let at = client.get_pa(file, mem_handle).unwrap();
            let narrow = DmaCopyDescriptors {
                mem_handle,
                buffer: client.space.put(&bytes),
                num_descs: 1,
                offset: 32,
                ..DmaCopyDescriptors::default()
            };
            client
                .ioctl(file, ioctl::DMA_COPY_DESCRIPTORS, narrow)
                .unwrap();
            let wide = DmaCopyDescriptors64 {
                mem_handle,
                buffer: narrow.buffer,
                num_descs: 1,
                offset: PAGE - 16,
                ..DmaCopyDescriptors64::default()
            };
            client
                .ioctl(file, ioctl::DMA_COPY_DESCRIPTORS64, wide)
                .unwrap();
            assert_eq!(rig.port.peek(BusAddr::new(at + 32), 16), bytes);
            assert_eq!(rig.port.peek(BusAddr::new(at + PAGE - 16), 16), bytes);
        }
    }
}

#[test]
fn a_copy_in_is_refused_in_the_order_of_the_reference() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let rings = Rings::new(&rig, 7);
        let (client, file) = (&rings.client, rings.file);
        let good = DmaCopyDescriptors64 {
            mem_handle: rings.tx,
            buffer: NOWHERE,
            num_descs: 256,
            queue_type: 2,
            ..DmaCopyDescriptors64::default()
        };
        let ask = |argument| {
            let done = client.ioctl(file, ioctl::DMA_COPY_DESCRIPTORS64, argument);
            done.map(drop)
        };
        let unknown = DmaCopyDescriptors64 {
            mem_handle: 0xbad,
            offset: PAGE,
            ..good
        };
        assert_eq!(ask(unknown), Err(Errno::EINVAL));
        rig.host.set_full(true);
        for (offset, num_descs) in [(16, 256), (0, 257), (u64::MAX - 15, 1), (0, u32::MAX)] {
            let leaves = DmaCopyDescriptors64 {
                offset,
                num_descs,
                ..good
            };
            assert_eq!(ask(leaves), Err(Errno::EINVAL), "bounds come before memory");
        }
        assert_eq!(
            ask(good),
            Err(Errno::ENOMEM),
            "memory comes before the buffer"
        );
        rig.host.set_full(false);
        assert_eq!(
            ask(good),
            Err(Errno::EFAULT),
            "the buffer comes before the kind"
        );
        let buffer = client.space.put(&[0; PAGE as usize]);
        assert_eq!(
            ask(DmaCopyDescriptors64 { buffer, ..good }),
            Err(Errno::EINVAL)
        );
        assert_eq!(
            ask(DmaCopyDescriptors64 {
                num_descs: 0,
                ..good
            }),
            Ok(())
        );
        let held = rig.memory().stats().held_chunks;
        assert_eq!(held, 0, "no buffer stays behind");
    }
}

#[test]
fn a_host_address_has_to_be_of_a_live_chunk_of_a_device_that_is_open() {
    for arch in ARCHES {
        let rig = Rig::pair(arch);
        let rings = Rings::new(&rig, 7);
        let (client, file) = (&rings.client, rings.file);
        let mine = client.alloc(file, host_memory(PAGE)).unwrap();
        let mine_at = client.get_pa(file, mine).unwrap();
        let other = Client::new(&rig, 8);
        let other_file = other
            .open_device(ND1, glia_abi::transport::OpenMode::ReadWrite)
            .unwrap();
        // The driver's own buffer finds room at its start when it has gone.
        let theirs = other.alloc(other_file, host_memory(2 * 65_536)).unwrap();
        let theirs_at = other.get_pa(other_file, theirs).unwrap() + 65_536;
        let write = |from, to| {
            let (tx, rx) = descriptors(from, to, 64);
            (
                rings.write(rings.tx, 0, &[tx]),
                rings.write(rings.rx, 1, &[rx]),
            )
        };
        let refused = Err(Errno::EINVAL);
        let host_base = arch.profile().host_base;
        for (at, wanted) in [
            (mine_at, Ok(())),
            (mine_at + PAGE - 1, Ok(())),
            (theirs_at, Ok(())),
            // Nobody looks at addresses of HBM.
            (u64::MAX >> 20 & !host_base & !(0x1f << 44), Ok(())),
            (host_base, refused),
            (host_base + (8 << 20) - 64, refused),
        ] {
            assert_eq!(write(at, at), (wanted, wanted), "{arch:?} {at:#x}");
        }
        client.free(file, mine).unwrap();
        assert_eq!(write(mine_at, mine_at), (refused, refused), "it is dead");
        other.close(other_file);
        assert_eq!(
            write(theirs_at, theirs_at),
            (refused, refused),
            "it has gone"
        );
    }
}

#[test]
fn pieces_before_the_one_at_fault_stay_written() {
    let rig = Rig::new(Arch::V2);
    let rings = Rings::new(&rig, 7);
    let (client, file) = (&rings.client, rings.file);
    let ring = client.alloc(file, host_memory(2 * 65_536)).unwrap();
    let at = client.get_pa(file, ring).unwrap();
    let (good, _) = descriptors(0x1000, 0x2000, 64);
    let (bad, _) = descriptors(arch_host_base(), 0x2000, 64);
    let mut descs = vec![good; 8192];
    descs[4097] = bad;
    assert_eq!(rings.write(ring, 0, &descs), Err(Errno::EINVAL));
    let first: Vec<u8> = good.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(rig.port.peek(BusAddr::new(at + 65_520), 16), first);
    assert_eq!(
        rig.port.peek(BusAddr::new(at + 65_536), 16),
        [0; 16],
        "none of the second"
    );
}

fn arch_host_base() -> u64 {
    Arch::V2.profile().host_base
}

#[test]
fn descriptors_are_read_out_of_rings_in_host_memory_and_hbm() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let rings = Rings::new(&rig, 7);
        let (client, file) = (&rings.client, rings.file);
        let in_hbm = client.alloc(file, device_memory(PAGE)).unwrap();
        for rx_handle in [rings.rx, in_hbm] {
            rings
                .init(DmaQueueInit {
                    rx_handle,
                    ..rings.request()
                })
                .unwrap();
            for (handle, first) in [(rings.tx, 0x10), (rx_handle, 0x50)] {
                let at = client.get_pa(file, handle).unwrap();
                let bytes: Vec<u8> = (0..64).map(|byte| byte + first).collect();
                rig.port.poke(BusAddr::new(at), &bytes);
            }
            for (queue_type, first) in [(0, 0x10), (1, 0x50)] {
                let buffer = client.space.put(&[0; 32]);
                let argument = DmaDescriptorCopyout {
                    eng: ENGINE,
                    qid: QUEUE,
                    queue_type,
                    start_index: 2,
                    count: 2,
                    pad: 0,
                    buffer,
                };
                client
                    .ioctl(file, ioctl::DMA_DESCRIPTOR_COPYOUT, argument)
                    .unwrap();
                let wanted: Vec<u8> = (32..64).map(|byte| byte + first).collect();
                assert_eq!(client.space.get(buffer), wanted);
            }
        }
    }
}

#[test]
fn a_copyout_is_refused_in_the_order_of_the_reference() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let rings = Rings::new(&rig, 7);
        let (client, file) = (&rings.client, rings.file);
        let good = DmaDescriptorCopyout {
            eng: ENGINE,
            qid: QUEUE,
            queue_type: 0,
            start_index: 0,
            count: DESCS,
            pad: 0,
            buffer: NOWHERE,
        };
        let ask = |argument| {
            let done = client.ioctl(file, ioctl::DMA_DESCRIPTOR_COPYOUT, argument);
            done.map(drop)
        };
        let engines = arch.profile().engines;
        let copyout = |change: fn(&mut DmaDescriptorCopyout)| {
            let mut argument = good;
            change(&mut argument);
            ask(argument)
        };
        assert_eq!(copyout(|it| it.count = 0), Err(Errno::EINVAL));
        assert_eq!(
            ask(DmaDescriptorCopyout {
                eng: engines,
                ..good
            }),
            Err(Errno::EINVAL)
        );
        assert_eq!(copyout(|it| it.qid = 16), Err(Errno::EINVAL));
        assert_eq!(copyout(|_| ()), Err(Errno::EFBIG), "it has no ring");
        rings.init(rings.request()).unwrap();
        assert_eq!(copyout(|it| it.start_index = 1), Err(Errno::EFBIG));
        assert_eq!(copyout(|it| it.start_index = u32::MAX), Err(Errno::EFBIG));
        assert_eq!(copyout(|it| it.count = u32::MAX), Err(Errno::EFBIG));
        assert_eq!(copyout(|it| it.queue_type = 2), Err(Errno::EINVAL));
        assert_eq!(copyout(|_| ()), Err(Errno::EFAULT));
        rings
            .init(DmaQueueInit {
                tx_handle: 0,
                ..rings.request()
            })
            .unwrap();
        assert_eq!(copyout(|_| ()), Err(Errno::EINVAL), "it is in no chunk");
        rings.init(rings.request()).unwrap();
        client.free(file, rings.tx).unwrap();
        assert_eq!(copyout(|_| ()), Err(Errno::EINVAL), "the chunk has gone");
    }
}
