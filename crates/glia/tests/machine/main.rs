//! The whole stack as a program meets it: through a process of a [`glia::machine::Machine`].
#![expect(
    clippy::unwrap_used,
    reason = "the helpers of a test fail it by panicking, too"
)]

mod books;
mod borders;
mod claims;
mod coverage;
mod deserted;
mod events;
mod fork;
mod fuzz;
mod herd;
mod kills;
mod mappings;
mod million;
mod modes;
mod processes;
mod reports;
mod resets;
mod scrub;
mod seams;
mod shadow;
mod tensors;
mod unloads;
mod user_queues;
mod zero_copy;
