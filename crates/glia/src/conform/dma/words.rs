//! The argument types that only traces of the DMA layer have.

use glia_abi::sched::Tick;
use glia_driver::dma::Platform;

use super::super::arguments::Argument;
use super::super::value::Value;
use super::engine::Mode;

/// Nanoseconds, which a [`Tick`] counts, of a millisecond, which the reference's does.
pub(super) const NANOS_PER_MS: u64 = 1_000_000;

/// A number in hexadecimal digits without prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hex(pub u64);

impl Argument for Hex {
    const ALLOWED: &'static str = "a string of up to 16 hexadecimal digits";

    fn from_value(value: &Value<'_>) -> Option<Self> {
        match value {
            Value::Text(text) if text.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                u64::from_str_radix(text, 16).ok().map(Self)
            }
            _ => None,
        }
    }
}

/// A bit for each core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoreMap(pub u32);

impl Argument for CoreMap {
    const ALLOWED: &'static str = "a string of up to 8 hexadecimal digits";

    fn from_value(value: &Value<'_>) -> Option<Self> {
        let Hex(map) = Hex::from_value(value)?;
        u32::try_from(map).ok().map(Self)
    }
}

/// Milliseconds of the reference's clock.
impl Argument for Tick {
    const ALLOWED: &'static str = "a whole number of milliseconds, up to 18446744073709";

    fn from_value(value: &Value<'_>) -> Option<Self> {
        u64::from_value(value)?.checked_mul(NANOS_PER_MS).map(Self)
    }
}

impl Argument for u32 {
    const ALLOWED: &'static str = "a whole number from 0 to 4294967295";

    fn from_value(value: &Value<'_>) -> Option<Self> {
        match value {
            Value::Int(number) => Self::try_from(*number).ok(),
            _ => None,
        }
    }
}

/// A name of a chunk, a buffer or a scenario.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(pub String);

impl Argument for Name {
    const ALLOWED: &'static str = "a string";

    fn from_value(value: &Value<'_>) -> Option<Self> {
        match value {
            Value::Text(text) => Some(Self(text.clone().into_owned())),
            _ => None,
        }
    }
}

/// A copy handle, right or wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawHandle(pub i32);

impl Argument for RawHandle {
    const ALLOWED: &'static str = "a whole number of 32 bits with sign";

    fn from_value(value: &Value<'_>) -> Option<Self> {
        match value {
            Value::Int(number) => i32::try_from(*number).ok().map(Self),
            _ => None,
        }
    }
}

// LIMIT: the largest object recorded has 317 MB; a byte of a range that is compared costs about a
// nanosecond.
const SIZE_BYTES_MAX: u64 = 4 << 30;

/// Bytes of an object, or of a range in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl Argument for Size {
    const ALLOWED: &'static str = "a whole number from 0 to 4294967296";

    fn from_value(value: &Value<'_>) -> Option<Self> {
        u64::from_value(value)
            .filter(|&size| size <= SIZE_BYTES_MAX)
            .map(Self)
    }
}

/// What the driver runs on.
impl Argument for Platform {
    const ALLOWED: &'static str = "\"hw\", \"emulator\" or \"qemu\"";

    fn from_value(value: &Value<'_>) -> Option<Self> {
        match value {
            Value::Text(text) => match text.as_ref() {
                "hw" => Some(Self::Hardware),
                "emulator" => Some(Self::Emulator),
                "qemu" => Some(Self::Qemu),
                _ => None,
            },
            _ => None,
        }
    }
}

/// What becomes of the batches to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Modes(pub Vec<Mode>);

impl Argument for Modes {
    const ALLOWED: &'static str =
        "a list of \"normal\", \"hang\" and \"late:N\", N in microseconds";

    fn from_value(value: &Value<'_>) -> Option<Self> {
        let mode = |value: &Value<'_>| match value {
            Value::Text(text) => match text.as_ref() {
                "normal" => Some(Mode::Normal),
                "hang" => Some(Mode::Hang),
                late => late.strip_prefix("late:")?.parse().ok().map(Mode::Late),
            },
            _ => None,
        };
        match value {
            Value::List(items) => items.iter().map(mode).collect::<Option<_>>().map(Self),
            _ => None,
        }
    }
}

/// The 16 bytes of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescWords(pub [u8; 16]);

impl Argument for DescWords {
    const ALLOWED: &'static str =
        "a string of two words and an address, in 8, 8 and 16 hexadecimal digits between colons";

    fn from_value(value: &Value<'_>) -> Option<Self> {
        let Value::Text(text) = value else {
            return None;
        };
        let mut fields = text.split(':');
        let mut bytes = [0; 16];
        for (digits, range) in [(8, 0..4), (8, 4..8), (16, 8..16)] {
            let field = fields.next().filter(|field| field.len() == digits)?;
            let number = u64::from_str_radix(field, 16).ok()?.to_le_bytes();
            bytes[range.clone()].copy_from_slice(&number[..range.len()]);
        }
        fields.next().is_none().then_some(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_numbers_have_digits_only() {
        assert_eq!(
            Hex::from_value(&"4000180f2000".into()),
            Some(Hex(0x4000_180f_2000))
        );
        for wrong in ["", "0x10", "+1", "10000000000000000"] {
            assert_eq!(Hex::from_value(&wrong.into()), None, "{wrong}");
        }
        assert_eq!(Hex::from_value(&16.into()), None);
    }

    #[test]
    fn a_descriptor_is_two_words_and_an_address() {
        let words = "0d001000:01080003:0000400001000000";
        let bytes = [0, 0x10, 0, 0x0d, 3, 0, 8, 1, 0, 0, 0, 1, 0, 0x40, 0, 0];
        assert_eq!(DescWords::from_value(&words.into()), Some(DescWords(bytes)));
        for wrong in ["0d001000:01080003", "d001000:01080003:0000400001000000"] {
            assert_eq!(DescWords::from_value(&wrong.into()), None, "{wrong}");
        }
    }

    #[test]
    fn modes_are_words_and_lateness() {
        let list = |words: &[&'static str]| words.iter().copied().collect::<Value<'_>>();
        assert_eq!(
            Modes::from_value(&list(&["normal", "late:45000", "hang"])),
            Some(Modes(vec![Mode::Normal, Mode::Late(45_000), Mode::Hang]))
        );
        assert_eq!(Modes::from_value(&list(&["late:"])), None);
        assert_eq!(Modes::from_value(&"normal".into()), None);
    }
}
