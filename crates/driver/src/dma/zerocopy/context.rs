//! What the ring's lock guards of zero copies: contexts, what they own, and where completions go.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use glia_abi::addr::{BusAddr, HostPa};
use glia_abi::arch::Arch;
use glia_abi::completion::{Completion, Producer, SIZE_BYTES};
use glia_abi::errno::Errno;
use glia_abi::handle::Pid;
use glia_abi::port::MachineMemory;
use glia_abi::sched::Tick;
use glia_abi::sync::AtomicU32;
use glia_abi::transport::{CapturedMemory, PinFault, PinnedUser, UserFault, UserMemory};
use glia_abi::udma::{Barrier, MARKER_SIZE_BYTES, Transfer};

use super::cut::{Pieces, pieces, runs};
use super::queue::ContextQueue;
use super::{Reply, ZeroCopy, ZeroCopyLimits};
use crate::chunk::ChunkRef;
use crate::dma::context::Account;
use crate::dma::held::Staged;
use crate::dma::marker::PAIR_SIZE_BYTES;
use crate::dma::split::copy_barrier;
use crate::memory::OwnedPin;

/// The zero copies of a ring.
pub(crate) struct ZeroCopies {
    pub(super) queue: ContextQueue<Context, Uncut>,
    /// Two words for each slot of the queue.
    markers: HostPa,
    completions: Completions,
    pinned: Arc<PinnedPages>,
    pinned_pages_max: u64,
    /// Requests so far.
    requests: u64,
    /// The batch that the worker waits for, by the pairs before it, and since when.
    awaited: Option<(u64, Tick)>,
}

/// Where completions go.
struct Completions {
    at: HostPa,
    chunk: ChunkRef,
    producer: Producer,
    /// Requests that have entered and not ended.
    promised: u32,
    /// Whose those are that have been posted and not taken, the oldest first. (As many more at the
    /// front as have been taken since the latest was posted.)
    owners: VecDeque<Pid>,
    /// Who has asked for any, and not gone.
    members: Vec<Pid>,
}

/// One request, as all its contexts know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    /// Different for any two of a ring.
    pub(super) id: u64,
    pub(super) account: Account,
    pub(super) to_device: bool,
}

/// Pages that move together.
pub(super) struct Context {
    pub(super) request: Request,
    /// Where they go, or come from.
    pub(super) at: BusAddr,
    pub(super) size_bytes: u64,
    /// Pages that it pins.
    pub(super) pages: u32,
    pub(super) state: State,
    pub(super) fence: Fence,
    /// Of the last one of a request.
    pub(super) ends: Option<Ends>,
}

/// Whether the end of a context has to be kept behind its writes by a batch of its own: the last one
/// of a write has the barrier, and if that was cancelled, another one ends the request without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fence {
    /// It need not.
    None,
    /// When its bytes have been moved.
    Wanted,
    /// They have, and the engine has the fence.
    Staged,
}

/// What has become of a context. A slot of the queue that holds none is in the state that the
/// reference calls invalid.
pub(super) enum State {
    /// To be pinned: where its bytes lie.
    Unpinned {
        memory: Arc<dyn CapturedMemory>,
        offset_bytes: u64,
    },
    /// To be submitted.
    Pinned(Part),
    /// The engine has been given it; how often it was staged again.
    Submitted(Part, Staged, u32),
    /// There is nothing to move, and it just keeps its place in the order of completions.
    Completed,
}

/// How a request ends.
pub(super) enum Ends {
    /// Its caller stands and waits.
    Awaited,
    /// It is told.
    Told(Box<Told>),
}

/// What is to be told when a request has ended.
pub(super) struct Told {
    pub(super) reply: Reply,
    pub(super) result: Result<(), Errno>,
    /// The chunk that it works on.
    pub(super) _chunk: Option<OwnedPin>,
}

/// An operation whose user memory is ready, or has been found.
pub(super) struct Prepared {
    /// Where it begins in the chunk.
    at: BusAddr,
    pieces: Pieces,
    /// Of the next piece.
    state: State,
}

impl Prepared {
    pub(super) fn is_pinned(&self) -> bool {
        matches!(self.state, State::Pinned(_))
    }
}

/// Contexts that have not been cut out of their request.
pub(super) struct Uncut {
    request: Request,
    /// The first may have begun.
    ops: VecDeque<Prepared>,
    left: usize,
    /// For the last one.
    ends: Option<Ends>,
}

impl Uncut {
    pub(super) fn new(request: Request, ops: VecDeque<Prepared>, ends: Option<Ends>) -> Self {
        let count: u64 = ops.iter().map(|op| op.pieces.count_left()).sum();
        Self {
            request,
            ops,
            left: usize::try_from(count).unwrap_or(usize::MAX),
            ends,
        }
    }
}

impl Iterator for Uncut {
    type Item = Context;

    fn next(&mut self) -> Option<Context> {
        let (at, piece, state) = loop {
            let op = self.ops.front_mut()?;
            if let Some(piece) = op.pieces.next() {
                // The sum was checked.
                let at = BusAddr::new(op.at.get() + piece.offset_bytes);
                break (at, piece, op.state.next_piece(piece.size_bytes));
            }
            self.ops.pop_front();
        };
        self.left -= 1;
        Some(Context {
            request: self.request,
            at,
            size_bytes: piece.size_bytes,
            pages: piece.pages,
            state,
            fence: Fence::None,
            ends: if self.left == 0 {
                self.ends.take()
            } else {
                None
            },
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Uncut {}

/// What the pins of a ring have in common.
struct PinnedPages {
    host: Arc<dyn MachineMemory>,
    /// How many there are: each [`Pin`] counts as long as it is there.
    count: AtomicU64,
}

/// User memory that devices can reach until this is dropped.
pub(super) struct Pin {
    pinned: PinnedUser,
    pages: u64,
    of: Arc<PinnedPages>,
}

/// Where a context begins in a pin that it may share with others.
#[derive(Clone)]
pub(super) struct Part {
    pin: Arc<Pin>,
    span: u32,
    /// From the start of that span.
    skip_bytes: u64,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.of.host.unpin(self.pinned.pin);
        // ORDER: only the holder of the ring's lock asks whether there is room; that a pin goes
        // meanwhile makes some.
        self.of.count.fetch_sub(self.pages, Ordering::Relaxed);
    }
}

impl Part {
    /// So many bytes further on.
    pub(super) fn advance(&mut self, size_bytes: u64) {
        self.skip_bytes += size_bytes;
        while let Some(span) = self.pin.pinned.spans.get(self.span as usize)
            && self.skip_bytes >= span.size_bytes()
        {
            self.skip_bytes -= span.size_bytes();
            self.span += 1;
        }
    }

    fn runs(&self, size_bytes: u64) -> impl Iterator<Item = (HostPa, u64)> + Clone + '_ {
        let spans = self.pin.pinned.spans.get(self.span as usize..);
        runs(spans.unwrap_or_default(), self.skip_bytes, size_bytes)
    }
}

impl Context {
    /// What makes the engine move it, and the barrier of its marker.
    pub(super) fn transfers<'a>(
        &self,
        part: &'a Part,
        arch: Arch,
        to_bus: impl Fn(HostPa) -> BusAddr + Clone + 'a,
    ) -> (impl Iterator<Item = Transfer> + Clone + 'a, Barrier) {
        let is_last_write = self.request.to_device && self.ends.is_some();
        let (of_data, of_marker) = match arch {
            Arch::V2 => (is_last_write, Barrier::None),
            Arch::V3 | Arch::V4 if is_last_write => (false, Barrier::StrongOrder),
            Arch::V3 | Arch::V4 => (false, Barrier::None),
        };
        let (first, to_device, whole_bytes) = (self.at, self.request.to_device, self.size_bytes);
        let mut done_bytes = 0;
        let transfers = part.runs(whole_bytes).map(move |(at, size_bytes)| {
            let user = to_bus(at);
            // The end was checked when the request came.
            let device = BusAddr::new(first.get().wrapping_add(done_bytes));
            done_bytes += size_bytes;
            let (source, target) = if to_device {
                (user, device)
            } else {
                (device, user)
            };
            Transfer {
                source,
                target,
                size_bytes,
                barrier: copy_barrier(of_data && done_bytes == whole_bytes),
            }
        });
        (transfers, of_marker)
    }

    /// The transfer that a fence of this generation needs before its marker, and the marker's
    /// barrier: a word of host memory is copied onto itself.
    pub(super) fn fence(arch: Arch, word: BusAddr) -> (Transfer, Barrier) {
        let (of_data, of_marker) = match arch {
            Arch::V2 => (Barrier::Write, Barrier::None),
            Arch::V3 | Arch::V4 => (Barrier::None, Barrier::StrongOrder),
        };
        let transfer = Transfer {
            source: word,
            target: word,
            size_bytes: MARKER_SIZE_BYTES,
            barrier: of_data,
        };
        (transfer, of_marker)
    }
}

impl ZeroCopies {
    /// None; `None` if the limits, or the words of the completion queue, are not what they can be.
    pub(super) fn new(
        limits: ZeroCopyLimits,
        markers: HostPa,
        (at, chunk): (HostPa, ChunkRef),
        words: &[AtomicU32],
        host: &Arc<dyn MachineMemory>,
    ) -> Option<Self> {
        Some(Self {
            queue: ContextQueue::new(limits.contexts)?,
            markers,
            completions: Completions {
                at,
                chunk,
                producer: Producer::format(words).ok()?,
                promised: 0,
                owners: VecDeque::new(),
                members: Vec::new(),
            },
            pinned: Arc::new(PinnedPages {
                host: Arc::clone(host),
                count: AtomicU64::new(0),
            }),
            pinned_pages_max: limits.pinned_pages,
            requests: 0,
            awaited: None,
        })
    }

    /// Contexts that have not ended.
    pub(crate) fn contexts(&self) -> u32 {
        u32::try_from(self.queue.len()).unwrap_or(u32::MAX)
    }

    /// Pages that they have pinned.
    pub(crate) fn pinned_pages(&self) -> u64 {
        self.pinned.count.load(Ordering::Relaxed)
    }

    /// The chunk of the completion queue.
    pub(super) fn completions(&self) -> ChunkRef {
        self.completions.chunk
    }

    /// What the engine has been given, with whose it is.
    pub(crate) fn submitted(&self) -> impl Iterator<Item = (u32, Pid, Staged)> + '_ {
        self.queue.submitted().filter_map(|(slot, context)| {
            let State::Submitted(_, staged, _) = &context.state else {
                return None;
            };
            Some((slot, context.request.account.by, *staged))
        })
    }

    pub(super) fn next_request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    /// The words of the marker of a slot.
    pub(super) fn marker(&self, slot: u32) -> HostPa {
        // The buffer has room for all slots, so the sum is one of its addresses.
        HostPa::new(self.markers.get() + u64::from(slot) * PAIR_SIZE_BYTES)
    }

    /// Whether so many pages more are within the budget.
    pub(super) fn can_pin(&self, pages: u64) -> bool {
        self.pinned_pages()
            .checked_add(pages)
            .is_some_and(|sum| sum <= self.pinned_pages_max)
    }

    /// Whether the budget is used up.
    pub(super) fn is_spent(&self) -> bool {
        self.pinned_pages() >= self.pinned_pages_max
    }

    /// So many pages that were pinned, from their first byte on; they count as long as this, or a
    /// part of it, is held.
    pub(super) fn hold(&self, pinned: PinnedUser, pages: u64) -> Part {
        self.pinned.count.fetch_add(pages, Ordering::Relaxed);
        Part {
            pin: Arc::new(Pin {
                pinned,
                pages,
                of: Arc::clone(&self.pinned),
            }),
            span: 0,
            skip_bytes: 0,
        }
    }

    /// Since when this batch has been the one that is waited for. One that is staged again is
    /// another batch; what is staged behind it does not put off the end of its wait.
    pub(super) fn awaited_since(&mut self, staged: &Staged, now: Tick) -> Tick {
        match self.awaited {
            Some((first, since)) if first == staged.first => since,
            _ => {
                self.awaited = Some((staged.first, now));
                now
            }
        }
    }

    /// The oldest submitted context: its slot, and if the engine has it, how it was staged and how
    /// often again.
    pub(super) fn oldest_submitted(&mut self) -> Option<(u32, Option<(Staged, u32)>)> {
        let (slot, context) = self.queue.oldest_submitted()?;
        Some(match &context.state {
            State::Submitted(_, staged, retries) => (slot, Some((*staged, *retries))),
            State::Unpinned { .. } | State::Pinned(_) | State::Completed => (slot, None),
        })
    }

    /// The latest of the submitted contexts of which this is true.
    pub(super) fn last_submitted(
        &mut self,
        is_meant: impl Fn(&Context) -> bool,
    ) -> Option<&mut Context> {
        let mut latest = self.queue.submitted().rev();
        let (slot, _) = latest.find(|(_, context)| is_meant(context))?;
        drop(latest);
        self.queue.get_mut(slot)
    }

    /// The request of the context that is to be staged, or else pinned, next.
    pub(super) fn next_in_line(&mut self) -> Option<u64> {
        let next = match self.queue.next_pinned() {
            Some((_, context)) => Some(context.request.id),
            None => None,
        };
        next.or_else(|| Some(self.queue.next_unpinned()?.1.request.id))
    }

    /// Makes the user memory of a request ready: pinned, as long as the budget allows.
    pub(super) fn prepare(
        &self,
        memory: &dyn UserMemory,
        copy: &ZeroCopy<'_>,
    ) -> Result<VecDeque<Prepared>, PinFault> {
        let mut prepared = VecDeque::with_capacity(copy.ops.len());
        let mut pins = self.queue.has_no_unpinned();
        for op in copy.ops.iter().filter(|op| op.size_bytes > 0) {
            let (at, size_bytes) = (op.buffer, op.size_bytes);
            let fault = UserFault { at, size_bytes };
            let memory = memory.capture(at, size_bytes).ok_or(fault)?;
            let pieces = pieces(at, size_bytes);
            let pages = pieces.pages();
            // Once one is not, no later one is.
            pins &= self.can_pin(pages);
            let state = if pins {
                let pinned = memory.pin(0, size_bytes, !copy.to_device)?;
                State::Pinned(self.hold(pinned, pages))
            } else {
                let offset_bytes = 0;
                State::Unpinned {
                    memory,
                    offset_bytes,
                }
            };
            prepared.push_back(Prepared {
                at: copy.at(op),
                pieces,
                state,
            });
        }
        Ok(prepared)
    }

    /// Promises a process room for one more completion; false if there is none.
    pub(super) fn promise(&mut self, by: Pid, host: &dyn MachineMemory) -> bool {
        let completions = &mut self.completions;
        let room = host
            .words(completions.at, SIZE_BYTES)
            .map_or(0, |words| completions.producer.room(words));
        let is_there = completions.promised < room;
        completions.promised += u32::from(is_there);
        if is_there && !completions.members.contains(&by) {
            completions.members.push(by);
        }
        is_there
    }

    /// Takes a promise back: the request did not enter.
    pub(super) fn break_promise(&mut self) {
        self.completions.promised = self.completions.promised.saturating_sub(1);
    }

    /// Posts what was promised to a process; says what it was.
    pub(super) fn post(
        &mut self,
        host: &dyn MachineMemory,
        (by, reply): (Pid, Reply),
        result: Result<(), Errno>,
    ) -> Completion {
        let entry = Completion {
            sequence: reply.sequence,
            result: result.map_or_else(|errno| i64::from(errno.ret()), |()| 0),
            context: reply.context,
        };
        let completions = &mut self.completions;
        completions.promised = completions.promised.saturating_sub(1);
        if let Ok(words) = host.words(completions.at, SIZE_BYTES) {
            // There is the room that was promised, unless a process has moved the head back: those who
            // share the queue lose a completion then.
            if completions.producer.post(words, &entry).is_ok() {
                completions.owners.push_back(by);
                completions.forget_taken(words);
            }
        }
        entry
    }

    /// A process goes, and with it what nobody else may take for its own: what has been posted to it
    /// and not taken. Not if others share the queue: they count on where they stand in it.
    pub(super) fn leave(&mut self, by: Pid, host: &dyn MachineMemory) {
        let completions = &mut self.completions;
        let Ok(words) = host.words(completions.at, SIZE_BYTES) else {
            return;
        };
        completions.forget_taken(words);
        completions.members.retain(|&member| member != by);
        let is_last = completions.members.is_empty();
        if is_last && completions.owners.iter().all(|&owner| owner == by) {
            completions.producer.take_back(words);
            completions.owners.clear();
        }
    }
}

impl Completions {
    fn forget_taken(&mut self, words: &[AtomicU32]) {
        let unread = self.producer.unread(words) as usize;
        let taken = self.owners.len().saturating_sub(unread);
        self.owners.drain(..taken);
    }
}

impl State {
    /// That of a context which has been handed to the engine like this, for the first time or again.
    pub(super) fn submitted(self, staged: Staged) -> Self {
        match self {
            Self::Pinned(part) => Self::Submitted(part, staged, 0),
            Self::Submitted(part, _, retries) => Self::Submitted(part, staged, retries + 1),
            Self::Unpinned { .. } | Self::Completed => self,
        }
    }

    /// That of a context for so many bytes; goes on to what follows them.
    pub(super) fn next_piece(&mut self, size_bytes: u64) -> Self {
        match self {
            Self::Unpinned {
                memory,
                offset_bytes,
            } => {
                let piece = Self::Unpinned {
                    memory: Arc::clone(memory),
                    offset_bytes: *offset_bytes,
                };
                *offset_bytes += size_bytes;
                piece
            }
            Self::Pinned(part) => {
                let piece = Self::Pinned(part.clone());
                part.advance(size_bytes);
                piece
            }
            Self::Submitted(..) | Self::Completed => Self::Completed,
        }
    }
}
