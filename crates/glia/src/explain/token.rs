//! What a line of a log has in it, wherever in the line it stands.
//!
//! A line is looked through once, from left to right. Few bytes can begin anything of interest; at
//! those the readers of `message` and `header` are asked. So prefixes of other tools do not matter,
//! and two messages glued into one line are two tokens.

use super::category::{self, Name};
use super::cursor::{Cursor, Stop};
use super::header::{self, Header};
use super::message::{self, Message};
use super::table::Cell;

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
    Item(Option<Name>, Cell),
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
    /// Whether "Failed to allocate" stands somewhere in it and could not be read.
    pub(super) is_refused: bool,
    /// Where a message begins that the end of the line has cut.
    pub(super) cut: Option<usize>,
}

/// What can begin a token: its first byte, and those that can be the second; any, if none is named.
const BEGINNINGS: [(u8, &[u8]); 19] = [
    (b'E', b"Rs"),    // ERROR, Estimated
    (b'W', b"Ar"),    // WARN, Wrote
    (b'I', b"N"),     // INFO
    (b'D', b"Ei"),    // DEBUG, Displaying
    (b'T', b"RoOeE"), // TRACE, Total, Tensors
    (b'S', b"hH"),    // Shared Scratchpad
    (b's', b"hHt"),   // and status
    (b'F', b"aA1"),   // Failed, FATAL, F137
    (b'L', b"N"),     // LNC
    (b'H', b"B"),     // HBM
    (b'P', b"e"),     // Per NEFF
    (b'N', b"DE \t"), // ND, NEFF, NERR_; a terminal may have parted N and D
    (b'O', b"v"),     // Overall
    (b'm', b"e"),     // mempool
    (b'[', b"F"),     // [F137]
    (b'*', b""),
    (b'-', b" \t"),
    (b'\\', b"_ \t"),
    (b'|', b""),
];

/// The three bytes of a bullet begin with this one.
const BULLET: u8 = 0xe2;

/// What can begin a token, as the search asks it.
struct Beginnings {
    /// The number of each first byte, from 1; 0 of those that begin nothing.
    firsts: [u8; 256],
    /// Of each second byte a bit for every number that it can follow.
    seconds: [u32; 256],
}

static TABLE: Beginnings = Beginnings::new();

impl Beginnings {
    const fn new() -> Self {
        let mut table = Self {
            firsts: [0; 256],
            seconds: [0; 256],
        };
        let mut number = 1;
        let mut at = 0;
        while at < BEGINNINGS.len() {
            let (first, seconds) = BEGINNINGS[at];
            table.add(number, first, seconds);
            at += 1;
            number += 1;
        }
        table.add(number, BULLET, b"");
        table
    }

    const fn add(&mut self, number: u8, first: u8, seconds: &[u8]) {
        self.firsts[first as usize] = number;
        let mut at = 0;
        while at < seconds.len() {
            self.seconds[seconds[at] as usize] |= 1 << number;
            at += 1;
        }
        let mut second = 0;
        while seconds.is_empty() && second < self.seconds.len() {
            self.seconds[second] |= 1 << number;
            second += 1;
        }
    }
}

/// Where the next token may begin. The last byte of a line has its second in the next line.
fn next_beginning(line: &[u8]) -> Option<usize> {
    line.iter().enumerate().position(|(at, &first)| {
        let number = TABLE.firsts[usize::from(first)];
        let follows = |&second: &u8| TABLE.seconds[usize::from(second)] >> number & 1 == 1;
        number != 0 && line.get(at + 1).is_none_or(follows)
    })
}

impl Scan {
    /// Looks through a line; `self` is used again for its memory only. With `to_be_continued`, a
    /// message that the end of the line cuts ends the search.
    pub(super) fn read(&mut self, line: &[u8], to_be_continued: bool) {
        self.found.clear();
        self.has_bar = false;
        self.cut = None;
        self.is_refused = false;
        let mut at = 0;
        let mut floor = 0;
        while let Some(skipped) = next_beginning(&line[at..]) {
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
                    self.is_refused |= line[at..].starts_with(b"Failed to alloc");
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
        b'E' | b'W' | b'I' | b'D' | b'T' | b'F' => {
            if let Some((start, end, header)) = header::read(line, at, floor) {
                return Ok(Found {
                    start,
                    end,
                    token: Token::Header(header),
                });
            }
        }
        b'*' | b'-' | BULLET => return item(cursor).map(|(token, end)| found(end, token)),
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
        && let Ok((token, end)) = plain_item(cursor, line[..at].trim_ascii().is_empty())
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
        [BULLET, 0x80, 0xa2, ..] => 3,
        _ => return Err(Stop::Other),
    };
    cursor.skip(bullet);
    named_size(cursor, Damage::Any)
}

/// What may stand where a size should, if the name is one that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Damage {
    /// Nothing else.
    None,
    /// `n/a`, or what begins with a digit.
    Number,
    /// Anything.
    Any,
}

/// `name: size`, in a list that has lost its bullets or never had them.
pub(super) fn named_size(mut cursor: Cursor<'_>, damage: Damage) -> Result<(Token, usize), Stop> {
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
    let is_total = name.eq_ignore_ascii_case(b"total");
    let cell = match cursor.size() {
        Ok(size) => Cell::from(size),
        Err(_) if is_total || category::known(name).is_some() => damaged(&mut cursor, damage)?,
        Err(_) => return Err(Stop::Other),
    };
    let name = (!is_total).then(|| category::named(name));
    Ok((Token::Item(name, cell), cursor.at()))
}

/// What stands there instead of a size, up to the next item or a gap.
fn damaged(cursor: &mut Cursor<'_>, damage: Damage) -> Result<Cell, Stop> {
    let rest = cursor.rest();
    let is_end = |at: usize| {
        matches!(rest[at], b'*' | b'\t' | b'\\' | b'"') || rest[at..].starts_with(b"  ")
    };
    let end = (0..rest.len()).find(|&at| is_end(at));
    let text = rest[..end.unwrap_or(rest.len())].trim_ascii();
    let fits = match damage {
        Damage::None => false,
        Damage::Number => text == b"n/a" || text.first().is_some_and(u8::is_ascii_digit),
        Damage::Any => true,
    };
    if !fits {
        return Err(Stop::Other);
    }
    cursor.skip(text.len());
    Ok(Cell::read(text))
}

/// The lines of an INFO block that have no bullet.
fn plain_item(cursor: Cursor<'_>, is_first: bool) -> Result<(Token, usize), Stop> {
    let rest = cursor.rest();
    let names: [&[u8]; 3] = [b"total:", b"tensors:", b"shared scratchpad:"];
    let begins = |name: &&[u8]| {
        rest.get(..name.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(name))
    };
    if !names.iter().any(begins) {
        return Err(Stop::Other);
    }
    let damage = if is_first {
        Damage::Number
    } else {
        Damage::None
    };
    named_size(cursor, damage)
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
