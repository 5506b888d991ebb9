//! The prefix of a line that the runtime wrote: `2024-Jul-10 09:14:35.595755 12878:14356 ERROR
//! TDRV:log_dev_mem`.
//!
//! It is found by its level and component, which every copy of a log has kept; time and thread
//! before them may be missing, and so may the white space around.

use super::report::Thread;

const LEVELS: [&[u8]; 6] = [b"ERROR", b"WARN", b"INFO", b"DEBUG", b"TRACE", b"FATAL"];
// LIMIT: components have three or four letters so far.
const COMPONENT_BYTES_MAX: usize = 8;
/// As the runtime writes a date, and as others do.
const DATES: [&[u8]; 2] = [b"0000-Aaa-00", b"0000-00-00"];

/// How many digits a year has.
pub(super) const YEAR_DIGITS: usize = 4;

/// Whether a date goes on here, of which the year stands before.
pub(super) fn is_date_behind_year(text: &[u8]) -> bool {
    DATES
        .iter()
        .any(|date| begins_like(&date[YEAR_DIGITS..], text))
}

/// Whether a date stands here.
pub(super) fn is_date(text: &[u8]) -> bool {
    DATES.iter().any(|date| begins_like(date, text))
}

/// Who wrote the message that follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) thread: Option<Thread>,
    pub(super) is_error: bool,
}

/// The header whose level stands at `at`: where it starts, which is not before `floor`, and where
/// it ends.
pub(super) fn read(line: &[u8], at: usize, floor: usize) -> Option<(usize, usize, Header)> {
    let rest = &line[at..];
    let level = LEVELS.iter().find(|level| rest.starts_with(level))?;
    let space = spaces(&rest[level.len()..]);
    let component = &rest[level.len() + space..];
    let name = component
        .iter()
        .take(COMPONENT_BYTES_MAX + 1)
        .take_while(|byte| byte.is_ascii_uppercase())
        .count();
    if space == 0
        || !(2..=COMPONENT_BYTES_MAX).contains(&name)
        || component.get(name) != Some(&b':')
    {
        return None;
    }
    let end = at + level.len() + space + name + 1;
    let (start, thread) = before(&line[floor.min(at)..at]);
    let header = Header {
        thread,
        is_error: matches!(*level, b"ERROR" | b"FATAL"),
    };
    Some((start + floor.min(at), end, header))
}

/// Where `TDRV:log_dev_mem` begins at the end of `text`, which has lost what stands before it.
pub(super) fn component_at_end(text: &[u8]) -> Option<usize> {
    let text = trimmed(text);
    let is_of_name =
        |byte: &&u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || **byte == b'_';
    let name = text.iter().rev().take_while(is_of_name).count();
    let before = text[..text.len() - name].strip_suffix(b":")?;
    let component = before.iter().rev();
    let component = component
        .take_while(|byte| byte.is_ascii_uppercase())
        .count();
    let is_whole =
        before.len() == component || before[before.len() - component - 1].is_ascii_whitespace();
    ((2..=COMPONENT_BYTES_MAX).contains(&component) && name > 0 && is_whole)
        .then(|| before.len() - component)
}

/// Where time and thread begin at the end of `text`, and the thread.
fn before(text: &[u8]) -> (usize, Option<Thread>) {
    let mut left = trimmed(text);
    let mut thread = None;
    if let Some((rest, found)) = thread_at_end(left) {
        left = trimmed(rest);
        thread = Some(found);
    }
    let mut start = if thread.is_some() {
        left.len()
    } else {
        text.len()
    };
    let time = left.iter().rev();
    let time = time.take_while(|byte| byte.is_ascii_digit() || b":.".contains(byte));
    let time = time.count();
    if time >= b"00:00:00".len() {
        left = &left[..left.len() - time];
        start = left.len();
        left = trimmed(left);
        left = left.strip_suffix(b"T").unwrap_or(left);
        let dates = DATES.iter().filter_map(|date| {
            let rest = left.len().checked_sub(date.len())?;
            begins_like(date, &left[rest..]).then_some(rest)
        });
        start = dates.min().unwrap_or(start);
    }
    (start, thread)
}

fn thread_at_end(text: &[u8]) -> Option<(&[u8], Thread)> {
    let (rest, tid) = number_at_end(text)?;
    let rest = rest.strip_suffix(b":")?;
    let (rest, pid) = number_at_end(rest)?;
    // "14:35" of a time without fraction is no thread.
    if rest.last().is_some_and(|byte| b":.".contains(byte)) {
        return None;
    }
    Some((rest, Thread { pid, tid }))
}

fn number_at_end(text: &[u8]) -> Option<(&[u8], u64)> {
    let digits = text.iter().rev();
    let digits = digits.take_while(|byte| byte.is_ascii_digit()).count();
    let (rest, digits) = text.split_at(text.len() - digits);
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((rest, number))
}

/// Whether each byte is of the kind of its pattern.
fn begins_like(pattern: &[u8], text: &[u8]) -> bool {
    text.len() >= pattern.len()
        && pattern.iter().zip(text).all(|(wanted, byte)| match wanted {
            b'0' => byte.is_ascii_digit(),
            b'-' => *byte == b'-',
            _ => byte.is_ascii_alphabetic(),
        })
}

fn spaces(text: &[u8]) -> usize {
    text.iter()
        .take_while(|&&byte| byte == b' ' || byte == b'\t')
        .count()
}

fn trimmed(text: &[u8]) -> &[u8] {
    text.trim_ascii_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(line: &str) -> Option<(usize, usize, Header)> {
        let at = line.find("ERROR")?;
        read(line.as_bytes(), at, 0)
    }

    const THREAD: Thread = Thread {
        pid: 4703,
        tid: 4866,
    };

    #[test]
    fn time_and_thread_belong_to_the_header() {
        let line = "x | 96.0652023-Oct-02 08:17:45.0945  4703:4866  ERROR  TDRV:dml_dump";
        let (start, end, header) = header(line).unwrap();
        assert_eq!((start, &line[end..]), (10, "dml_dump"));
        assert_eq!(header.thread, Some(THREAD));
        assert!(header.is_error);
    }

    #[test]
    fn time_and_thread_may_be_missing() {
        assert_eq!(header("ERROR  TDRV:f").unwrap().2.thread, None);
        assert_eq!(header("08:17:45 ERROR  TDRV:f").unwrap().2.thread, None);
        assert_eq!(
            header("4703:4866 ERROR  TDRV:f").unwrap().2.thread,
            Some(THREAD)
        );
        assert_eq!(
            header("4703:4866ERROR NRT:f").unwrap().2.thread,
            Some(THREAD)
        );
    }

    #[test]
    fn an_error_of_someone_else_is_no_header() {
        assert_eq!(header("ERROR: no such file"), None);
        assert_eq!(header("an ERROR occurred at HBM: full"), None);
        assert_eq!(header("ERROR TDRV"), None);
        assert_eq!(header("ERROR"), None);
    }
}
