//! From bytes to lines: unpacked, without colours, of bounded length.
//!
//! A line longer than the limit comes in pieces, which are read as a wrapped line is. A log that
//! went through a JSON or Python string has its line ends as `\n`, two characters: there a line
//! comes in pieces as well.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

const BUFFER_BYTES: usize = 1 << 18;
// LIMIT: lines of the runtime have some hundred bytes; one without an end must not fill the memory.
const LINE_BYTES_MAX: u64 = 1 << 16;
/// What a packed log begins with, whatever its name.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ESCAPE: u8 = 0x1b;

/// A log, line by line.
pub(super) struct Lines<'r> {
    source: Box<dyn BufRead + 'r>,
    /// The line, or its piece, with its end.
    raw: Vec<u8>,
    plain: Vec<u8>,
    count: u64,
    bytes: u64,
    is_inside: bool,
}

impl<'r> Lines<'r> {
    pub(super) fn new(log: impl Read + 'r) -> io::Result<Self> {
        let mut log = BufReader::with_capacity(BUFFER_BYTES, log);
        let mut magic = Vec::with_capacity(GZIP_MAGIC.len());
        log.by_ref()
            .take(GZIP_MAGIC.len() as u64)
            .read_to_end(&mut magic)?;
        let is_packed = magic == GZIP_MAGIC;
        let whole = io::Cursor::new(magic).chain(log);
        let source: Box<dyn BufRead + 'r> = if is_packed {
            let unpacked = MultiGzDecoder::new(whole);
            Box::new(BufReader::with_capacity(BUFFER_BYTES, unpacked))
        } else {
            Box::new(whole)
        };
        Ok(Self {
            source,
            raw: Vec::new(),
            plain: Vec::new(),
            count: 0,
            bytes: 0,
            is_inside: false,
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
    pub(super) fn next(&mut self, taker: &mut impl FnMut(u64, &[u8])) -> io::Result<bool> {
        self.raw.clear();
        let most = &mut self.source;
        let read = most.take(LINE_BYTES_MAX).read_until(b'\n', &mut self.raw)?;
        if read == 0 {
            return Ok(false);
        }
        self.bytes += read as u64;
        self.count += u64::from(!self.is_inside);
        self.is_inside = self.raw.last() != Some(&b'\n');
        let mut text = self.raw.strip_suffix(b"\n").unwrap_or(&self.raw);
        text = text.strip_suffix(b"\r").unwrap_or(text);
        if text.contains(&ESCAPE) {
            without_colours(text, &mut self.plain);
            text = &self.plain;
        }
        if !text.contains(&b'\\') {
            taker(self.count, text);
            return Ok(true);
        }
        let mut rest = text;
        while let Some(end) = rest.windows(2).position(|pair| pair == b"\\n") {
            taker(self.count, &rest[..end]);
            rest = &rest[end + 2..];
        }
        taker(self.count, rest);
        Ok(true)
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
    fn an_empty_log_has_no_line() {
        assert_eq!(lines(b""), []);
        assert_eq!(lines(b"x"), [line(1, "x")]);
    }
}
