//! The whole stack as a program meets it: through a process of a [`glia::machine::Machine`].
#![expect(
    clippy::unwrap_used,
    reason = "the helpers of a test fail it by panicking, too"
)]

mod borders;
mod coverage;
mod deserted;
mod events;
mod fuzz;
mod herd;
mod kills;
mod modes;
mod processes;
mod resets;
mod scrub;
mod seams;
mod tensors;
mod zero_copy;
