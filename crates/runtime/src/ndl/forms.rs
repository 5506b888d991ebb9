//! Forms: newer and older words of one command, and which of them the driver has.
//!
//! A command has grown over the driver's releases; each newer form has a word of its own. A driver
//! that says so ([`feature`]) has the newest of allocations, copies and fills. Others are asked with
//! the newest form first and with older ones as long as they answer that they know no such command
//! (`EINVAL`, of some kernels `ENOTTY`); the form that they know is remembered. `EINVAL` of the
//! oldest form is an answer, and the next call starts at the newest again.
//!
//! | command | newest to oldest | what an older one lacks |
//! | --- | --- | --- |
//! | allocate | `MEM_ALLOC_V2MT64`, `_V2MT`, `_V2`, `MEM_ALLOC` | the category (`_V2`), the alignment (`MEM_ALLOC`) |
//! | copy | `MEM_COPY64`, `MEM_COPY` | sizes and offsets of 4 GiB and more |
//! | copy without waiting | `MEM_COPY_ASYNC64`, `MEM_COPY_ASYNC`; without the feature a copy that is waited for | the same |
//! | fill | `MEMSET64`, `MEMSET` | sizes of 4 GiB and more |
//! | copy from and to user memory | `MEM_BUF_COPY64`, `MEM_BUF_COPY` | sizes and offsets of 4 GiB and more |
//!
//! What a form lacks is never cut off: an allocation that needs it is not asked for in that form,
//! and a number that does not fit is [`NdlError::Narrow`].

use std::sync::atomic::{AtomicU8, Ordering};

use glia_abi::errno::Errno;
use glia_abi::ioctl::feature;

use super::{Device, NdlError};

/// A form of a command: 0 is the newest.
pub(super) type Form = u8;

/// The newest form.
pub(super) const NEWEST: Form = 0;

/// The form of a command that the driver has, if that is known.
pub(super) struct Known(AtomicU8);

impl Known {
    const NONE: Form = Form::MAX;

    fn new(is_newest: bool) -> Self {
        let form = if is_newest { NEWEST } else { Self::NONE };
        Self(AtomicU8::new(form))
    }

    fn get(&self) -> Option<Form> {
        let form = self.0.load(Ordering::Relaxed);
        (form != Self::NONE).then_some(form)
    }

    fn set(&self, form: Form) {
        self.0.store(form, Ordering::Relaxed);
    }
}

/// What is known of the forms of each command.
pub(super) struct Forms {
    pub(super) allocate: Known,
    pub(super) copy: Known,
    pub(super) copy_async: Known,
    pub(super) fill: Known,
    pub(super) buf_copy: Known,
}

impl Forms {
    /// What a driver of these features is known to have.
    pub(super) fn of(features: u64) -> Self {
        let has = |wanted| features & wanted == wanted;
        let wide = has(feature::MEM_ALLOC64);
        Self {
            allocate: Known::new(wide && has(feature::MEM_ALLOC_TYPE)),
            copy: Known::new(wide),
            copy_async: Known::new(wide),
            fill: Known::new(wide),
            buf_copy: Known::new(wide),
        }
    }
}

impl Device {
    /// Makes a call in the newest form that the driver has, at the oldest in `oldest`. If it has
    /// none of them, the answer is that of the newest.
    pub(super) fn newest<T>(
        &self,
        known: &Known,
        oldest: Form,
        mut call: impl FnMut(Form) -> Result<T, NdlError>,
    ) -> Result<T, NdlError> {
        if let Some(form) = known.get() {
            // A form that can do what is asked for, even if the driver will say that it has none.
            return call(form.min(oldest));
        }
        let mut first = None;
        for form in NEWEST..=oldest {
            let answer = call(form);
            match &answer {
                Err(error) if is_unknown(error.errno()) => {
                    first.get_or_insert(answer);
                    continue;
                }
                // It was not asked.
                Err(error) if error.errno().is_none() => {}
                _ => known.set(form),
            }
            return answer;
        }
        // There is one, since there is at least one form.
        first.unwrap_or_else(|| call(NEWEST))
    }

    /// A number for a field of 32 bits of a command.
    pub(super) fn narrow(&self, word: u32, value: u64) -> Result<u32, NdlError> {
        u32::try_from(value).map_err(|_| NdlError::Narrow {
            device: self.id,
            call: super::name(word),
            value,
        })
    }
}

/// Whether the driver may have meant that there is no such command.
pub(super) fn is_unknown(errno: Option<Errno>) -> bool {
    matches!(errno, Some(Errno::EINVAL | Errno::ENOTTY))
}
