//! The older forms of commands, each against the checks and the deeds of the newest one.

use glia_abi::addr::BusAddr;
use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::FileId;
use glia_abi::ioctl::wait_handle::{ASYNC1, ASYNC2, NONE};
use glia_abi::ioctl::{
    self, MemAlloc, MemAllocV2, MemAllocV2Mt, MemBufCopy, MemCopy, MemCopyAsync, MemCopyAsyncWait,
};
use glia_abi::usage::Category;

use crate::client::{Client, NOWHERE, device_memory, host_memory};
use crate::support::{MIB, PAGE, Rig};

/// A request in terms that every form has.
#[derive(Debug, Clone, Copy, Default)]
struct Want {
    size: u64,
    align: u64,
    host_memory: u32,
    dram_channel: u32,
    nc_id: u32,
    mem_type: u32,
}

/// A form: the word, and how it is asked.
type Form = fn(&Client<'_>, FileId, Want, u64) -> Result<(), Errno>;

const FORMS: [Form; 3] = [oldest, second, third];

fn oldest(client: &Client<'_>, file: FileId, want: Want, mem_handle: u64) -> Result<(), Errno> {
    let argument = MemAlloc {
        size: want.size,
        host_memory: want.host_memory,
        dram_channel: want.dram_channel,
        dram_region: 0,
        nc_id: want.nc_id,
        mem_handle,
    };
    client.ioctl(file, ioctl::MEM_ALLOC, argument).map(drop)
}

fn second(client: &Client<'_>, file: FileId, want: Want, mem_handle: u64) -> Result<(), Errno> {
    let argument = MemAllocV2 {
        size: want.size,
        align: want.align,
        host_memory: want.host_memory,
        dram_channel: want.dram_channel,
        dram_region: 0,
        nc_id: want.nc_id,
        mem_handle,
    };
    client.ioctl(file, ioctl::MEM_ALLOC_V2, argument).map(drop)
}

fn third(client: &Client<'_>, file: FileId, want: Want, mem_handle: u64) -> Result<(), Errno> {
    let argument = MemAllocV2Mt {
        size: want.size,
        align: want.align,
        host_memory: want.host_memory,
        dram_channel: want.dram_channel,
        dram_region: 0,
        nc_id: want.nc_id,
        mem_type: want.mem_type,
        pad: 0,
        mem_handle,
    };
    client
        .ioctl(file, ioctl::MEM_ALLOC_V2MT, argument)
        .map(drop)
}

fn take(client: &Client<'_>, file: FileId, form: Form, want: Want) -> Result<u64, Errno> {
    let mem_handle = client.space.put(&[0; 8]);
    form(client, file, want, mem_handle)?;
    Ok(client.space.number(mem_handle))
}

#[test]
fn every_form_of_an_allocation_reaches_the_allocator_field_by_field() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let categories = [
            [Category::UNKNOWN_DEVICE, Category::UNKNOWN_HOST],
            [Category::UNKNOWN_DEVICE, Category::UNKNOWN_HOST],
            [Category(12), Category(12)],
        ];
        for (form, categories) in FORMS.into_iter().zip(categories) {
            // Any number but 0 is the host.
            for (host_memory, category) in [0, 77].into_iter().zip(categories) {
                let want = Want {
                    size: 5000,
                    host_memory,
                    dram_channel: 1,
                    nc_id: 6,
                    mem_type: 12,
                    ..Want::default()
                };
                let handle = take(&client, file, form, want).unwrap();
                let at = client.get_pa(file, handle).unwrap();
                let (_, record) = rig.memory().search(BusAddr::new(at)).unwrap();
                assert_eq!((record.size_bytes(), record.channel().get()), (8192, 1));
                assert_eq!((record.core().get(), record.owner().get()), (6, 7));
                assert_eq!(record.category(), category);
            }
        }
    }
}

#[test]
fn the_oldest_form_knows_no_alignment_and_the_others_pass_it_on() {
    let rig = Rig::new(Arch::V3);
    let (client, file) = Client::attached(&rig, 7);
    let aligned = Want {
        size: PAGE,
        align: MIB,
        ..Want::default()
    };
    let at = |form| {
        let handle = take(&client, file, form, aligned).unwrap();
        client.get_pa(file, handle).unwrap()
    };
    take(&client, file, oldest, aligned).unwrap();
    assert_eq!(at(oldest) % MIB, PAGE);
    assert_eq!(at(second) % MIB, 0);
    assert_eq!(at(third) % MIB, 0);
    let host = Want {
        host_memory: 1,
        ..aligned
    };
    assert!(take(&client, file, oldest, host).is_ok());
    assert_eq!(take(&client, file, second, host), Err(Errno::EINVAL));
    assert_eq!(take(&client, file, third, host), Err(Errno::EINVAL));
}

#[test]
fn every_form_of_an_allocation_is_refused_in_the_order_of_the_reference() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let channels = arch.profile().region_bases.len() as u32;
        let good = Want {
            size: PAGE,
            ..Want::default()
        };
        let refused = [
            (
                Want {
                    size: 1 << 63,
                    ..good
                },
                Errno::EINVAL,
            ),
            (
                Want {
                    dram_channel: channels,
                    host_memory: 1,
                    ..good
                },
                Errno::EINVAL,
            ),
            (
                Want {
                    nc_id: 8,
                    size: 0,
                    ..good
                },
                Errno::EINVAL,
            ),
            (Want { size: 0, ..good }, Errno::ENOMEM),
            (
                Want {
                    size: 33 * MIB,
                    ..good
                },
                Errno::ENOMEM,
            ),
            (
                Want {
                    size: 64 * MIB,
                    host_memory: 1,
                    ..good
                },
                Errno::ENOMEM,
            ),
        ];
        let before = rig.memory().stats();
        for form in FORMS {
            for (want, errno) in refused {
                assert_eq!(take(&client, file, form, want), Err(errno), "{want:?}");
            }
        }
        assert_eq!(rig.memory().stats(), before);
    }
}

#[test]
fn a_struct_that_cannot_be_read_has_no_access_in_the_oldest_form_alone() {
    let rig = Rig::new(Arch::V2);
    let (client, file) = Client::attached(&rig, 7);
    let short = client.space.put(&[0; 31]);
    let words = [
        (ioctl::MEM_ALLOC, Errno::EACCES),
        (ioctl::MEM_ALLOC_V2, Errno::EFAULT),
        (ioctl::MEM_ALLOC_V2MT, Errno::EFAULT),
        (ioctl::MEM_COPY, Errno::EFAULT),
        (ioctl::MEM_COPY_ASYNC, Errno::EFAULT),
        (ioctl::MEM_BUF_COPY, Errno::EFAULT),
    ];
    for (word, errno) in words {
        for at in [0, NOWHERE, u64::MAX, short] {
            let answer = client.raw_ioctl(file, word, at);
            assert_eq!(answer, Err(errno), "{:?}", ioctl::name(word));
        }
    }
}

#[test]
fn a_handle_that_cannot_be_written_or_had_leaves_no_chunk_behind() {
    let rig = Rig::with(Arch::V2, |config| config.handle_limit = 3);
    let (client, file) = Client::attached(&rig, 7);
    let want = Want {
        size: MIB,
        ..Want::default()
    };
    for form in FORMS {
        let answer = form(&client, file, want, NOWHERE);
        assert_eq!(answer, Err(Errno::EFAULT));
    }
    assert_eq!(take(&client, file, oldest, want), Ok(1));
    let bytes = rig.memory().stats().device_bytes;
    for form in FORMS {
        assert_eq!(take(&client, file, form, want), Err(Errno::ENOENT));
    }
    assert_eq!(rig.memory().stats().device_bytes, bytes);
}

/// The gate asks for the oldest form's word alone; of the others the allocator refuses, last of
/// all, where the reference stops the kernel.
#[test]
fn an_unattached_process_has_no_access_whichever_form_it_takes() {
    let rig = Rig::new(Arch::V2);
    let (_parent, file) = Client::attached(&rig, 7);
    let child = Client::new(&rig, 8);
    let want = Want {
        size: PAGE,
        ..Want::default()
    };
    let nothing = Want::default();
    for (form, errno) in FORMS
        .into_iter()
        .zip([Errno::EACCES, Errno::ENOMEM, Errno::ENOMEM])
    {
        assert_eq!(take(&child, file, form, want), Err(Errno::EACCES));
        assert_eq!(take(&child, file, form, nothing), Err(errno));
    }
}

/// A host chunk and an HBM chunk of a page each, and their addresses.
fn pair(client: &Client<'_>, file: FileId) -> ([u64; 2], [BusAddr; 2]) {
    let handles = [host_memory(PAGE), device_memory(PAGE)];
    let handles = handles.map(|request| client.alloc(file, request).unwrap());
    let at = handles.map(|handle| BusAddr::new(client.get_pa(file, handle).unwrap()));
    (handles, at)
}

#[test]
fn the_32_bit_copy_moves_bytes_and_is_refused_like_the_other_one() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let ([src, dst], [from, to]) = pair(&client, file);
        rig.port.poke(from, b"..sixteen bytes!");
        let good = MemCopy {
            src,
            dst,
            size: 14,
            src_offset: 2,
            dst_offset: 100,
            pad: 0,
        };
        let copy = |argument| client.ioctl(file, ioctl::MEM_COPY, argument).map(drop);
        assert_eq!(copy(good), Ok(()));
        let there = to.checked_add(100).unwrap();
        assert_eq!(rig.port.peek(there, 14), b"sixteen bytes!");
        let wrong = [
            MemCopy { src: 99, ..good },
            MemCopy { dst: 0, ..good },
            MemCopy {
                dst: dst + (1 << 32),
                ..good
            },
            MemCopy { size: 4095, ..good },
            MemCopy {
                src_offset: 4083,
                ..good
            },
            MemCopy {
                dst_offset: 4083,
                ..good
            },
            MemCopy {
                src_offset: u32::MAX - 1,
                size: 3,
                ..good
            },
            MemCopy {
                size: u32::MAX,
                ..good
            },
        ];
        for argument in wrong {
            assert_eq!(copy(argument), Err(Errno::EINVAL), "{argument:?}");
        }
        let nothing = MemCopy { size: 0, ..good };
        assert_eq!(copy(nothing), Ok(()));
        rig.port.set_stuck(true);
        assert_eq!(copy(good), Err(Errno::ETIMEDOUT));
        let child = Client::new(&rig, 8);
        let gated = child.ioctl(file, ioctl::MEM_COPY, good).map(drop);
        assert_eq!(gated, Err(Errno::EACCES));
    }
}

#[test]
fn a_chain_of_32_bit_copies_gives_and_takes_the_same_handles() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        rig.port.set_lazy(true);
        let (client, file) = Client::attached(&rig, 7);
        let ([src, dst], [from, to]) = pair(&client, file);
        let copy = |argument: MemCopyAsync| {
            let answer = client.ioctl(file, ioctl::MEM_COPY_ASYNC, argument);
            answer.map(|argument| argument.wait)
        };
        let good = MemCopyAsync {
            src,
            dst,
            size: 8,
            src_offset: 4088,
            dst_offset: 8,
            host_prefetch_addr: NOWHERE,
            pwait: NONE,
            wait: 77,
            ..MemCopyAsync::default()
        };
        rig.port.poke(from.checked_add(4088).unwrap(), b"the tail");
        let wrong = [
            MemCopyAsync { src: 99, ..good },
            MemCopyAsync { dst: 99, ..good },
            MemCopyAsync {
                src_offset: 4089,
                ..good
            },
            MemCopyAsync {
                dst_offset: u32::MAX,
                ..good
            },
            MemCopyAsync { pwait: 3, ..good },
            MemCopyAsync {
                pwait: ASYNC1,
                ..good
            },
        ];
        for argument in wrong {
            assert_eq!(copy(argument), Err(Errno::EINVAL), "{argument:?}");
        }
        assert_eq!(copy(good), Ok(ASYNC1));
        let next = MemCopyAsync {
            pwait: ASYNC1,
            ..good
        };
        assert_eq!(copy(next), Ok(ASYNC2));
        let wait = MemCopyAsyncWait {
            src,
            dst,
            pwait: ASYNC2,
            pad: 0,
        };
        client
            .ioctl(file, ioctl::MEM_COPY_ASYNC_WAIT, wait)
            .unwrap();
        let there = to.checked_add(8).unwrap();
        assert_eq!(rig.port.peek(there, 8), b"the tail");
        let child = Client::new(&rig, 8);
        let gated = child.ioctl(file, ioctl::MEM_COPY_ASYNC, good).map(drop);
        assert_eq!(gated, Err(Errno::EACCES));
    }
}

#[test]
fn the_32_bit_buffer_copy_goes_both_ways_and_is_refused_like_the_other_one() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let (handles, at) = pair(&client, file);
        for (mem_handle, at) in handles.into_iter().zip(at) {
            let buffer = client.space.put(b"there and back");
            let good = MemBufCopy {
                mem_handle,
                buffer,
                size: 14,
                offset: 1000,
                copy_to_mem_handle: 1,
                pad: 0,
            };
            // Nobody is asked to be attached.
            let copy = |argument| client.ioctl(file, ioctl::MEM_BUF_COPY, argument).map(drop);
            assert_eq!(copy(good), Ok(()));
            let there = at.checked_add(1000).unwrap();
            assert_eq!(rig.port.peek(there, 14), b"there and back");
            let back = client.space.put(&[0; 14]);
            let other_way = MemBufCopy {
                buffer: back,
                copy_to_mem_handle: 0,
                ..good
            };
            assert_eq!(copy(other_way), Ok(()));
            assert_eq!(client.space.get(back), b"there and back");
            let wrong = [
                (
                    MemBufCopy {
                        mem_handle: 99,
                        ..good
                    },
                    Errno::EINVAL,
                ),
                (
                    MemBufCopy {
                        offset: 4083,
                        buffer: NOWHERE,
                        ..good
                    },
                    Errno::EINVAL,
                ),
                (
                    MemBufCopy {
                        offset: u32::MAX,
                        size: 2,
                        ..good
                    },
                    Errno::EINVAL,
                ),
                (
                    MemBufCopy {
                        size: u32::MAX,
                        ..good
                    },
                    Errno::EINVAL,
                ),
                (MemBufCopy { size: 15, ..good }, Errno::EFAULT),
                (
                    MemBufCopy {
                        buffer: NOWHERE,
                        ..good
                    },
                    Errno::EFAULT,
                ),
            ];
            for (argument, errno) in wrong {
                assert_eq!(copy(argument), Err(errno), "{argument:?}");
            }
        }
    }
}
