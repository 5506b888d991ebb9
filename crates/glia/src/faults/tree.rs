//! What a plan file says, whether it is TOML or JSON: tables, lists and plain values, with lines
//! where the format tells them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::shown;

/// A value, and where it stands.
#[derive(Debug)]
pub(super) struct Node {
    /// The line, from 1; JSON does not tell.
    pub(super) line: Option<u64>,
    pub(super) value: Value,
}

#[derive(Debug)]
pub(super) enum Value {
    Flag(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    /// In the order of the file.
    Table(Vec<(Key, Node)>),
    /// What no plan has, by its name.
    Other(&'static str),
}

/// A key, and where it stands.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) line: Option<u64>,
}

/// A number as it was written.
#[derive(Debug)]
pub(super) struct Number {
    pub(super) text: String,
    /// If it is a whole one, from 0 on.
    pub(super) whole: Option<u64>,
    pub(super) real: f64,
}

/// Why a file is neither.
#[derive(Debug)]
pub(crate) struct BadSyntax {
    pub(crate) line: Option<u64>,
    pub(crate) what: String,
}

impl BadSyntax {
    /// What the parser of TOML says, at its line.
    pub(crate) fn of_toml(text: &str, error: &toml::de::Error) -> Self {
        let before = error.span().and_then(|span| text.get(..span.start));
        Self {
            line: before.map(|before| 1 + before.matches('\n').count() as u64),
            what: match (error.message(), error.span()) {
                // It does not say which.
                (what @ "duplicate key", Some(span)) => {
                    let key = text.get(span).unwrap_or_default().trim();
                    format!("{what} `{}`", shown(key))
                }
                (what, _) => what.to_owned(),
            },
        }
    }

    /// What the parser of JSON says, at its line.
    pub(crate) fn of_json(error: &serde_json::Error) -> Self {
        let told = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        Self {
            line: Some(error.line() as u64).filter(|&line| line > 0),
            what: match told.strip_suffix(&place) {
                Some(what) => format!("{what}, column {}", error.column()),
                None => told,
            },
        }
    }
}

impl Node {
    /// The same as JSON. What no plan has is null.
    pub(super) fn json(&self) -> serde_json::Value {
        match &self.value {
            Value::Flag(flag) => (*flag).into(),
            Value::Number(number) => number
                .whole
                .map_or_else(|| number.real.into(), serde_json::Value::from),
            Value::Text(text) => text.as_str().into(),
            Value::List(nodes) => nodes.iter().map(Self::json).collect(),
            Value::Table(entries) => {
                let entries = entries.iter();
                let entries = entries.map(|(key, node)| (key.name.clone(), node.json()));
                serde_json::Value::Object(entries.collect())
            }
            Value::Other(_) => serde_json::Value::Null,
        }
    }
}

impl Value {
    /// What it is, in words.
    pub(super) fn what(&self) -> String {
        match self {
            Self::Flag(flag) => flag.to_string(),
            Self::Number(number) => number.text.clone(),
            Self::Text(text) => format!("\"{text}\""),
            Self::List(_) => "a list".to_owned(),
            Self::Table(_) => "a table".to_owned(),
            Self::Other(what) => (*what).to_owned(),
        }
    }
}

/// Reads a TOML document.
pub(super) fn from_toml(text: &str) -> Result<Node, BadSyntax> {
    let table = DeTable::parse(text).map_err(|error| BadSyntax::of_toml(text, &error))?;
    Ok(Lines::of_text(text).table(table.get_ref(), table.span().start))
}

/// Reads a JSON document.
pub(super) fn from_json(text: &str) -> Result<Node, BadSyntax> {
    serde_json::from_str(text).map_err(|error| BadSyntax::of_json(&error))
}

/// Where the lines of a text end.
struct Lines(Vec<usize>);

impl Lines {
    fn of_text(text: &str) -> Self {
        let bytes = text.bytes().enumerate();
        let ends = bytes.filter_map(|(at, byte)| (byte == b'\n').then_some(at));
        Self(ends.collect())
    }

    /// The line of an offset, counted from 1.
    fn of(&self, offset: usize) -> u64 {
        1 + self.0.partition_point(|&end| end < offset) as u64
    }

    fn table(&self, table: &DeTable<'_>, offset: usize) -> Node {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let entries = entries.into_iter().map(|(key, value)| {
            let name = key.get_ref().clone().into_owned();
            let line = Some(self.of(key.span().start));
            (Key { name, line }, self.value(value))
        });
        Node {
            line: Some(self.of(offset)),
            value: Value::Table(entries.collect()),
        }
    }

    fn value(&self, value: &Spanned<DeValue<'_>>) -> Node {
        let offset = value.span().start;
        let inner = match value.get_ref() {
            DeValue::Table(table) => return self.table(table, offset),
            DeValue::Array(list) => Value::List(list.iter().map(|it| self.value(it)).collect()),
            DeValue::String(text) => Value::Text(text.clone().into_owned()),
            DeValue::Boolean(flag) => Value::Flag(*flag),
            DeValue::Integer(number) => {
                let whole = u64::from_str_radix(number.as_str(), number.radix()).ok();
                Value::Number(Number {
                    text: number.to_string(),
                    whole,
                    real: real(number.as_str()),
                })
            }
            DeValue::Float(number) => Value::Number(Number {
                text: number.to_string(),
                whole: None,
                real: real(number.as_str()),
            }),
            DeValue::Datetime(_) => Value::Other("a date"),
        };
        Node {
            line: Some(self.of(offset)),
            value: inner,
        }
    }
}

fn real(text: &str) -> f64 {
    text.parse().unwrap_or(f64::NAN)
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = deserializer.deserialize_any(Reader)?;
        Ok(Self { line: None, value })
    }
}

/// Takes whatever JSON has. Two equal keys both stay, for the reader to refuse.
struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Flag(flag))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        // CAST: looked at for probabilities only, of which 0 and 1 are exact.
        #[expect(clippy::cast_precision_loss, reason = "see CAST")]
        let real = number as f64;
        Ok(Value::Number(Number {
            text: number.to_string(),
            whole: Some(number),
            real,
        }))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        // CAST: as above.
        #[expect(clippy::cast_precision_loss, reason = "see CAST")]
        let real = number as f64;
        Ok(Value::Number(Number {
            text: number.to_string(),
            whole: u64::try_from(number).ok(),
            real,
        }))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Number(Number {
            text: number.to_string(),
            whole: None,
            real: number,
        }))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Other("null"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = list.next_element()? {
            nodes.push(node);
        }
        Ok(Value::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some((name, node)) = table.next_entry::<String, Node>()? {
            entries.push((Key { name, line: None }, node));
        }
        Ok(Value::Table(entries))
    }
}
