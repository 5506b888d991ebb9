//! Failures: the line with the size, the line with the place, the lines that say what it was for.
//!
//! They come in this order and from one thread, but any of them may be missing.

use super::super::message::{Failure, Place};
use super::super::open::Open;
use super::super::report::{Family, Kind};
use super::Assembler;
use super::messages::core_row;

/// Of a number that is a size.
pub(super) const SIZE_TOO_LARGE: &str = "the size asked for is more than 2^64 bytes";

impl Assembler<'_> {
    /// An allocation failed, and this is its size; more may follow, or not.
    pub(super) fn exact(&mut self, place: Place, bytes: Option<u64>) {
        let (line, thread) = (self.line, self.thread);
        let kind = kind_of(place);
        let same = |open: &Open| {
            open.thread == thread
                && !open.has_failure
                && open.report.family == Family::A
                && open.report.kind == kind
                && open.report.asked_bytes == bytes
        };
        if let Some(index) = self.latest(same) {
            self.open[index].also(line);
            self.open[index].touched = line;
            return;
        }
        let mut report = self.report(Family::A, kind);
        if let Some(bytes) = bytes {
            report.set_asked_bytes(bytes);
        }
        let index = self.push(report);
        if bytes.is_none() {
            self.open[index].unread(line, SIZE_TOO_LARGE.to_owned());
        }
    }

    /// What the memory was for.
    pub(super) fn object(
        &mut self,
        place: Place,
        bytes: Option<u64>,
        name: String,
        alignment_bytes: Option<u64>,
    ) {
        let (line, thread) = (self.line, self.thread);
        let kind = kind_of(place);
        let fits = |open: &Open| {
            let report = &open.report;
            open.thread == thread
                && report.kind == kind
                && bytes.is_none_or(|bytes| report.may_have_asked(bytes))
        };
        let index = self.latest(fits).or_else(|| {
            bytes.map(|bytes| {
                let mut report = self.report(Family::A, kind);
                report.set_asked_bytes(bytes);
                self.push(report)
            })
        });
        let Some(open) = index.map(|index| &mut self.open[index]) else {
            return;
        };
        if let Some(bytes) = bytes {
            open.report.set_asked_bytes(bytes);
        }
        if open.report.object.is_none() && !name.is_empty() {
            open.report.object = Some(name);
        }
        if let (None, Some(bytes)) = (&open.report.alignment, alignment_bytes) {
            open.report.alignment = Some(bytes.to_string());
            open.report.alignment_bytes = Some(bytes);
        }
        open.touched = line;
    }

    /// The line that names size, usage and place.
    pub(super) fn failure(&mut self, failure: Failure) {
        let (line, thread) = (self.line, self.thread);
        let begun = |open: &Open| {
            open.thread == thread
                && !open.has_failure
                && open.report.family == Family::A
                && open.report.kind == Kind::DeviceOom
                && open.report.rows.is_empty()
                && match (open.report.asked_bytes, &failure.asked) {
                    (Some(bytes), Ok(asked)) => asked.is_printed(bytes),
                    (None, Err(_)) => true,
                    _ => false,
                }
        };
        let index = self
            .latest(begun)
            .unwrap_or_else(|| self.push(self.report(Family::B, Kind::DeviceOom)));
        let is_list = failure.alignment.is_none();
        let row = core_row(failure.device, failure.core, line);
        if let Ok(asked) = &failure.asked {
            self.remember(thread, &asked.text);
        }
        let stash = self.stashes.of(thread);
        let lnc = stash.lnc.take();
        let event_file = stash.event_file.take();
        let status = stash.status.take();
        let open = &mut self.open[index];
        open.fail(failure, line);
        if let Some((size, cores)) = lnc {
            open.report.lnc_size = Some(size);
            open.report.hbm_cores = cores;
        }
        open.report.event_file = open.report.event_file.take().or(event_file);
        open.report.status = open.report.status.take().or(status);
        // The report has another line now.
        self.is_settled = false;
        if is_list {
            self.begin_list(index, row, true);
        }
    }
}

fn kind_of(place: Place) -> Kind {
    match place {
        Place::Device => Kind::DeviceOom,
        Place::Host => Kind::HostOom,
    }
}
