//! What each message does: it begins a report, a list or a table, or adds to what is open.

use super::super::message::{Message, Sign};
use super::super::open::Open;
use super::super::report::{Family, Kind, Report, Row, Scope};
use super::super::size::Size;
use super::Assembler;
use super::failure::SIZE_TOO_LARGE;

impl Assembler<'_> {
    pub(super) fn message(&mut self, message: Message) {
        let line = self.line;
        let thread = self.thread;
        match message {
            Message::Exact { place, bytes } => self.exact(place, bytes),
            Message::Object {
                place,
                bytes,
                name,
                alignment_bytes,
                hbm,
            } => self.object(place, bytes, name, (alignment_bytes, hbm)),
            Message::Failure(failure) => self.failure(failure),
            Message::ListHead { device, core } => {
                let mut report = self.report(Family::B, Kind::Usage);
                report.device = Some(device);
                report.core = Some(core);
                let open = self.push(report);
                self.begin_list(open, core_row(device, core, line), true);
            }
            Message::HbmListHead => {
                let mut row = Row::new(Scope::Hbm, line);
                let fits = |open: &Open| {
                    open.thread == thread && open.has_failure && open.report.rows.is_empty()
                };
                let index = self.latest(fits).unwrap_or_else(|| {
                    let report = self.report(Family::B, Kind::Usage);
                    let index = self.push(report);
                    self.open[index].is_anonymous = true;
                    index
                });
                row.device = self.open[index].report.device;
                self.begin_list(index, row, true);
            }
            Message::TableHead => self.table_head(),
            Message::InfoHead {
                device,
                core,
                total,
            } => {
                let mut report = self.report(Family::D, Kind::Usage);
                report.device = Some(device);
                report.core = Some(core);
                let index = self.push(report);
                let mut row = core_row(device, core, line);
                match total {
                    Ok(total) => row.total = Some(total),
                    Err(total) => self.open[index].unread(line, format!("total: {total}")),
                }
                self.begin_list(index, row, false);
            }
            Message::NeffHead(name) => {
                let fits = |open: &Open| open.thread == thread && open.report.family == Family::D;
                let index = self
                    .latest(fits)
                    .unwrap_or_else(|| self.push(self.report(Family::D, Kind::Usage)));
                let report = &self.open[index].report;
                let mut row = Row::new(Scope::Neff, line);
                row.device = report.device;
                row.core = report.core;
                row.name = Some(name);
                self.begin_list(index, row, true);
            }
            Message::NamesHead => {
                // The documentation has these words above the table as well.
                let has_table =
                    |open: &Open| open.table.as_ref().is_some_and(|table| table.has_rows());
                let lacks = |open: &Open| has_table(open) && !open.takes_names;
                let of_thread = |open: &Open| open.thread == thread && lacks(open);
                let index = self.latest(of_thread).or_else(|| self.latest(lacks));
                let index = index.or_else(|| self.latest(has_table));
                if let Some(index) = index {
                    self.open.begin_names(index);
                    self.open[index].touched = line;
                }
            }
            Message::Lnc { size, cores } => self.stashes.of(thread).lnc = Some((size, cores)),
            Message::EventFile(path) => self.stashes.of(thread).event_file = Some(path),
            Message::Kernel {
                device,
                hbm,
                needed_bytes,
                occupied_bytes,
            } => {
                // The kernel's lines are of no thread.
                let mut report = Report::new(self.file, line, Family::A, Kind::DeviceOom);
                if let Some(bytes) = needed_bytes {
                    report.set_asked_bytes(bytes);
                }
                report.device = device;
                report.hbm = hbm;
                if let Some(bytes) = occupied_bytes {
                    let mut row = Row::new(Scope::Hbm, line);
                    row.device = device;
                    row.hbm = hbm;
                    row.total = bytes.map(Size::exact);
                    report.rows.push(row);
                }
                let index = self.push(report);
                if needed_bytes.is_none() {
                    self.open[index].unread(line, SIZE_TOO_LARGE.to_owned());
                }
                if occupied_bytes == Some(None) {
                    let what = "the occupied bytes are more than 2^64";
                    self.open[index].unread(line, what.to_owned());
                }
            }
            Message::Sign(sign) => self.sign(sign),
            Message::Broken => self.unread("a failure line that is damaged behind its size"),
        }
    }

    pub(super) fn sign(&mut self, sign: Sign) {
        let status = match &sign {
            Sign::Failure(text) | Sign::Status(text) => Some(text.clone()),
            _ => None,
        };
        if let Some(status) = status {
            let thread = self.thread;
            let fits = |open: &Open| open.thread == thread && open.report.is_oom();
            if let Some(index) = self.latest(fits) {
                self.open[index].report.status.get_or_insert(status);
            } else {
                self.stashes.of(thread).status = Some(status);
            }
        }
        let rank = std::mem::discriminant(&sign);
        let better = self
            .sign
            .as_ref()
            .is_none_or(|(known, ..)| std::mem::discriminant(known) != rank && sign < *known);
        if better {
            self.sign = Some((sign, self.line, self.thread));
        }
    }
}

pub(super) fn core_row(device: u32, core: u32, line: u64) -> Row {
    let mut row = Row::new(Scope::Core, line);
    row.device = Some(device);
    row.core = Some(core);
    row
}
