//! Sizes as the runtime prints them: three decimals, one of four units, powers of 1024. TB, and
//! digits in groups of three, are the work of other tools.
//!
//! A printed size has lost bytes: `43.325MB` is any of some thousand sizes. So the text is kept
//! beside the bytes computed from it, and two sizes are compared by printing the exact one, never
//! by turning the printed one back.

use std::fmt;
use std::ops::Deref;

use serde::{Serialize, Serializer};

use super::header;

const UNITS: [&str; 5] = ["B", "KB", "MB", "GB", "TB"];
/// The runtime itself goes no further than GB; other tools do.
const UNITS_PRINTED: usize = 4;
// LIMIT: the digits of 2^64; one with more is too large, whatever its unit.
const WHOLE_DIGITS_MAX: usize = 20;
// LIMIT: more digits than these are no size at all.
const DIGITS_MAX: usize = 64;
const FRACTION_DIGITS_MAX: usize = 9;
const UNIT_BYTES_MAX: usize = 2;
/// Powers of ten, by the digits behind the point.
const TENS: [u64; FRACTION_DIGITS_MAX + 1] = {
    let mut tens = [1; FRACTION_DIGITS_MAX + 1];
    let mut at = 1;
    while at < tens.len() {
        tens[at] = 10 * tens[at - 1];
        at += 1;
    }
    tens
};
// LIMIT: digits, point, digits, unit. One with commas that is longer is no size.
const TEXT_BYTES_MAX: usize = WHOLE_DIGITS_MAX + 1 + FRACTION_DIGITS_MAX + UNIT_BYTES_MAX;

/// A printed size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Size {
    /// As printed, without white space between number and unit.
    pub text: SizeText,
    /// The bytes of the text, rounded to the nearest.
    pub bytes: u64,
}

/// The text of a size, kept in place: a log may have more sizes than lines.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SizeText {
    letters: [u8; TEXT_BYTES_MAX],
    /// At most [`TEXT_BYTES_MAX`]; what is behind is 0.
    length: u8,
}

impl SizeText {
    /// One after the other; what does not fit is left out.
    fn of(number: &[u8], unit: &str) -> Self {
        let mut text = Self {
            letters: [0; TEXT_BYTES_MAX],
            length: 0,
        };
        let letters = number.iter().copied().chain(unit.bytes());
        for (place, letter) in text.letters.iter_mut().zip(letters) {
            *place = letter;
            text.length += 1;
        }
        text
    }
}

impl Deref for SizeText {
    type Target = str;

    fn deref(&self) -> &str {
        let letters = self.letters.get(..usize::from(self.length));
        str::from_utf8(letters.unwrap_or_default()).unwrap_or_default()
    }
}

impl fmt::Display for SizeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for SizeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl Serialize for SizeText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

/// A printed size of 2^64 bytes or more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text} is more than 2^64 bytes")]
pub struct TooLarge {
    /// As printed, without white space between number and unit.
    pub text: String,
}

impl Size {
    /// A size of which the log has all bytes, printed as it was.
    #[must_use]
    pub fn exact(bytes: u64) -> Self {
        Self {
            text: SizeText::of(printed(bytes).as_bytes(), ""),
            bytes,
        }
    }

    /// The size at the beginning of `text` and how many bytes long it is; `None` if there is none,
    /// or one that is too large.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<(Self, usize)> {
        let (size, length) = Self::read(text)?;
        Some((size.ok()?, length))
    }

    /// The same, which tells a size that is too large from none.
    #[must_use]
    pub fn read(text: &[u8]) -> Option<(Result<Self, TooLarge>, usize)> {
        let (whole, commas) = grouped(text);
        let mut at = whole.len();
        let mut fraction: &[u8] = &[];
        if text.get(at) == Some(&b'.') {
            fraction = digits(&text[at + 1..]);
            at += 1 + fraction.len();
            if fraction.is_empty() {
                return None;
            }
        }
        if whole.is_empty() || whole.len() > DIGITS_MAX || fraction.len() > FRACTION_DIGITS_MAX {
            return None;
        }
        let number_end = at;
        // "1,024MB" may as well be a point in other countries.
        let is_ambiguous = commas == 1 && fraction.is_empty();
        if commas > 0 && (is_ambiguous || number_end + UNIT_BYTES_MAX > TEXT_BYTES_MAX) {
            return None;
        }
        at += text[at..].iter().take_while(|&&byte| byte == b' ').count();
        let (exponent, unit) = unit(&text[at..])?;
        let end = at + unit.len();
        // Another line may be glued to it.
        let is_glued = || header::is_date(&text[end..]);
        if text.get(end).is_some_and(u8::is_ascii_alphanumeric) && !is_glued() {
            return None;
        }
        let too_large = || {
            let number = String::from_utf8_lossy(&text[..number_end]);
            let text = format!("{number}{unit}");
            Some((Err(TooLarge { text }), end))
        };
        if whole.len() - commas > WHOLE_DIGITS_MAX {
            return too_large();
        }
        let scale = u128::from(TENS[fraction.len()]);
        let behind = u128::from(value(fraction).unwrap_or(0)) << (10 * exponent);
        let behind = u64::try_from((behind + scale / 2) / scale).ok()?;
        let before = value(whole).and_then(|whole| whole.checked_mul(1 << (10 * exponent)));
        let Some(bytes) = before.and_then(|before| before.checked_add(behind)) else {
            return too_large();
        };
        let text = SizeText::of(&text[..number_end], unit);
        Some((Ok(Self { text, bytes }), end))
    }

    /// Half of the last printed digit, in bytes: how far the true size may be from `bytes`.
    #[must_use]
    pub fn rounding_bytes(&self) -> u64 {
        // All units end alike.
        let text = self.text.as_bytes();
        let exponent = match text {
            [.., b'K', b'B'] => 1,
            [.., b'M', b'B'] => 2,
            [.., b'G', b'B'] => 3,
            [.., b'T', b'B'] => 4,
            _ => return 0,
        };
        // Behind the point, and before the unit.
        let point = text.iter().rposition(|&byte| byte == b'.');
        let decimals = point.map_or(0, |point| text.len() - point - 1 - UNIT_BYTES_MAX);
        (1_u64 << (10 * exponent)).div_ceil(2 * TENS[decimals.min(FRACTION_DIGITS_MAX)])
    }

    /// Whether this text is what the runtime prints for `bytes`.
    #[must_use]
    pub fn is_printed(&self, bytes: u64) -> bool {
        let printed = printed(bytes);
        let digits = self.text.bytes().filter(|&byte| byte != b',');
        digits.eq(printed.bytes())
    }

    /// The fewest and the most bytes that print as this size.
    #[must_use]
    pub fn bounds(&self) -> (u64, u64) {
        let near = [self.bytes, self.bytes.saturating_sub(1)];
        let Some(inside) = near.into_iter().find(|&bytes| self.is_printed(bytes)) else {
            return (self.bytes, self.bytes);
        };
        let reach = self.rounding_bytes() + 1;
        let edge = |mut inside: u64, mut outside: u64| {
            // Both ends are kept: one prints as the text, the other does not.
            while inside.abs_diff(outside) > 1 {
                let middle = inside.midpoint(outside);
                if self.is_printed(middle) {
                    inside = middle;
                } else {
                    outside = middle;
                }
            }
            inside
        };
        let low = inside.saturating_sub(2 * reach);
        let low = if self.is_printed(low) {
            low
        } else {
            edge(inside, low)
        };
        (low, edge(inside, inside.saturating_add(2 * reach)))
    }
}

/// What the runtime prints for `bytes`.
#[must_use]
pub fn printed(bytes: u64) -> String {
    let mut exponent = 0;
    while exponent + 1 < UNITS_PRINTED && bytes >> (10 * (exponent + 1)) > 0 {
        exponent += 1;
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "the runtime prints a double as well"
    )]
    let number = bytes as f64 / (1_u64 << (10 * exponent)) as f64;
    format!("{number:.3}{}", UNITS[exponent])
}

fn digits(text: &[u8]) -> &[u8] {
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    &text[..count]
}

/// The digits at the beginning of `text` with the commas between groups of three, and how many of
/// those there are.
pub(super) fn grouped(text: &[u8]) -> (&[u8], usize) {
    let first = digits(text).len();
    let mut end = first;
    let mut commas = 0;
    while (1..=3).contains(&first)
        && text.get(end) == Some(&b',')
        && digits(&text[end + 1..]).len() == 3
    {
        end += 4;
        commas += 1;
    }
    (&text[..end], commas)
}

/// `None` if it is more than a `u64` holds.
pub(super) fn value(digits: &[u8]) -> Option<u64> {
    let mut digits = digits.iter().filter(|&&digit| digit != b',');
    digits.try_fold(0_u64, |value, digit| {
        value
            .checked_mul(10)?
            .checked_add(u64::from(digit.checked_sub(b'0')?))
    })
}

fn unit(text: &[u8]) -> Option<(usize, &'static str)> {
    UNITS
        .iter()
        .enumerate()
        .find(|(_, unit)| text.starts_with(unit.as_bytes()))
        .map(|(exponent, unit)| (exponent, *unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Option<u64> {
        Size::parse(text.as_bytes()).map(|(size, _)| size.bytes)
    }

    #[test]
    fn a_size_is_printed_as_the_runtime_prints_it() {
        assert_eq!(printed(0), "0.000B");
        assert_eq!(printed(1088), "1.062KB"); // 1.0625: the tie rounds to even
        assert_eq!(printed(13_743_184), "13.107MB");
        assert_eq!(printed(45_429_760), "43.325MB");
        assert_eq!(printed(180_355_072), "172.000MB");
        assert_eq!(printed((1 << 30) - 1), "1024.000MB");
        assert_eq!(printed(3 << 39), "1536.000GB");
    }

    #[test]
    fn a_printed_size_becomes_the_nearest_byte() {
        assert_eq!(bytes("0.000B"), Some(0));
        assert_eq!(bytes("1.062KB"), Some(1087)); // 1087.488
        assert_eq!(bytes("43.325MB"), Some(45_429_555)); // 45429555.2
        assert_eq!(bytes("4.000GB,"), Some(4 << 30));
        assert_eq!(bytes("1536.000GB"), Some(3 << 39));
        assert_eq!(bytes("12 MB"), Some(12 << 20));
    }

    #[test]
    fn terabytes_and_groups_of_digits_are_read() {
        assert_eq!(bytes("1.5TB"), Some(3 << 39));
        assert_eq!(bytes("16777216TB"), None); // 2^64
        assert_eq!(bytes("1,024.000MB"), Some(1 << 30));
        assert_eq!(bytes("1,234,567B"), Some(1_234_567));
        assert_eq!(bytes("1,024MB"), None); // perhaps a point
        assert_eq!(bytes("1024,000.5MB"), None);
        let (size, length) = Size::parse(b"1,024.000MB (usage").unwrap();
        assert_eq!((&*size.text, length), ("1,024.000MB", 11));
        let (size, _) = Size::parse(b"1.5TB").unwrap();
        assert_eq!(size.rounding_bytes(), (1_u64 << 40).div_ceil(20));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "MB",
            "12",
            "1.MB",
            "1.5",
            "1.5MBit",
            "1.5XB",
            "1.0000000001B",
        ] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }

    #[test]
    fn a_size_of_2_to_the_64_is_told_from_none() {
        let read = |text: &str| Size::read(text.as_bytes()).map(|(size, _)| size.ok());
        assert_eq!(bytes("18446744073709551615B"), Some(u64::MAX));
        let nines = "9".repeat(64);
        for text in [
            "18446744073709551616B",
            "17179869184.000GB",
            "99999999999999999999.999999999GB",
            &format!("{nines}MB"),
        ] {
            assert_eq!(read(text), Some(None), "{text}");
        }
        assert_eq!(read(&format!("9{nines}MB")), None);
    }

    #[test]
    fn separators_of_thousands_are_looked_past() {
        let (size, length) = Size::parse(b"16,355.328MB (").unwrap();
        assert_eq!((&*size.text, length), ("16,355.328MB", 12));
        assert_eq!(bytes("1,048,576B"), Some(1 << 20));
        for text in ["1,24MB", "1,0240MB", "1234,567MB", ",123MB", "1,,234MB"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }

    #[test]
    fn the_longest_text_of_a_size_is_kept_whole() {
        let longest = "00000000001099511627.123456789KB";
        let (size, _) = Size::parse(longest.as_bytes()).unwrap();
        assert_eq!((&*size.text, size.text.len()), (longest, TEXT_BYTES_MAX));
        assert_eq!(size.bytes, 1_125_899_906_174);
    }

    #[test]
    fn the_exact_bytes_are_known_by_their_print() {
        let (size, length) = Size::parse(b"13.107MB (usage").unwrap();
        assert_eq!((&*size.text, length), ("13.107MB", 8));
        assert!(size.is_printed(13_743_184));
        assert!(!size.is_printed(13_744_384));
        assert_eq!(size.rounding_bytes(), 525);
    }
}
