//! One line of a trace: a JSON object.

use super::value::{Fields, Value};

/// A line that holds no object.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// It is no JSON.
    #[error("not JSON as traces have it, at column {column}: {message}")]
    Json {
        /// The column, from 1.
        column: usize,
        /// What the parser said.
        message: String,
    },
    /// It is longer than any line of the format.
    #[error("{bytes} bytes in one line: at most {bytes_max} are read")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// What is allowed.
        bytes_max: usize,
    },
    /// It is JSON, but no object.
    #[error("{found} where an object {allowed} must stand")]
    NotObject {
        /// What stands there.
        found: String,
        /// Which objects are allowed.
        allowed: &'static str,
    },
}

/// The object on a line; `allowed` is what may stand there, to be told with an error.
///
/// # Errors
/// [`LineError`] if there is none, or the line has more than `bytes_max` bytes.
pub fn object<'a>(
    text: &'a str,
    bytes_max: usize,
    allowed: &'static str,
) -> Result<Fields<'a>, LineError> {
    let bytes = text.len();
    if bytes > bytes_max {
        return Err(LineError::TooLong { bytes, bytes_max });
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(other) => Err(LineError::NotObject {
            found: other.to_string(),
            allowed,
        }),
        Err(error) => {
            let message = error.to_string();
            // Each line is parsed alone, so the parser's own line number would mislead.
            let end = message.rfind(" at line ").unwrap_or(message.len());
            Err(LineError::Json {
                column: error.column(),
                message: message[..end].to_owned(),
            })
        }
    }
}
