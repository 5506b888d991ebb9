//! A chunk's way: allocated, mapped, copied to and from, freed; and what is left of it.

use std::sync::Arc;

use super::{File, TransportFixture};
use crate::addr::{BusAddr, Span};
use crate::conformance::mapping::{check_shared, get, put};
use crate::conformance::{Must, Violation, bytes_of, difference, hold, mapping, pattern};
use crate::errno::Errno;
use crate::ioctl::{
    self, MemAllocV2Mt64, MemBufCopy64, MemCopy64, MemCopyAsync64, MemCopyAsyncWait, MemFree,
    MemGetPa, wait_handle,
};
use crate::transport::{Lent, Mapping, MappingError, OpenMode, user_addr};
use crate::usage::Category;

/// Bytes of a chunk: more than one descriptor moves.
const CHUNK: u64 = 128 << 10;
const EINVAL_HANDLE: &str = "a handle that is none is refused: EINVAL";
const FORGED: &str = "a pointer to what was not lent is a fault: EFAULT";
/// Nobody's memory.
const WILD: u64 = 1 << 62;

pub(super) fn check(fixture: &TransportFixture<'_>) -> Result<(), Violation> {
    let file = File::open(fixture, OpenMode::ReadWrite)?;
    mappings_show_the_chunk(file)?;
    copies_reach_hbm_and_come_back(file)?;
    a_copy_can_be_waited_for(file)?;
    lent_and_lasting_buffers_are_copied(file)?;
    what_leaves_a_chunk_is_refused(file)?;
    forged_pointers_are_faults(file)?;
    a_freed_handle_is_dead(file)?;
    file.close()?;
    a_mapping_outlives_chunk_and_descriptor(fixture)?;
    all_is_given_back_with_the_last_descriptor(fixture)
}

fn map(file: File<'_>, handle: u64, size_bytes: u64) -> Result<Arc<dyn Mapping>, Violation> {
    let (_, offset) = file.info(handle)?;
    let mapping = file.transport.mmap(file.fd, offset, size_bytes);
    let mapping = mapping.must("a chunk can be mapped by its offset and size")?;
    hold!(
        mapping.size_bytes() == size_bytes && mapping.is_writable(),
        "a mapping has the size that was asked for, and its owner may write",
        "{} of {size_bytes} bytes, writable: {}",
        mapping.size_bytes(),
        mapping.is_writable()
    );
    Ok(mapping)
}

fn copy(file: File<'_>, src: u64, dst: u64, size: u64) -> Result<(), Violation> {
    let mut arg = MemCopy64 {
        src,
        dst,
        size,
        ..MemCopy64::default()
    };
    file.call(ioctl::MEM_COPY64, &mut arg, &mut [])
}

fn mappings_show_the_chunk(file: File<'_>) -> Result<(), Violation> {
    for on_host in [true, false] {
        let handle = file.alloc(on_host, CHUNK)?;
        let other = file.alloc(on_host, CHUNK)?;
        let places = [file.info(handle)?, file.info(other)?];
        let [first, second] = places.map(|(pa, _)| Span::cut(BusAddr::new(pa), CHUNK));
        hold!(
            !first.overlaps(second),
            "chunks never overlap",
            "{first} and {second}"
        );
        let mappings = [map(file, handle, CHUNK)?, map(file, handle, CHUNK)?];
        let beside = map(file, other, CHUNK)?;
        let bystander = pattern(40, 4096);
        put(beside.as_ref(), 0, &bystander)?;
        for mapping in &mappings {
            mapping::check(mapping.as_ref())?;
        }
        check_shared(mappings[0].as_ref(), mappings[1].as_ref())?;
        let found = get(beside.as_ref(), 0, 4096)?;
        hold!(
            found == bystander,
            "a mapping shows its chunk alone",
            "{}",
            difference(&bystander, &found)
        );
        file.free(handle)?;
        file.free(other)?;
    }
    Ok(())
}

fn copies_reach_hbm_and_come_back(file: File<'_>) -> Result<(), Violation> {
    let source = file.alloc(true, CHUNK)?;
    let hbm = [file.alloc(false, CHUNK)?, file.alloc(false, CHUNK)?];
    let target = file.alloc(true, CHUNK)?;
    let [from, to] = [map(file, source, CHUNK)?, map(file, target, CHUNK)?];
    let bytes = pattern(1, 128 << 10);
    put(from.as_ref(), 0, &bytes)?;
    // Host to HBM, HBM to HBM, HBM to host, host to host.
    copy(file, source, hbm[0], CHUNK)?;
    copy(file, hbm[0], hbm[1], CHUNK)?;
    copy(file, hbm[1], target, CHUNK)?;
    arrived(&bytes, to.as_ref(), "by way of two HBM chunks")?;
    put(to.as_ref(), 0, &pattern(2, 128 << 10))?;
    copy(file, source, target, CHUNK)?;
    arrived(&bytes, to.as_ref(), "from host to host")?;
    // A piece between odd offsets, and nothing.
    let mut piece = MemCopy64 {
        src: source,
        dst: target,
        size: 70_001,
        src_offset: 13,
        dst_offset: 7,
    };
    file.call(ioctl::MEM_COPY64, &mut piece, &mut [])?;
    let mut nothing = MemCopy64 { size: 0, ..piece };
    file.call(ioctl::MEM_COPY64, &mut nothing, &mut [])?;
    let mut expected = bytes.clone();
    expected[7..70_008].copy_from_slice(&bytes[13..70_014]);
    arrived(&expected, to.as_ref(), "a piece between odd offsets")?;
    for handle in [source, hbm[0], hbm[1], target] {
        file.free(handle)?;
    }
    Ok(())
}

/// A mapping shows these bytes.
fn arrived(expected: &[u8], target: &dyn Mapping, what: &str) -> Result<(), Violation> {
    let found = get(target, 0, expected.len())?;
    hold!(
        found == expected,
        "a copy moves the bytes that it names",
        "{what}: {}",
        difference(expected, &found)
    );
    Ok(())
}

fn a_copy_can_be_waited_for(file: File<'_>) -> Result<(), Violation> {
    let source = file.alloc(true, CHUNK)?;
    let hbm = file.alloc(false, CHUNK)?;
    let [from, to] = [map(file, source, CHUNK)?, map(file, hbm, CHUNK)?];
    // A chain of three: each start waits for the one before it.
    let chain = [
        (wait_handle::NONE, wait_handle::ASYNC1),
        (wait_handle::ASYNC1, wait_handle::ASYNC2),
        (wait_handle::ASYNC2, wait_handle::ASYNC1),
    ];
    let bytes = pattern(3, 128 << 10);
    put(from.as_ref(), 0, &bytes)?;
    let third = CHUNK / 3;
    for (number, (pwait, expected)) in (0..).zip(chain) {
        let offset = number * third;
        let mut start = MemCopyAsync64 {
            src: source,
            dst: hbm,
            size: if number == 2 { CHUNK - offset } else { third },
            src_offset: offset,
            dst_offset: offset,
            pwait,
            ..MemCopyAsync64::default()
        };
        file.call(ioctl::MEM_COPY_ASYNC64, &mut start, &mut [])?;
        hold!(
            start.wait == expected,
            "an asynchronous copy says what to wait for",
            "{} after {pwait}, not {expected}",
            start.wait
        );
    }
    let mut wait = MemCopyAsyncWait {
        src: source,
        dst: hbm,
        pwait: wait_handle::ASYNC1,
        pad: 0,
    };
    file.call(ioctl::MEM_COPY_ASYNC_WAIT, &mut wait, &mut [])?;
    arrived(&bytes, to.as_ref(), "in an asynchronous chain")?;
    file.refused(
        ioctl::MEM_COPY_ASYNC_WAIT,
        wait,
        Errno::EINVAL,
        "a copy that was waited for cannot be waited for again: EINVAL",
    )?;
    file.free(source)?;
    file.free(hbm)
}

fn lent_and_lasting_buffers_are_copied(file: File<'_>) -> Result<(), Violation> {
    const SIZE: usize = 100_003;
    const OFFSET: u64 = 5;
    let arg = |mem_handle, buffer, to_chunk| MemBufCopy64 {
        mem_handle,
        buffer,
        size: bytes_of(SIZE),
        offset: OFFSET,
        copy_to_mem_handle: u32::from(to_chunk),
        pad: 0,
    };
    for on_host in [true, false] {
        let handle = file.alloc(on_host, CHUNK)?;
        let bytes = pattern(4, SIZE);
        let mut send = arg(handle, user_addr(&bytes).get(), true);
        let mut lent = [Lent::In(&bytes)];
        file.call(ioctl::MEM_BUF_COPY64, &mut send, &mut lent)?;
        let mut found = vec![0; SIZE];
        let mut fetch = arg(handle, user_addr(&found).get(), false);
        let mut lent = [Lent::Out(&mut found)];
        file.call(ioctl::MEM_BUF_COPY64, &mut fetch, &mut lent)?;
        hold!(
            found == bytes,
            "a copy moves the bytes that it names",
            "to a chunk and back by lent buffers: {}",
            difference(&bytes, &found)
        );
        let buffer = file.transport.buffer(CHUNK);
        let buffer = buffer.must("a buffer of a few pages can be had")?;
        let mut fetch = arg(handle, buffer.address().get(), false);
        file.call(ioctl::MEM_BUF_COPY64, &mut fetch, &mut [])?;
        arrived(&bytes, buffer.as_ref(), "to a buffer of the process")?;
        // What is lent for reading is not written.
        let untouched = vec![0x5a; SIZE];
        let mut fetch = arg(handle, user_addr(&untouched).get(), false);
        let mut lent = [Lent::In(&untouched)];
        let answer = file.send(ioctl::MEM_BUF_COPY64, &mut fetch, &mut lent);
        hold!(
            answer == Err(Errno::EFAULT),
            "what is lent for reading is not written: EFAULT",
            "{answer:?}"
        );
        file.free(handle)?;
    }
    Ok(())
}

fn what_leaves_a_chunk_is_refused(file: File<'_>) -> Result<(), Violation> {
    const RULE: &str = "a copy that leaves its chunk is refused: EINVAL";
    let handles = [file.alloc(true, CHUNK)?, file.alloc(false, CHUNK)?];
    let [src, dst] = handles;
    // (source offset, target offset, size); the last ones wrap.
    let outside = [
        (0, 0, CHUNK + 1),
        (1, 0, CHUNK),
        (0, CHUNK, 1),
        (u64::MAX - 6, 0, 8),
        (0, u64::MAX - 6, 8),
        (0, 0, u64::MAX),
    ];
    for (src_offset, dst_offset, size) in outside {
        let arg = MemCopy64 {
            src,
            dst,
            size,
            src_offset,
            dst_offset,
        };
        file.refused(ioctl::MEM_COPY64, arg, Errno::EINVAL, RULE)?;
    }
    for mem_handle in handles {
        let arg = MemBufCopy64 {
            mem_handle,
            buffer: WILD,
            size: 8,
            offset: CHUNK - 7,
            ..MemBufCopy64::default()
        };
        file.refused(ioctl::MEM_BUF_COPY64, arg, Errno::EINVAL, RULE)?;
    }
    file.free(src)?;
    file.free(dst)
}

fn forged_pointers_are_faults(file: File<'_>) -> Result<(), Violation> {
    let handle = file.alloc(false, CHUNK)?;
    for pointer in [WILD, 0, u64::MAX - 3] {
        let arg = MemGetPa {
            mem_handle: handle,
            pa: pointer,
        };
        file.refused(ioctl::MEM_GET_PA, arg, Errno::EFAULT, FORGED)?;
        let arg = MemAllocV2Mt64 {
            size: 4096,
            mem_type: Category::TENSORS_DEVICE.0,
            mem_handle: pointer,
            ..MemAllocV2Mt64::default()
        };
        file.refused(ioctl::MEM_ALLOC_V2MT64, arg, Errno::EFAULT, FORGED)?;
        for to_chunk in [0, 1] {
            let arg = MemBufCopy64 {
                mem_handle: handle,
                buffer: pointer,
                size: 64,
                copy_to_mem_handle: to_chunk,
                ..MemBufCopy64::default()
            };
            file.refused(ioctl::MEM_BUF_COPY64, arg, Errno::EFAULT, FORGED)?;
        }
    }
    // A buffer that is too short by one byte.
    let mut short = [0; 7];
    let mut arg = MemGetPa {
        mem_handle: handle,
        pa: user_addr(&short).get(),
    };
    let mut lent = [Lent::Out(&mut short)];
    let answer = file.send(ioctl::MEM_GET_PA, &mut arg, &mut lent);
    hold!(
        answer == Err(Errno::EFAULT),
        FORGED,
        "a short one: {answer:?}"
    );
    hold!(short == [0; 7], "a fault copies nothing", "{short:02x?}");
    file.free(handle)
}

fn a_freed_handle_is_dead(file: File<'_>) -> Result<(), Violation> {
    let handle = file.alloc(false, CHUNK)?;
    file.free(handle)?;
    for mem_handle in [handle, 0, u64::MAX] {
        let mut pa = [0; 8];
        let mut arg = MemGetPa {
            mem_handle,
            pa: user_addr(&pa).get(),
        };
        let answer = file.send(ioctl::MEM_GET_PA, &mut arg, &mut [Lent::Out(&mut pa)]);
        hold!(
            answer == Err(Errno::EINVAL),
            EINVAL_HANDLE,
            "asking for handle {mem_handle}: {answer:?}"
        );
        let arg = MemFree { mem_handle };
        file.refused(ioctl::MEM_FREE, arg, Errno::EINVAL, EINVAL_HANDLE)?;
    }
    Ok(())
}

fn a_mapping_outlives_chunk_and_descriptor(
    fixture: &TransportFixture<'_>,
) -> Result<(), Violation> {
    let file = File::open(fixture, OpenMode::ReadWrite)?;
    let handle = file.alloc(true, CHUNK)?;
    let mapping = map(file, handle, CHUNK)?;
    let bytes = pattern(5, 4096);
    put(mapping.as_ref(), 0, &bytes)?;
    file.free(handle)?;
    // Whoever comes next does not get this memory.
    let next = file.alloc(true, CHUNK)?;
    put(map(file, next, CHUNK)?.as_ref(), 0, &[0; 4096])?;
    file.free(next)?;
    let found = get(mapping.as_ref(), 0, bytes.len())?;
    hold!(
        found == bytes,
        "a chunk that was freed is given to nobody else while it is mapped",
        "{}",
        difference(&bytes, &found)
    );
    file.close()?;
    let mut byte = [0];
    let read = mapping.read(0, &mut byte);
    // A driver that gives the memory to the next one now refuses; a real node keeps it mapped.
    hold!(
        matches!(read, Ok(()) | Err(MappingError::Gone)),
        "a mapping is valid memory, or refused, when chunk and descriptor are gone",
        "{read:?}"
    );
    Ok(())
}

fn all_is_given_back_with_the_last_descriptor(
    fixture: &TransportFixture<'_>,
) -> Result<(), Violation> {
    // Where nobody can look inside, there is nothing to check.
    let look = || {
        let pools = fixture.transport.insight(fixture.device)?;
        let free: Vec<_> = pools.channels.into_iter().map(|one| one.free).collect();
        Some((pools.host_bytes, free))
    };
    let before = look();
    let file = File::open(fixture, OpenMode::ReadWrite)?;
    let hbm = file.alloc(false, CHUNK)?;
    let host = file.alloc(true, CHUNK)?;
    copy(file, host, hbm, CHUNK)?;
    let mut start = MemCopyAsync64 {
        src: host,
        dst: hbm,
        size: CHUNK,
        pwait: wait_handle::NONE,
        ..MemCopyAsync64::default()
    };
    file.call(ioctl::MEM_COPY_ASYNC64, &mut start, &mut [])?;
    let during = look();
    hold!(
        before.is_none() || during != before,
        "the pools hold what was allocated",
        "they did not change"
    );
    file.close()?;
    let after = look();
    hold!(
        after == before,
        "all that a process took is given back with its last descriptor",
        "host bytes and holes were {before:?}, and are {after:?}"
    );
    Ok(())
}
