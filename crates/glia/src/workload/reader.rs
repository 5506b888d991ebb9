//! Reading a workload line by line.

use std::io::{self, BufRead, Read as _};

use super::line::Line;
use super::{Header, Step};

// LIMIT: a line of a workload is some hundred bytes; a file without line breaks is no workload.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Why a workload cannot be run, and where.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct WorkloadError {
    /// The line, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It is longer than a line can be.
    #[error("is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    /// It is no JSON object of the keys that are allowed.
    #[error("{}", message(.0))]
    Json(#[from] serde_json::Error),
    /// The first line does not say that this is a workload.
    #[error(
        "a workload begins with a line such as {{\"workload\":1,\"machine\":\"trn2\"}}: no \"workload\" here"
    )]
    NoHeader,
    /// It is of another version.
    #[error(
        "workload format {found}: this is for format {}",
        super::WORKLOAD_FORMAT
    )]
    Format {
        /// The version.
        found: u64,
    },
    /// A key is missing.
    #[error("{what} needs \"{key}\"")]
    Missing {
        /// Of what.
        what: &'static str,
        /// Which.
        key: &'static str,
    },
    /// A key stands where it means nothing.
    #[error("\"{key}\" means nothing on {what}: allowed are {}", allowed.join(", "))]
    Misplaced {
        /// On what.
        what: &'static str,
        /// Which.
        key: &'static str,
        /// The keys that mean something there.
        allowed: &'static [&'static str],
    },
    /// A word that is none of those allowed.
    #[error("unknown {key} {found:?}: allowed are {allowed}")]
    Unknown {
        /// Under which key.
        key: &'static str,
        /// The word.
        found: String,
        /// All words that are allowed.
        allowed: String,
    },
    /// A number that is out of range.
    #[error("{key} {found}: {least} to {most} are allowed")]
    OutOfRange {
        /// Under which key.
        key: &'static str,
        /// The number.
        found: u64,
        /// The least allowed.
        least: u64,
        /// The greatest allowed.
        most: u64,
    },
    /// An object is named that does not live.
    #[error(
        "no object {id:?} lives here: it was never allocated, its allocation failed, or it has been freed"
    )]
    NoObject {
        /// The name.
        id: String,
    },
    /// A model is named that is not loaded.
    #[error("no model {id:?} is loaded here: it never was, or it has been unloaded")]
    NoModel {
        /// The name.
        id: String,
    },
    /// A model is loaded under the name of one that is.
    #[error("a model {id:?} is loaded since line {since}")]
    SecondModel {
        /// The name.
        id: String,
        /// The line that loaded it.
        since: u64,
    },
    /// An object is allocated under the name of one that lives.
    #[error("an object {id:?} lives since line {since}")]
    SecondObject {
        /// The name.
        id: String,
        /// The line of its allocation.
        since: u64,
    },
}

/// Reads the operations of a workload.
pub struct Reader<R> {
    source: R,
    header: Header,
    line: u64,
    text: Vec<u8>,
}

impl<R: BufRead> Reader<R> {
    /// Reads the first line.
    ///
    /// # Errors
    /// [`WorkloadError`] if that is not the first line of a workload.
    pub fn new(source: R) -> Result<Self, WorkloadError> {
        let mut source = source;
        let (mut line, mut text) = (0, Vec::new());
        let header = match next_line(&mut source, &mut text, &mut line) {
            Ok(true) => parse(&text).and_then(|first| first.header()),
            Ok(false) => Err(Fault::NoHeader),
            Err(fault) => Err(fault),
        };
        match header {
            Ok(header) => Ok(Self {
                source,
                header,
                line,
                text,
            }),
            Err(fault) => Err(WorkloadError {
                line: line.max(1),
                fault,
            }),
        }
    }

    /// What the workload runs on.
    #[must_use]
    pub fn header(&self) -> Header {
        self.header
    }

    /// Reads the next operation and gives it to `take`; `None` at the end.
    ///
    /// # Errors
    /// [`WorkloadError`] if the line is none, or `take` finds a fault in it.
    pub fn next<T>(
        &mut self,
        take: impl FnOnce(Step<'_>) -> Result<T, Fault>,
    ) -> Result<Option<T>, WorkloadError> {
        let taken = match next_line(&mut self.source, &mut self.text, &mut self.line) {
            Ok(true) => parse(&self.text).and_then(|line| {
                let (op, expect) = line.step(self.header)?;
                take(Step {
                    line: self.line,
                    op,
                    expect,
                })
                .map(Some)
            }),
            Ok(false) => Ok(None),
            Err(fault) => Err(fault),
        };
        taken.map_err(|fault| WorkloadError {
            line: self.line,
            fault,
        })
    }
}

/// What the parser says, without the line of its own count, which is always the first.
fn message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.replace(" at line 1 column ", " at column ")
}

fn parse(text: &[u8]) -> Result<Line<'_>, Fault> {
    // Some editors put a byte order mark before the first line.
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    Ok(serde_json::from_slice(text)?)
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
            "line 2: unknown op \"fre\": allowed are alloc, write, read, free, load, unload"
        );
        let misspelt = with("{\"op\":\"alloc\",\"id\":\"a\",\"siz\":1}");
        assert!(
            misspelt.starts_with("line 2: unknown field `siz`, expected one of `op`, `id`, `size`"),
            "{misspelt}"
        );
        assert_eq!(
            with("{\"op\":\"free\",\"id\":\"a\",\"size\":1}"),
            "line 2: \"size\" means nothing on free: allowed are op, id"
        );
        assert_eq!(with("{\"op\":\"read\"}"), "line 2: read needs \"id\"");
        assert_eq!(
            with("{\"op\":\"alloc\",\"id\":\"a\",\"size\":1,\"core\":8}"),
            "line 2: core 8: 0 to 7 are allowed"
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
        assert!(error("{\"op\":\"free\"}").starts_with("line 1: a workload begins"));
        assert_eq!(
            error("{\"workload\":2}"),
            "line 1: workload format 2: this is for format 1"
        );
        assert_eq!(
            error("{\"workload\":1,\"machine\":\"trn9\"}"),
            "line 1: unknown machine \"trn9\": allowed are trn1, trn2, trn3, inf2"
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
