//! Failures: the line with the size, the line with the place, the lines that say what it was for.
//!
//! They come in this order and from one thread, but any of them may be missing.

use super::super::message::{Failure, Place};
use super::super::open::{Open, is_like};
use super::super::report::{Family, Kind, Row, Scope};
use super::super::table::Cell;
use super::Assembler;

/// The usage that only the name of a buffer says.
const WEIGHT: &str = "weight";
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
        (alignment_bytes, hbm): (Option<u64>, Option<u32>),
    ) {
        let (line, thread) = (self.line, self.thread);
        let kind = kind_of(place);
        let fits = |open: &Open| {
            let report = &open.report;
            open.thread == thread
                && report.kind == kind
                && bytes.is_none_or(|bytes| open.may_have_asked(bytes))
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
        let report = &mut open.report;
        report.hbm = report.hbm.or(hbm);
        if report.usage.is_none() && is_weight(&name) {
            report.usage = Some(WEIGHT.into());
        }
        if report.object.is_none() && !name.is_empty() {
            report.object = Some(name);
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
                    (Some(bytes), Cell::Size(asked)) => asked.is_printed(bytes),
                    (None, Cell::TooLarge(_)) => true,
                    // The thread has said the size, and says it again.
                    (Some(_), Cell::Unreadable(_)) => true,
                    _ => false,
                }
        };
        let index = self
            .latest(begun)
            .unwrap_or_else(|| self.push(self.report(Family::B, Kind::DeviceOom)));
        if let (Cell::Unreadable(damaged), Some(bytes)) =
            (&failure.asked, self.open[index].report.asked_bytes)
            && !is_like(damaged, bytes)
        {
            let open = &mut self.open[index];
            open.also(open.report.line);
            open.report.asked_bytes = None;
            open.report.asked_exact = None;
        }
        let is_list = failure.alignment.is_none() || failure.has_list;
        let mut row = Row::new(Scope::Core, line);
        row.device = failure.device;
        row.core = failure.core;
        if let Cell::Size(asked) = &failure.asked {
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

/// Whether a buffer has the name of a weight, as `W145-b`.
fn is_weight(name: &str) -> bool {
    let rest = name.strip_prefix('W');
    rest.and_then(|rest| rest.split_once('-'))
        .is_some_and(|(number, _)| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
}

fn kind_of(place: Place) -> Kind {
    match place {
        Place::Device => Kind::DeviceOom,
        Place::Host => Kind::HostOom,
    }
}
