//! Sizes as people write them: `4096`, `"64KiB"`, `"1.5GiB"`.

use std::fmt;

use serde::Serialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Unexpected, Visitor};

use super::Bounds;

/// Units and their powers of two.
const UNITS: [(&str, u32); 5] = [("B", 0), ("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
// LIMIT: a fraction with more digits than a TiB has bits names no whole byte.
const FRACTION_DIGITS_MAX: usize = 40;

/// A text that is no size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no size: {why}")]
pub struct BadSize {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub why: SizeFault,
}

/// What is wrong with a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SizeFault {
    /// It does not begin with a number.
    #[error("write a whole number of bytes, or a number and a unit: 4096, \"64KiB\", \"1.5GiB\"")]
    Form,
    /// Its unit is none.
    #[error("units are B, KiB, MiB, GiB and TiB, of 1024 each")]
    Unit,
    /// It is in the middle of a byte.
    #[error(
        "that is no whole number of bytes: take a smaller unit, or a fraction that halving gives, such as 1.25"
    )]
    Fraction,
    /// It is 2^64 bytes or more.
    #[error("that is too large: sizes are below 2^64 bytes")]
    TooLarge,
    /// It is the name of a parameter, and there are none.
    #[error("parameters stand for something where the first line declares them under \"params\"")]
    Parameter,
}

/// A size in bytes, from a number or a string; written as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Size(pub(crate) u64);

/// The bytes that the text says.
pub(super) fn parse(text: &str) -> Result<u64, BadSize> {
    exact(text.trim()).map_err(|why| BadSize {
        text: text.chars().take(64).collect(),
        why,
    })
}

fn exact(text: &str) -> Result<u64, SizeFault> {
    if text.starts_with('$') {
        return Err(SizeFault::Parameter);
    }
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if number.ends_with('.') || whole.is_empty() || fraction.contains('.') {
        return Err(SizeFault::Form);
    }
    let unit = unit.trim_start();
    let shift = match UNITS.iter().find(|(name, _)| *name == unit) {
        Some(&(_, shift)) => shift,
        None if unit.is_empty() => 0,
        None => return Err(SizeFault::Unit),
    };
    // Digits, so it can only be too large.
    let whole = whole.parse::<u64>().map_err(|_| SizeFault::TooLarge)?;
    let fraction_bytes = fraction_bytes(fraction, shift).ok_or(SizeFault::Fraction)?;
    let bytes = (u128::from(whole) << shift) + fraction_bytes;
    u64::try_from(bytes).map_err(|_| SizeFault::TooLarge)
}

/// The bytes of `0.<fraction>` times 2^shift; `None` if they are no whole number.
fn fraction_bytes(fraction: &str, shift: u32) -> Option<u128> {
    let digits = fraction.trim_end_matches('0');
    if digits.len() > FRACTION_DIGITS_MAX {
        return None;
    }
    // One bit at a time: doubling the decimal fraction carries the next bit out of it. What is left
    // after `shift` bits would be less than a byte.
    let mut decimal: Vec<u8> = digits.bytes().map(|byte| byte - b'0').collect();
    let mut bytes = 0;
    for _ in 0..shift {
        let mut carry = 0;
        for digit in decimal.iter_mut().rev() {
            let doubled = *digit * 2 + carry;
            *digit = doubled % 10;
            carry = doubled / 10;
        }
        bytes = bytes * 2 + u128::from(carry);
    }
    decimal.iter().all(|&digit| digit == 0).then_some(bytes)
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Sizes;

        impl Visitor<'_> for Sizes {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size, such as 4096, \"64KiB\" or \"1.5GiB\"")
            }

            fn visit_u64<E: Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }

            /// What JSON has no whole number for: one with a fraction, or of 2^64 and more.
            fn visit_f64<E: Error>(self, number: f64) -> Result<Size, E> {
                let why = match number.fract() == 0.0 && number > 0.0 {
                    true => SizeFault::TooLarge,
                    false => SizeFault::Form,
                };
                let text = number.to_string();
                Err(E::custom(BadSize { text, why }))
            }

            /// TOML's integers have a sign.
            fn visit_i64<E: Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes)
                    .map(Size)
                    .map_err(|_| E::invalid_value(Unexpected::Signed(bytes), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                parse(text).map(Size).map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Sizes)
    }
}

/// An address as the device sees it: `"0x4001000000"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Address(pub(super) u64);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Addresses;

        impl Visitor<'_> for Addresses {
            type Value = Address;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address, such as \"0x4001000000\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Address, E> {
                let digits = text.strip_prefix("0x").filter(|it| !it.starts_with('+'));
                digits
                    .and_then(|digits| u64::from_str_radix(digits, 16).ok())
                    .map(Address)
                    .ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_str(Addresses)
    }
}

/// The bounds of a size: a size, which is exact, or `{"least": …, "most": …}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BoundsValue(pub(super) Bounds);

/// One of the two may be left out.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct LeastMost {
    least: Option<Size>,
    most: Option<Size>,
}

impl<'de> Deserialize<'de> for BoundsValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BoundsValues;

        impl<'de> Visitor<'de> for BoundsValues {
            type Value = BoundsValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size, or an object of \"least\" and \"most\"")
            }

            fn visit_u64<E: Error>(self, bytes: u64) -> Result<BoundsValue, E> {
                let (least, most) = (bytes, bytes);
                Ok(BoundsValue(Bounds { least, most }))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<BoundsValue, E> {
                self.visit_u64(parse(text).map_err(E::custom)?)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<BoundsValue, A::Error> {
                let bounds = LeastMost::deserialize(MapAccessDeserializer::new(map))?;
                let (least, most) = match (bounds.least, bounds.most) {
                    (None, None) => {
                        return Err(A::Error::custom("bounds need \"least\", \"most\" or both"));
                    }
                    (least, most) => (
                        least.map_or(0, |least| least.0),
                        most.map_or(u64::MAX, |most| most.0),
                    ),
                };
                if least > most {
                    let text = format!("nothing is at least {least} and at most {most} bytes");
                    return Err(A::Error::custom(text));
                }
                Ok(BoundsValue(Bounds { least, most }))
            }
        }

        deserializer.deserialize_any(BoundsValues)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_exact() {
        let cases = [
            ("0", 0),
            ("4096", 4096),
            ("64KiB", 65_536),
            ("512 MiB", 512 << 20),
            ("1.5GiB", 3 << 29),
            ("0.0009765625KiB", 1),
            ("16TiB", 16 << 40),
            ("18446744073709551615B", u64::MAX),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_what_is_wrong() {
        use SizeFault::{Form, Fraction, Parameter, TooLarge, Unit};
        let texts = [
            ("", Form),
            ("KiB", Form),
            ("-1", Form),
            ("1.", Form),
            (".5KiB", Form),
            ("1.2.3KiB", Form),
            ("0.1KiB", Fraction),
            ("0.5", Fraction),
            ("1.98GiB", Fraction),
            ("1KB", Unit),
            ("1kib", Unit),
            ("1e3", Unit),
            ("16777216TiB", TooLarge),
            ("18446744073709551616", TooLarge),
            ("$BATCH", Parameter),
        ];
        for (text, why) in texts {
            assert_eq!(parse(text).map_err(|bad| bad.why), Err(why), "{text}");
        }
    }

    #[test]
    fn bounds_are_a_size_or_an_object() {
        let bounds = |text| serde_json::from_str::<BoundsValue>(text).map(|it| it.0);
        let of = |least, most| Bounds { least, most };
        assert_eq!(bounds("\"4KiB\"").unwrap(), of(4096, 4096));
        assert_eq!(bounds("{\"most\":7}").unwrap(), of(0, 7));
        assert_eq!(bounds("{\"least\":7}").unwrap(), of(7, u64::MAX));
        let wrong = [
            "{\"max\":7}",
            "[1,2]",
            "\"4KB\"",
            "true",
            "{}",
            "{\"least\":5,\"most\":1}",
        ];
        for wrong in wrong {
            assert!(bounds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_address_is_hexadecimal() {
        let address = |text| serde_json::from_str::<Address>(text).map(|it| it.0);
        assert_eq!(address("\"0x4001000000\"").unwrap(), 0x40_0100_0000);
        for wrong in ["\"4001\"", "\"0x\"", "\"0x+1\"", "4096"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_whole_number_with_a_unit_is_shifted(number in 0..1_u64 << 24, unit in 0..UNITS.len()) {
            let (name, shift) = UNITS[unit];
            if shift < 40 {
                prop_assert_eq!(parse(&format!("{number}{name}")), Ok(number << shift));
            }
        }

        #[test]
        fn any_text_is_answered(text in ".{0,80}") {
            let _ = parse(&text);
        }
    }
}
