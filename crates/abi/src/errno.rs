//! The error numbers that a caller of the driver sees.

use std::fmt;

/// A Linux error number, of those that the driver answers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Errno {
    /// 1: what the reference answers for an error of its lowest layers (`-1`).
    EPERM = 1,
    /// 2: no such handle, or the handle table is down.
    ENOENT = 2,
    /// 4: a wait was ended by a signal.
    EINTR = 4,
    /// 5: the device did not answer as it has to.
    EIO = 5,
    /// 6: no such queue of that core.
    ENXIO = 6,
    /// 7: more entries than a request can have.
    E2BIG = 7,
    /// 9: no such file descriptor.
    EBADF = 9,
    /// 11: the answer does not fit; ask again with more room.
    EAGAIN = 11,
    /// 12: no memory, of whichever kind was asked.
    ENOMEM = 12,
    /// 13: the caller is not attached to the device, or a structure cannot be read (three commands
    /// of driver 2.27 answer so).
    EACCES = 13,
    /// 14: an address that the caller may not use so.
    EFAULT = 14,
    /// 16: all attach slots are taken.
    EBUSY = 16,
    /// 19: the device is gone, or never was.
    ENODEV = 19,
    /// 22: an argument that is out of range, or a command that does not exist.
    EINVAL = 22,
    /// 24: no file descriptor is left.
    EMFILE = 24,
    /// 25: a command that the driver once had.
    ENOTTY = 25,
    /// 27: a range that leaves a ring.
    EFBIG = 27,
    /// 74: a line of text that does not end.
    EBADMSG = 74,
    /// 110: a DMA did not complete in time.
    ETIMEDOUT = 110,
    /// 114: the queue has a ring already.
    EALREADY = 114,
    /// 524: an operation of a known command that is not supported.
    ENOTSUPP = 524,
}

impl Errno {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::EPERM,
        Self::ENOENT,
        Self::EINTR,
        Self::EIO,
        Self::ENXIO,
        Self::E2BIG,
        Self::EBADF,
        Self::EAGAIN,
        Self::ENOMEM,
        Self::EACCES,
        Self::EFAULT,
        Self::EBUSY,
        Self::ENODEV,
        Self::EINVAL,
        Self::EMFILE,
        Self::ENOTTY,
        Self::EFBIG,
        Self::EBADMSG,
        Self::ETIMEDOUT,
        Self::EALREADY,
        Self::ENOTSUPP,
    ];

    /// The number as a system call returns it: negative.
    #[must_use]
    pub const fn ret(self) -> i32 {
        -(self as i32)
    }

    /// The positive number.
    #[must_use]
    pub const fn number(self) -> i32 {
        self as i32
    }
}

impl std::error::Error for Errno {}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_value_is_the_negative_number() {
        assert_eq!(Errno::EINVAL.ret(), -22);
        assert_eq!(Errno::ENOMEM.to_string(), "ENOMEM");
    }
}
