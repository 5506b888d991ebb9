//! Descriptors, commands that do not exist, mappings that cannot be, and buffers.

use super::{File, TransportFixture};
use crate::addr::Span;
use crate::conformance::{Must, Violation, hold, mapping};
use crate::errno::Errno;
use crate::handle::Fd;
use crate::ioctl::{self, CompatibleVersion, DeviceBasicInfo, MemAllocV2Mt64};
use crate::transport::OpenMode;

/// A number that no command of the reference has.
const NO_COMMAND: u32 = 0xc008_4eff;
/// A word whose number exists, with another size.
const NO_FORM: u32 = 0x8009_4e6a;

pub(super) fn check(fixture: &TransportFixture<'_>) -> Result<(), Violation> {
    a_device_that_does_not_exist_is_not_there(fixture)?;
    an_open_takes_the_lowest_free_descriptor(fixture)?;
    a_file_lives_as_long_as_one_of_its_descriptors(fixture)?;
    a_descriptor_that_is_not_open_is_refused(fixture)?;
    commands_that_do_not_exist_are_refused(fixture)?;
    an_argument_that_is_too_short_is_a_fault(fixture)?;
    mappings_that_cannot_be_are_refused(fixture)?;
    buffers_are_fresh_and_apart(fixture)?;
    time_never_goes_back(fixture)
}

fn a_device_that_does_not_exist_is_not_there(
    fixture: &TransportFixture<'_>,
) -> Result<(), Violation> {
    for mode in [OpenMode::ReadOnly, OpenMode::WriteOnly, OpenMode::ReadWrite] {
        let opened = fixture.transport.open(fixture.missing, mode);
        hold!(
            opened == Err(Errno::ENOENT),
            "a device that does not exist cannot be opened: ENOENT",
            "{mode:?}: {opened:?}"
        );
    }
    let insight = fixture.transport.insight(fixture.missing);
    hold!(
        insight.is_none(),
        "a device that does not exist holds nothing",
        "{insight:?}"
    );
    Ok(())
}

fn an_open_takes_the_lowest_free_descriptor(
    fixture: &TransportFixture<'_>,
) -> Result<(), Violation> {
    let open = || File::open(fixture, OpenMode::WriteOnly);
    let files = [open()?, open()?, open()?];
    let [first, second, third] = files.map(|file| file.fd);
    hold!(
        first < second && second < third,
        "an open takes the lowest free descriptor",
        "{first}, {second} and {third} one after the other"
    );
    for order in [[0, 1], [1, 0]] {
        for closed in order {
            files[closed].close()?;
        }
        let again = [open()?.fd, open()?.fd];
        hold!(
            again == [first, second],
            "an open takes the lowest free descriptor",
            "{again:?} where {first} and {second} were free"
        );
    }
    for file in files {
        file.close()?;
    }
    Ok(())
}

fn a_file_lives_as_long_as_one_of_its_descriptors(
    fixture: &TransportFixture<'_>,
) -> Result<(), Violation> {
    let file = File::open(fixture, OpenMode::WriteOnly)?;
    let mut info = DeviceBasicInfo::default();
    file.call(ioctl::DEVICE_BASIC_INFO, &mut info, &mut [])?;
    let fd = fixture.transport.dup(file.fd);
    let second = File {
        fd: fd.must("a descriptor that is open can be duplicated")?,
        ..file
    };
    hold!(
        second.fd != file.fd,
        "a duplicate is another descriptor",
        "{} twice",
        file.fd
    );
    file.close()?;
    let mut again = DeviceBasicInfo::default();
    let answer = second.send(ioctl::DEVICE_BASIC_INFO, &mut again, &mut []);
    hold!(
        answer == Ok(0) && again == info,
        "a duplicate lives on when the first descriptor is closed",
        "{answer:?} with {again:?}, not {info:?}"
    );
    second.close()
}

fn a_descriptor_that_is_not_open_is_refused(
    fixture: &TransportFixture<'_>,
) -> Result<(), Violation> {
    const RULE: &str = "a descriptor that is not open is refused: EBADF";
    let transport = fixture.transport;
    let closed = File::open(fixture, OpenMode::ReadWrite)?;
    closed.close()?;
    for fd in [closed.fd, Fd(-1), Fd(i32::MAX)] {
        let word = ioctl::DEVICE_BASIC_INFO;
        let mut arg = [0; size_of::<DeviceBasicInfo>()];
        let answers = [
            ("close", transport.close(fd).err()),
            ("dup", transport.dup(fd).err()),
            ("ioctl", transport.ioctl(fd, word, &mut arg, &mut []).err()),
            ("mmap", transport.mmap(fd, 0, 4096).err()),
        ];
        for (call, answer) in answers {
            hold!(
                answer == Some(Errno::EBADF),
                RULE,
                "{call} of {fd}: {answer:?}"
            );
        }
    }
    Ok(())
}

fn commands_that_do_not_exist_are_refused(fixture: &TransportFixture<'_>) -> Result<(), Violation> {
    const RULE: &str = "a command that does not exist is refused: EINVAL";
    for mode in [OpenMode::ReadWrite, OpenMode::WriteOnly] {
        let file = File::open(fixture, mode)?;
        for word in [NO_COMMAND, NO_FORM, 0, u32::MAX] {
            file.refused(word, [0_u64; 8], Errno::EINVAL, RULE)?;
        }
        file.close()?;
    }
    let free = File::open(fixture, OpenMode::WriteOnly)?;
    free.refused(
        ioctl::MEM_ALLOC_V2MT64,
        MemAllocV2Mt64::default(),
        Errno::EINVAL,
        "a file of free access has no command that needs an attached process: EINVAL",
    )?;
    free.close()
}

fn an_argument_that_is_too_short_is_a_fault(
    fixture: &TransportFixture<'_>,
) -> Result<(), Violation> {
    const RULE: &str = "a command does not reach beyond the argument that it was given: EFAULT";
    let file = File::open(fixture, OpenMode::ReadWrite)?;
    // (command, bytes that it needs).
    let commands = [
        (ioctl::COMPATIBLE_VERSION, size_of::<CompatibleVersion>()),
        (ioctl::DEVICE_BASIC_INFO, size_of::<DeviceBasicInfo>()),
        (ioctl::MEM_GET_INFO, size_of::<ioctl::MemGetInfo>()),
        (ioctl::MEM_ALLOC_V2MT64, size_of::<MemAllocV2Mt64>()),
    ];
    for (word, size) in commands {
        let mut arg = vec![0; size - 4];
        let answer = fixture.transport.ioctl(file.fd, word, &mut arg, &mut []);
        hold!(
            answer == Err(Errno::EFAULT),
            RULE,
            "{word:#010x} with {} of {size} bytes: {answer:?}",
            size - 4
        );
    }
    file.close()
}

fn mappings_that_cannot_be_are_refused(fixture: &TransportFixture<'_>) -> Result<(), Violation> {
    let file = File::open(fixture, OpenMode::ReadWrite)?;
    let map = |offset, size_bytes| fixture.transport.mmap(file.fd, offset, size_bytes).err();
    for (offset, size_bytes) in [(0, 0), (1, 4096), (4095, 4096), (u64::MAX, 4096)] {
        let refused = map(offset, size_bytes);
        hold!(
            refused == Some(Errno::EINVAL),
            "a mapping of no bytes, or at an offset within a page, is refused: EINVAL",
            "{size_bytes} bytes at {offset:#x}: {refused:?}"
        );
    }
    let far = (1 << 62) - 4096;
    for (offset, size_bytes) in [(far, 4096), (far, u64::MAX - 4095)] {
        let refused = map(offset, size_bytes);
        hold!(
            refused.is_some(),
            "what is nowhere cannot be mapped",
            "{size_bytes} bytes at {offset:#x}"
        );
    }
    file.close()
}

fn buffers_are_fresh_and_apart(fixture: &TransportFixture<'_>) -> Result<(), Violation> {
    for size_bytes in [0, u64::MAX, 1 << 62] {
        let refused = fixture.transport.buffer(size_bytes).err();
        hold!(
            refused == Some(Errno::ENOMEM),
            "a buffer that cannot be had is refused: ENOMEM",
            "{size_bytes} bytes: {refused:?}"
        );
    }
    let make = |size_bytes| {
        let buffer = fixture.transport.buffer(size_bytes);
        buffer.must("a buffer of a few pages can be had")
    };
    let buffers = [make(4096)?, make(5 * 4096)?];
    for (buffer, size_bytes) in buffers.iter().zip([4096, 5 * 4096]) {
        mapping::check_buffer(buffer.as_ref(), size_bytes)?;
    }
    let [first, second] = buffers
        .each_ref()
        .map(|buffer| Span::cut(buffer.address(), buffer.size_bytes()));
    hold!(
        !first.overlaps(second),
        "buffers lie apart",
        "{first} and {second}"
    );
    // What one has left behind is not seen in the next.
    drop(buffers);
    mapping::check_buffer(make(5 * 4096)?.as_ref(), 5 * 4096)
}

fn time_never_goes_back(fixture: &TransportFixture<'_>) -> Result<(), Violation> {
    let before = fixture.transport.sched().now();
    let file = File::open(fixture, OpenMode::ReadWrite)?;
    file.close()?;
    let after = fixture.transport.sched().now();
    hold!(
        after >= before,
        "time never goes back",
        "{before:?}, then {after:?}"
    );
    Ok(())
}
