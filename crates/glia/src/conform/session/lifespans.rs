//! Operations on processes and lifespans, and the end of the device.

use glia_abi::divergence::Divergence;
use glia_abi::handle::Pid;
use glia_abi::mem::Lifespan;
use glia_driver::chunk::ChunkRef;
use glia_driver::memory::DeviceMemory;

use super::Session;
use crate::conform::answer::Answer;
use crate::conform::outcome;
use crate::conform::trace::Stop;
use crate::conform::value::{Fields, Value};

impl Session {
    pub(super) fn open(&mut self, memory: &DeviceMemory, pid: Pid) -> Answer {
        self.current = pid;
        Answer::outcome(match memory.open(pid) {
            Ok(opened) => Fields::new()
                .with("ok", true)
                .with("slot", opened.slot.get())
                .with("open", opened.open_count),
            Err(_) => Fields::new().with("ok", false),
        })
    }

    /// What the character device does with the pool when a file is closed.
    pub(super) fn close(&mut self, memory: &DeviceMemory, pid: Pid) -> Answer {
        self.current = pid;
        let flushed = memory.flush(pid);
        let mut outcome = Fields::new().with("attached", flushed.attached);
        let mut complaint = None;
        if let Some(sweep) = flushed.sweep {
            self.bury(&sweep.freed);
            outcome.push("process", outcome::sweep(&sweep, &self.books));
            complaint = sweep.complaint;
        }
        outcome.push(
            "open_left",
            flushed.open_left.map_or(Value::from(-1), Value::from),
        );
        if let Some(sweep) = memory.release(pid) {
            self.bury(&sweep.freed);
            outcome.push("all", outcome::sweep(&sweep, &self.books));
            complaint = sweep.complaint.or(complaint);
        }
        Answer::outcome(outcome::with_complaint(outcome, complaint))
    }

    pub(super) fn expire(&mut self, memory: &DeviceMemory, lifespan: Lifespan) -> Answer {
        match memory.expire(self.current, lifespan) {
            Ok(sweep) => {
                self.bury(&sweep.freed);
                let outcome = outcome::sweep(&sweep, &self.books);
                Answer::outcome(outcome::with_complaint(outcome, sweep.complaint))
            }
            Err(error) => unattached(error),
        }
    }

    pub(super) fn teardown(&mut self, memory: &DeviceMemory) -> Answer {
        let end = memory.teardown(self.current);
        self.bury(&end.freed);
        let ids = |chunks: &[ChunkRef]| {
            Value::from_iter(chunks.iter().map(|&chunk| self.books.id_of(chunk)))
        };
        let outcome = Fields::new()
            .with("freed", ids(&end.freed))
            .with("forced", ids(&end.forced))
            .with("host_left", self.host.used_bytes());
        let outcome = outcome::with_complaint(outcome, end.complaint);
        if end.leaked.is_empty() {
            return Answer::outcome(outcome);
        }
        let error = format!("leaked at teardown: {}", ids(&end.leaked));
        let facts = outcome.with("remaining", end.leaked.len() as u64);
        self.bury(&end.leaked);
        Answer::instead_of_stop(
            error,
            Divergence::TeardownLeak,
            &[Stop::ChunksRemaining],
            facts,
        )
    }

    fn bury(&mut self, chunks: &[ChunkRef]) {
        for &chunk in chunks {
            self.books.died(chunk);
        }
    }
}

/// What Glia says to a process that has no list of its own.
pub(super) fn unattached(error: impl ToString) -> Answer {
    let facts = Fields::new().with("freed", Value::List(Vec::new()));
    Answer::instead_of_stop(
        error,
        Divergence::UnattachedProcess,
        &[Stop::ProcessNotAttached],
        facts,
    )
}
