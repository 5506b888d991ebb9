//! Parameters: values that a first line declares and a command line may give.
//!
//! A string of a line that is `$` and a name stands for the value of that parameter. Lines without
//! such a string are read as they are; one that has some is rewritten first, so that the rest of the
//! reader knows no parameters, and a recording has none.

use serde_json::{Map, Value};

use super::error::Fault;

/// The parameters of a workload, with their values.
#[derive(Debug, Default)]
pub(super) struct Params(Map<String, Value>);

impl Params {
    /// The declared ones, with the given values in the place of the declared.
    ///
    /// # Errors
    /// One that is given and not declared, has no value, or has one that cannot be.
    pub(super) fn new(
        declared: Map<String, Value>,
        given: &[(String, String)],
    ) -> Result<Self, Fault> {
        let mut values = declared;
        for (name, text) in given {
            let allowed = allowed(&values);
            let value = values.get_mut(name).ok_or_else(|| Fault::Unknown {
                key: "parameter",
                found: name.clone(),
                allowed,
            })?;
            *value = given_value(name, value, text)?;
        }
        for (name, value) in &values {
            match value {
                Value::String(_) | Value::Number(_) => {}
                Value::Null => return Err(Fault::NoValue { name: name.clone() }),
                other => {
                    return Err(Fault::Unknown {
                        key: "value of a parameter",
                        found: other.to_string(),
                        allowed: "a string, a number, or null for one that must be given"
                            .to_owned(),
                    });
                }
            }
        }
        Ok(Self(values))
    }

    /// Whether a line has to be rewritten.
    pub(super) fn stand_in(&self, line: &[u8]) -> bool {
        !self.0.is_empty() && line.windows(2).any(|two| two == b"\"$")
    }

    /// The line with values for names.
    ///
    /// # Errors
    /// A name that is not declared. What is no JSON stays as it is: whoever reads it next says why.
    pub(super) fn put_in(&self, line: &[u8], into: &mut Vec<u8>) -> Result<(), Fault> {
        into.clear();
        let Ok(mut value) = serde_json::from_slice(line) else {
            into.extend_from_slice(line);
            return Ok(());
        };
        self.replace(&mut value)?;
        into.extend_from_slice(value.to_string().as_bytes());
        Ok(())
    }

    fn replace(&self, value: &mut Value) -> Result<(), Fault> {
        match value {
            Value::String(text) => {
                let Some(name) = text.strip_prefix('$') else {
                    return Ok(());
                };
                // "$$" is a "$".
                if name.starts_with('$') {
                    *value = Value::String(name.to_owned());
                    return Ok(());
                }
                let put = self.0.get(name).ok_or_else(|| Fault::Unknown {
                    key: "parameter",
                    found: name.to_owned(),
                    allowed: allowed(&self.0),
                })?;
                *value = put.clone();
                Ok(())
            }
            Value::Array(values) => values.iter_mut().try_for_each(|value| self.replace(value)),
            Value::Object(map) => map.values_mut().try_for_each(|value| self.replace(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        }
    }
}

/// What a command line gives, of the declared kind.
fn given_value(name: &str, declared: &Value, text: &str) -> Result<Value, Fault> {
    let number = text.parse::<u64>().ok();
    match (declared, number) {
        (Value::Number(_) | Value::Null, Some(number)) => Ok(Value::from(number)),
        (Value::Number(_), None) => Err(Fault::NoNumber {
            name: name.to_owned(),
            found: text.to_owned(),
        }),
        _ => Ok(Value::from(text)),
    }
}

fn allowed(values: &Map<String, Value>) -> String {
    match values.is_empty() {
        true => "none: the first line declares none under \"params\"".to_owned(),
        false => values.keys().cloned().collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(declared: &str, given: &[(&str, &str)]) -> Result<Params, String> {
        let given = given
            .iter()
            .map(|(name, text)| (name.to_string(), text.to_string()));
        let given: Vec<_> = given.collect();
        let declared = serde_json::from_str(declared).unwrap();
        Params::new(declared, &given).map_err(|fault| fault.to_string())
    }

    #[test]
    fn values_stand_where_names_stood_at_any_depth() {
        let params = params(r#"{"SIZE":"1MiB","CORE":0,"ID":"x"}"#, &[("CORE", "3")]).unwrap();
        let line = br#"{"id":"$ID","core":"$CORE","parts":[{"size":"$SIZE"}],"name":"$$ID"}"#;
        assert!(params.stand_in(line));
        let mut put = Vec::new();
        params.put_in(line, &mut put).unwrap();
        let put: Value = serde_json::from_slice(&put).unwrap();
        let wanted = r#"{"id":"x","core":3,"parts":[{"size":"1MiB"}],"name":"$ID"}"#;
        assert_eq!(put, serde_json::from_str::<Value>(wanted).unwrap());
    }

    #[test]
    fn what_is_not_declared_or_cannot_be_is_told() {
        let error = |declared, given: &[_]| params(declared, given).unwrap_err();
        assert_eq!(
            error(r#"{"A":1,"B":2}"#, &[("C", "3")]),
            "unknown parameter \"C\": allowed are A, B"
        );
        assert_eq!(
            error(r#"{"A":1}"#, &[("A", "many")]),
            "parameter \"A\" is a whole number, 0 to 2^64 - 1, and \"many\" is none"
        );
        assert_eq!(
            error(r#"{"A":null}"#, &[]),
            "parameter \"A\" has no value: give it with --param A=VALUE"
        );
        assert!(error(r#"{"A":[1]}"#, &[]).contains("a string, a number, or null"));
        let none = params(r#"{"A":1}"#, &[]).unwrap();
        let unknown = none.put_in(br#"{"id":"$B"}"#, &mut Vec::new()).unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "unknown parameter \"B\": allowed are A"
        );
    }
}
