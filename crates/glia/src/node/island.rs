//! The system calls themselves: the island of unsafe code in this crate.
//!
//! [`Linux`] is [`Sys`] on a real system. Files are `std`'s; ioctl and mmap are `rustix`'s. What is
//! mapped is a [`Mapped`]: bytes that are copied in and out, or looked at as atomic words.
//!
//! **Who owns what.** A file is closed when it is dropped, a mapping is unmapped when it is dropped,
//! and it needs its file no longer.

// UNSAFETY: The kernel writes to memory by the addresses in a command's struct, and what it maps is
// shared with a device: neither can be said in safe Rust.
//
// What is argued once, for every copy below: mapped memory can change at any time, by the device, by
// other threads and by other processes. In the language's model a plain copy then is a data race; in
// the machine's it gives some mix of old and new bytes. The compiler cannot exploit it: the copy is
// an opaque memcpy through a raw pointer to memory that no reference to plain bytes ever covers, and
// its result decides nothing here. Whatever has to be ordered is an atomic word.
#![expect(unsafe_code, reason = "the island, see UNSAFETY")]

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use glia_abi::addr::{UserAddr, access_fits};
use glia_abi::errno::Errno;
use glia_abi::sync::AtomicU32;
use glia_abi::transport::{Lent, Mapping, MappingError, OpenMode, UserBuffer};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode};
use rustix::mm::{MapFlags, ProtFlags};

use super::call::Call;
use super::{Sys, errno};

const WORD_BYTES: u64 = size_of::<AtomicU32>() as u64;

/// The system calls of Linux.
#[derive(Debug, Clone, Copy, Default)]
pub struct Linux;

/// An open device node.
#[derive(Debug)]
pub struct NodeFile {
    file: File,
    mode: OpenMode,
}

impl Sys for Linux {
    type File = NodeFile;

    /// An open that a signal interrupts begins anew; children do not inherit the descriptor.
    fn open(&self, path: &Path, mode: OpenMode) -> Result<NodeFile, Errno> {
        let mut options = OpenOptions::new();
        options
            .read(mode != OpenMode::WriteOnly)
            .write(mode != OpenMode::ReadOnly);
        let file = options.open(path).map_err(|error| io(&error))?;
        Ok(NodeFile { file, mode })
    }

    fn dup(&self, file: &NodeFile) -> Result<NodeFile, Errno> {
        Ok(NodeFile {
            file: file.file.try_clone().map_err(|error| io(&error))?,
            mode: file.mode,
        })
    }

    fn ioctl(&self, file: &NodeFile, call: Call<'_, '_, Self>) -> Result<i32, Errno> {
        let (word, arg, lent) = call.into_parts();
        // The compiler has to know that the call may reach these: their addresses are plain numbers
        // in `arg`.
        for lent in lent {
            let _exposed = match lent {
                Lent::In(bytes) => bytes.as_ptr().expose_provenance(),
                Lent::Out(bytes) => bytes.as_mut_ptr().expose_provenance(),
            };
        }
        // SAFETY: the file is a node of the Neuron driver, or of one that knows none of its words. By
        // the making of a `Call` of ours, `arg` is as large as the command's struct, and every pointer
        // in it leads to memory that is lent here (to be written only if it is lent so), to a `Mapped`
        // buffer that lives as long as the driver uses it, or to the kernel's half of the address
        // space, where the kernel lets no user write.
        unsafe { send(&file.file, word, arg) }
    }

    fn mmap(
        &self,
        file: &NodeFile,
        offset: u64,
        size_bytes: u64,
    ) -> Result<Arc<dyn Mapping>, Errno> {
        let access = match file.mode {
            // The kernel wants a file for writing.
            OpenMode::ReadOnly => ProtFlags::READ,
            OpenMode::WriteOnly | OpenMode::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        let map = |size| {
            // SAFETY: a new mapping, where the kernel has room for one, touches nothing that exists.
            unsafe {
                let flags = MapFlags::SHARED;
                rustix::mm::mmap(ptr::null_mut(), size, access, flags, &file.file, offset)
            }
        };
        let mut mapped = Mapped::new(size_bytes, map)?;
        mapped.is_writable = is_writable(mapped.first.addr().get());
        Ok(Arc::new(mapped))
    }

    fn buffer(&self, size_bytes: u64) -> Result<Arc<dyn UserBuffer>, Errno> {
        let map = |size| {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: as for a file.
            unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), size, access, MapFlags::PRIVATE) }
        };
        let mapped = Mapped::new(size_bytes, map).map_err(|_| Errno::ENOMEM)?;
        Ok(Arc::new(mapped))
    }
}

/// A command and where its struct is.
struct Command {
    word: u32,
    arg: *mut c_void,
}

// SAFETY: the word is passed on as it is, nothing is promised to be left unchanged, and the answer
// is the plain number.
unsafe impl Ioctl for Command {
    type Output = i32;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.word
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.arg
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(out)
    }
}

/// Makes the call, once: one that a signal interrupts may have had an effect.
///
/// # Safety
/// The kernel, asked for this command, reads and writes nothing but `arg` and memory that may be read
/// and written so, until it returns and for as long as it goes on by itself.
unsafe fn send(file: &File, word: u32, arg: &mut [u8]) -> Result<i32, Errno> {
    let arg = arg.as_mut_ptr().cast();
    // SAFETY: the caller's promise; `arg` is exclusive until this returns.
    let answer = unsafe { rustix::ioctl::ioctl(file, Command { word, arg }) };
    answer.map_err(|error| errno(error.raw_os_error()))
}

/// Memory that the kernel has mapped for us. Dropping it unmaps.
struct Mapped {
    first: NonNull<u8>,
    size_bytes: usize,
    is_writable: bool,
}

// SAFETY: the memory stays mapped until the drop, for every thread; see the top for what several may
// do to it at once.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Takes what `map` has mapped: so many bytes, of this value's own.
    fn new(
        size_bytes: u64,
        map: impl FnOnce(usize) -> rustix::io::Result<*mut c_void>,
    ) -> Result<Self, Errno> {
        let size_bytes = usize::try_from(size_bytes).map_err(|_| Errno::ENOMEM)?;
        let mapped = map(size_bytes).map_err(|error| errno(error.raw_os_error()))?;
        Ok(Self {
            first: NonNull::new(mapped.cast()).ok_or(Errno::ENOMEM)?,
            size_bytes,
            is_writable: true,
        })
    }

    /// The first byte of a range that lies in it.
    fn at(&self, offset_bytes: u64, size_bytes: u64) -> Result<NonNull<u8>, MappingError> {
        let outside = MappingError::OutOfBounds {
            offset_bytes,
            size_bytes,
            limit_bytes: self.size_bytes as u64,
        };
        if !access_fits(offset_bytes, size_bytes, self.size_bytes as u64) {
            return Err(outside);
        }
        let offset = usize::try_from(offset_bytes).map_err(|_| outside)?;
        // SAFETY: at most one past the end of the mapping.
        Ok(unsafe { self.first.add(offset) })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it is ours, and nothing that borrows it is left. A buffer that the driver still
        // uses is held by its node.
        let _unmapped = unsafe { rustix::mm::munmap(self.first.as_ptr().cast(), self.size_bytes) };
    }
}

impl Mapping for Mapped {
    fn size_bytes(&self) -> u64 {
        self.size_bytes as u64
    }

    fn is_writable(&self) -> bool {
        self.is_writable
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), MappingError> {
        let from = self.at(offset_bytes, into.len() as u64)?;
        // SAFETY: `at` has checked the range; `into` is exclusive, so it is no mapped memory.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) }
        Ok(())
    }

    fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), MappingError> {
        if !self.is_writable {
            return Err(MappingError::ReadOnly);
        }
        let to = self.at(offset_bytes, bytes.len() as u64)?;
        // SAFETY: `at` has checked the range, the pages may be written, and no plain reference is to
        // mapped memory, so `bytes` is none.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) }
        Ok(())
    }

    fn words(&self, offset_bytes: u64, size_bytes: u64) -> Result<&[AtomicU32], MappingError> {
        if !self.is_writable {
            return Err(MappingError::ReadOnly);
        }
        let first = self.at(offset_bytes, size_bytes)?.cast::<AtomicU32>();
        if !first.is_aligned() || !size_bytes.is_multiple_of(WORD_BYTES) {
            return Err(MappingError::OutOfBounds {
                offset_bytes,
                size_bytes,
                limit_bytes: self.size_bytes as u64,
            });
        }
        // CAST: not greater than `self.size_bytes`, a usize, and Linux here has 64 bits.
        let count = (size_bytes / WORD_BYTES) as usize;
        // SAFETY: aligned, in the mapping, which lives as long as `self`, and atomics may be changed
        // by others.
        Ok(unsafe { std::slice::from_raw_parts(first.as_ptr(), count) })
    }
}

impl UserBuffer for Mapped {
    fn address(&self) -> UserAddr {
        UserAddr::new(self.first.as_ptr().expose_provenance() as u64)
    }
}

fn io(error: &std::io::Error) -> Errno {
    errno(error.raw_os_error().unwrap_or_default())
}

/// Whether the page at an address may be written.
///
/// The driver takes the right to write away from a mapping of another process's chunk, or of a
/// resource, and says nothing: a store would end this process. The kernel's list tells. Where that
/// cannot be read, nothing is written.
fn is_writable(address: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    access_of(&maps, address).is_some_and(|access| access.as_bytes().get(1) == Some(&b'w'))
}

/// The access of the mapping that an address lies in: `rw-s`, most often.
fn access_of(maps: &str, address: usize) -> Option<&str> {
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |digits| usize::from_str_radix(digits, 16).ok();
        let is_in = (number(start)?..number(end)?).contains(&address);
        is_in.then(|| rest.split(' ').next().unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// `FIONREAD`: how many bytes of a file are left to read, a number of 32 bits.
    const BYTES_LEFT: u32 = 0x541b;
    /// `FS_IOC_GETVERSION` of `/dev/null`, which has none.
    const NO_COMMAND: u32 = 0x8008_7601;

    #[test]
    fn the_kernel_writes_its_answer_into_the_argument() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[0; 300]).unwrap();
        std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(44)).unwrap();
        let mut arg = [0xff; 4];
        // SAFETY: the kernel writes four bytes to `arg`.
        let answer = unsafe { send(&file, BYTES_LEFT, &mut arg) };
        assert_eq!((answer, u32::from_le_bytes(arg)), (Ok(0), 256));
    }

    #[test]
    fn the_kernels_refusal_is_the_answer() {
        let file = File::open("/dev/null").unwrap();
        // SAFETY: the file has no such command.
        let answer = unsafe { send(&file, NO_COMMAND, &mut [0; 8]) };
        assert_eq!(answer, Err(Errno::ENOTTY));
    }

    #[test]
    fn the_access_of_an_address_is_that_of_the_range_around_it() {
        let maps = "\
            7f0000000000-7f0000001000 rw-s 00100000 00:05 12                 /dev/neuron0\n\
            7f0000001000-7f0000003000 r--s 00200000 00:05 12                 /dev/neuron0\n\
            ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0          [vsyscall]\n";
        let at = |address| access_of(maps, address);
        assert_eq!(at(0x7f00_0000_0fff), Some("rw-s"));
        assert_eq!(at(0x7f00_0000_1000), Some("r--s"));
        assert_eq!(at(0x7f00_0000_2fff), Some("r--s"));
        assert_eq!(at(0x7f00_0000_3000), None);
        assert_eq!(at(usize::MAX), None);
    }
}
