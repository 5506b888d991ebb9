//! The count of a tensor's complete outputs: whoever executes a model counts, whoever needs the
//! output waits.

use std::sync::atomic::{AtomicU64, Ordering};

use glia_abi::sched::{Micros, Poll, Sched, WaitOn};

use crate::error::RuntimeError;

#[derive(Debug)]
pub(super) struct Outputs {
    count: AtomicU64,
    on: WaitOn,
}

impl Outputs {
    pub(super) fn new(sched: &dyn Sched) -> Self {
        Self {
            count: AtomicU64::new(0),
            on: sched.wait_on(),
        }
    }

    pub(super) fn add(&self, sched: &dyn Sched) {
        self.count.fetch_add(1, Ordering::AcqRel);
        sched.wake(self.on);
    }

    pub(super) fn reset(&self) {
        self.count.store(0, Ordering::Release);
    }

    pub(super) fn wait(
        &self,
        sched: &dyn Sched,
        expected: u64,
        within: Option<Micros>,
    ) -> Result<(), RuntimeError> {
        let count = || self.count.load(Ordering::Acquire);
        let mut complete = || match count() >= expected {
            true => Poll::Done,
            false => Poll::Pending,
        };
        // A wait of no length is a look.
        let is_complete = match within {
            Some(Micros(0)) => complete() == Poll::Done,
            _ => sched.block(self.on, &mut complete, within),
        };
        match is_complete {
            true => Ok(()),
            false => Err(RuntimeError::Incomplete {
                count: count(),
                expected,
            }),
        }
    }
}
