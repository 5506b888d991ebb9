//! The conformance suites on small implementations that keep every rule, and on mutants of them:
//! each breaks one rule, and has to be caught for that one.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

mod device;
mod host;
mod mapping;
mod plans;
mod sched;
mod transport;
mod user;

use glia_abi::conformance::Violation;

/// The check found that this rule is broken.
#[track_caller]
fn breaks(found: Result<(), Violation>, rule: &str, mutant: &dyn std::fmt::Debug) {
    match found {
        Ok(()) => panic!("{mutant:?} passed, and breaks: {rule}"),
        Err(violation) => assert_eq!(violation.rule, rule, "{mutant:?}: {violation}"),
    }
}
