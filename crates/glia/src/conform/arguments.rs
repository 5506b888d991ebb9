//! The arguments of a record: taken one by one, by name and type, until none is left over.

use glia_abi::arch::{Arch, ScaleError};
use glia_abi::handle::{Channel, CoreId, Pid, Region};
use glia_abi::mem::{Lifespan, Location};
use glia_abi::usage::Category;

use super::op::ChunkId;
use super::script::Failures;
use super::value::{Fields, Value};

/// An argument that is not as the format has it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// The operation cannot do without it.
    #[error("argument `{name}` is missing: it must be {allowed}")]
    Missing {
        /// Its name.
        name: &'static str,
        /// What is allowed.
        allowed: &'static str,
    },
    /// Its type or range is wrong.
    #[error("argument `{name}` is {found}: it must be {allowed}")]
    NotAllowed {
        /// Its name.
        name: &'static str,
        /// What was found, as JSON.
        found: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// The operation has no such argument, or none beside the others that are there.
    #[error("argument `{name}` is not one of this operation with these others: it has {known}")]
    Unknown {
        /// Its name.
        name: String,
        /// The arguments asked for, in order.
        known: String,
    },
    /// They are right one by one and make no device.
    #[error(transparent)]
    NoDevice(#[from] ScaleError),
}

/// The fields of a record, without `op` and `out`.
#[derive(Debug)]
pub struct Arguments<'a> {
    left: Fields<'a>,
    asked: Vec<&'static str>,
}

impl<'a> Arguments<'a> {
    /// Nothing taken yet.
    #[must_use]
    pub fn new(fields: Fields<'a>) -> Self {
        Self {
            left: fields,
            asked: Vec::new(),
        }
    }

    /// Whether this argument is there and not taken yet.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.left.get(name).is_some()
    }

    /// Takes an argument that must be there.
    ///
    /// # Errors
    /// [`ArgumentError`] if it is missing or not of this type.
    pub fn required<T: Argument>(&mut self, name: &'static str) -> Result<T, ArgumentError> {
        self.optional(name)?.ok_or(ArgumentError::Missing {
            name,
            allowed: T::ALLOWED,
        })
    }

    /// Takes an argument that may be absent.
    ///
    /// # Errors
    /// [`ArgumentError`] if it is not of this type.
    pub fn optional<T: Argument>(
        &mut self,
        name: &'static str,
    ) -> Result<Option<T>, ArgumentError> {
        self.asked.push(name);
        let Some(value) = self.left.take(name) else {
            return Ok(None);
        };
        match T::from_value(&value) {
            Some(argument) => Ok(Some(argument)),
            None => Err(ArgumentError::NotAllowed {
                name,
                found: value.to_string(),
                allowed: T::ALLOWED,
            }),
        }
    }

    /// Ends the taking, and gives what nobody asked for.
    #[must_use]
    pub fn rest(self) -> Fields<'a> {
        self.left
    }

    /// Ends the taking.
    ///
    /// # Errors
    /// [`ArgumentError::Unknown`] for an argument that nobody asked for.
    pub fn finish(self) -> Result<(), ArgumentError> {
        match self.left.iter().next() {
            None => Ok(()),
            Some((name, _)) => Err(ArgumentError::Unknown {
                name: name.to_owned(),
                known: match self.asked.as_slice() {
                    [] => "none".to_owned(),
                    names => names.join(", "),
                },
            }),
        }
    }
}

/// A type that an argument can have.
pub trait Argument: Sized {
    /// What is allowed, to follow the words "must be".
    const ALLOWED: &'static str;

    /// The argument, if the value is allowed.
    fn from_value(value: &Value<'_>) -> Option<Self>;
}

fn integer<T: TryFrom<i128>>(value: &Value<'_>) -> Option<T> {
    match value {
        Value::Int(number) => T::try_from(*number).ok(),
        _ => None,
    }
}

/// The entry of `words` that the value names.
fn word<T: Copy>(value: &Value<'_>, words: &[(&str, T)]) -> Option<T> {
    match value {
        Value::Text(text) => words
            .iter()
            .find_map(|&(word, meaning)| (word == text).then_some(meaning)),
        _ => None,
    }
}

impl Argument for u64 {
    const ALLOWED: &'static str = "a whole number from 0 to 18446744073709551615";

    fn from_value(value: &Value<'_>) -> Option<Self> {
        integer(value)
    }
}

impl Argument for ChunkId {
    const ALLOWED: &'static str = "a whole number of 64 bits with sign";

    fn from_value(value: &Value<'_>) -> Option<Self> {
        integer(value).map(Self)
    }
}

/// The id of a chunk that is yet to be allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewChunkId(pub ChunkId);

impl Argument for NewChunkId {
    const ALLOWED: &'static str = "a whole number from 1 to 9223372036854775807";

    fn from_value(value: &Value<'_>) -> Option<Self> {
        integer(value)
            .filter(|&id| id > 0)
            .map(|id| Self(ChunkId(id)))
    }
}

macro_rules! number_of_32_bits {
    ($($number:ty => $make:expr),* $(,)?) => {$(
        impl Argument for $number {
            const ALLOWED: &'static str = "a whole number from 0 to 4294967295";

            fn from_value(value: &Value<'_>) -> Option<Self> {
                integer(value).map($make)
            }
        }
    )*};
}

number_of_32_bits! {
    Channel => Channel::new,
    Region => Region::new,
    CoreId => CoreId::new,
    Pid => Pid::new,
    Category => Category,
}

/// A yes or no, which the traces write as 1 or 0.
impl Argument for bool {
    const ALLOWED: &'static str = "0, 1, false or true";

    fn from_value(value: &Value<'_>) -> Option<Self> {
        match value {
            Value::Bool(flag) => Some(*flag),
            Value::Int(0) => Some(false),
            Value::Int(1) => Some(true),
            _ => None,
        }
    }
}

impl Argument for Failures {
    const ALLOWED: &'static str = "a count of calls, or -1 for all from there on";

    fn from_value(value: &Value<'_>) -> Option<Self> {
        match value {
            Value::Int(-1) => Some(Self::All),
            other => integer(other).map(Self::Next),
        }
    }
}

impl Argument for Arch {
    const ALLOWED: &'static str = "\"v2\" or \"v3\"";

    fn from_value(value: &Value<'_>) -> Option<Self> {
        word(value, &[("v2", Self::V2), ("v3", Self::V3)])
    }
}

impl Argument for Location {
    const ALLOWED: &'static str = "\"device\" or \"host\"";

    fn from_value(value: &Value<'_>) -> Option<Self> {
        word(value, &[("device", Self::Device), ("host", Self::Host)])
    }
}

impl Argument for Lifespan {
    const ALLOWED: &'static str = "\"local\", \"process\", \"all\" or \"device\"";

    fn from_value(value: &Value<'_>) -> Option<Self> {
        word(
            value,
            &[
                ("local", Self::Local),
                ("process", Self::CurrentProcess),
                ("all", Self::AllProcess),
                ("device", Self::Device),
            ],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(text: &str) -> Arguments<'_> {
        match serde_json::from_str(text).unwrap() {
            Value::Object(fields) => Arguments::new(fields),
            other => panic!("{other} is no object"),
        }
    }

    fn message<T: std::fmt::Debug>(result: Result<T, ArgumentError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn a_missing_argument_is_named_with_what_is_allowed() {
        let error = message(arguments("{}").required::<Arch>("arch"));
        assert_eq!(
            error,
            r#"argument `arch` is missing: it must be "v2" or "v3""#
        );
    }

    #[test]
    fn a_wrong_type_or_range_is_shown() {
        let wrong = |text| message(arguments(text).required::<Channel>("ch"));
        let allowed = "it must be a whole number from 0 to 4294967295";
        assert_eq!(
            wrong(r#"{"ch":"0"}"#),
            format!("argument `ch` is \"0\": {allowed}")
        );
        assert_eq!(
            wrong(r#"{"ch":-1}"#),
            format!("argument `ch` is -1: {allowed}")
        );
        assert_eq!(
            wrong(r#"{"ch":4294967296}"#),
            format!("argument `ch` is 4294967296: {allowed}")
        );
    }

    #[test]
    fn an_argument_that_nobody_asks_for_is_refused() {
        let mut left_over = arguments(r#"{"id":1,"size":2}"#);
        assert_eq!(left_over.required::<ChunkId>("id"), Ok(ChunkId(1)));
        assert_eq!(
            message(left_over.finish()),
            "argument `size` is not one of this operation with these others: it has id"
        );
    }

    #[test]
    fn failures_are_a_count_or_all() {
        let failures = |text| arguments(text).required::<Failures>("count");
        assert_eq!(failures(r#"{"count":3}"#), Ok(Failures::Next(3)));
        assert_eq!(failures(r#"{"count":-1}"#), Ok(Failures::All));
        assert!(failures(r#"{"count":-2}"#).is_err());
    }
}
