//! The keys that a line can have, and which belong on which line.

use std::fmt;

use serde::de::{Deserializer as _, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::de::Read;

use super::error::Fault;
use super::size::{Address, BoundsValue, Size};
use super::text::{Object, Text};
use crate::faults::nearest;

macro_rules! fields {
    ($($key:ident: $type:ty,)*) => {
        /// Every key that a line can have.
        #[derive(Debug, Default)]
        pub(super) struct Fields<'a> {
            $(pub(super) $key: Option<$type>,)*
            /// A bit for each key that is there, by position in [`NAMES`].
            there: u64,
            /// The first key that is none: which ones may be there depends on the others.
            stranger: Option<Box<str>>,
        }

        /// All keys.
        const NAMES: &[&str] = &[$(stringify!($key),)*];

        impl<'de: 'a, 'a> Visitor<'de> for Keys<'_, 'a> {
            type Value = ();

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
                let Keys(fields) = self;
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    match &*key {
                        $(stringify!($key) => {
                            const BIT: u64 = 1 << position(stringify!($key));
                            if fields.$key.is_some() {
                                return Err(A::Error::duplicate_field(stringify!($key)));
                            }
                            fields.$key = map.next_value()?;
                            fields.there |= if fields.$key.is_some() { BIT } else { 0 };
                        })*
                        unknown => {
                            fields.stranger.get_or_insert_with(|| unknown.into());
                            let _: IgnoredAny = map.next_value()?;
                        }
                    }
                }
                Ok(())
            }
        }
    };
}

/// How an object of them is read: into its place, since it is large and there are millions.
struct Keys<'f, 'a>(&'f mut Fields<'a>);

fields! {
    op: Text<'a>,
    id: Text<'a>,
    size: Size,
    offset: Size,
    align: Size,
    core: u32,
    device: u32,
    usage: Text<'a>,
    location: Text<'a>,
    name: Text<'a>,
    seed: u64,
    expect: Text<'a>,
    model: Text<'a>,
    neff: u32,
    process: Text<'a>,
    at: Address,
    value: u8,
    to: Text<'a>,
    to_offset: Size,
    of: Text<'a>,
    parts: Vec<Object<PartFields<'a>>>,
    fenced: bool,
    variables: Vec<Object<VariableFields>>,
    cores: Vec<u32>,
    rule: Value,
    hbm: u32,
    present: BoundsValue,
    peak: BoundsValue,
    free: BoundsValue,
    largest_free: BoundsValue,
    workload: u64,
    machine: Value,
    devices: u32,
    params: Object<serde_json::Map<String, Value>>,
    engine: Text<'a>,
    lnc: u32,
    scratchpad: Text<'a>,
    scratchpad_page: Size,
    zero_copy: bool,
    faults: Value,
    recorded: u64,
    report: u64,
    assumed: Vec<String>,
}

impl<'a> Fields<'a> {
    /// Reads a line into this, which is empty.
    ///
    /// # Errors
    /// It is no object of these keys.
    pub(super) fn read(&mut self, line: &'a [u8]) -> Result<(), serde_json::Error> {
        // All of it at once is faster than string by string.
        match std::str::from_utf8(line) {
            Ok(text) => self.read_from(&mut serde_json::Deserializer::from_str(text)),
            // It says where the line is none.
            Err(_) => self.read_from(&mut serde_json::Deserializer::from_slice(line)),
        }
    }

    fn read_from<R: Read<'a>>(
        &mut self,
        deserializer: &mut serde_json::Deserializer<R>,
    ) -> Result<(), serde_json::Error> {
        deserializer.deserialize_map(Keys(self))?;
        deserializer.end()
    }
}

/// A range of a batch.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartFields<'a> {
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    pub(super) offset: Option<Size>,
    pub(super) size: Option<Size>,
    pub(super) seed: Option<u64>,
}

/// A variable of the scratchpad.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VariableFields {
    pub(super) offset: Size,
    pub(super) size: Size,
}

/// The keys that mean something on one kind of line.
pub(super) struct Allowed {
    pub(super) what: &'static str,
    names: &'static [&'static str],
    there: u64,
}

impl Allowed {
    /// Which keys, by name. A name that is no key does not compile.
    pub(super) const fn new(what: &'static str, names: &'static [&'static str]) -> Self {
        let (mut there, mut n) = (0, 0);
        while n < names.len() {
            there |= 1 << position(names[n]);
            n += 1;
        }
        Self { what, names, there }
    }
}

/// The position of a key in [`NAMES`].
const fn position(name: &str) -> usize {
    let mut at = 0;
    while !is_same(NAMES[at].as_bytes(), name.as_bytes()) {
        at += 1;
    }
    at
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

impl Fields<'_> {
    /// Refuses keys that do not belong on such a line.
    pub(super) fn only(&self, allowed: &Allowed) -> Result<(), Fault> {
        if let Some(key) = self.stranger(allowed.what, allowed.names) {
            return Err(key);
        }
        let stray = self.there & !allowed.there;
        match NAMES.get(stray.trailing_zeros() as usize) {
            None => Ok(()),
            Some(key) => Err(Fault::Misplaced {
                what: allowed.what,
                key,
                allowed: allowed.names,
            }),
        }
    }

    /// The key that is none, where it is not known yet what the line is.
    pub(super) fn no_strangers(&self) -> Result<(), Fault> {
        self.stranger("a line", NAMES).map_or(Ok(()), Err)
    }

    fn stranger(&self, what: &'static str, allowed: &'static [&'static str]) -> Option<Fault> {
        let key = self.stranger.as_deref()?;
        Some(Fault::UnknownKey {
            what,
            key: key.to_owned(),
            nearest: nearest(key, allowed.iter().copied()),
            allowed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_object_with_each_key_once() {
        let read = |text: &'static str| {
            let mut fields = Fields::default();
            let read = fields.read(text.as_bytes());
            read.map(|()| fields)
        };
        let error = |text| read(text).unwrap_err().to_string();
        assert!(
            error("[\"free\",\"a\"]").starts_with("invalid type: sequence, expected an object")
        );
        assert!(error("{\"id\":\"a\",\"id\":\"b\"}").starts_with("duplicate field `id`"));
        assert!(
            error("{\"parts\":[[\"a\"]]}")
                .starts_with("invalid type: sequence, expected an object")
        );
        let fields = read("{\"id\":null,\"core\":3}").unwrap();
        assert_eq!((fields.id, fields.core), (None, Some(3)));
    }

    #[test]
    fn there_is_a_bit_for_every_key() {
        assert!(NAMES.len() < 64);
    }
}
