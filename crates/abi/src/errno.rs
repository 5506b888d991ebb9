//! The error numbers that a caller of the driver sees.

use std::fmt;

/// A Linux error number, of those that the driver answers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Errno {
    /// 2: no such handle, or the handle table is down.
    ENOENT = 2,
    /// 12: no memory, of whichever kind was asked.
    ENOMEM = 12,
    /// 13: the caller is not attached to the device.
    EACCES = 13,
    /// 16: all attach slots are taken.
    EBUSY = 16,
    /// 19: the device is gone.
    ENODEV = 19,
    /// 22: an argument that is out of range.
    EINVAL = 22,
}

impl Errno {
    /// The number as a system call returns it: negative.
    #[must_use]
    pub const fn ret(self) -> i32 {
        -(self as i32)
    }
}

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
