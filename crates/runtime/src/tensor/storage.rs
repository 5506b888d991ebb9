//! The bytes behind tensors, and what is pending on them.
//!
//! A storage belongs to all views of it and goes with the last one. Accesses to it are fenced:
//!
//! | access | waits for pending |
//! | --- | --- |
//! | read | writes |
//! | write, fill | reads and writes |
//!
//! **Locks.** The counts have a plain mutex, held for no call. An access of several storages takes
//! them in the order of their numbers, so two such accesses never wait for each other. Two runtimes of
//! a process count together: an access may be of storages of both.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use glia_abi::addr::access_fits;
use glia_abi::sched::{Poll, WaitOn};
use glia_abi::transport::{Mapping, MappingError};

use crate::dmem::Dmem;
use crate::error::RuntimeError;
use crate::runtime::Session;

/// The number of the next storage, of whatever runtime.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Where bytes are.
pub(super) enum Memory {
    /// Given by the driver, and given back with the storage.
    Allocated(Dmem),
    /// The caller's, in host memory.
    Attached(Arc<dyn Mapping>),
}

/// What tensors are views of.
pub(super) struct Storage {
    pub(super) memory: Memory,
    session: Arc<Session>,
    /// In which order storages are fenced. No other has it, of this runtime or another.
    number: u64,
    pending: Mutex<Pending>,
    on: WaitOn,
}

/// Accesses that have begun and not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Pending {
    reads: u64,
    writes: u64,
}

/// What is done to bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Access {
    Read,
    Write,
}

impl Storage {
    pub(super) fn new(session: &Arc<Session>, memory: Memory) -> Arc<Self> {
        Arc::new(Self {
            memory,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            pending: Mutex::default(),
            on: session.sched().wait_on(),
            session: Arc::clone(session),
        })
    }

    pub(super) fn size_bytes(&self) -> u64 {
        match &self.memory {
            Memory::Allocated(dmem) => dmem.size_bytes(),
            Memory::Attached(buffer) => buffer.size_bytes(),
        }
    }

    pub(super) fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), RuntimeError> {
        match &self.memory {
            Memory::Allocated(dmem) => dmem.read(offset_bytes, into),
            Memory::Attached(buffer) => attached(buffer.read(offset_bytes, into)),
        }
    }

    pub(super) fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), RuntimeError> {
        match &self.memory {
            Memory::Allocated(dmem) => dmem.write(offset_bytes, bytes),
            Memory::Attached(buffer) => attached(buffer.write(offset_bytes, bytes)),
        }
    }

    pub(super) fn fill(
        &self,
        offset_bytes: u64,
        size_bytes: u64,
        value: u8,
    ) -> Result<(), RuntimeError> {
        match &self.memory {
            Memory::Allocated(dmem) => dmem.fill(offset_bytes, size_bytes, value),
            Memory::Attached(buffer) => {
                let buffer = &**buffer;
                attached(crate::dmem::fill_mapping(
                    buffer,
                    offset_bytes,
                    size_bytes,
                    value,
                ))
            }
        }
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an access may begin.
    fn is_free(&self, access: Access) -> bool {
        let Pending { reads, writes } = *self.pending();
        writes == 0 && (access == Access::Read || reads == 0)
    }

    /// Begins an access if it may begin.
    fn begin(&self, access: Access) -> bool {
        let mut pending = self.pending();
        match (access, *pending) {
            (Access::Read, Pending { writes: 0, .. }) => pending.reads += 1,
            (
                Access::Write,
                Pending {
                    reads: 0,
                    writes: 0,
                },
            ) => pending.writes += 1,
            _ => return false,
        }
        true
    }

    fn end(&self, access: Access) {
        let mut pending = self.pending();
        match access {
            Access::Read => pending.reads -= 1,
            Access::Write => pending.writes -= 1,
        }
        drop(pending);
        self.session.sched().wake(self.on);
    }
}

fn attached(outcome: Result<(), MappingError>) -> Result<(), RuntimeError> {
    outcome.map_err(|source| RuntimeError::Attached { source })
}

/// Refuses what leaves a view, even if the sum of offset and size wraps.
pub(super) fn check(
    offset_bytes: u64,
    size_bytes: u64,
    limit_bytes: u64,
) -> Result<(), RuntimeError> {
    match access_fits(offset_bytes, size_bytes, limit_bytes) {
        true => Ok(()),
        false => Err(RuntimeError::OutOfBounds {
            offset_bytes,
            size_bytes,
            limit_bytes,
        }),
    }
}

/// Accesses that are pending on the bytes of tensors until this is dropped.
#[must_use = "an access whose fence is dropped is over"]
pub struct Fence(Vec<(Arc<Storage>, Access)>);

impl Fence {
    /// Begins accesses, each as soon as it may. A storage that is named twice is taken once, for
    /// writing if it is to be written.
    pub(super) fn begin(accesses: impl IntoIterator<Item = (Arc<Storage>, Access)>) -> Self {
        let mut accesses: Vec<_> = accesses.into_iter().collect();
        accesses.sort_by_key(|(storage, access)| (storage.number, std::cmp::Reverse(*access)));
        accesses.dedup_by_key(|(storage, _)| storage.number);
        let mut fence = Self(Vec::with_capacity(accesses.len()));
        for (storage, access) in accesses {
            while !storage.begin(access) {
                let mut free = || match storage.is_free(access) {
                    true => Poll::Done,
                    false => Poll::Pending,
                };
                // Whatever the answer: try again.
                storage.session.sched().block(storage.on, &mut free, None);
            }
            fence.0.push((storage, access));
        }
        fence
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        for (storage, access) in self.0.drain(..).rev() {
            storage.end(access);
        }
    }
}
