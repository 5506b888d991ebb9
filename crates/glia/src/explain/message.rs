//! The messages of the runtime and the driver that a report is made of.
//!
//! Each begins with a word that is looked for anywhere in a line, and is then read part by part.
//! One that the end of the line has cut is [`Stop::Cut`]; the next line may complete it.

use memchr::memmem;

use super::category::{self, Name};
use super::cursor::{Cursor, Stop};
use super::size::{Size, TooLarge};
use super::table::Cell;

// LIMIT: how far behind its beginning a part of a message may stand.
const NEAR_BYTES: usize = 160;
const NAME_BYTES_MAX: usize = 4096;

/// How messages begin that a terminal may wrap in their first words.
const WRAPPED: [&[u8]; 7] = [
    b"Failed to alloc",
    b"LNC size",
    b"Displaying Current",
    b"Per NEFF",
    b"Overall HBM",
    b"Wrote nrt",
    b"NEFF id",
];

/// Whose memory was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Device,
    Host,
}

/// `Failed to allocate 4.000GB (alignment: none, usage: tensors) on ND 0:NC 4`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Failure {
    /// As printed, damaged or not.
    pub(super) asked: Cell,
    /// As printed, and as a size unless it is a word; the older form has none.
    pub(super) alignment: Option<(String, Option<Result<Size, TooLarge>>)>,
    pub(super) usage: Option<Name>,
    pub(super) device: Option<u32>,
    pub(super) core: Option<u32>,
    /// Whether "current utilization:" stands behind it.
    pub(super) has_list: bool,
    /// Whether its end is lost.
    pub(super) is_cut: bool,
}

/// Signs of a failure that need not be one of memory, the more telling first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sign {
    /// The compiler was killed, which is mostly for want of host memory.
    CompilerKilled,
    /// The compiler's own estimate says that the model does not fit.
    CompilerEstimate(String),
    /// `Failure: NRT_TIMEOUT in nrt_execute()`.
    Failure(String),
    /// `status=4 message="Allocation Failure"`.
    Status(String),
    /// An ERROR line of the runtime, in its words.
    ErrorLine(String),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Message {
    /// An allocation failed, and this is its exact size; `None` if it has more than 64 bits.
    Exact { place: Place, bytes: Option<u64> },
    /// An allocation failed that was for something with a name.
    Object {
        place: Place,
        bytes: Option<u64>,
        name: String,
        /// What "aligned (0) buffer" says.
        alignment_bytes: Option<u64>,
        /// What "channel 0" says.
        hbm: Option<u32>,
    },
    /// The line that names size, usage and place.
    Failure(Failure),
    /// `ND 0:NC 0, current utilization:`, and without failure.
    ListHead { device: u32, core: u32 },
    /// `Overall HBM usage`.
    HbmListHead,
    /// `Displaying Current Memory Utilization:`.
    TableHead,
    /// `[ND 0:NC 4] Current Usage Total: 15.750GB`.
    InfoHead {
        device: u32,
        core: u32,
        total: Result<Size, TooLarge>,
    },
    /// `Per NEFF memory usage breakdown for [name]:`.
    NeffHead(String),
    /// `NEFF id to name mapping:`.
    NamesHead,
    /// `LNC size is 1. Neuron Cores using this HBM: NC 4 and NC 5`.
    Lnc { size: u32, cores: Vec<u32> },
    /// Where the allocation events are.
    EventFile(String),
    /// The kernel driver's own words.
    Kernel {
        device: Option<u32>,
        hbm: Option<u32>,
        /// `None` if it has more than 64 bits; so are the occupied bytes.
        needed_bytes: Option<u64>,
        occupied_bytes: Option<Option<u64>>,
    },
    /// A failure of any kind.
    Sign(Sign),
    /// A failure line that is damaged behind the size.
    Broken,
}

/// Reads the message at the cursor and goes behind it.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Message, Stop> {
    let rest = cursor.rest();
    let begins = |word: &str| rest.starts_with(word.as_bytes());
    match rest.first() {
        Some(b'F') if begins("Fail") => failed(cursor),
        Some(b'F' | b'[') if begins("F137") || begins("[F137]") => {
            cursor.skip(4);
            Ok(Message::Sign(Sign::CompilerKilled))
        }
        Some(b'L') if begins("LNC size") => lnc(cursor),
        Some(b'D') if begins("Displaying Current") => {
            cursor.eat("DisplayingCurrentMemoryUtilization")?;
            Ok(Message::TableHead)
        }
        Some(b'P') if begins("Per NEFF") => {
            cursor.eat("PerNEFFmemoryusagebreakdownfor[")?;
            let name = cursor.until(b"\n", NAME_BYTES_MAX);
            let name = name.unwrap_or(&cursor.rest()[..cursor.rest().len().min(NAME_BYTES_MAX)]);
            let end = name.iter().rposition(|&byte| byte == b']');
            let end = end.ok_or(Stop::Cut)?;
            let name = String::from_utf8_lossy(&name[..end]).into_owned();
            cursor.skip(end + 1);
            Ok(Message::NeffHead(name))
        }
        Some(b'O') if begins("Overall HBM") => {
            cursor.eat("OverallHBMusage")?;
            Ok(Message::HbmListHead)
        }
        Some(b'W') if begins("Wrote nrt") => event_file(cursor),
        Some(b'N') if begins("NEFF id") => {
            cursor.eat("NEFFidtonamemapping")?;
            Ok(Message::NamesHead)
        }
        Some(b'N') if begins("ND") => place(cursor),
        Some(b'N') if begins("NERR_") => {
            let name = cursor.word()?;
            let name: String = name
                .chars()
                .take_while(|&c| c.is_ascii_uppercase() || c == '_')
                .collect();
            Ok(Message::Sign(Sign::Status(name)))
        }
        Some(b'E') if begins("Estimated peak HBM usage") => {
            let line = rest[..rest.len().min(NEAR_BYTES)].trim_ascii_end();
            cursor.skip(rest.len());
            let text = String::from_utf8_lossy(line).into_owned();
            Ok(Message::Sign(Sign::CompilerEstimate(text)))
        }
        Some(b's') if begins("status=") => status(cursor),
        Some(b'm') if begins("mempool") => mempool(cursor),
        Some(b'H') if begins("HBM ") => scratchpad_refused(cursor),
        _ if WRAPPED.iter().any(|word| word.starts_with(rest)) => Err(Stop::Cut),
        _ => Err(Stop::Other),
    }
}

/// Everything that begins with "Failed" or "Failure".
fn failed(cursor: &mut Cursor<'_>) -> Result<Message, Stop> {
    let mut ahead = *cursor;
    if ahead.eat("Failure:NRT_").is_ok() {
        let status = format!("NRT_{}", ahead.word()?);
        *cursor = ahead;
        return Ok(Message::Sign(Sign::Failure(status)));
    }
    ahead = *cursor;
    ahead.eat("Failedto")?;
    ahead.eat("alloc")?;
    // "alloc", "allocate"; a line may end between them.
    if ahead.eat("ate") == Err(Stop::Cut) {
        return Err(Stop::Cut);
    }
    let message = allocation(&mut ahead)?;
    *cursor = ahead;
    Ok(message)
}

/// What follows "Failed to allocate".
fn allocation(cursor: &mut Cursor<'_>) -> Result<Message, Stop> {
    for (words, place) in [("DEVICEmemory", Place::Device), ("HOSTmemory", Place::Host)] {
        if stopped(cursor.eat(words))? {
            let near = cursor.rest();
            let near = near[..near.len().min(NEAR_BYTES)].iter();
            cursor.skip(
                near.take_while(|&&byte| byte == b' ' || byte == b':' || byte == b'(')
                    .count(),
            );
            let is_in_parentheses = cursor.before().last() == Some(&b'(');
            let bytes = cursor.count()?;
            // Its digits may go on in the next line.
            if is_in_parentheses && cursor.eat("bytes") == Err(Stop::Cut) {
                return Err(Stop::Cut);
            }
            return Ok(Message::Exact { place, bytes });
        }
    }
    if stopped(cursor.eat("aligned("))? {
        let alignment = cursor.number()?;
        cursor.eat(")")?;
        seek(cursor, b"for ")?;
        let name = cursor.word()?;
        cursor.eat("ofsize")?;
        return Ok(Message::Object {
            place: Place::Device,
            bytes: Some(cursor.number()?),
            name,
            alignment_bytes: Some(alignment),
            hbm: cursor
                .eat("bytes,channel")
                .and_then(|()| cursor.number())
                .ok(),
        });
    }
    if stopped(cursor.eat("nrttensor"))? {
        return Ok(Message::Object {
            place: Place::Device,
            bytes: None,
            name: cursor.word()?,
            alignment_bytes: None,
            hbm: None,
        });
    }
    let mut ahead = *cursor;
    if let Ok(bytes) = ahead.number()
        && ahead.eat("byteson").is_ok()
    {
        let device = stopped(ahead.eat("DEVICE"))?;
        if !device {
            ahead.eat("HOST")?;
        }
        *cursor = ahead;
        let name = cursor.eat("fortensor").and_then(|()| cursor.word());
        return Ok(Message::Object {
            place: if device { Place::Device } else { Place::Host },
            bytes: Some(bytes),
            name: name.unwrap_or_default(),
            alignment_bytes: None,
            hbm: None,
        });
    }
    let rest = cursor.rest();
    let damaged = damaged_size(*cursor);
    let is_word = |at: usize| rest.get(at).is_some_and(u8::is_ascii_alphabetic);
    if damaged.is_none() && (is_word(0) || is_word(1)) {
        seek(cursor, b"for queue ").map_err(|_| Stop::Other)?;
        return Ok(Message::Object {
            place: Place::Device,
            bytes: None,
            name: cursor.word()?,
            alignment_bytes: None,
            hbm: None,
        });
    }
    let asked = match damaged {
        Some((cell, length)) => {
            cursor.skip(length);
            cell
        }
        None => Cell::from(cursor.size()?),
    };
    cursor.eat("(")?;
    let mut ahead = *cursor;
    match failure(asked, &mut ahead) {
        Ok(failure) => {
            *cursor = ahead;
            Ok(Message::Failure(failure))
        }
        Err(Stop::Cut) => Err(Stop::Cut),
        Err(Stop::Other) => Ok(Message::Broken),
    }
}

/// What stands before ` (usage: ` and is no size, and how long it is.
fn damaged_size(mut cursor: Cursor<'_>) -> Option<(Cell, usize)> {
    // LIMIT: a size has 12 letters, and damage may have added some.
    const DAMAGED_BYTES_MAX: usize = 24;
    let rest = cursor.rest();
    if cursor.size().is_ok() {
        return None;
    }
    let near = &rest[..rest.len().min(NEAR_BYTES)];
    let length = near.iter().position(|&byte| byte == b'(')?;
    let text = near[..length].trim_ascii();
    let is_short = (1..=DAMAGED_BYTES_MAX).contains(&text.len());
    let is_like = is_short && text.iter().any(u8::is_ascii_digit);
    let inside = near[length..].split(|&byte| byte == b')').next()?;
    let says_usage = memmem::find(inside, b"usage:").is_some();
    (is_like && says_usage).then(|| {
        let text = String::from_utf8_lossy(text).into_owned();
        (Cell::Unreadable(text), length)
    })
}

/// The rest of `4.000GB (alignment: none, usage: tensors) on ND 0:NC 4`, from within the
/// parentheses.
fn failure(asked: Cell, cursor: &mut Cursor<'_>) -> Result<Failure, Stop> {
    let inside = cursor.until(b")", NEAR_BYTES)?;
    let mut failure = Failure::new(asked);
    failure.read_inside(inside);
    cursor.eat("on")?;
    failure.device = readable(cursor, "ND")?;
    failure.core = readable(cursor, ":NC")?;
    let mut ahead = *cursor;
    match ahead.eat(",currentutilization:") {
        Ok(()) => {
            failure.has_list = true;
            *cursor = ahead;
        }
        // The line may end behind the core.
        Err(Stop::Cut) if !cursor.rest().trim_ascii().is_empty() => return Err(Stop::Cut),
        Err(_) if failure.core.is_none() => {
            failure.has_list = seek(cursor, b"current utilization:").is_ok();
        }
        Err(_) => {}
    }
    Ok(failure)
}

/// The number behind `word`; `None` if one of them is damaged.
fn readable(cursor: &mut Cursor<'_>, word: &str) -> Result<Option<u32>, Stop> {
    let mut ahead = *cursor;
    let read = ahead.eat(word).and_then(|()| {
        *cursor = ahead;
        ahead.number()
    });
    match read {
        Ok(number) => {
            *cursor = ahead;
            Ok(Some(number))
        }
        Err(Stop::Cut) => Err(Stop::Cut),
        Err(Stop::Other) => Ok(None),
    }
}

/// A failure line of which the end is lost, if its size is there.
pub(super) fn of_cut(text: &[u8]) -> Option<Failure> {
    let mut cursor = Cursor::new(text, 0);
    cursor.eat("Failedtoalloc").ok()?;
    let _ = cursor.eat("ate");
    let asked = match damaged_size(cursor) {
        Some((cell, length)) => {
            cursor.skip(length);
            cell
        }
        None => Cell::from(cursor.size().ok()?),
    };
    let mut failure = Failure::new(asked);
    failure.is_cut = true;
    if cursor.eat("(").is_ok() {
        let inside = cursor.rest();
        let end = inside.iter().position(|&byte| byte == b')');
        // What the end of the line has cut is not known.
        let known = end.or_else(|| inside.iter().rposition(|&byte| byte == b','));
        failure.read_inside(&inside[..known.unwrap_or(0)]);
        cursor.skip(end.map_or(inside.len(), |end| end + 1));
        if cursor.eat("onND").is_ok() {
            // Its digits may have been more.
            let device = cursor.number().ok();
            failure.device = device.filter(|_| !cursor.rest().is_empty());
            failure.core = cursor.eat(":NC").and_then(|()| cursor.number()).ok();
        }
    }
    Some(failure)
}

impl Failure {
    fn new(asked: Cell) -> Self {
        Self {
            asked,
            alignment: None,
            usage: None,
            device: None,
            core: None,
            has_list: false,
            is_cut: false,
        }
    }

    /// Reads `alignment: none, usage: tensors`.
    fn read_inside(&mut self, inside: &[u8]) {
        for part in inside.split(|&byte| byte == b',') {
            let mut part = Cursor::new(part, 0);
            if part.eat("usage:").is_ok() {
                self.usage = Some(category::named(part.rest().trim_ascii()));
            } else if part.eat("alignment:").is_ok() {
                let text = String::from_utf8_lossy(part.rest().trim_ascii()).into_owned();
                self.alignment = Some((text, part.size().ok()));
            }
        }
    }
}

/// What begins with "ND 0:NC 1" outside a failure line.
fn place(cursor: &mut Cursor<'_>) -> Result<Message, Stop> {
    let mut ahead = *cursor;
    let other = |_| Stop::Other;
    ahead.eat("ND").map_err(other)?;
    let device = ahead.number().map_err(other)?;
    ahead.eat(":NC").map_err(other)?;
    let core = ahead.number().map_err(other)?;
    let message = if stopped(ahead.eat("]"))? {
        ahead.eat("CurrentUsageTotal:")?;
        let total = ahead.size()?;
        Message::InfoHead {
            device,
            core,
            total,
        }
    } else {
        ahead.eat(",currentutilization:")?;
        Message::ListHead { device, core }
    };
    *cursor = ahead;
    Ok(message)
}

fn lnc(cursor: &mut Cursor<'_>) -> Result<Message, Stop> {
    const CORES_MAX: usize = 16;
    cursor.eat("LNCsizeis")?;
    let size = cursor.number()?;
    cursor.eat(".NeuronCoresusingthisHBM:")?;
    let mut cores = Vec::new();
    while cores.len() < CORES_MAX {
        let mut ahead = *cursor;
        let _ = ahead.eat(",");
        let and = ahead.eat("and");
        if and == Err(Stop::Cut) && !ahead.rest().trim_ascii().is_empty() {
            return Err(Stop::Cut);
        }
        let is_last = and.is_ok();
        // The first one always comes, and so does one behind "and".
        let must_come = is_last || cores.is_empty();
        match ahead.eat("NC").and_then(|()| ahead.number()) {
            Ok(core) => cores.push(core),
            Err(Stop::Cut) if must_come => return Err(Stop::Cut),
            Err(_) => break,
        }
        *cursor = ahead;
    }
    Ok(Message::Lnc { size, cores })
}

/// The path, of which a notebook may have made a Markdown link.
fn event_file(cursor: &mut Cursor<'_>) -> Result<Message, Stop> {
    const ENDS: &[u8] = b".csv";
    cursor.eat("Wrotenrtmemoryallocdebuginfoto")?;
    cursor.skip_space();
    let rest = cursor.rest();
    let word = rest.iter().take_while(|byte| !byte.is_ascii_whitespace());
    let length = word.count().min(NAME_BYTES_MAX);
    let word = &rest[..length];
    // Behind the path, another line may be glued to it.
    let Some(end) = memmem::find(word, ENDS) else {
        let is_cut = length == rest.len() && length < NAME_BYTES_MAX;
        return Err(if is_cut { Stop::Cut } else { Stop::Other });
    };
    let end = end + ENDS.len();
    let path = word[..end].strip_prefix(b"[").unwrap_or(&word[..end]);
    let path = String::from_utf8_lossy(path).into_owned();
    let is_link = path.len() < end;
    cursor.skip(if is_link { length } else { end });
    Ok(Message::EventFile(path))
}

/// `status=4 message="Allocation Failure"`; another program's status is none of ours.
fn status(cursor: &mut Cursor<'_>) -> Result<Message, Stop> {
    cursor.eat("status=")?;
    let number: u32 = cursor.number()?;
    cursor.eat("message=\"").map_err(|_| Stop::Other)?;
    let text = cursor.until(b"\"\\", NEAR_BYTES).map_err(|_| Stop::Other)?;
    if number == 0 {
        return Err(Stop::Other);
    }
    let text = String::from_utf8_lossy(text);
    Ok(Message::Sign(Sign::Status(format!("{number} ({text})"))))
}

/// `device mempool [1:0] total 17179869184 occupied 16977493504 needed 45429760 available
/// 202375680`.
fn mempool(cursor: &mut Cursor<'_>) -> Result<Message, Stop> {
    cursor.eat("mempool")?;
    let mut hbm = None;
    if cursor.eat("[").is_ok() {
        hbm = Some(cursor.number().map_err(|_| Stop::Other)?);
    }
    let other = |_| Stop::Other;
    seek(cursor, b"occupied ").map_err(other)?;
    let occupied_bytes = cursor.count().map_err(other)?;
    seek(cursor, b"needed ").map_err(other)?;
    Ok(Message::Kernel {
        device: None,
        hbm,
        needed_bytes: cursor.count().map_err(other)?,
        occupied_bytes: Some(occupied_bytes),
    })
}

/// `nd 0 HBM 1: Could not allocate 536870912 bytes at offset 0x.. for contiguous scratchpad`.
fn scratchpad_refused(cursor: &mut Cursor<'_>) -> Result<Message, Stop> {
    let before = String::from_utf8_lossy(cursor.before()).into_owned();
    let device = before
        .trim_end()
        .rsplit_once("nd ")
        .and_then(|(_, number)| number.trim().parse().ok());
    let mut ahead = *cursor;
    let other = |_| Stop::Other;
    ahead.eat("HBM").map_err(other)?;
    let hbm = ahead.number().map_err(other)?;
    ahead.eat(":Couldnotallocate").map_err(other)?;
    let needed_bytes = ahead.count().map_err(other)?;
    ahead.eat("bytes").map_err(other)?;
    *cursor = ahead;
    Ok(Message::Kernel {
        device,
        hbm: Some(hbm),
        needed_bytes,
        occupied_bytes: None,
    })
}

/// Goes behind `words`, which must stand near.
fn seek(cursor: &mut Cursor<'_>, words: &[u8]) -> Result<(), Stop> {
    let rest = cursor.rest();
    let near = &rest[..rest.len().min(NEAR_BYTES)];
    let found = near.windows(words.len()).position(|part| part == words);
    cursor.skip(found.ok_or(Stop::Other)? + words.len());
    Ok(())
}

/// Whether words stood there; only a cut is passed on.
fn stopped(eaten: Result<(), Stop>) -> Result<bool, Stop> {
    match eaten {
        Ok(()) => Ok(true),
        Err(Stop::Other) => Ok(false),
        Err(Stop::Cut) => Err(Stop::Cut),
    }
}
