//! Fills of chunks.

use glia_abi::addr::BusAddr;
use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::ioctl::{self, Memset, Memset64};

use crate::client::{Client, NOWHERE, device_memory, host_memory};
use crate::support::{MIB, PAGE, Rig};

#[test]
fn both_forms_fill_their_range_and_nothing_beside_it() {
    // More than the buffer from which the rest is replicated.
    let size = 200_001;
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        for request in [device_memory(MIB), host_memory(MIB)] {
            let mem_handle = client.alloc(file, request).unwrap();
            let at = client.get_pa(file, mem_handle).unwrap();
            rig.port.poke(BusAddr::new(at), &vec![0x11; MIB as usize]);
            let wide = Memset64 {
                mem_handle,
                offset: 5,
                // Of the value, the low 8 bits count.
                value: 0xffff_ffa5,
                pad: 0,
                size,
            };
            client.ioctl(file, ioctl::MEMSET64, wide).unwrap();
            let filled = rig.port.peek(BusAddr::new(at + 5), size);
            assert!(filled.iter().all(|&byte| byte == 0xa5));
            assert_eq!(rig.port.peek(BusAddr::new(at), 5), [0x11; 5]);
            assert_eq!(rig.port.peek(BusAddr::new(at + 5 + size), 1), [0x11]);
            let narrow = Memset {
                mem_handle,
                offset: MIB - 3,
                value: 7,
                size: 3,
            };
            client.ioctl(file, ioctl::MEMSET, narrow).unwrap();
            let end = rig.port.peek(BusAddr::new(at + MIB - 4), 4);
            assert_eq!(end, [0x11, 7, 7, 7]);
        }
    }
}

#[test]
fn a_fill_is_refused_handle_first_then_bounds() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let mem_handle = client.alloc(file, device_memory(PAGE)).unwrap();
        let at = BusAddr::new(client.get_pa(file, mem_handle).unwrap());
        rig.port.poke(at, &[0x11; PAGE as usize]);
        let fill = |(mem_handle, offset, size)| {
            let argument = Memset64 {
                mem_handle,
                offset,
                size,
                ..Memset64::default()
            };
            client.ioctl(file, ioctl::MEMSET64, argument).map(drop)
        };
        let k = 100;
        let wrong = [
            (0, 0, 0),
            (mem_handle + 1, 0, 1),
            (mem_handle + (1 << 32), 0, 1),
            (mem_handle, 0, PAGE + 1),
            (mem_handle, PAGE, 1),
            (mem_handle, PAGE + 1, 0),
            (mem_handle, 0_u64.wrapping_sub(k), k + 1),
            (mem_handle, 0, u64::MAX),
        ];
        for argument in wrong {
            assert_eq!(fill(argument), Err(Errno::EINVAL), "{argument:?}");
        }
        let narrow = [
            (0, 0, 0),
            (mem_handle, PAGE, 1),
            (mem_handle, 0_u64.wrapping_sub(k), 101),
            (mem_handle, 0, u32::MAX),
        ];
        for (mem_handle, offset, size) in narrow {
            let argument = Memset {
                mem_handle,
                offset,
                value: 0,
                size,
            };
            let answer = client.ioctl(file, ioctl::MEMSET, argument);
            assert_eq!(answer, Err(Errno::EINVAL), "{argument:?}");
        }
        assert_eq!(fill((mem_handle, PAGE, 0)), Ok(()), "nothing, at the end");
        assert_eq!(rig.port.peek(at, PAGE), [0x11; PAGE as usize]);
        client.free(file, mem_handle).unwrap();
        assert_eq!(fill((mem_handle, 0, 1)), Err(Errno::EINVAL));
    }
}

#[test]
fn an_engine_that_does_not_answer_is_a_timeout_and_a_bad_pointer_a_fault() {
    let rig = Rig::new(Arch::V2);
    let (client, file) = Client::attached(&rig, 7);
    let mem_handle = client.alloc(file, device_memory(PAGE)).unwrap();
    let argument = Memset {
        mem_handle,
        offset: 0,
        value: 1,
        size: 8,
    };
    rig.port.set_stuck(true);
    let answer = client.ioctl(file, ioctl::MEMSET, argument);
    assert_eq!(answer, Err(Errno::ETIMEDOUT));
    rig.port.set_stuck(false);
    assert!(client.ioctl(file, ioctl::MEMSET, argument).is_ok());
    let short = client.space.put(&[0; 23]);
    for word in [ioctl::MEMSET, ioctl::MEMSET64] {
        for at in [0, NOWHERE, u64::MAX, short] {
            assert_eq!(client.raw_ioctl(file, word, at), Err(Errno::EFAULT));
        }
    }
}
