//! Any command in one line, with its fields, for whoever reads a trace.
//!
//! ```text
//!   MEM_COPY64 { src: 0x10, dst: 0x20, size: 4096, src_offset: 0, dst_offset: 0 }
//! ```
//!
//! Handles, addresses and bits are hexadecimal, sizes and numbers decimal, and a pointer to memory
//! of the caller has a star (`*0x7f001000`). Padding is left out. The bytes come from anybody: too
//! few are said to be too few, more than the struct has are left out, and a count of entries that
//! are not there is said to be that.

use std::fmt;

use super::argument::{Field, Kind, Layout, Tail};
use super::{Argument, Command, command, forms, wait_handle};

/// A command with its argument; `Display` is one line.
#[derive(Debug, Clone, Copy)]
pub enum Decoded<'a> {
    /// A command of the table, with all bytes of its struct.
    Command {
        /// The command.
        command: &'static Command,
        /// Its argument.
        bytes: &'a [u8],
    },
    /// A command of the table, with fewer bytes than its struct has.
    TooShort {
        /// The command.
        command: &'static Command,
        /// Bytes of its struct.
        needed_bytes: usize,
        /// Bytes that are there.
        given_bytes: usize,
    },
    /// No command of the table.
    Unknown {
        /// The word.
        word: u32,
    },
}

/// The command that a word and the bytes of its argument make.
#[must_use]
pub fn decode(word: u32, bytes: &[u8]) -> Decoded<'_> {
    let Some(command) = command(word) else {
        return Decoded::Unknown { word };
    };
    match command.argument {
        Argument::Struct(layout) if bytes.len() < layout.size_bytes => Decoded::TooShort {
            command,
            needed_bytes: layout.size_bytes,
            given_bytes: bytes.len(),
        },
        _ => Decoded::Command { command, bytes },
    }
}

impl fmt::Display for Decoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Command { command, bytes } => {
                f.write_str(command.name)?;
                match command.argument {
                    Argument::Nothing => Ok(()),
                    Argument::NotCovered => write!(f, " (a struct that is not covered)"),
                    Argument::Struct(layout) => write!(f, " {}", Struct { layout, bytes }),
                }
            }
            Self::TooShort {
                command: Command { name, .. },
                needed_bytes,
                given_bytes,
            } => write!(
                f,
                "{name} (too short: {given_bytes} of {needed_bytes} bytes)"
            ),
            Self::Unknown { word } => {
                write!(f, "unknown command {word:#010x}")?;
                match forms(word) {
                    [known, ..] => write!(f, " (number {} is {})", known.number(), known.name),
                    [] => Ok(()),
                }
            }
        }
    }
}

/// A struct and its bytes, all there.
struct Struct<'a> {
    layout: &'static Layout,
    bytes: &'a [u8],
}

impl fmt::Display for Struct<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layout, bytes } = self;
        let mut separator = "{ ";
        for field in layout.fields {
            if matches!(field.kind, Kind::Pad) {
                continue;
            }
            write!(f, "{separator}{}: ", field.name)?;
            separator = ", ";
            write_field(f, field, part(bytes, field.offset, field.size_bytes))?;
        }
        if let Some(tail) = &layout.tail {
            write!(f, "{separator}entries: ")?;
            write_tail(f, tail, bytes, layout.size_bytes)?;
        }
        f.write_str(" }")
    }
}

fn write_field(f: &mut fmt::Formatter<'_>, field: &Field, bytes: &[u8]) -> fmt::Result {
    if matches!(field.kind, Kind::Opaque) {
        return bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"));
    }
    if field.size_bytes == field.element_size_bytes {
        return write_element(f, field.kind, bytes);
    }
    let elements = bytes.chunks(field.element_size_bytes);
    write_list(f, elements, |f, bytes| write_element(f, field.kind, bytes))?;
    f.write_str("]")
}

fn write_tail(f: &mut fmt::Formatter<'_>, tail: &Tail, bytes: &[u8], start: usize) -> fmt::Result {
    let layout = tail.entry;
    let count = unsigned(part(bytes, tail.count_offset, size_of::<u32>()));
    let wanted = usize::try_from(count).unwrap_or(usize::MAX);
    let room = bytes.get(start..).unwrap_or_default();
    let entries = room.chunks_exact(layout.size_bytes).take(wanted);
    let missing = wanted - entries.len();
    write_list(f, entries, |f, bytes| {
        write!(f, "{}", Struct { layout, bytes })
    })?;
    if missing > 0 {
        write!(f, "; {missing} not there")?;
    }
    f.write_str("]")
}

/// Writes a list without its closing bracket.
fn write_list<'a>(
    f: &mut fmt::Formatter<'_>,
    elements: impl Iterator<Item = &'a [u8]>,
    write_one: impl Fn(&mut fmt::Formatter<'_>, &'a [u8]) -> fmt::Result,
) -> fmt::Result {
    f.write_str("[")?;
    for (index, bytes) in elements.enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        write_one(f, bytes)?;
    }
    Ok(())
}

fn write_element(f: &mut fmt::Formatter<'_>, kind: Kind, bytes: &[u8]) -> fmt::Result {
    let raw = unsigned(bytes);
    match kind {
        Kind::Handle | Kind::Address | Kind::Bits => write!(f, "{raw:#x}"),
        Kind::Pointer => write!(f, "*{raw:#x}"),
        Kind::Size | Kind::Number => write!(f, "{raw}"),
        Kind::Signed => write!(f, "{}", signed(raw, bytes.len())),
        Kind::Wait => match u32::try_from(raw) {
            Ok(wait_handle::NONE) => f.write_str("NONE"),
            Ok(wait_handle::SYNC) => f.write_str("SYNC"),
            Ok(wait_handle::ASYNC1) => f.write_str("ASYNC1"),
            Ok(wait_handle::ASYNC2) => f.write_str("ASYNC2"),
            _ => write!(f, "{raw}"),
        },
        Kind::Structs(layout) => write!(f, "{}", Struct { layout, bytes }),
        Kind::Opaque | Kind::Pad => Ok(()),
    }
}

/// A part of the bytes; as much of it as there is.
fn part(bytes: &[u8], offset: usize, size: usize) -> &[u8] {
    let rest = bytes.get(offset..).unwrap_or_default();
    rest.get(..size).unwrap_or(rest)
}

/// The number that up to 8 bytes make, lowest first.
fn unsigned(bytes: &[u8]) -> u64 {
    let low_first = bytes.iter().take(size_of::<u64>());
    low_first
        .rev()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// The number that its low `size` bytes make in two's complement.
fn signed(raw: u64, size: usize) -> i64 {
    let unused_bits = (size_of::<u64>().saturating_sub(size) * 8).min(63);
    (raw << unused_bits).cast_signed() >> unused_bits
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;
    use zerocopy::IntoBytes;

    use super::super::*;
    use super::*;

    #[test]
    fn a_command_is_one_line_with_its_fields() {
        let copy = MemCopy64 {
            src: 0x10,
            dst: 0x2f,
            size: 4096,
            src_offset: 0,
            dst_offset: 64,
        };
        assert_eq!(
            decode(MEM_COPY64, copy.as_bytes()).to_string(),
            "MEM_COPY64 { src: 0x10, dst: 0x2f, size: 4096, src_offset: 0, dst_offset: 64 }"
        );
        assert_eq!(decode(DEVICE_RESET, &[]).to_string(), "DEVICE_RESET");
    }

    #[test]
    fn kinds_of_fields_look_different() {
        let copy = MemCopyAsync {
            host_prefetch_addr: 0x7f00,
            pwait: wait_handle::NONE,
            wait: wait_handle::ASYNC1,
            ..Default::default()
        };
        assert_eq!(
            decode(MEM_COPY_ASYNC, copy.as_bytes()).to_string(),
            "MEM_COPY_ASYNC { src: 0x0, dst: 0x0, size: 0, src_offset: 0, dst_offset: 0, \
             host_prefetch_addr: *0x7f00, pwait: NONE, wait: ASYNC1 }"
        );
        let batches = MemBufZerocopy64Batches {
            num_batches: 3,
            h2t_qid: -1,
            flags: 0x8001,
            ..Default::default()
        };
        assert_eq!(
            decode(MEM_BUF_ZEROCOPY64_BATCHES, batches.as_bytes()).to_string(),
            "MEM_BUF_ZEROCOPY64_BATCHES { sequence_num: 0, batches: *0x0, num_batches: 3, \
             is_copy_to_device: 0, h2t_qid: -1, flags: 0x8001 }"
        );
        let lock = Crwl {
            nc_id: 1,
            uuid: [0xab; 32],
        };
        assert_eq!(
            decode(CRWL_READER_EXIT, lock.as_bytes()).to_string(),
            format!("CRWL_READER_EXIT {{ nc_id: 1, uuid: {} }}", "ab".repeat(32))
        );
    }

    #[test]
    fn arrays_are_lists() {
        let mut map = NcMapExt::default();
        map.bitmap[7] = 0xff;
        assert_eq!(
            decode(CRWL_NC_RANGE_MARK_EXT0, map.as_bytes()).to_string(),
            "CRWL_NC_RANGE_MARK_EXT0 { nc_count: 0, start_nc: 0, end_nc: 0, max_nc_available: 0, \
             bitmap: [0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0xff] }"
        );
        let mut ranges = GetAsyncH2tDmaComplQueues::default();
        ranges.queues[1].mmap_size = 8192;
        let line = decode(GET_ASYNC_H2T_DMA_COMPL_QUEUES, ranges.as_bytes()).to_string();
        let two = "queues: [{ mmap_offset: 0x0, mmap_size: 0 }, \
                   { mmap_offset: 0x0, mmap_size: 8192 }, ";
        assert!(line.contains(two), "{line}");
    }

    #[test]
    fn entries_behind_a_struct_are_as_many_as_it_says_and_as_are_there() {
        let head = DmaQueueInitBatch { count: 3, pad: 0 };
        let entry = DmaQueueInit {
            eng: 5,
            ..Default::default()
        };
        let bytes = [head.as_bytes(), entry.as_bytes()].concat();
        assert_eq!(
            decode(DMA_QUEUE_INIT_BATCH, &bytes).to_string(),
            "DMA_QUEUE_INIT_BATCH { count: 3, entries: [{ eng: 5, qid: 0, tx_desc_count: 0, \
             rx_desc_count: 0, tx_handle: 0x0, rx_handle: 0x0, rxc_handle: 0x0, axi_port: 0 }\
             ; 2 not there] }"
        );
        let none = DmaQueueInitBatch::default();
        let bytes = [none.as_bytes(), entry.as_bytes()].concat();
        assert_eq!(
            decode(DMA_QUEUE_INIT_BATCH, &bytes).to_string(),
            "DMA_QUEUE_INIT_BATCH { count: 0, entries: [] }"
        );
    }

    #[test]
    fn what_cannot_be_decoded_says_why() {
        assert_eq!(
            decode(MEM_COPY64, &[0; 39]).to_string(),
            "MEM_COPY64 (too short: 39 of 40 bytes)"
        );
        assert_eq!(
            decode(0x8039_4e66, &[0; 57]).to_string(),
            "unknown command 0x80394e66 (number 102 is MEM_ALLOC_V2)"
        );
        assert_eq!(decode(0xff, &[]).to_string(), "unknown command 0x000000ff");
        assert_eq!(
            decode(POD_INFO, &[0; 260]).to_string(),
            "POD_INFO (a struct that is not covered)"
        );
    }

    #[test]
    fn numbers_with_a_sign_are_so_at_every_width() {
        assert_eq!(signed(0xff, 1), -1);
        assert_eq!(signed(0x7f, 1), 127);
        assert_eq!(signed(0x8000_0000, 4), i64::from(i32::MIN));
        assert_eq!(signed(u64::MAX, 8), -1);
        assert_eq!(signed(0, 0), 0);
    }

    fn words() -> impl Strategy<Value = u32> {
        let words: Vec<_> = COMMANDS.iter().map(|known| known.word).collect();
        prop_oneof![9 => select(words), 1 => any::<u32>()]
    }

    proptest! {
        #[test]
        fn any_bytes_are_one_line(word in words(), bytes in vec(any::<u8>(), 0..400)) {
            let line = decode(word, &bytes).to_string();
            prop_assert!(!line.is_empty() && !line.contains('\n'), "{}", line);
            let balance = line.matches('{').count() == line.matches('}').count();
            prop_assert!(balance, "{}", line);
        }

        #[test]
        fn bytes_behind_a_struct_change_nothing(
            src in any::<u64>(),
            more in vec(any::<u8>(), 0..64),
        ) {
            let copy = MemCopy64 { src, ..Default::default() };
            let longer = [copy.as_bytes(), &more].concat();
            prop_assert_eq!(
                decode(MEM_COPY64, copy.as_bytes()).to_string(),
                decode(MEM_COPY64, &longer).to_string()
            );
        }
    }
}
