//! Two things wrong at once: which of them the caller is told. The commands look at their arguments in
//! the reference's order, and the first refusal counts.

use std::collections::BTreeSet;

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::ioctl::{
    self, Command, DmaDescriptorCopyout, DumpMemChunks, Layout, MemAllocV2Mt64,
    MemBufZerocopy64Batches, NcMap, ZerocopyBatch, ZerocopyOp,
};
use zerocopy::IntoBytes;

use crate::by_layout::{SIZE, Scene, before, commands, filled};
use crate::client::{Client, NOWHERE, device_memory};
use crate::queue_rig::{DESCS, ENGINE, QUEUE, Rings};
use crate::support::{MIB, PAGE, Rig};
use crate::table::built;

/// Something that is wrong.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// A field says this.
    Field(&'static str, u64),
    /// The caller is not attached.
    Child,
    /// The struct cannot be read.
    Struct,
    /// No host memory is left.
    Full,
    /// The engine does not work.
    Stuck,
}
use Fault::{Child, Field, Full, Struct, Stuck};

/// A command, and what can be wrong with it in the order in which it is found out.
type Row = (u32, &'static [(Fault, Errno)]);

const BAD: u64 = 99;
const OUTSIDE: u64 = SIZE + 1;

const ROWS: &[Row] = &[
    (
        ioctl::MEM_ALLOC,
        &[
            (Child, Errno::EACCES),
            (Struct, Errno::EACCES),
            (Field("dram_channel", 77), Errno::EINVAL),
            (Field("size", 1 << 40), Errno::ENOMEM),
            (Field("mem_handle", NOWHERE), Errno::EFAULT),
        ],
    ),
    (
        ioctl::MEM_ALLOC_V2,
        &[
            (Struct, Errno::EFAULT),
            (Field("nc_id", 8), Errno::EINVAL),
            (Field("size", 1 << 40), Errno::ENOMEM),
            (Field("mem_handle", NOWHERE), Errno::EFAULT),
        ],
    ),
    (
        ioctl::MEM_ALLOC_V2MT64,
        &[
            (Struct, Errno::EFAULT),
            (Field("dram_channel", 77), Errno::EINVAL),
            (Field("size", 1 << 40), Errno::ENOMEM),
            (Field("mem_handle", NOWHERE), Errno::EFAULT),
        ],
    ),
    (
        ioctl::MEM_FREE,
        &[
            (Child, Errno::EACCES),
            (Struct, Errno::EFAULT),
            (Field("mem_handle", BAD), Errno::EINVAL),
        ],
    ),
    (
        ioctl::MEM_GET_PA,
        &[
            (Child, Errno::EACCES),
            (Field("mem_handle", BAD), Errno::EINVAL),
            (Field("pa", NOWHERE), Errno::EFAULT),
        ],
    ),
    (
        ioctl::MEM_COPY,
        &[
            (Child, Errno::EACCES),
            (Struct, Errno::EFAULT),
            (Field("src", BAD), Errno::EINVAL),
            (Stuck, Errno::ETIMEDOUT),
        ],
    ),
    (
        ioctl::MEM_COPY64,
        &[
            (Struct, Errno::EFAULT),
            (Field("dst", BAD), Errno::EINVAL),
            (Stuck, Errno::ETIMEDOUT),
        ],
    ),
    (
        ioctl::MEM_COPY64,
        &[
            (Field("src_offset", OUTSIDE), Errno::EINVAL),
            (Stuck, Errno::ETIMEDOUT),
        ],
    ),
    (
        ioctl::MEM_COPY_ASYNC,
        &[
            (Child, Errno::EACCES),
            (Struct, Errno::EFAULT),
            (Field("pwait", 3), Errno::EINVAL),
        ],
    ),
    (
        ioctl::MEM_COPY_ASYNC_WAIT,
        &[
            (Child, Errno::EACCES),
            (Struct, Errno::EFAULT),
            (Field("src", BAD), Errno::EINVAL),
        ],
    ),
    (
        ioctl::MEMSET64,
        &[
            (Struct, Errno::EFAULT),
            (Field("mem_handle", BAD), Errno::EINVAL),
            (Stuck, Errno::ETIMEDOUT),
        ],
    ),
    (
        ioctl::MEMSET,
        &[
            (Struct, Errno::EFAULT),
            (Field("offset", OUTSIDE), Errno::EINVAL),
            (Stuck, Errno::ETIMEDOUT),
        ],
    ),
    (
        ioctl::MEM_BUF_COPY64,
        &[
            (Struct, Errno::EFAULT),
            (Field("mem_handle", BAD), Errno::EINVAL),
            (Full, Errno::ENOMEM),
            (Field("buffer", NOWHERE), Errno::EFAULT),
            (Stuck, Errno::ETIMEDOUT),
        ],
    ),
    (
        ioctl::MEM_BUF_COPY,
        &[
            (Struct, Errno::EFAULT),
            (Field("offset", OUTSIDE), Errno::EINVAL),
            (Full, Errno::ENOMEM),
            (Field("buffer", NOWHERE), Errno::EFAULT),
            (Stuck, Errno::ETIMEDOUT),
        ],
    ),
    (
        ioctl::MEM_BUF_ZEROCOPY64,
        &[
            (Struct, Errno::EFAULT),
            (Field("mem_handle", BAD), Errno::EINVAL),
            (Field("buffer", NOWHERE), Errno::EFAULT),
            (Field("h2t_qid", 15), Errno::ENOENT),
        ],
    ),
    (
        ioctl::MEM_BUF_ZEROCOPY64,
        &[
            (Field("offset", OUTSIDE), Errno::EINVAL),
            (Field("buffer", NOWHERE), Errno::EFAULT),
            (Field("h2t_qid", 15), Errno::ENOENT),
        ],
    ),
    (
        ioctl::PROGRAM_ENGINE_NC64,
        &[
            (Struct, Errno::EFAULT),
            (Field("dst", u64::MAX), Errno::ENOMEM),
            (Field("buffer", NOWHERE), Errno::EFAULT),
            (Stuck, Errno::ETIMEDOUT),
        ],
    ),
    (
        ioctl::PROGRAM_ENGINE,
        &[
            (Full, Errno::ENOMEM),
            (Field("buffer", NOWHERE), Errno::EFAULT),
            (Stuck, Errno::ETIMEDOUT),
        ],
    ),
    (
        ioctl::DMA_QUEUE_INIT,
        &[
            (Child, Errno::EACCES),
            (Struct, Errno::EACCES),
            (Field("eng", 1000), Errno::EINVAL),
        ],
    ),
    (
        ioctl::DMA_QUEUE_COPY_START,
        &[
            (Struct, Errno::EFAULT),
            (Field("eng", 1000), Errno::EINVAL),
            (Field("qid", 16), Errno::EPERM),
        ],
    ),
    (
        ioctl::DMA_COPY_DESCRIPTORS,
        &[
            (Child, Errno::EACCES),
            (Struct, Errno::EFAULT),
            (Field("mem_handle", BAD), Errno::EINVAL),
            (Full, Errno::ENOMEM),
            (Field("buffer", NOWHERE), Errno::EFAULT),
            (Field("queue_type", 3), Errno::EINVAL),
        ],
    ),
    (
        ioctl::DMA_COPY_DESCRIPTORS64,
        &[
            (Field("offset", OUTSIDE), Errno::EINVAL),
            (Full, Errno::ENOMEM),
            (Field("buffer", NOWHERE), Errno::EFAULT),
            (Field("queue_type", 2), Errno::EINVAL),
        ],
    ),
    (
        ioctl::DMA_ENG_GET_STATE,
        &[
            (Field("eng", 1000), Errno::EINVAL),
            (Field("state", NOWHERE), Errno::EFAULT),
        ],
    ),
    (
        ioctl::DMA_QUEUE_GET_STATE,
        &[
            (Field("qid", 16), Errno::EINVAL),
            (Field("tx", NOWHERE), Errno::EFAULT),
        ],
    ),
    (
        ioctl::CINIT_SET_STATE,
        &[
            (Struct, Errno::EFAULT),
            (Field("nc_id", 8), Errno::E2BIG),
            (Field("state", 9), Errno::EINVAL),
        ],
    ),
    (
        ioctl::PRINTK,
        &[
            (Struct, Errno::EFAULT),
            (Field("size", 513), Errno::EFAULT),
            (Field("size", 15), Errno::EBADMSG),
        ],
    ),
    (
        ioctl::DRIVER_INFO_SET,
        &[(Child, Errno::EACCES), (Struct, Errno::ENOTSUPP)],
    ),
    (
        ioctl::MEM_ALLOC_V2MT,
        &[
            (Struct, Errno::EFAULT),
            (Field("dram_channel", 77), Errno::EINVAL),
            (Field("size", 1 << 40), Errno::ENOMEM),
            (Field("mem_handle", NOWHERE), Errno::EFAULT),
        ],
    ),
    (
        ioctl::MEM_GET_INFO,
        &[
            (Child, Errno::EACCES),
            (Struct, Errno::EFAULT),
            (Field("mem_handle", BAD), Errno::EINVAL),
            (Field("pa", NOWHERE), Errno::EFAULT),
            (Field("mmap_offset", NOWHERE), Errno::EFAULT),
        ],
    ),
    (
        ioctl::MEM_GET_EXTENDED_INFO,
        &[
            (Struct, Errno::EFAULT),
            (Field("mem_handle", BAD), Errno::EINVAL),
        ],
    ),
    (
        ioctl::MEM_MC_GET_INFO,
        &[
            (Struct, Errno::EFAULT),
            (Field("pa", NOWHERE), Errno::ENOMEM),
        ],
    ),
    (
        ioctl::MEM_MC_GET_INFO_V2,
        &[
            (Struct, Errno::EFAULT),
            (Field("pa", NOWHERE), Errno::ENOMEM),
        ],
    ),
    (
        ioctl::DUMP_MEM_CHUNKS,
        &[
            (Struct, Errno::EFAULT),
            (Field("data", NOWHERE), Errno::EFAULT),
        ],
    ),
    (
        ioctl::RESOURCE_MMAP_INFO,
        &[(Struct, Errno::EFAULT), (Field("block", 1), Errno::EINVAL)],
    ),
    (
        ioctl::MEM_COPY_ASYNC64,
        &[(Struct, Errno::EFAULT), (Field("src", BAD), Errno::EINVAL)],
    ),
    (
        ioctl::MEM_COPY_ASYNC64,
        &[(Struct, Errno::EFAULT), (Field("pwait", 3), Errno::EINVAL)],
    ),
    (
        ioctl::PROGRAM_ENGINE_NC,
        &[
            (Struct, Errno::EFAULT),
            (Field("dst", u64::MAX), Errno::ENOMEM),
            (Full, Errno::ENOMEM),
            (Field("buffer", NOWHERE), Errno::EFAULT),
            (Stuck, Errno::ETIMEDOUT),
        ],
    ),
    (
        ioctl::DMA_ENG_SET_STATE,
        &[
            (Child, Errno::EACCES),
            (Struct, Errno::EFAULT),
            (Field("eng", 1000), Errno::EINVAL),
            (Field("state", 9), Errno::EINVAL),
        ],
    ),
    (
        ioctl::DMA_QUEUE_INIT_BATCH,
        &[
            (Struct, Errno::EACCES),
            (Field("count", 256), Errno::E2BIG),
            (Field("eng", 1000), Errno::EINVAL),
            (Field("tx_desc_count", 1), Errno::EPERM),
        ],
    ),
    (ioctl::DMA_QUEUE_RELEASE, &[(Child, Errno::EACCES)]),
    (
        ioctl::DMA_ACK_COMPLETED,
        &[
            (Child, Errno::EACCES),
            (Struct, Errno::EFAULT),
            (Field("eng", 1000), Errno::EINVAL),
            (Field("qid", 16), Errno::EPERM),
        ],
    ),
    (
        ioctl::DMA_DESCRIPTOR_COPYOUT,
        &[
            (Struct, Errno::EFAULT),
            (Field("count", 0), Errno::EINVAL),
            (Field("qid", 16), Errno::EINVAL),
            (Field("start_index", DESCS as u64), Errno::EFBIG),
            (Field("queue_type", 2), Errno::EINVAL),
            (Field("buffer", NOWHERE), Errno::EFAULT),
        ],
    ),
    (
        ioctl::H2T_DMA_ALLOC_QUEUES,
        &[
            (Struct, Errno::EFAULT),
            (Field("nc_id", 8), Errno::E2BIG),
            (Field("copy_cnt", 16), Errno::E2BIG),
        ],
    ),
    (
        ioctl::H2T_DMA_FREE_QUEUES,
        &[
            (Struct, Errno::EFAULT),
            (Field("nc_id", 8), Errno::E2BIG),
            (Field("queue_bmap", 1 << 31), Errno::EINVAL),
        ],
    ),
    (
        ioctl::GET_ASYNC_H2T_DMA_COMPL_QUEUES,
        &[
            (Struct, Errno::EFAULT),
            (Field("nc_id", 8), Errno::EINVAL),
            (Field("qid_bitmap", 1 << 16), Errno::EINVAL),
        ],
    ),
    (
        ioctl::HBM_SCRUB_START,
        &[
            (Struct, Errno::EFAULT),
            (Field("nc_id", 8), Errno::EINVAL),
            (Field("hbm_index", 9), Errno::EINVAL),
        ],
    ),
    (
        ioctl::HBM_SCRUB_START,
        &[
            (Struct, Errno::EFAULT),
            (Field("hbm_index", 0), Errno::EBUSY),
        ],
    ),
    (
        ioctl::HBM_SCRUB_WAIT,
        &[
            (Struct, Errno::EFAULT),
            (Field("nc_id", 8), Errno::EINVAL),
            (Field("hbm_index", 9), Errno::EINVAL),
        ],
    ),
    (
        ioctl::HBM_SCRUB_WAIT,
        &[
            (Struct, Errno::EFAULT),
            (Field("hbm_index", 0), Errno::EINVAL),
        ],
    ),
    (
        ioctl::ACQUIRE_NEURON_DS,
        &[(Struct, Errno::EFAULT), (Field("pid", 77), Errno::ENOENT)],
    ),
    (ioctl::RELEASE_NEURON_DS, &[(Struct, Errno::EFAULT)]),
    (
        ioctl::CRWL_READER_ENTER,
        &[
            (Struct, Errno::EFAULT),
            (Field("nc_id", 8), Errno::EINVAL),
            (Field("uuid", 1), Errno::ENOENT),
        ],
    ),
    (
        ioctl::CRWL_READER_EXIT,
        &[
            (Struct, Errno::EFAULT),
            (Field("nc_id", 8), Errno::EINVAL),
            (Field("uuid", 1), Errno::ENOENT),
        ],
    ),
    (
        ioctl::CRWL_WRITER_DOWNGRADE,
        &[
            (Struct, Errno::EFAULT),
            (Field("nc_id", 8), Errno::EINVAL),
            (Field("uuid", 1), Errno::ENOENT),
        ],
    ),
    (
        ioctl::CRWL_WRITER_ENTER,
        &[(Struct, Errno::EFAULT), (Field("nc_id", 8), Errno::EINVAL)],
    ),
    (
        ioctl::CRWL_NC_RANGE_MARK,
        &[
            (Struct, Errno::EFAULT),
            (Field("end_nc", 512), Errno::EINVAL),
            (Field("nc_count", 2), Errno::EBUSY),
        ],
    ),
    (
        ioctl::CRWL_NC_RANGE_MARK_EXT0,
        &[
            (Struct, Errno::EFAULT),
            (Field("end_nc", 512), Errno::EINVAL),
            (Field("nc_count", 2), Errno::EBUSY),
        ],
    ),
    (ioctl::CRWL_NC_RANGE_UNMARK, &[(Struct, Errno::EFAULT)]),
    (ioctl::CRWL_NC_RANGE_UNMARK_EXT0, &[(Struct, Errno::EFAULT)]),
    (ioctl::COMPATIBLE_VERSION, &[(Struct, Errno::EFAULT)]),
    (ioctl::DEVICE_BASIC_INFO, &[(Struct, Errno::EFAULT)]),
    (ioctl::DRIVER_INFO_GET, &[(Struct, Errno::EFAULT)]),
    (ioctl::DEVICE_INFO, &[(Struct, Errno::EFAULT)]),
    (ioctl::DEVICE_BDF, &[(Struct, Errno::EFAULT)]),
    (ioctl::HOST_DEVICE_ID, &[(Struct, Errno::EFAULT)]),
    (ioctl::HOST_DEVICE_ID_TO_RID_MAP, &[(Struct, Errno::EFAULT)]),
    (ioctl::DEVICE_APP_PID, &[(Struct, Errno::EFAULT)]),
    (ioctl::DEVICE_GET_ALL_APPS_INFO, &[(Struct, Errno::EFAULT)]),
    (ioctl::DEVICE_READY, &[(Struct, Errno::EFAULT)]),
    (ioctl::DEVICE_RESET_STATUS, &[(Struct, Errno::EFAULT)]),
    (ioctl::NC_RESET, &[(Struct, Errno::EFAULT)]),
    (ioctl::NC_RESET_READY, &[(Struct, Errno::EFAULT)]),
    (
        ioctl::DEVICE_BDF_EXT,
        &[
            (Struct, Errno::EFAULT),
            (Field("nd_index", 1), Errno::EINVAL),
        ],
    ),
];

/// Sends the command with all these faults at once.
fn answer(
    rig: &Rig,
    (command, layout): (&'static Command, &'static Layout),
    faults: &[Fault],
) -> Result<(), Errno> {
    let scene = Scene::new(rig);
    scene.begin(command);
    let mut bytes = scene.good(command, layout);
    if command.word == ioctl::MEM_BUF_ZEROCOPY64 {
        // There is user memory here, as far as a process can tell.
        set(
            layout,
            &mut bytes,
            "buffer",
            scene.client.space.put(&[0; 64]),
        );
    }
    let child = Client::new(rig, 8);
    let (mut client, mut at) = (&scene.client, None);
    for fault in faults {
        match *fault {
            Field(name, value) => set(layout, &mut bytes, name, value),
            Child => client = &child,
            Struct => at = Some(NOWHERE),
            Full => rig.host.set_full(true),
            Stuck => rig.port.set_stuck(true),
        }
    }
    let at = at.unwrap_or_else(|| client.space.put(&bytes));
    let answer = client.raw_ioctl(scene.file, command.word, at).map(drop);
    rig.host.set_full(false);
    rig.port.set_stuck(false);
    answer
}

fn set(layout: &'static Layout, bytes: &mut [u8], name: &str, value: u64) {
    let field = filled(layout).into_iter().find(|it| it.field.name == name);
    field.unwrap().set(bytes, value);
}

#[test]
fn of_two_faults_the_one_that_is_looked_for_first_is_told() {
    let mut wrong = Vec::new();
    for arch in Arch::ALL {
        for &(word, faults) in ROWS {
            let command = commands()
                .find(|(command, _)| command.word == word)
                .unwrap();
            let mut rig = Rig::new(arch);
            let mut answer = |faults: &[Fault]| {
                let answer = answer(&rig, command, faults);
                // An engine that stopped stays so, and a lock that was taken, taken.
                let is_stuck = faults.iter().any(|fault| matches!(fault, Stuck));
                if is_stuck || !before(word).is_empty() {
                    rig = Rig::new(arch);
                }
                answer
            };
            for (index, &(first, errno)) in faults.iter().enumerate() {
                let text = format!("{arch:?} {}: {first:?}", command.0.name);
                let alone = answer(&[first]);
                if alone != Err(errno) {
                    wrong.push(format!("{text} is {alone:?}"));
                }
                for &(second, _) in &faults[index + 1..] {
                    if let (Field(one, _), Field(other, _)) = (first, second)
                        && one == other
                    {
                        continue;
                    }
                    let both = answer(&[first, second]);
                    if both != Err(errno) {
                        wrong.push(format!("{text} and {second:?} are {both:?}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_command_that_is_built_is_without_a_row() {
    let rows = ROWS.iter().map(|(word, _)| ioctl::name(*word).unwrap());
    // These have no struct to be wrong; the pieces of batches have a test of their own.
    let without = [
        "DEVICE_INIT",
        "DEVICE_RELEASE",
        "DEVICE_RESET",
        "DMA_ENG_INIT",
        "DMA_QUIESCE_QUEUES",
        "MEM_BUF_ZEROCOPY64_BATCHES",
    ];
    let all: BTreeSet<_> = rows.chain(without).collect();
    for arch in Arch::ALL {
        assert_eq!(all, built(arch), "{arch:?}");
    }
}

#[test]
fn a_zero_copy_of_another_size_is_refused_before_its_struct_is_read() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        for word in [
            ioctl::MEM_BUF_ZEROCOPY64_2_24,
            ioctl::MEM_BUF_ZEROCOPY64_2_29,
        ] {
            assert_eq!(client.raw_ioctl(file, word, NOWHERE), Err(Errno::EINVAL));
        }
        let word = ioctl::MEM_BUF_ZEROCOPY64;
        assert_eq!(client.raw_ioctl(file, word, NOWHERE), Err(Errno::EFAULT));
    }
}

/// All batches are looked at before the pieces of the first one.
#[test]
fn batches_are_checked_one_after_the_other_once_all_have_pieces() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let scene = Scene::new(&rig);
        let put = |bytes: &[u8]| scene.client.space.put(bytes);
        let send = |batches: u64, num_batches| {
            let argument = MemBufZerocopy64Batches {
                batches,
                num_batches,
                is_copy_to_device: 1,
                h2t_qid: -1,
                ..MemBufZerocopy64Batches::default()
            };
            scene.send(ioctl::MEM_BUF_ZEROCOPY64_BATCHES, argument.as_bytes())
        };
        let op = |offset, size, buffer| {
            put(ZerocopyOp {
                offset,
                size,
                buffer,
            }
            .as_bytes())
        };
        let batch = |mem_handle, ops_ptr, num_ops| ZerocopyBatch {
            mem_handle,
            ops_ptr,
            num_ops,
            ..ZerocopyBatch::default()
        };
        let send_all =
            |batches: &[ZerocopyBatch]| send(put(batches.as_bytes()), batches.len() as u32);
        let own = scene.own[1];
        let here = put(&[0; 64]);
        let (invalid, fault) = (Err(Errno::EINVAL), Err(Errno::EFAULT));
        // No array, and none of it.
        assert_eq!(send(0, 1), invalid);
        assert_eq!(send(NOWHERE, 0), invalid);
        assert_eq!(send(NOWHERE, 1), fault);
        // A batch without pieces behind one whose pieces cannot be read.
        let lost = batch(own, NOWHERE, 1);
        assert_eq!(send_all(&[lost]), fault);
        assert_eq!(send_all(&[lost, batch(own, here, 0)]), invalid);
        assert_eq!(send_all(&[lost, batch(own, 0, 1)]), invalid);
        // Pieces that cannot be read come before the chunk.
        assert_eq!(send_all(&[batch(99, NOWHERE, 1)]), fault);
        // The chunk and the bounds come before user memory; of two pieces, the first.
        let outside = op(SIZE, 16, NOWHERE);
        assert_eq!(send_all(&[batch(99, op(0, 16, NOWHERE), 1)]), invalid);
        assert_eq!(send_all(&[batch(own, outside, 1)]), invalid);
        assert_eq!(send_all(&[batch(own, op(0, 0, NOWHERE), 1)]), invalid);
        assert_eq!(send_all(&[batch(own, op(0, 16, 0), 1)]), invalid);
        let pieces = |offsets: [u64; 2]| {
            let pieces = offsets.map(|offset| ZerocopyOp {
                offset,
                size: 16,
                buffer: NOWHERE,
            });
            batch(own, put(pieces.as_bytes()), 2)
        };
        assert_eq!(send_all(&[pieces([0, SIZE])]), fault);
        assert_eq!(send_all(&[pieces([SIZE, 0])]), invalid);
    }
}

#[test]
fn a_claim_outside_of_the_table_is_invalid_whoever_has_its_cores() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let mark = |start_nc, end_nc| {
            let argument = NcMap {
                nc_count: 1,
                start_nc,
                end_nc,
                ..NcMap::default()
            };
            let done = client.ioctl(file, ioctl::CRWL_NC_RANGE_MARK, argument);
            done.map(drop)
        };
        assert_eq!(mark(0, 0), Ok(()));
        assert_eq!(mark(0, 0), Err(Errno::EBUSY));
        assert_eq!(mark(1, 0), Err(Errno::EINVAL));
        assert_eq!(mark(0, 512), Err(Errno::EINVAL));
    }
}

#[test]
fn too_little_room_for_a_dump_is_told_before_where_it_is() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        client.alloc(file, device_memory(MIB)).unwrap();
        let dump = |num_entries_in| {
            let argument = DumpMemChunks {
                num_entries_in,
                data: NOWHERE,
                ..DumpMemChunks::default()
            };
            let done = client.ioctl(file, ioctl::DUMP_MEM_CHUNKS, argument);
            done.map(drop)
        };
        assert_eq!(dump(1), Err(Errno::EAGAIN));
        assert_eq!(dump(2), Err(Errno::EFAULT));
    }
}

/// Nothing asked for, no such queue, too much of it, no such side, nowhere to put it.
#[test]
fn descriptors_are_read_out_after_five_questions_in_their_order() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let rings = Rings::new(&rig, 7);
        rings.init(rings.request()).unwrap();
        let good = DmaDescriptorCopyout {
            eng: ENGINE,
            qid: QUEUE,
            count: 1,
            buffer: rings.client.space.put(&[0; 16]),
            ..DmaDescriptorCopyout::default()
        };
        let read = |argument| {
            let word = ioctl::DMA_DESCRIPTOR_COPYOUT;
            rings.client.ioctl(rings.file, word, argument).map(drop)
        };
        assert_eq!(read(good), Ok(()));
        let lost = DmaDescriptorCopyout {
            buffer: NOWHERE,
            ..good
        };
        let no_side = DmaDescriptorCopyout {
            queue_type: 2,
            ..lost
        };
        let too_much = DmaDescriptorCopyout {
            start_index: DESCS,
            ..no_side
        };
        let nothing = DmaDescriptorCopyout {
            count: 0,
            ..too_much
        };
        let no_queue = DmaDescriptorCopyout {
            qid: 16,
            ..too_much
        };
        assert_eq!(read(lost), Err(Errno::EFAULT));
        assert_eq!(read(no_side), Err(Errno::EINVAL));
        assert_eq!(read(too_much), Err(Errno::EFBIG));
        assert_eq!(read(no_queue), Err(Errno::EINVAL));
        assert_eq!(read(nothing), Err(Errno::EINVAL));
    }
}

/// There is no handle to tell; the chunk does not outlive the refusal.
#[test]
fn a_full_table_is_told_before_the_place_of_the_handle() {
    for arch in Arch::ALL {
        let rig = Rig::with(arch, |config| config.handle_limit = 3);
        let (client, file) = Client::attached(&rig, 7);
        let books = || {
            let stats = rig.memory().stats();
            (stats.chunks, stats.device_bytes)
        };
        let lost = MemAllocV2Mt64 {
            mem_handle: NOWHERE,
            ..device_memory(PAGE)
        };
        let alloc = || client.ioctl(file, ioctl::MEM_ALLOC_V2MT64, lost).map(drop);
        // A handle that nobody could be told of is used again.
        let before = books();
        assert_eq!([(); 3].map(|()| alloc()), [Err(Errno::EFAULT); 3]);
        assert_eq!(books(), before, "{arch:?}");
        client.alloc(file, device_memory(PAGE)).unwrap();
        let before = books();
        assert_eq!([(); 3].map(|()| alloc()), [Err(Errno::ENOENT); 3]);
        assert_eq!(books(), before, "{arch:?}");
    }
}
