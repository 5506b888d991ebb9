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

/// When the worker comes again to a ring that somebody has. It does not rest for the ring's lock: a
/// rest for a key is not ended by kicks, which other rings need.
const COME_AGAIN: Micros = Micros(100);

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
        let mut until: Option<Tick> = None;
        for lane in &dma.lanes {
            let bit = bit(lane.queue());
            if self.flagged.load(Ordering::Acquire) & bit == 0 {
                continue;
            }
            let rest = match lane.poll_hold(&dma.links) {
                Err(_) => Rest::Until(now.after(COME_AGAIN)),
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
                until = Some(until.map_or(end, |other| other.min(end)));
            }
        }
        until.map_or(Step::Idle, Step::At)
    }
}

/// The bit of a ring.
fn bit(queue: QueueId) -> u64 {
    // Copy engines have numbers that are multiples of 16 at their begin: 32 on V2, 128 since V3.
    let engine = u64::from(queue.engine.get() % 4);
    1 << (engine * u64::from(QUEUES_PER_ENGINE) + u64::from(queue.number))
}
