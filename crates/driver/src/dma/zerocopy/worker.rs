//! The completion side: a worker that finishes the asynchronous zero copies of a device.
//!
//! A bit for each ring says that it has something to do (driver 2.28: (engine - the first copy
//! engine) * 16 + queue). Whoever enters a request sets it, under the ring's lock, and kicks; the
//! worker clears it, under the ring's lock, when nothing is left. In between it is kicked by the
//! ring's queue whenever that has got on, and looks by itself when the time of a wait is over.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use glia_abi::handle::{QUEUES_PER_ENGINE, QueueId};
use glia_abi::sched::{Micros, Step, Tick, Worker};

use super::ring::Rest;
use crate::dma::Dma;

/// When the worker comes again to a ring that somebody has, if it has other rings to wait for.
const COME_AGAIN: Micros = Micros(20);

/// The worker of a device.
pub(crate) struct Completer {
    dma: Weak<Dma>,
    /// A bit for each ring that has something to do.
    flagged: AtomicU64,
}

impl Completer {
    pub(super) fn new(dma: Weak<Dma>) -> Self {
        Self {
            dma,
            flagged: AtomicU64::new(0),
        }
    }

    /// A ring, which the caller holds, has something to do.
    pub(super) fn flag(&self, queue: QueueId) {
        self.flagged.fetch_or(bit(queue), Ordering::Release);
    }
}

impl Worker for Completer {
    fn step(&self, now: Tick) -> Step {
        let Some(dma) = self.dma.upgrade() else {
            return Step::Idle;
        };
        let (mut until, mut taken) = (None, None);
        for lane in &dma.lanes {
            let bit = bit(lane.queue());
            if self.flagged.load(Ordering::Acquire) & bit == 0 {
                continue;
            }
            let rest = match lane.poll_hold(&dma.links) {
                Err(on) => {
                    taken = Some(on);
                    continue;
                }
                Ok(None) => Rest::Idle,
                Ok(Some(mut ring)) => {
                    let rest = ring.tend(now);
                    if rest == Rest::Idle {
                        dma.links.port.attend(lane.queue(), None);
                        self.flagged.fetch_and(!bit, Ordering::Relaxed);
                    }
                    rest
                }
            };
            if let Rest::Until(end) = rest {
                until = Some(until.map_or(end, |other: Tick| other.min(end)));
            }
        }
        match (until, taken) {
            (None, None) => Step::Idle,
            (Some(end), None) => Step::At(end),
            (None, Some(on)) => Step::On(on),
            // A rest for a key is not ended by kicks, which the other rings need.
            (Some(end), Some(_)) => Step::At(end.min(now.after(COME_AGAIN))),
        }
    }
}

/// The bit of a ring.
fn bit(queue: QueueId) -> u64 {
    // Copy engines have numbers that are multiples of 16 at their begin: 32 on V2, 128 since V3.
    let engine = u64::from(queue.engine.get() % 4);
    1 << (engine * u64::from(QUEUES_PER_ENGINE) + u64::from(queue.number))
}
