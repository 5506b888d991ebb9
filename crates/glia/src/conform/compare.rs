//! Two outcomes side by side: every field, in both directions.
//!
//! A field that only one side has is a difference. Objects, and lists of objects, are compared part
//! by part; of a list of plain values only the first place that differs is told, since a lost item
//! shifts all that follow.

use super::value::{Fields, Value};

/// A field in which two outcomes differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Where: `pa`, `ch[1].allocated`, `freed[3]`.
    pub field: String,
    /// What the trace has there; `None` for nothing.
    pub expected: Option<Value<'static>>,
    /// What Glia has there; `None` for nothing.
    pub got: Option<Value<'static>>,
    /// What one should know beside.
    pub note: Option<String>,
}

impl Difference {
    /// A difference with nothing to know beside.
    #[must_use]
    pub fn new(
        field: impl Into<String>,
        expected: Option<&Value<'_>>,
        got: Option<&Value<'_>>,
    ) -> Self {
        let own = |value: Option<&Value<'_>>| value.map(|value| value.clone().into_owned());
        Self {
            field: field.into(),
            expected: own(expected),
            got: own(got),
            note: None,
        }
    }
}

/// Fields of an operation that a trace may have although there is nothing to tell, with the values
/// that say so. The format leaves open whether they are written then, so such a field may be absent
/// or have one of these.
type Optional = &'static [(&'static str, &'static [Neutral])];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Neutral {
    Number(i128),
    EmptyList,
}

impl Neutral {
    fn is(self, value: &Value<'_>) -> bool {
        match (self, value) {
            (_, Value::Null) => true,
            (Self::Number(neutral), Value::Int(number)) => neutral == *number,
            (Self::EmptyList, Value::List(items)) => items.is_empty(),
            _ => false,
        }
    }
}

fn optional_fields(op: &str) -> Optional {
    const ZERO: &[Neutral] = &[Neutral::Number(0)];
    match op {
        "open" => &[
            ("slot", &[Neutral::Number(0), Neutral::Number(-1)]),
            ("open", ZERO),
        ],
        "publish" | "halloc" => &[("handle", ZERO)],
        "hbulk" => &[("first", ZERO), ("last", ZERO)],
        "expire" => &[("forced", &[Neutral::EmptyList])],
        _ => &[],
    }
}

/// All differences between the outcome that a trace expects of an operation and the one that Glia
/// gave.
#[must_use]
pub fn differences(op: &str, expected: &Fields<'_>, got: &Fields<'_>) -> Vec<Difference> {
    let mut found = Vec::new();
    fields("", expected, got, &mut found);
    let optional = optional_fields(op);
    found.retain(|difference| {
        let neutral = optional.iter().find(|(name, _)| difference.field == *name);
        match (neutral, &difference.expected, &difference.got) {
            (Some((_, values)), Some(expected), None) => {
                !values.iter().any(|neutral| neutral.is(expected))
            }
            _ => true,
        }
    });
    found
}

/// The differences in the fields that the trace has; what Glia tells beyond them does not count.
#[must_use]
pub fn differences_in_expected(expected: &Fields<'_>, got: &Fields<'_>) -> Vec<Difference> {
    let mut found = Vec::new();
    fields("", expected, got, &mut found);
    found.retain(|difference| difference.expected.is_some());
    found
}

fn fields(path: &str, expected: &Fields<'_>, got: &Fields<'_>, found: &mut Vec<Difference>) {
    let full = |name: &str| match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    for (name, value) in expected.iter() {
        match got.get(name) {
            Some(other) if other == value => {}
            Some(other) => values(&full(name), value, other, found),
            None => found.push(Difference::new(full(name), Some(value), None)),
        }
    }
    for (name, value) in got.iter() {
        if expected.get(name).is_none() {
            found.push(Difference::new(full(name), None, Some(value)));
        }
    }
}

fn values(path: &str, expected: &Value<'_>, got: &Value<'_>, found: &mut Vec<Difference>) {
    match (expected, got) {
        (Value::Object(expected), Value::Object(got)) => fields(path, expected, got, found),
        (Value::List(expected), Value::List(got)) => lists(path, expected, got, found),
        _ if expected == got => {}
        _ => found.push(Difference::new(path, Some(expected), Some(got))),
    }
}

fn lists(path: &str, expected: &[Value<'_>], got: &[Value<'_>], found: &mut Vec<Difference>) {
    let is_plain = expected.iter().chain(got).all(Value::is_scalar);
    for index in 0..expected.len().max(got.len()) {
        let path = format!("{path}[{index}]");
        match (expected.get(index), got.get(index)) {
            (Some(expected), Some(got)) if expected == got => continue,
            (Some(expected), Some(got)) => values(&path, expected, got, found),
            (expected, got) => found.push(Difference::new(path, expected, got)),
        }
        if is_plain {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Fields<'_> {
        match serde_json::from_str(text).unwrap() {
            Value::Object(fields) => fields,
            other => panic!("{other} is no object"),
        }
    }

    /// The differences of two outcomes, one a line.
    fn compared(op: &str, expected: &str, got: &str) -> Vec<String> {
        let shown =
            |value: Option<Value<'_>>| value.map_or("-".to_owned(), |value| value.to_string());
        differences(op, &object(expected), &object(got))
            .into_iter()
            .map(|difference| {
                format!(
                    "{}: {} {}",
                    difference.field,
                    shown(difference.expected),
                    shown(difference.got)
                )
            })
            .collect()
    }

    #[test]
    fn equal_outcomes_have_no_difference_whatever_the_order() {
        let none: [&str; 0] = [];
        assert_eq!(
            compared("alloc", r#"{"ret":0,"pa":1}"#, r#"{"pa":1,"ret":0}"#),
            none
        );
    }

    #[test]
    fn missing_and_surplus_fields_are_differences() {
        assert_eq!(
            compared("alloc", r#"{"ret":0,"pa":1}"#, r#"{"ret":0,"hrm":2}"#),
            ["pa: 1 -", "hrm: - 2"]
        );
    }

    #[test]
    fn types_are_told_apart() {
        assert_eq!(
            compared("search", r#"{"id":null}"#, r#"{"id":0}"#),
            ["id: null 0"]
        );
        assert_eq!(
            compared("bounds", r#"{"ok":1}"#, r#"{"ok":true}"#),
            ["ok: 1 true"]
        );
    }

    #[test]
    fn a_difference_inside_is_named_by_its_path() {
        let expected = r#"{"ch":[{"free":1},{"free":2}],"lists":{"all":3}}"#;
        let got = r#"{"ch":[{"free":1},{"free":9}],"lists":{"all":4}}"#;
        assert_eq!(
            compared("stats", expected, got),
            ["ch[1].free: 2 9", "lists.all: 3 4"]
        );
    }

    #[test]
    fn of_a_list_of_plain_values_the_first_difference_is_told() {
        assert_eq!(
            compared("teardown", r#"{"freed":[1,2,3,4]}"#, r#"{"freed":[1,3,4]}"#),
            ["freed[1]: 2 3"]
        );
        assert_eq!(
            compared("teardown", r#"{"freed":[1,2]}"#, r#"{"freed":[1]}"#),
            ["freed[1]: 2 -"]
        );
        assert_eq!(
            compared("teardown", r#"{"freed":[]}"#, r#"{"freed":[5]}"#),
            ["freed[0]: - 5"]
        );
    }

    #[test]
    fn of_a_list_of_objects_all_differences_are_told() {
        let (expected, got) = (
            r#"{"kept":[{"id":1},{"id":2}]}"#,
            r#"{"kept":[{"id":3},{"id":4},{"id":5}]}"#,
        );
        assert_eq!(
            compared("expire", expected, got),
            [
                "kept[0].id: 1 3",
                "kept[1].id: 2 4",
                r#"kept[2]: - {"id":5}"#
            ]
        );
    }

    #[test]
    fn what_there_is_nothing_to_tell_of_may_be_written_as_nothing() {
        let none: [&str; 0] = [];
        assert_eq!(
            compared("halloc", r#"{"ret":-2,"handle":0}"#, r#"{"ret":-2}"#),
            none
        );
        assert_eq!(
            compared(
                "open",
                r#"{"ok":false,"slot":-1,"open":0}"#,
                r#"{"ok":false}"#
            ),
            none
        );
        assert_eq!(
            compared(
                "hbulk",
                r#"{"ret":-2,"ok":0,"first":0,"last":null}"#,
                r#"{"ret":-2,"ok":0}"#
            ),
            none
        );
        assert_eq!(
            compared(
                "expire",
                r#"{"freed":[],"kept":[],"forced":[]}"#,
                r#"{"freed":[],"kept":[]}"#
            ),
            none
        );
    }

    #[test]
    fn what_there_is_to_tell_must_be_told() {
        assert_eq!(
            compared("halloc", r#"{"ret":0}"#, r#"{"ret":0,"handle":1}"#),
            ["handle: - 1"]
        );
        assert_eq!(
            compared("halloc", r#"{"ret":-2,"handle":7}"#, r#"{"ret":-2}"#),
            ["handle: 7 -"]
        );
        assert_eq!(
            compared(
                "open",
                r#"{"ok":true,"open":1}"#,
                r#"{"ok":true,"slot":0,"open":1}"#
            ),
            ["slot: - 0"]
        );
        assert_eq!(
            compared(
                "publish",
                r#"{"ret":0,"handle":0}"#,
                r#"{"ret":0,"handle":3}"#
            ),
            ["handle: 0 3"]
        );
    }
}
