//! Replays recorded answers of the reference driver's memory pool against Glia's, and names every
//! difference.
//!
//! A *golden trace* is a list of operations with what the reference answered, word for word in
//! `docs/formats/golden-mempool.md`. (Those of its copies are another kind, which a file's first
//! line tells: see [`dma`].) One file goes this way:
//!
//! 1. [`source`] reads it, packed or plain; [`trace`] checks its first line and reads one record
//!    after the other into an [operation](op) and what is [expected](trace::Expected) of it;
//! 2. a [`session`] performs the operation on Glia's driver, in the [host] and with the
//!    [failures](script) that the trace scripts, and gives an [answer] in the trace's words;
//! 3. [`judge`](mod@judge) compares the two in full: the same, a declared divergence, or a
//!    mismatch;
//! 4. a [`report`] counts and keeps what was found.
//!
//! A declared divergence can lead Glia and the reference apart. What follows until the next `init`
//! is *tainted*: replayed, compared and counted, but no mismatch.
//!
//! What this does not do: decide what the reference does. All of that is in the traces, so a
//! mismatch is either a fault of Glia's driver or a lack of this replay, never a matter of taste.

pub mod answer;
pub mod arguments;
pub mod books;
pub mod compare;
pub mod dma;
pub mod host;
pub mod judge;
pub mod line;
pub mod op;
mod outcome;
pub mod report;
pub mod script;
pub mod session;
pub mod source;
pub mod trace;
pub mod value;

use std::path::Path;

use judge::judge;
use op::Op;
use report::{FileError, FileReport, Wanted};
use session::Session;
use trace::Trace;

/// Replays a file. What is wrong with the file itself is in the report, too, beside what was found
/// before that.
#[must_use]
pub fn replay_file(path: &Path, wanted: Wanted) -> FileReport {
    let mut report = FileReport::new(path.display().to_string());
    let result = source::read_text(path)
        .map_err(FileError::from)
        .and_then(|text| replay_text(&text, wanted, &mut report));
    report.error = result.err();
    report
}

/// Replays the text of a trace into a report; its first line says of which kind it is.
///
/// # Errors
/// [`FileError`] at the first line that is not as the format has it; the report has what was found
/// before.
pub fn replay_text(text: &str, wanted: Wanted, report: &mut FileReport) -> Result<(), FileError> {
    if dma::trace::is_dma(text) {
        return dma::replay_text(text, wanted, report);
    }
    let trace = Trace::parse(text)?;
    let mut session = Session::new();
    let mut is_tainted = false;
    for record in trace.records() {
        let record = record?;
        let op = record.op.name();
        let answer = session
            .perform(&record.op)
            .map_err(|problem| problem.on(record.line))?;
        is_tainted &= !matches!(record.op, Op::Init(_));
        let verdict = judge(op, &record.expected, &answer);
        let taints = verdict.taints;
        report.add(record.line, op, is_tainted, verdict, wanted);
        is_tainted |= taints;
    }
    Ok(())
}
