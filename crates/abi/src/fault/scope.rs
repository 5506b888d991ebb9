//! For whom a thread works in the driver.

use std::cell::Cell;
use std::marker::PhantomData;

use crate::handle::{CoreId, DeviceId, Pid};

/// For whom, on what and under which command a thread works in the driver. What is not known is
/// `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Scope {
    /// The device.
    pub device: Option<DeviceId>,
    /// The process.
    pub process: Option<Pid>,
    /// The core.
    pub core: Option<CoreId>,
    /// The command word.
    pub command: Option<u32>,
}

thread_local! {
    static CURRENT: Words = const { [const { Cell::new(NOTHING) }; 4] };
}

/// A scope as it is kept: a word for each of its fields, each written by itself. This happens with every
/// command, and a struct that is copied as a whole waits until its parts are stored.
type Words = [Cell<u64>; 4];

/// The word of what is not known.
const NOTHING: u64 = u64::MAX;

impl Scope {
    /// Nothing is known.
    pub const NOBODY: Self = Self {
        device: None,
        process: None,
        core: None,
        command: None,
    };

    /// This thread's.
    #[must_use]
    pub fn current() -> Self {
        let [device, process, core, command] =
            CURRENT.with(|words| words.each_ref().map(|word| u32::try_from(word.get()).ok()));
        Self {
            device: device.map(DeviceId::new),
            process: process.map(Pid::new),
            core: core.map(CoreId::new),
            command,
        }
    }

    /// Makes it this thread's until the answer is dropped.
    #[inline]
    pub fn enter(self) -> Entered {
        let word = |field: Option<u32>| field.map_or(NOTHING, u64::from);
        let device = word(self.device.map(DeviceId::get));
        let process = word(self.process.map(Pid::get));
        let core = word(self.core.map(CoreId::get));
        let command = word(self.command);
        let outer = CURRENT.with(|words| {
            [
                words[0].replace(device),
                words[1].replace(process),
                words[2].replace(core),
                words[3].replace(command),
            ]
        });
        Entered {
            outer,
            this_thread: PhantomData,
        }
    }
}

/// A scope that a thread is in; dropped, it is back in the one before.
#[must_use = "a scope that is dropped is left"]
#[derive(Debug)]
pub struct Entered {
    outer: [u64; 4],
    /// Another thread has a scope of its own.
    this_thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        CURRENT.with(|words| {
            for (word, outer) in words.iter().zip(self.outer) {
                word.set(outer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_ends_with_its_guard_and_belongs_to_one_thread() {
        let of = |core| Scope {
            core: Some(CoreId::new(core)),
            ..Scope::NOBODY
        };
        let outer = of(1).enter();
        {
            let _inner = of(2).enter();
            assert_eq!(Scope::current(), of(2));
            let elsewhere = std::thread::spawn(Scope::current).join().unwrap();
            assert_eq!(elsewhere, Scope::NOBODY);
        }
        assert_eq!(Scope::current(), of(1));
        drop(outer);
        assert_eq!(Scope::current(), Scope::NOBODY);
    }
}
