//! From bytes to lines: unpacked, without colours, of bounded length.
//!
//! A line is read where it lies in the buffer. One longer than the limit comes in pieces, which are
//! read as a wrapped line is. A log that went through a JSON or Python string has its line ends as
//! `\n`, two characters: there a line comes in pieces as well.

use std::io::{self, Read};

use memchr::memmem::Finder;
use memchr::{memchr, memchr2};

use crate::unpack::unpacked;

const BUFFER_BYTES: usize = 1 << 18;
// LIMIT: lines of the runtime have some hundred bytes; one without an end must not fill the memory.
const LINE_BYTES_MAX: usize = 1 << 16;
// LIMIT: what never ends a line, a device or a picture, is no log. A log in one string has line ends of
// two characters, and one whose file was cut under its writer may begin with a long hole.
const UNENDED_BYTES_MAX: u64 = 1 << 30;
const ESCAPE: u8 = 0x1b;

/// A log, line by line.
pub(super) struct Lines<'r> {
    source: Box<dyn Read + 'r>,
    /// What has been read; `begin..end` of it is still to be given.
    buffer: Box<[u8]>,
    begin: usize,
    end: usize,
    is_at_end: bool,
    plain: Vec<u8>,
    /// Of a line end that is two characters.
    line_end: Finder<'static>,
    count: u64,
    bytes: u64,
    is_inside: bool,
    /// Bytes since a line has ended, in either way, and how many there may be.
    unended: u64,
    unended_max: u64,
}

impl<'r> Lines<'r> {
    pub(super) fn new(log: impl Read + 'r) -> io::Result<Self> {
        Ok(Self {
            source: Box::new(unpacked(log)?),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            begin: 0,
            end: 0,
            is_at_end: false,
            plain: Vec::new(),
            line_end: Finder::new(b"\\n"),
            count: 0,
            bytes: 0,
            is_inside: false,
            unended: 0,
            unended_max: UNENDED_BYTES_MAX,
        })
    }

    /// How many lines have begun.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// How many bytes have been read.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives the next line, or its pieces, to `taker`; false at the end.
    ///
    /// # Errors
    /// As the log is read; also if no line ends for long.
    pub(super) fn next(&mut self, taker: &mut impl FnMut(u64, &[u8])) -> io::Result<bool> {
        if self.unended > self.unended_max {
            let told = format!("{} bytes without a line end are no log", self.unended_max);
            return Err(io::Error::new(io::ErrorKind::InvalidData, told));
        }
        let length = self.length()?;
        if length == 0 {
            return Ok(false);
        }
        let raw = &self.buffer[self.begin..self.begin + length];
        self.begin += length;
        self.bytes += length as u64;
        self.count += u64::from(!self.is_inside);
        self.is_inside = raw.last() != Some(&b'\n');
        self.unended = if self.is_inside {
            self.unended + length as u64
        } else {
            0
        };
        let mut text = raw.strip_suffix(b"\n").unwrap_or(raw);
        text = text.strip_suffix(b"\r").unwrap_or(text);
        let Some(special) = memchr2(ESCAPE, b'\\', text) else {
            taker(self.count, text);
            return Ok(true);
        };
        if memchr(ESCAPE, &text[special..]).is_some() {
            without_colours(text, &mut self.plain);
            text = &self.plain;
        }
        let mut rest = text;
        while let Some(end) = self.line_end.find(rest) {
            self.unended = 0;
            taker(self.count, &rest[..end]);
            rest = &rest[end + 2..];
        }
        taker(self.count, rest);
        Ok(true)
    }

    /// How long the line is that comes next, or its piece, with its end; 0 at the end of the log.
    fn length(&mut self) -> io::Result<usize> {
        let mut seen = 0;
        loop {
            let have = self.end - self.begin;
            let near = have.min(LINE_BYTES_MAX);
            let unseen = &self.buffer[self.begin + seen..self.begin + near];
            if let Some(at) = memchr(b'\n', unseen) {
                return Ok(seen + at + 1);
            }
            if near == LINE_BYTES_MAX || self.is_at_end {
                return Ok(near);
            }
            seen = near;
            self.fill()?;
        }
    }

    /// Reads on; what is still to be given moves to the front.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.begin..self.end, 0);
        self.end -= self.begin;
        self.begin = 0;
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(read) => {
                    self.is_at_end = read == 0;
                    self.end += read;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Leaves out `ESC [ … letter`, and other escapes' first byte.
fn without_colours(text: &[u8], plain: &mut Vec<u8>) {
    plain.clear();
    let mut rest = text;
    while let Some(escape) = rest.iter().position(|&byte| byte == ESCAPE) {
        plain.extend_from_slice(&rest[..escape]);
        rest = &rest[escape + 1..];
        if let Some(sequence) = rest.strip_prefix(b"[") {
            let parameters = sequence.iter();
            let parameters = parameters.take_while(|byte| (0x20..0x40).contains(*byte));
            let end = parameters.count() + 1;
            rest = sequence.get(end..).unwrap_or_default();
        }
    }
    plain.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Vec<(u64, String)> {
        let mut all = Vec::new();
        let mut lines = Lines::new(bytes).unwrap();
        let mut take = |number, text: &[u8]| {
            all.push((number, String::from_utf8_lossy(text).into_owned()));
        };
        while lines.next(&mut take).unwrap() {}
        all
    }

    fn line(number: u64, text: &str) -> (u64, String) {
        (number, text.to_owned())
    }

    #[test]
    fn colours_and_line_ends_are_gone() {
        assert_eq!(
            lines(b"\x1b[0m\x1b[1;31ma\x1b[0m\r\n\nb\x1b"),
            [line(1, "a"), line(2, ""), line(3, "b")]
        );
    }

    #[test]
    fn an_escaped_line_end_ends_a_piece() {
        assert_eq!(
            lines(b"{a\\n\\_NC 4\\nb\nc"),
            [
                line(1, "{a"),
                line(1, "\\_NC 4"),
                line(1, "b"),
                line(2, "c")
            ]
        );
    }

    #[test]
    fn a_line_without_end_comes_in_pieces() {
        let long = vec![b'x'; 100_000];
        let pieces = lines(&[&long, b"\ny".as_slice()].concat());
        let lengths: Vec<_> = pieces
            .iter()
            .map(|(line, text)| (*line, text.len()))
            .collect();
        assert_eq!(lengths, [(1, 65_536), (1, 34_464), (2, 1)]);
    }

    #[test]
    fn what_never_ends_a_line_is_no_log() {
        let read = |text: &[u8]| {
            let mut lines = Lines::new(io::repeat(0).take(200_000).chain(text)).unwrap();
            lines.unended_max = 250_000;
            let mut take = |_, _: &[u8]| {};
            while lines.next(&mut take)? {}
            Ok::<_, io::Error>(lines.count())
        };
        let end = [&[b'x'; 100_000], b"\n".as_slice()].concat();
        let refused = read(&end).unwrap_err().to_string();
        assert_eq!(refused, "250000 bytes without a line end are no log");
        for line_end in [&b"\n"[..], b"\\n"] {
            let text = [line_end, &end].concat();
            assert!(read(&text).is_ok(), "{line_end:?}");
        }
    }

    #[test]
    fn an_empty_log_has_no_line() {
        assert_eq!(lines(b""), []);
        assert_eq!(lines(b"x"), [line(1, "x")]);
    }
}
