//! What a line of a log has in it, wherever in the line it stands.
//!
//! A line is looked through once, from left to right. Few bytes can begin anything of interest; at
//! those the readers of `message` and `header` are asked. So prefixes of other tools do not matter,
//! and two messages glued into one line are two tokens.

use super::category::{self, Name};
use super::cursor::{Cursor, Stop};
use super::header::{self, Header};
use super::message::{self, Message};
use super::size::Size;

/// The level a row of a table is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    /// `ND 0 Overall`.
    Device(u32),
    /// `ND 0 HBM 1`.
    Hbm(u32, u32),
    /// `\_NC 4`.
    Core(u32),
    /// `\_NEFF 1001`.
    Neff(u64),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// The prefix of a runtime's line.
    Header(Header),
    /// A message.
    Message(Message),
    /// `* tensors: 8.216GB`, and `Tensors: 8.216GB`. `None` is the total.
    Item(Option<Name>, Size),
    /// The label of a table's row; its cells follow.
    Row(Label),
}

/// A token and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) token: Token,
}

/// What a line has in it.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) found: Vec<Found>,
    /// Whether the line has a bar, as rows and headings of tables have.
    pub(super) has_bar: bool,
    /// Where a message begins that the end of the line has cut.
    pub(super) cut: Option<usize>,
}

const fn interesting() -> [bool; 256] {
    let first = b"EWIDTFLHPNO*\\|msS\xe2-[";
    let mut table = [false; 256];
    let mut index = 0;
    while index < first.len() {
        table[first[index] as usize] = true;
        index += 1;
    }
    table
}

const INTERESTING: [bool; 256] = interesting();

impl Scan {
    /// Looks through a line; `self` is used again for its memory only. With `to_be_continued`, a
    /// message that the end of the line cuts ends the search.
    pub(super) fn read(&mut self, line: &[u8], to_be_continued: bool) {
        self.found.clear();
        self.has_bar = false;
        self.cut = None;
        let mut at = 0;
        let mut floor = 0;
        while let Some(skipped) = line[at..]
            .iter()
            .position(|&byte| INTERESTING[usize::from(byte)])
        {
            at += skipped;
            match token(line, at, floor) {
                Ok(found) => {
                    at = found.end.max(at + 1);
                    floor = found.end;
                    self.found.push(found);
                }
                Err(Stop::Cut) if to_be_continued && line[at] != b'*' => {
                    self.cut = Some(at);
                    break;
                }
                Err(Stop::Cut | Stop::Other) => {
                    self.has_bar |= line[at] == b'|';
                    at += 1;
                }
            }
        }
        // A row's cells end where the next token begins.
        for index in 0..self.found.len() {
            if matches!(self.found[index].token, Token::Row(_)) {
                let next = self.found.get(index + 1);
                self.found[index].end = next.map_or(line.len(), |next| next.start);
            }
        }
    }
}

/// The token at a byte. A header may reach back, but not before `floor`.
fn token(line: &[u8], at: usize, floor: usize) -> Result<Found, Stop> {
    let mut cursor = Cursor::new(line, at);
    let found = |end, token| Found {
        start: at,
        end,
        token,
    };
    match line[at] {
        b'E' | b'W' | b'I' | b'D' | b'T' => {
            if let Some((start, end, header)) = header::read(line, at, floor) {
                return Ok(Found {
                    start,
                    end,
                    token: Token::Header(header),
                });
            }
        }
        b'*' | b'-' | 0xe2 => return item(cursor).map(|(token, end)| found(end, token)),
        b'\\' => return row(cursor).map(|(token, end)| found(end, token)),
        b'N' => {
            if let Ok((token, end)) = row(cursor) {
                return Ok(found(end, token));
            }
        }
        b'|' => return Err(Stop::Other),
        _ => {}
    }
    if matches!(line[at], b'T' | b'S' | b's')
        && let Ok((token, end)) = plain_item(cursor)
    {
        return Ok(found(end, token));
    }
    let message = message::read(&mut cursor)?;
    Ok(found(cursor.at(), Token::Message(message)))
}

/// `* dma rings: 1.471GB`, and with other bullets.
fn item(mut cursor: Cursor<'_>) -> Result<(Token, usize), Stop> {
    let bullet = match cursor.rest() {
        [b'*', ..] => 1,
        [b'-', space, ..] if space.is_ascii_whitespace() => 1,
        [0xe2, 0x80, 0xa2, ..] => 3,
        _ => return Err(Stop::Other),
    };
    cursor.skip(bullet);
    named_size(cursor)
}

/// `name: size`, in a list that has lost its bullets or never had them.
pub(super) fn named_size(mut cursor: Cursor<'_>) -> Result<(Token, usize), Stop> {
    const NAME_BYTES_MAX: usize = 40;
    cursor.skip_space();
    // A list is short; one that is cut in the middle of a line goes on as another.
    let name = cursor
        .until(b":", NAME_BYTES_MAX)
        .map_err(|_| Stop::Other)?;
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b" _-".contains(byte);
    if !name.first().is_some_and(u8::is_ascii_alphabetic) || !name.iter().all(is_name) {
        return Err(Stop::Other);
    }
    let size = cursor.size().map_err(|_| Stop::Other)?;
    let name = (!name.eq_ignore_ascii_case(b"total")).then(|| category::named(name));
    Ok((Token::Item(name, size), cursor.at()))
}

/// The lines of an INFO block that have no bullet.
fn plain_item(cursor: Cursor<'_>) -> Result<(Token, usize), Stop> {
    let rest = cursor.rest();
    let names: [&[u8]; 3] = [b"total:", b"tensors:", b"shared scratchpad:"];
    let begins = |name: &&[u8]| {
        rest.get(..name.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(name))
    };
    if !names.iter().any(begins) {
        return Err(Stop::Other);
    }
    named_size(cursor)
}

/// The label of a table's row, with the bar behind it.
fn row(mut cursor: Cursor<'_>) -> Result<(Token, usize), Stop> {
    let label = if cursor.eat("\\_NC").is_ok() {
        Label::Core(cursor.number()?)
    } else if cursor.eat("\\_NEFF").is_ok() {
        Label::Neff(cursor.number()?)
    } else {
        cursor.eat("ND").map_err(|_| Stop::Other)?;
        let device = cursor.number().map_err(|_| Stop::Other)?;
        if cursor.eat("HBM").is_ok() {
            Label::Hbm(device, cursor.number().map_err(|_| Stop::Other)?)
        } else {
            cursor.eat("Overall").map_err(|_| Stop::Other)?;
            Label::Device(device)
        }
    };
    cursor.skip_space();
    cursor.eat("|").map_err(|_| Stop::Other)?;
    Ok((Token::Row(label), cursor.at()))
}
