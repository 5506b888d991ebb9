//! Commands on their way into the kernel: no pointer of theirs leads to memory that is not theirs.
//!
//! The kernel believes a pointer: it writes wherever this process may write. The caller of
//! [`Transport::ioctl`](glia_abi::transport::Transport::ioctl) is safe code, whose pointers are
//! allegations. So each pointer of a command is held against what was lent with it and against the
//! node's buffers. One that leads elsewhere is replaced, for the length of the call, by an address
//! of the kernel's half of the address space, which no user may touch: the driver finds the fault
//! itself, in the order of its own checks, and answers as it does.
//!
//! | pointer | what is asked |
//! | --- | --- |
//! | 0, or to no bytes | nothing: nobody's memory lies there, and the reference gives 0 a meaning |
//! | to what the driver reads or writes | the range is in one lent buffer, or one of the node's |
//! | to arrays that hold pointers | they are lent for reading, so that nobody changes them meanwhile |
//! | of an asynchronous copy | the range is in a buffer of the node's, which outlives the call |
//! | to nothing that is touched (`va`, a prefetch hint) | nothing |
//!
//! **What this does not do.** A command whose struct is not known is not sent at all, since its
//! pointers are not known either. What the numbers of a command mean is the driver's affair.

use std::marker::PhantomData;
use std::mem::offset_of;
use std::sync::Arc;

use glia_abi::addr::access_fits;
use glia_abi::errno::Errno;
use glia_abi::ioctl::{self, Argument, Tail};
use glia_abi::transport::{Lent, UserBuffer, user_addr};
use zerocopy::FromBytes;

use super::Sys;

// Pointers are fields of 64 bits, the lowest byte first.
const _: () = assert!(size_of::<usize>() == 8 && cfg!(target_endian = "little"));

/// An address that no user may touch, on any machine that the reference driver runs on.
const NOWHERE: u64 = 0xffff_8000_0000_0000;
/// Bytes of a descriptor.
const DESCRIPTOR_BYTES: u64 = 16;
/// The most pointers that a struct has.
const POINTERS_MAX: usize = 2;

/// A command for `S` to send. Every pointer in it leads to memory that was lent with it, to a buffer
/// that `S` made and that lives long enough, or nowhere.
pub struct Call<'a, 'm, S> {
    word: u32,
    arg: &'a mut [u8],
    lent: &'a mut [Lent<'m>],
    by: PhantomData<fn(S)>,
}

impl<'a, 'm, S: Sys> Call<'a, 'm, S> {
    /// Its word, its struct, and what was lent with it.
    #[must_use]
    pub fn into_parts(self) -> (u32, &'a mut [u8], &'a mut [Lent<'m>]) {
        (self.word, self.arg, self.lent)
    }
}

/// What was found out about the pointers of a command.
#[derive(Default)]
pub(super) struct Pointers {
    /// Where the struct has those that lead nowhere.
    forged: [Option<usize>; POINTERS_MAX],
    /// What the others lead to, beside what was lent.
    pub(super) buffers: Vec<Arc<dyn UserBuffer>>,
    /// Whether the driver uses those after the call has returned.
    pub(super) outlast: bool,
}

/// Memory that a pointer of a struct leads to.
struct Reach {
    /// Where the pointer is in the struct.
    field: usize,
    pointer: u64,
    /// What the driver adds to it.
    skipped_bytes: u64,
    size_bytes: u64,
    /// Whether the driver writes to it.
    is_written: bool,
}

/// What a command may reach.
struct Memory<'a, 'm> {
    lent: &'a [Lent<'m>],
    /// The node's buffer that begins at an address or next below it.
    find: &'a dyn Fn(u64) -> Option<Arc<dyn UserBuffer>>,
    used: Vec<Arc<dyn UserBuffer>>,
}

/// Looks where the pointers of a command lead.
///
/// # Errors
/// `EINVAL` for a command that is not known, `EFAULT` if the driver would reach beyond its struct, or
/// adds an offset to a pointer and then leaves what is lent.
pub(super) fn look(
    word: u32,
    arg: &[u8],
    lent: &[Lent<'_>],
    find: &dyn Fn(u64) -> Option<Arc<dyn UserBuffer>>,
) -> Result<Pointers, Errno> {
    let command = ioctl::command(word).ok_or(Errno::EINVAL)?;
    match command.argument {
        Argument::NotCovered => return Err(Errno::EINVAL),
        Argument::Nothing => return Ok(Pointers::default()),
        Argument::Struct(layout) => {
            let mut needed_bytes = layout.full_size_bytes() as u64;
            if arg.len() as u64 >= needed_bytes
                && let Some(Tail {
                    entry,
                    capacity: None,
                    ..
                }) = layout.tail
            {
                let room = read::<ioctl::DeviceGetAllAppsInfo>(arg).capacity;
                needed_bytes += u64::from(room) * entry.size_bytes as u64;
            }
            if (arg.len() as u64) < needed_bytes {
                return Err(Errno::EFAULT);
            }
        }
    }
    let mut memory = Memory {
        lent,
        find,
        used: Vec::new(),
    };
    if word == ioctl::MEM_BUF_ZEROCOPY64_BATCHES {
        let arg = read::<ioctl::MemBufZerocopy64Batches>(arg);
        let field = offset_of!(ioctl::MemBufZerocopy64Batches, batches);
        let is_good = memory.has_batches(&arg);
        return Ok(Pointers {
            forged: [(!is_good).then_some(field), None],
            buffers: memory.used,
            outlast: arg.sequence_num != 0,
        });
    }
    let mut forged = [None; POINTERS_MAX];
    for (forged, reach) in forged.iter_mut().zip(reaches(word, arg)) {
        let Some(reach) = reach else { continue };
        let at = reach.pointer.checked_add(reach.skipped_bytes);
        let is_good = at.is_some_and(|at| memory.has(at, reach.size_bytes, reach.is_written));
        match (is_good, reach.skipped_bytes) {
            (true, _) => {}
            (false, 0) => *forged = Some(reach.field),
            // What the driver adds to it could lead back from nowhere.
            (false, _) => return Err(Errno::EFAULT),
        }
    }
    Ok(Pointers {
        forged,
        buffers: memory.used,
        outlast: false,
    })
}

/// Sends a command whose pointers have been looked at. Those that lead nowhere are in the struct
/// again afterwards.
pub(super) fn send<S: Sys, R>(
    word: u32,
    arg: &mut [u8],
    lent: &mut [Lent<'_>],
    pointers: &Pointers,
    send: impl FnOnce(Call<'_, '_, S>) -> R,
) -> R {
    let alleged = pointers.forged.map(|field| replace(arg, field?, NOWHERE));
    let answer = send(Call {
        word,
        arg,
        lent,
        by: PhantomData,
    });
    for (field, pointer) in pointers.forged.into_iter().zip(alleged) {
        if let (Some(field), Some(pointer)) = (field, pointer) {
            replace(arg, field, pointer);
        }
    }
    answer
}

/// Puts a pointer into a struct, and gives the one that was there; `None` if the struct ends before.
fn replace(arg: &mut [u8], field: usize, by: u64) -> Option<u64> {
    let place = arg.get_mut(field..)?.first_chunk_mut()?;
    Some(u64::from_le_bytes(std::mem::replace(
        place,
        by.to_le_bytes(),
    )))
}

/// What the pointers of a struct lead to, whose size has been checked.
fn reaches(word: u32, arg: &[u8]) -> [Option<Reach>; POINTERS_MAX] {
    macro_rules! reach {
        ($name:ident.$field:ident, $size:expr, $is_written:expr) => {
            reach!($name.$field + 0, $size, $is_written)
        };
        ($name:ident.$field:ident + $skipped:expr, $size:expr, $is_written:expr) => {
            Some(Reach {
                field: offset_of!(ioctl::$name, $field),
                pointer: read::<ioctl::$name>(arg).$field,
                skipped_bytes: $skipped,
                size_bytes: $size,
                is_written: $is_written,
            })
        };
    }
    const NUMBER: u64 = size_of::<u64>() as u64;
    match word {
        ioctl::MEM_ALLOC => [reach!(MemAlloc.mem_handle, NUMBER, true), None],
        ioctl::MEM_ALLOC_V2 => [reach!(MemAllocV2.mem_handle, NUMBER, true), None],
        ioctl::MEM_ALLOC_V2MT => [reach!(MemAllocV2Mt.mem_handle, NUMBER, true), None],
        ioctl::MEM_ALLOC_V2MT64 => [reach!(MemAllocV2Mt64.mem_handle, NUMBER, true), None],
        ioctl::MEM_GET_PA => [reach!(MemGetPa.pa, NUMBER, true), None],
        ioctl::MEM_GET_INFO => [
            reach!(MemGetInfo.mmap_offset, NUMBER, true),
            reach!(MemGetInfo.pa, NUMBER, true),
        ],
        ioctl::MEM_BUF_COPY => {
            let copy = read::<ioctl::MemBufCopy>(arg);
            let (size_bytes, is_written) = (copy.size.into(), copy.copy_to_mem_handle == 0);
            [reach!(MemBufCopy.buffer, size_bytes, is_written), None]
        }
        ioctl::MEM_BUF_COPY64 | ioctl::MEM_BUF_ZEROCOPY64_2_24 => {
            let copy = read::<ioctl::MemBufCopy64>(arg);
            let is_written = copy.copy_to_mem_handle == 0;
            [reach!(MemBufCopy64.buffer, copy.size, is_written), None]
        }
        ioctl::MEM_BUF_ZEROCOPY64 => {
            let copy = read::<ioctl::MemBufZerocopy64>(arg);
            let is_written = copy.is_copy_to_device == 0;
            [reach!(MemBufZerocopy64.buffer, copy.size, is_written), None]
        }
        ioctl::PROGRAM_ENGINE => {
            let ioctl::ProgramEngine { size, offset, .. } = read(arg);
            let skipped = offset.into();
            [
                reach!(ProgramEngine.buffer + skipped, size.into(), false),
                None,
            ]
        }
        ioctl::PROGRAM_ENGINE_NC => {
            let ioctl::ProgramEngineNc { size, offset, .. } = read(arg);
            let skipped = offset.into();
            [
                reach!(ProgramEngineNc.buffer + skipped, size.into(), false),
                None,
            ]
        }
        ioctl::PROGRAM_ENGINE_NC64 => {
            let ioctl::ProgramEngineNc64 { size, offset, .. } = read(arg);
            [reach!(ProgramEngineNc64.buffer + offset, size, false), None]
        }
        ioctl::DMA_ENG_GET_STATE => {
            let size_bytes = size_of::<ioctl::DmaEngState>() as u64;
            [reach!(DmaEngGetState.state, size_bytes, true), None]
        }
        ioctl::DMA_QUEUE_GET_STATE => {
            let size_bytes = size_of::<ioctl::DmaQueueState>() as u64;
            [
                reach!(DmaQueueGetState.tx, size_bytes, true),
                reach!(DmaQueueGetState.rx, size_bytes, true),
            ]
        }
        ioctl::DMA_COPY_DESCRIPTORS => {
            let count = read::<ioctl::DmaCopyDescriptors>(arg).num_descs;
            let size_bytes = u64::from(count) * DESCRIPTOR_BYTES;
            [reach!(DmaCopyDescriptors.buffer, size_bytes, false), None]
        }
        ioctl::DMA_COPY_DESCRIPTORS64 => {
            let count = read::<ioctl::DmaCopyDescriptors64>(arg).num_descs;
            let size_bytes = u64::from(count) * DESCRIPTOR_BYTES;
            [reach!(DmaCopyDescriptors64.buffer, size_bytes, false), None]
        }
        ioctl::DMA_DESCRIPTOR_COPYOUT => {
            let count = read::<ioctl::DmaDescriptorCopyout>(arg).count;
            let size_bytes = u64::from(count) * DESCRIPTOR_BYTES;
            [reach!(DmaDescriptorCopyout.buffer, size_bytes, true), None]
        }
        ioctl::DUMP_MEM_CHUNKS => {
            let room = read::<ioctl::DumpMemChunks>(arg).num_entries_in;
            let size_bytes = u64::from(room) * size_of::<ioctl::MemChunkInfo>() as u64;
            [reach!(DumpMemChunks.data, size_bytes, true), None]
        }
        ioctl::DMABUF_FD => {
            let size_bytes = size_of::<i32>() as u64;
            [reach!(DmabufFd.fd, size_bytes, true), None]
        }
        ioctl::PRINTK => {
            let size_bytes = read::<ioctl::Printk>(arg).size.into();
            [reach!(Printk.buffer, size_bytes, false), None]
        }
        // The others have no pointer to what the driver touches.
        _ => [None, None],
    }
}

impl<'a> Memory<'a, '_> {
    /// Whether the driver may use a range until the call returns.
    fn has(&mut self, at: u64, size_bytes: u64, is_written: bool) -> bool {
        let is_lent = || {
            self.lent.iter().any(|lent| match lent {
                Lent::In(bytes) => !is_written && holds(bytes, at, size_bytes),
                Lent::Out(bytes) => holds(bytes, at, size_bytes),
            })
        };
        at == 0 || size_bytes == 0 || is_lent() || self.has_for_good(at, size_bytes)
    }

    /// Whether the driver may use a range as long as it likes.
    fn has_for_good(&mut self, at: u64, size_bytes: u64) -> bool {
        if at == 0 || size_bytes == 0 {
            return true;
        }
        let Some(buffer) = (self.find)(at) else {
            return false;
        };
        let offset = at.checked_sub(buffer.address().get());
        let is_good =
            offset.is_some_and(|offset| access_fits(offset, size_bytes, buffer.size_bytes()));
        if is_good {
            self.used.push(buffer);
        }
        is_good
    }

    /// Bytes that nobody changes while the call lasts.
    fn fixed(&self, at: u64, size_bytes: u64) -> Option<&'a [u8]> {
        self.lent.iter().find_map(|lent| match lent {
            Lent::In(bytes) if holds(bytes, at, size_bytes) => {
                let offset = usize::try_from(at - user_addr(bytes).get()).ok()?;
                bytes
                    .get(offset..)?
                    .get(..usize::try_from(size_bytes).ok()?)
            }
            _ => None,
        })
    }

    /// The entries of an array that nobody changes while the call lasts; none if it is not there,
    /// which the driver sees, too. `None` if it is elsewhere.
    fn entries<T: FromBytes + 'a>(
        &self,
        at: u64,
        count: u32,
    ) -> Option<impl Iterator<Item = T> + use<'a, T>> {
        let size_bytes = u64::from(count) * size_of::<T>() as u64;
        let bytes = match at == 0 || size_bytes == 0 {
            true => &[],
            false => self.fixed(at, size_bytes)?,
        };
        let entries = bytes.chunks_exact(size_of::<T>());
        Some(entries.filter_map(|entry| T::read_from_bytes(entry).ok()))
    }

    /// Whether all that batches lead to may be used.
    fn has_batches(&mut self, arg: &ioctl::MemBufZerocopy64Batches) -> bool {
        let is_written = arg.is_copy_to_device == 0;
        let outlasts = arg.sequence_num != 0;
        let batches = self.entries::<ioctl::ZerocopyBatch>(arg.batches, arg.num_batches);
        batches.is_some_and(|mut batches| {
            batches.all(|batch| {
                let ops = self.entries::<ioctl::ZerocopyOp>(batch.ops_ptr, batch.num_ops);
                ops.is_some_and(|mut ops| {
                    ops.all(|op| match outlasts {
                        true => self.has_for_good(op.buffer, op.size),
                        false => self.has(op.buffer, op.size, is_written),
                    })
                })
            })
        })
    }
}

/// Whether a range lies in these bytes.
fn holds(bytes: &[u8], at: u64, size_bytes: u64) -> bool {
    let offset = at.checked_sub(user_addr(bytes).get());
    offset.is_some_and(|offset| access_fits(offset, size_bytes, bytes.len() as u64))
}

/// The struct that an argument begins with, whose size has been checked.
fn read<T: FromBytes>(arg: &[u8]) -> T {
    match T::read_from_prefix(arg) {
        Ok((read, _)) => read,
        Err(_) => T::new_zeroed(),
    }
}

#[cfg(test)]
mod tests {
    use glia_abi::ioctl::{Command, Kind, MemBufZerocopy64Batches, ZerocopyBatch, ZerocopyOp};
    use zerocopy::IntoBytes;

    use super::*;

    /// A number that no memory lies at, and that no count of bytes multiplies to 0.
    const WILD: u64 = 0x0101_0101_0101_0101;
    /// Pointers to what the driver does not touch.
    const HINTS: [&str; 2] = ["host_prefetch_addr", "va"];

    fn nothing(_: u64) -> Option<Arc<dyn UserBuffer>> {
        None
    }

    /// The commands with their structs, all bytes of which are 1: no count is 0.
    fn commands() -> impl Iterator<Item = (&'static Command, &'static ioctl::Layout, Vec<u8>)> {
        ioctl::COMMANDS.iter().filter_map(|command| {
            let Argument::Struct(layout) = command.argument else {
                return None;
            };
            let mut arg = vec![1; layout.full_size_bytes()];
            if command.word == ioctl::DEVICE_GET_ALL_APPS_INFO {
                arg[offset_of!(ioctl::DeviceGetAllAppsInfo, capacity)..][..4].fill(0);
            }
            Some((command, layout, arg))
        })
    }

    #[test]
    fn every_pointer_of_every_command_is_looked_at() {
        for (command, layout, mut arg) in commands() {
            // A pointer to which an offset is added is refused at once.
            for field in layout.fields {
                if field.name == "offset" && command.name.starts_with("PROGRAM_ENGINE") {
                    arg[field.offset..][..field.size_bytes].fill(0);
                }
            }
            let fields = layout.fields.iter().filter(|field| {
                matches!(field.kind, Kind::Pointer) && !HINTS.contains(&field.name)
            });
            let mut wanted: Vec<_> = fields.map(|field| field.offset).collect();
            let found = look(command.word, &arg, &[], &nothing).unwrap();
            let mut found: Vec<_> = found.forged.into_iter().flatten().collect();
            wanted.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, wanted, "{}", command.name);
        }
    }

    #[test]
    fn a_struct_that_is_too_short_by_a_byte_is_a_fault() {
        for (command, layout, arg) in commands() {
            let short = &arg[..layout.full_size_bytes() - 1];
            let found = look(command.word, short, &[], &nothing);
            assert_eq!(found.err(), Some(Errno::EFAULT), "{}", command.name);
        }
    }

    #[test]
    fn entries_behind_a_struct_have_to_have_room() {
        let arg = ioctl::DeviceGetAllAppsInfo {
            capacity: 2,
            ..ioctl::DeviceGetAllAppsInfo::default()
        };
        let look_at = |size: usize| {
            let mut bytes = vec![0; size];
            bytes[..16].copy_from_slice(arg.as_bytes());
            look(ioctl::DEVICE_GET_ALL_APPS_INFO, &bytes, &[], &nothing).err()
        };
        assert_eq!(look_at(16 + 2 * 152), None);
        assert_eq!(look_at(16 + 2 * 152 - 1), Some(Errno::EFAULT));
    }

    #[test]
    fn commands_that_are_not_known_are_not_sent() {
        for word in [0, u32::MAX, 0x8009_4e6a, ioctl::BAR_READ, ioctl::POD_INFO] {
            let found = look(word, &[0; 512], &[], &nothing);
            assert_eq!(found.err(), Some(Errno::EINVAL), "{word:#x}");
        }
    }

    #[test]
    fn a_pointer_into_what_is_lent_stays_and_one_byte_more_does_not() {
        let memory = [0; 64];
        let forged = |skipped: u64, size: u64, to_chunk: u32| {
            let arg = ioctl::MemBufCopy64 {
                buffer: user_addr(&memory).get().wrapping_add(skipped),
                size,
                copy_to_mem_handle: to_chunk,
                ..ioctl::MemBufCopy64::default()
            };
            let lent = [Lent::In(&memory)];
            let found = look(ioctl::MEM_BUF_COPY64, arg.as_bytes(), &lent, &nothing);
            found.unwrap().forged[0]
        };
        assert_eq!(forged(0, 64, 1), None);
        assert_eq!(forged(63, 1, 1), None);
        assert_eq!(forged(64, 0, 1), None);
        assert_eq!(forged(1, 64, 1), Some(8));
        assert_eq!(forged(u64::MAX, 2, 1), Some(8));
        assert_eq!(forged(0, u64::MAX, 1), Some(8));
        // It is lent for reading.
        assert_eq!(forged(0, 64, 0), Some(8));
    }

    #[test]
    fn an_offset_that_the_driver_adds_is_added() {
        let memory = [0; 64];
        let look_at = |offset| {
            let arg = ioctl::ProgramEngineNc64 {
                buffer: user_addr(&memory).get(),
                size: 32,
                offset,
                ..ioctl::ProgramEngineNc64::default()
            };
            let lent = [Lent::In(&memory)];
            look(ioctl::PROGRAM_ENGINE_NC64, arg.as_bytes(), &lent, &nothing).err()
        };
        assert_eq!(look_at(32), None);
        assert_eq!(look_at(33), Some(Errno::EFAULT));
        assert_eq!(look_at(u64::MAX), Some(Errno::EFAULT));
    }

    /// Whether batches are let through that lead to `buffer`, by an array that is lent so.
    fn are_sent(buffer: &[u8], sequence_num: u64, lend_ops: bool, lend_buffer: bool) -> bool {
        let ops = [ZerocopyOp {
            offset: 0,
            size: buffer.len() as u64,
            buffer: user_addr(buffer).get(),
        }];
        let batches = [ZerocopyBatch {
            ops_ptr: user_addr(ops.as_bytes()).get(),
            num_ops: 1,
            ..ZerocopyBatch::default()
        }];
        let arg = MemBufZerocopy64Batches {
            sequence_num,
            batches: user_addr(batches.as_bytes()).get(),
            num_batches: 1,
            is_copy_to_device: 1,
            ..MemBufZerocopy64Batches::default()
        };
        let mut lent = vec![Lent::In(batches.as_bytes())];
        if lend_ops {
            lent.push(Lent::In(ops.as_bytes()));
        }
        if lend_buffer {
            lent.push(Lent::In(buffer));
        }
        let word = ioctl::MEM_BUF_ZEROCOPY64_BATCHES;
        let found = look(word, arg.as_bytes(), &lent, &nothing).unwrap();
        assert_eq!(found.outlast, sequence_num != 0);
        found.forged == [None, None]
    }

    #[test]
    fn batches_are_followed_to_the_last_buffer() {
        let buffer = [0; 16];
        assert!(are_sent(&buffer, 0, true, true));
        assert!(!are_sent(&buffer, 0, true, false));
        assert!(!are_sent(&buffer, 0, false, true));
        // What is lent is gone when an asynchronous copy reaches it.
        assert!(!are_sent(&buffer, 1, true, true));
    }

    #[test]
    fn arrays_of_pointers_that_the_driver_may_write_to_are_not_believed() {
        let mut batches = [ZerocopyBatch::default(); 2];
        let arg = MemBufZerocopy64Batches {
            batches: user_addr(batches.as_bytes()).get(),
            num_batches: 2,
            ..MemBufZerocopy64Batches::default()
        };
        let word = ioctl::MEM_BUF_ZEROCOPY64_BATCHES;
        let forged = |lent: Lent<'_>| {
            let found = look(word, arg.as_bytes(), &[lent], &nothing);
            found.unwrap().forged[0]
        };
        assert_eq!(forged(Lent::In(batches.as_bytes())), None);
        assert_eq!(forged(Lent::Out(batches.as_mut_bytes())), Some(8));
    }

    #[test]
    fn a_forged_pointer_is_away_during_the_call_and_back_after_it() {
        let mut arg = ioctl::MemGetPa {
            mem_handle: 7,
            pa: WILD,
        };
        let word = ioctl::MEM_GET_PA;
        let pointers = look(word, arg.as_bytes(), &[], &nothing).unwrap();
        let sent = send(
            word,
            arg.as_mut_bytes(),
            &mut [],
            &pointers,
            |call: Call<'_, '_, super::super::Linux>| {
                let (_, arg, _) = call.into_parts();
                read::<ioctl::MemGetPa>(arg)
            },
        );
        assert_eq!((sent.mem_handle, sent.pa), (7, NOWHERE));
        assert_eq!((arg.mem_handle, arg.pa), (7, WILD));
    }
}
