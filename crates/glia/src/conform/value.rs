//! JSON as the traces use it: borrowed from the line it came from, whole numbers only.
//!
//! A trace has thousands of short objects, so an object is a row of fields and not a map, strings
//! are borrowed where the line allows it, and the same type holds what a trace expects and what the
//! driver answered. Numbers need all 64 bits with and without a sign, so they are kept in 128; a
//! number with a fraction is refused.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// One JSON value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// A string.
    Text(Cow<'a, str>),
    /// An array.
    List(Vec<Value<'a>>),
    /// An object.
    Object(Fields<'a>),
}

/// The fields of an object, in the order in which they were written; no name occurs twice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fields<'a>(Vec<(Cow<'a, str>, Value<'a>)>);

// LIMIT: the largest object of the format has some twenty fields, and a look-up walks all of them.
const FIELDS_MAX: usize = 256;

impl<'a> Fields<'a> {
    /// No fields.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// These fields and one more, whose name must be new.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value<'a>>) -> Self {
        self.push(name, value);
        self
    }

    /// Adds a field, whose name must be new.
    pub fn push(&mut self, name: impl Into<Cow<'a, str>>, value: impl Into<Value<'a>>) {
        let name = name.into();
        debug_assert!(self.get(&name).is_none(), "field {name} is there already");
        self.0.push((name, value.into()));
    }

    /// The value of a field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.iter()
            .find_map(|(field, value)| (field == name).then_some(value))
    }

    /// The value of a field, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value<'a>> {
        self.0
            .iter_mut()
            .find_map(|(field, value)| (field == name).then_some(value))
    }

    /// Takes a field out. The order of the others changes.
    pub fn take(&mut self, name: &str) -> Option<Value<'a>> {
        let index = self.0.iter().position(|(field, _)| field == name)?;
        Some(self.0.swap_remove(index).1)
    }

    /// Every field.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value<'a>)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value))
    }

    /// The same, borrowing nothing.
    #[must_use]
    pub fn into_owned(self) -> Fields<'static> {
        let own = |(name, value): (Cow<'a, str>, Value<'a>)| {
            (Cow::Owned(name.into_owned()), value.into_owned())
        };
        Fields(self.0.into_iter().map(own).collect())
    }
}

impl Value<'_> {
    /// The same, borrowing nothing.
    #[must_use]
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Int(value) => Value::Int(value),
            Self::Text(text) => Value::Text(Cow::Owned(text.into_owned())),
            Self::List(items) => Value::List(items.into_iter().map(Value::into_owned).collect()),
            Self::Object(fields) => Value::Object(fields.into_owned()),
        }
    }

    /// Whether the value has no parts.
    #[must_use]
    pub fn is_scalar(&self) -> bool {
        match self {
            Self::Null | Self::Bool(_) | Self::Int(_) | Self::Text(_) => true,
            Self::List(_) | Self::Object(_) => false,
        }
    }
}

macro_rules! from_integer {
    ($($integer:ty),*) => {$(
        impl From<$integer> for Value<'_> {
            fn from(value: $integer) -> Self {
                Self::Int(i128::from(value))
            }
        }
    )*};
}

from_integer!(i32, u32, i64, u64, i128);

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl<'a> From<Fields<'a>> for Value<'a> {
    fn from(fields: Fields<'a>) -> Self {
        Self::Object(fields)
    }
}

impl<'a, T: Into<Value<'a>>> FromIterator<T> for Value<'a> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self::List(items.into_iter().map(Into::into).collect())
    }
}

/// Compact JSON.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for Value<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Int(value) => serializer.serialize_i128(*value),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(items) => serializer.collect_seq(items),
            Self::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.0.len()))?;
                for (name, value) in fields.iter() {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Value<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON whose numbers are whole")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Self::Value, E> {
        Err(E::custom(format_args!(
            "number {value} is not a whole number of at most 64 bits"
        )))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Value::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Value::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut fields = Fields(Vec::new());
        while let Some(Name(name)) = entries.next_key()? {
            if fields.get(&name).is_some() {
                return Err(A::Error::custom(format_args!(
                    "field `{name}` stands twice"
                )));
            }
            if fields.0.len() == FIELDS_MAX {
                return Err(A::Error::custom(format_args!(
                    "an object of more than {FIELDS_MAX} fields"
                )));
            }
            fields.0.push((name, entries.next_value()?));
        }
        Ok(Value::Object(fields))
    }
}

/// A field's name, borrowed from the line unless it is written with escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Text(name) => Ok(Self(name)),
            other => Err(D::Error::custom(format_args!("{other} as a field's name"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Value<'_>, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_read_is_written_again() {
        let text = r#"{"a":null,"b":[true,-1,18446744073709551615],"c":{"d":"x\ny"}}"#;
        assert_eq!(parse(text).unwrap().to_string(), text);
    }

    #[test]
    fn plain_strings_are_borrowed() {
        let Value::Object(fields) = parse(r#"{"op":"alloc"}"#).unwrap() else {
            panic!("not an object");
        };
        assert!(matches!(
            fields.get("op"),
            Some(Value::Text(Cow::Borrowed("alloc")))
        ));
    }

    #[test]
    fn fractions_and_numbers_beyond_64_bits_are_refused() {
        assert!(parse("1.5").unwrap_err().contains("1.5 is not a whole"));
        assert!(parse("18446744073709551616").is_err());
    }

    #[test]
    fn a_field_that_stands_twice_is_refused() {
        let error = parse(r#"{"a":1,"a":2}"#).unwrap_err();
        assert!(error.contains("field `a` stands twice"), "{error}");
    }

    #[test]
    fn an_object_without_end_is_refused() {
        let fields: Vec<String> = (0..=FIELDS_MAX).map(|n| format!(r#""f{n}":0"#)).collect();
        let text = format!("{{{}}}", fields.join(","));
        assert!(parse(&text).unwrap_err().contains("more than 256 fields"));
    }
}
