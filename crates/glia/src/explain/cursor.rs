//! A place in a line, from which the parts of a message are read one by one.
//!
//! White space in a log is not to be trusted: terminals wrap, editors squeeze, and an end of line
//! inside a word leaves two halves. So words are compared without it. What stops a reader says
//! whether more text could help ([`Stop::Cut`]).

use super::header;
use super::size::{self, Size, TooLarge};

/// Why a message could not be read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The text ends here, and so far it fits.
    Cut,
    /// This is something else.
    Other,
}

/// A place in a line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a [u8], at: usize) -> Self {
        Self { text, at }
    }

    pub(super) fn at(self) -> usize {
        self.at
    }

    pub(super) fn rest(self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The few bytes before the cursor.
    pub(super) fn before(self) -> &'a [u8] {
        const FEW_BYTES: usize = 16;
        &self.text[self.at.saturating_sub(FEW_BYTES)..self.at]
    }

    pub(super) fn skip(&mut self, count: usize) {
        self.at = (self.at + count).min(self.text.len());
    }

    pub(super) fn skip_space(&mut self) {
        let space = self.rest().iter();
        self.at += space.take_while(|byte| byte.is_ascii_whitespace()).count();
    }

    /// Goes behind `words`, in which there is no white space; the line may have any.
    pub(super) fn eat(&mut self, words: &str) -> Result<(), Stop> {
        let mut ahead = *self;
        for wanted in words.bytes() {
            ahead.skip_space();
            match ahead.rest().first() {
                None => return Err(Stop::Cut),
                Some(&found) if found == wanted => ahead.at += 1,
                Some(_) => return Err(Stop::Other),
            }
        }
        *self = ahead;
        Ok(())
    }

    /// A number; one that `N` cannot hold is [`Stop::Other`].
    pub(super) fn number<N: TryFrom<u64>>(&mut self) -> Result<N, Stop> {
        let mut ahead = *self;
        let number = ahead.count()?.ok_or(Stop::Other)?;
        let number = N::try_from(number).map_err(|_| Stop::Other)?;
        *self = ahead;
        Ok(number)
    }

    /// A number of any length; `None` if it is more than a `u64` holds.
    pub(super) fn count(&mut self) -> Result<Option<u64>, Stop> {
        self.skip_space();
        let (groups, commas) = size::grouped(self.rest());
        if commas > 0 {
            self.at += groups.len();
            return Ok(size::value(groups));
        }
        let digits = self.rest().iter();
        let mut digits = digits.take_while(|byte| byte.is_ascii_digit()).count();
        if header::is_date_behind_year(&self.rest()[digits..]) {
            // Another line is glued to this one, and its first digits are a year.
            digits = digits.saturating_sub(header::YEAR_DIGITS);
        }
        if digits == 0 {
            return Err(self.stop());
        }
        let text = std::str::from_utf8(&self.rest()[..digits]).map_err(|_| Stop::Other)?;
        self.at += digits;
        Ok(text.parse().ok())
    }

    pub(super) fn size(&mut self) -> Result<Result<Size, TooLarge>, Stop> {
        self.skip_space();
        if let Some((size, length)) = Size::read(self.rest()) {
            self.at += length;
            return Ok(size);
        }
        // "43.3", "43.325 " and "43.325M" may go on in the next line.
        let mut size = self.rest().iter();
        let fits = size.all(|byte| byte.is_ascii_digit() || b" .,KMGT".contains(byte));
        Err(if fits { Stop::Cut } else { Stop::Other })
    }

    /// The text up to one of `ends`, which must come within `most` bytes, and goes behind it.
    pub(super) fn until(&mut self, ends: &[u8], most: usize) -> Result<&'a [u8], Stop> {
        let rest = self.rest();
        let near = &rest[..rest.len().min(most)];
        let Some(length) = near.iter().position(|byte| ends.contains(byte)) else {
            let cut = rest.len() < most;
            return Err(if cut { Stop::Cut } else { Stop::Other });
        };
        self.at += length + 1;
        Ok(&near[..length])
    }

    /// The next word, without the marks at its end.
    pub(super) fn word(&mut self) -> Result<String, Stop> {
        self.skip_space();
        let word = self.rest().iter();
        let length = word.take_while(|byte| !byte.is_ascii_whitespace()).count();
        if length == 0 {
            return Err(self.stop());
        }
        let word = String::from_utf8_lossy(&self.rest()[..length]);
        self.at += length;
        Ok(word.trim_end_matches(['.', ',', ':', ';']).to_owned())
    }

    fn stop(self) -> Stop {
        if self.rest().is_empty() {
            Stop::Cut
        } else {
            Stop::Other
        }
    }
}
