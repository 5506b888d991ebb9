//! Replays recorded copies of the reference driver's DMA op layer against Glia's, and names every
//! difference.
//!
//! A trace of the DMA layer is a row of *scenarios*, word for word in `docs/formats/golden-dma.md`.
//! One file goes this way:
//!
//! 1. [`trace`] reads a line into an [operation](op) and what the reference did;
//! 2. a [`session`] calls Glia's op layer, which stands in a [`rig`]: a scripted [`engine`] behind
//!    real registers and rings, [`memory`] that is kept by [description](content), a clock that
//!    moves with the driver's delays alone;
//! 3. what the driver did (registers, descriptors, waits) is [logged](log) in the trace's words;
//! 4. [`judge`] compares it in full: the same, a declared divergence, or a mismatch.
//!
//! Addresses need no translation: the rig hands out host memory where the trace has it.
//!
//! What follows a divergence that leads the two sides apart is *tainted* until the next scenario,
//! or until both have set the ring up afresh that they differ in ([`taint`]).

pub mod blocks;
pub mod books;
mod bring_up;
mod calls;
pub mod content;
mod descriptors;
pub mod engine;
pub mod judge;
pub mod log;
pub mod memory;
pub mod op;
mod retry;
pub mod rig;
pub mod ring_op;
mod rings;
pub mod session;
pub mod table_op;
pub mod taint;
pub mod trace;
pub mod words;

use super::report::{FileError, FileReport, Wanted};
use content::Hasher;
use op::Op;
use session::{Replayed, Session};
use taint::Taint;

/// Replays the text of a trace into a report.
///
/// # Errors
/// [`FileError::Dma`] at the first line that is not as the format has it; the report has what was
/// found before.
pub fn replay_text(text: &str, wanted: Wanted, report: &mut FileReport) -> Result<(), FileError> {
    let mut hasher = Hasher::default();
    let mut session = None;
    let mut taint = Taint::default();
    for record in trace::records(text) {
        let record = record?;
        if let Op::Scenario(scenario) = &record.op {
            report.begin_scenario(scenario.name.0.clone());
            taint = Taint::default();
            session = Some(Session::new(scenario.clone()).map_err(FileError::NoDevice)?);
        }
        let Some(session) = &mut session else {
            // The first line begins a scenario, or the text would not be taken for a DMA trace.
            continue;
        };
        let replayed = session
            .replay(&record, &mut hasher)
            .map_err(|problem| problem.on(record.line))?;
        match replayed {
            Replayed::SetUp => {}
            Replayed::Judged(verdict) => {
                let is_tainted = taint.is_tainted();
                taint.note(&record, &verdict);
                report.add(record.line, record.name, is_tainted, verdict, wanted);
            }
        }
    }
    Ok(())
}
