//! What Glia answered, in the trace's words, and what the reference does there if that is declared
//! to be something else.

use glia_abi::divergence::Divergence;

use super::trace::Stop;
use super::value::Fields;

/// An answer of Glia's driver to one operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The answer.
    pub reply: Reply,
    /// Set if a declared divergence makes the reference do something else.
    pub reference: Option<(Divergence, Reference)>,
}

/// An answer itself.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// The fields that `out` must have.
    Outcome(Fields<'static>),
    /// An error for which the format has no words, since the reference has none.
    Error(String),
}

/// What the reference does where Glia differs on purpose.
#[derive(Debug, Clone, PartialEq)]
pub enum Reference {
    /// It answers this, by an accident that can be computed.
    Answers(Fields<'static>),
    /// It takes the request that Glia refuses, or has no memory for it. What follows from that,
    /// Glia cannot follow.
    Takes,
    /// It stops the kernel, in one of these ways.
    Stops {
        /// The ways.
        ways: &'static [Stop],
        /// What a trace may tell beside.
        facts: Fields<'static>,
    },
}

impl Answer {
    /// An answer that the reference should give, too.
    #[must_use]
    pub fn outcome(fields: Fields<'static>) -> Self {
        Self {
            reply: Reply::Outcome(fields),
            reference: None,
        }
    }

    /// An error that the reference has no counterpart of.
    #[must_use]
    pub fn error(error: impl ToString) -> Self {
        Self {
            reply: Reply::Error(error.to_string()),
            reference: None,
        }
    }

    /// An answer that stands where the reference does something else.
    #[must_use]
    pub fn instead(self, divergence: Divergence, reference: Reference) -> Self {
        Self {
            reference: Some((divergence, reference)),
            ..self
        }
    }

    /// An error where the reference stops the kernel.
    #[must_use]
    pub fn instead_of_stop(
        error: impl ToString,
        divergence: Divergence,
        ways: &'static [Stop],
        facts: Fields<'static>,
    ) -> Self {
        Self::error(error).instead(divergence, Reference::Stops { ways, facts })
    }
}
