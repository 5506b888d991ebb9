#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the sizes of these tests are small"
)]
//! The runtime over a driver made for the tests: what it asks, and what it makes of the answers.

mod allocation;
mod copies;
mod events;
mod fake;
mod ledger;
mod reports;
mod scratchpads;
mod sites;
mod tensors;
mod traces;
mod views;
