//! Reading a workload line by line.

use std::io::{BufRead, ErrorKind, Read as _};

use memchr::memchr;

use super::error::{Fault, WorkloadError};
use super::fields::Fields;
use super::params::Params;
use super::{Header, Overrides, Step};

// LIMIT: a line of a workload is some hundred bytes; a file without line breaks is no workload.
pub(super) const LINE_BYTES_MAX: u64 = 1 << 20;

/// Reads the operations of a workload.
pub struct Reader<R> {
    source: R,
    header: Header,
    params: Params,
    line: u64,
    /// A line that is not whole in the source's buffer.
    text: Vec<u8>,
    /// The line with parameters put in; kept for its room.
    put: Vec<u8>,
}

impl<R: BufRead> Reader<R> {
    /// Reads the first line.
    ///
    /// # Errors
    /// [`WorkloadError`] if that is not the first line of a workload.
    pub fn new(source: R) -> Result<Self, WorkloadError> {
        Self::with(source, &Overrides::default())
    }

    /// The same, with something else in the place of what the first line says.
    ///
    /// # Errors
    /// As [`new`](Self::new); also if a parameter is given that it does not declare.
    pub fn with(source: R, instead: &Overrides) -> Result<Self, WorkloadError> {
        let mut source = source;
        let (mut line, mut text) = (0, Vec::new());
        let read = match next_line(&mut source, &mut text, &mut line) {
            Ok(true) => first(&text, instead),
            Ok(false) => Err(Fault::NoHeader),
            Err(fault) => Err(fault),
        };
        match read {
            Ok((header, params)) => Ok(Self {
                source,
                header,
                params,
                line,
                text,
                put: Vec::new(),
            }),
            Err(fault) => Err(WorkloadError {
                line: line.max(1),
                fault,
            }),
        }
    }

    /// What the workload runs on.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The line that was read last, from 1.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Reads the next operation and gives it to `take`; `None` at the end.
    ///
    /// # Errors
    /// [`WorkloadError`] if the line is none, or `take` finds a fault in it.
    pub fn next<T>(
        &mut self,
        take: impl FnOnce(Step<'_>) -> Result<T, Fault>,
    ) -> Result<Option<T>, WorkloadError> {
        let taken = self.next_step(take);
        taken.map_err(|fault| WorkloadError {
            line: self.line,
            fault,
        })
    }

    fn next_step<T>(
        &mut self,
        take: impl FnOnce(Step<'_>) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        let Self {
            source,
            header,
            params,
            line,
            text,
            put,
        } = self;
        // Mostly the line is whole in the buffer, and is read there.
        loop {
            let buffer = match source.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    *line += 1;
                    return Err(error.into());
                }
            };
            let Some(end) = whole_line(buffer) else { break };
            *line += 1;
            let found = buffer[..end].trim_ascii();
            if !found.is_empty() {
                let taken = step(header, params, put, *line, found, take);
                source.consume(end + 1);
                return taken.map(Some);
            }
            source.consume(end + 1);
        }
        match next_line(source, text, line)? {
            true => step(header, params, put, *line, text.trim_ascii(), take).map(Some),
            false => Ok(None),
        }
    }
}

/// Where the line ends that a buffer begins with, if it is there and not too long.
fn whole_line(buffer: &[u8]) -> Option<usize> {
    let end = memchr(b'\n', buffer)?;
    ((end as u64) < LINE_BYTES_MAX).then_some(end)
}

/// Gives a line to `take`; `put` is used for its memory only.
fn step<T>(
    header: &Header,
    params: &Params,
    put: &mut Vec<u8>,
    line: u64,
    text: &[u8],
    take: impl FnOnce(Step<'_>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let mut text = text;
    if params.stand_in(text) {
        params.put_in(text, put)?;
        text = put;
    }
    let mut fields = Fields::default();
    fields.read(text)?;
    let (op, expect) = fields.step(header)?;
    take(Step {
        line,
        text,
        op,
        expect,
    })
}

fn first(text: &[u8], instead: &Overrides) -> Result<(Header, Params), Fault> {
    let text = unmarked(text).trim_ascii();
    if !text.starts_with(b"{") {
        let begins = String::from_utf8_lossy(text.get(..40).unwrap_or(text));
        return Err(Fault::NoWorkload {
            begins: begins.into_owned(),
        });
    }
    let mut fields = Fields::default();
    fields.read(text)?;
    Header::read(fields, instead)
}

/// The line behind a byte order mark, which some editors put before the first one.
fn unmarked(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// Reads on to the next line that is not empty and counts; false at the end.
fn next_line(source: &mut impl BufRead, text: &mut Vec<u8>, line: &mut u64) -> Result<bool, Fault> {
    loop {
        text.clear();
        *line += 1;
        let read = source
            .by_ref()
            .take(LINE_BYTES_MAX + 1)
            .read_until(b'\n', text)?;
        if read == 0 {
            *line -= 1;
            return Ok(false);
        }
        if read as u64 > LINE_BYTES_MAX {
            return Err(Fault::TooLong);
        }
        if !text.trim_ascii().is_empty() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::workload::{Alloc, Op};

    fn error(lines: &str) -> String {
        let mut reader = match Reader::new(lines.as_bytes()) {
            Ok(reader) => reader,
            Err(error) => return error.to_string(),
        };
        loop {
            match reader.next(|_| Ok(())) {
                Ok(Some(())) => {}
                Ok(None) => return "no error".to_owned(),
                Err(error) => return error.to_string(),
            }
        }
    }

    #[test]
    fn a_line_says_what_is_done_and_the_rest_has_defaults() {
        let lines = "{\"workload\":1}\n\n{\"op\":\"alloc\",\"id\":\"w\",\"size\":\"64KiB\"}\n";
        let mut reader = Reader::new(lines.as_bytes()).unwrap();
        reader
            .next(|step| {
                assert_eq!(step.line, 3);
                let expected = Alloc {
                    id: "w",
                    size_bytes: 65_536,
                    align_bytes: 0,
                    device: glia_abi::handle::DeviceId::new(0),
                    core: glia_abi::handle::CoreId::new(0),
                    location: glia_abi::mem::Location::Device,
                    usage: glia_abi::mem_usage::MemUsage::Tensor,
                    name: "w",
                    model: None,
                    process: None,
                    at: None,
                };
                assert_eq!(step.op, Op::Alloc(expected));
                Ok(())
            })
            .unwrap();
        assert!(reader.next(|_| Ok(())).unwrap().is_none());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_what_is_allowed() {
        let with = |line: &str| error(&format!("{{\"workload\":1}}\n{line}\n"));
        assert_eq!(
            with("{\"op\":\"fre\",\"id\":\"a\"}"),
            "line 2: unknown op \"fre\": allowed are alloc, write, read, free, load, unload, memset, \
             copy, slice, attach, write_batch, read_batch, reserve, reset, start, exit, kill, fault, \
             mend, check"
        );
        let misspelt = with("{\"op\":\"alloc\",\"id\":\"a\",\"siz\":1}");
        assert!(
            misspelt.starts_with(
                "line 2: unknown key \"siz\": did you mean `size`?; allowed on alloc are op, id, \
                 size, align, core"
            ),
            "{misspelt}"
        );
        let nameless = with("{\"opp\":\"alloc\"}");
        assert!(
            nameless
                .starts_with("line 2: unknown key \"opp\": did you mean `op`?; allowed on a line"),
            "{nameless}"
        );
        assert_eq!(
            with("{\"op\":\"free\",\"id\":\"a\",\"size\":1}"),
            "line 2: \"size\" means nothing on free: allowed are op, id"
        );
        assert_eq!(with("{\"op\":\"read\"}"), "line 2: read needs \"id\"");
        assert_eq!(
            with("{\"op\":\"alloc\",\"id\":\"a\",\"size\":1,\"core\":8}"),
            "line 2: core 8: 0 to 7 are allowed: each device of a trn2 has 8 cores"
        );
        let status = with("{\"op\":\"read\",\"id\":\"a\",\"expect\":\"NRT_OOM\"}");
        assert!(
            status.starts_with(
                "line 2: unknown expect \"NRT_OOM\": allowed are NRT_SUCCESS, NRT_FAILURE"
            ),
            "{status}"
        );
    }

    #[test]
    fn what_is_no_workload_is_told_at_its_first_line() {
        assert!(error("").starts_with("line 1: a workload begins with a line such as"));
        let log = error("2026-Jan-01 00:00:00.000000  1:1 ERROR  TDRV:log_dev_mem\n");
        assert!(
            log.starts_with("line 1: no workload: that begins with"),
            "{log}"
        );
        assert!(
            log.contains("2026-Jan-01") && log.ends_with("read by `glia explain`"),
            "{log}"
        );
        assert_eq!(
            error("{\"workload\":1,\"lnc\":3}"),
            "line 1: unknown lnc \"3\": allowed are 1, 2, 4, 8"
        );
        let misspelt = error("{\"workload\":1,\"devcies\":2}");
        let wanted =
            "line 1: unknown key \"devcies\": did you mean `devices`?; allowed on the first";
        assert!(misspelt.starts_with(wanted), "{misspelt}");
        assert!(error("{\"op\":\"free\"}").starts_with("line 1: a workload begins"));
        assert_eq!(
            error("{\"workload\":2}"),
            "line 1: workload format 2: this is for format 1"
        );
        assert_eq!(
            error("{\"workload\":1,\"machine\":\"trn9\"}"),
            "line 1: unknown machine \"trn9\": allowed are trn1, trn2, trn3, inf2, or a machine in full"
        );
        assert_eq!(
            error("{\"workload\":1,\"devices\":17}"),
            "line 1: devices 17: 1 to 16 are allowed"
        );
    }

    #[test]
    fn a_byte_order_mark_and_other_line_ends_are_no_matter() {
        assert_eq!(
            error("\u{feff}{\"workload\":1,\"machine\":\"inf2\"}\r\n\r\n"),
            "no error"
        );
    }

    #[test]
    fn a_file_without_line_breaks_is_refused_before_it_is_read_whole() {
        let endless = io::BufReader::new(io::repeat(b'x'));
        let refused = Reader::new(endless).map(|_| ()).unwrap_err();
        assert_eq!(refused.to_string(), "line 1: is longer than 1048576 bytes");
    }
}
