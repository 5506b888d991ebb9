//! What an implementation of a seam has to keep, as checks that any implementation can be put
//! through.
//!
//! Each check takes an implementation and what is needed to drive it, and answers with the first
//! rule that it breaks. Use them in tests of your own implementation:
//!
//! ```
//! use glia_abi::conformance;
//! use glia_abi::event::NoSink;
//!
//! conformance::sink::check(&NoSink).unwrap();
//! ```

pub mod sink;

/// A rule of a seam that an implementation breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rule}: {found}")]
pub struct Violation {
    /// What has to hold.
    pub rule: &'static str,
    /// What was seen.
    pub found: String,
}

/// Answers with a [`Violation`] unless the condition holds.
macro_rules! hold {
    ($condition:expr, $rule:literal, $($found:tt)+) => {
        if !$condition {
            return Err($crate::conformance::Violation {
                rule: $rule,
                found: format!($($found)+),
            });
        }
    };
}
pub(crate) use hold;
