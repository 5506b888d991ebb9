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
    static CURRENT: Cell<Scope> = const { Cell::new(Scope::NOBODY) };
}

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
        CURRENT.get()
    }

    /// Makes it this thread's until the answer is dropped.
    pub fn enter(self) -> Entered {
        Entered {
            outer: CURRENT.replace(self),
            this_thread: PhantomData,
        }
    }
}

/// A scope that a thread is in; dropped, it is back in the one before.
#[must_use = "a scope that is dropped is left"]
#[derive(Debug)]
pub struct Entered {
    outer: Scope,
    /// Another thread has a scope of its own.
    this_thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.outer);
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
