//! Sizes as the runtime prints them: three decimals, one of four units, powers of 1024.
//!
//! A printed size has lost bytes: `43.325MB` is any of some thousand sizes. So the text is kept
//! beside the bytes computed from it, and two sizes are compared by printing the exact one, never
//! by turning the printed one back.

use serde::Serialize;

use super::header;

const UNITS: [&str; 4] = ["B", "KB", "MB", "GB"];
// LIMIT: the digits of 2^64; one with more is too large, whatever its unit.
const WHOLE_DIGITS_MAX: usize = 20;
// LIMIT: more digits than these are no size at all.
const DIGITS_MAX: usize = 64;
const FRACTION_DIGITS_MAX: usize = 9;

/// A printed size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Size {
    /// As printed, without white space between number and unit.
    pub text: String,
    /// The bytes of the text, rounded to the nearest.
    pub bytes: u64,
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
            text: printed(bytes),
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
        let whole = digits(text);
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
        at += text[at..].iter().take_while(|&&byte| byte == b' ').count();
        let (exponent, unit) = unit(&text[at..])?;
        let end = at + unit.len();
        // Another line may be glued to it.
        let is_glued = || header::is_date(&text[end..]);
        if text.get(end).is_some_and(u8::is_ascii_alphanumeric) && !is_glued() {
            return None;
        }
        let number = std::str::from_utf8(&text[..number_end]).ok()?;
        let text = format!("{number}{unit}");
        if whole.len() > WHOLE_DIGITS_MAX {
            return Some((Err(TooLarge { text }), end));
        }
        // 20 digits, 9 behind the point and 30 bits of a unit are less than 2^128.
        let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
        let number = value(whole)? * scale + value(fraction)?;
        let bytes = ((number << (10 * exponent)) + scale / 2) / scale;
        let size = match u64::try_from(bytes) {
            Ok(bytes) => Ok(Self { text, bytes }),
            Err(_) => Err(TooLarge { text }),
        };
        Some((size, end))
    }

    /// Half of the last printed digit, in bytes: how far the true size may be from `bytes`.
    #[must_use]
    pub fn rounding_bytes(&self) -> u64 {
        let unit = self
            .text
            .trim_start_matches(|c: char| !c.is_ascii_alphabetic());
        let exponent = UNITS.iter().position(|&known| known == unit).unwrap_or(0);
        if exponent == 0 {
            return 0;
        }
        (1_u64 << (10 * exponent)).div_ceil(2000)
    }

    /// Whether this text is what the runtime prints for `bytes`.
    #[must_use]
    pub fn is_printed(&self, bytes: u64) -> bool {
        self.text == printed(bytes)
    }
}

/// What the runtime prints for `bytes`.
#[must_use]
pub fn printed(bytes: u64) -> String {
    let mut exponent = 0;
    while exponent + 1 < UNITS.len() && bytes >> (10 * (exponent + 1)) > 0 {
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

fn value(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0_u128, |value, digit| {
        value
            .checked_mul(10)?
            .checked_add(u128::from(digit.checked_sub(b'0')?))
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
    fn the_exact_bytes_are_known_by_their_print() {
        let (size, length) = Size::parse(b"13.107MB (usage").unwrap();
        assert_eq!((size.text.as_str(), length), ("13.107MB", 8));
        assert!(size.is_printed(13_743_184));
        assert!(!size.is_printed(13_744_384));
        assert_eq!(size.rounding_bytes(), 525);
    }
}
