//! What a machine tells of itself, kept: in memory, in a file, or both.
//!
//! ```text
//!   runtime, driver, device ── Sink::event ──► Tee ──┬──► EventRing   the last so many, in memory
//!                                                    └──► EventLog    all of them, as JSON Lines
//! ```
//!
//! A sink hears events with layers' locks held. So each of these takes one lock of its own for a
//! short while, calls nobody but its writer, and never fails: what goes wrong is told afterwards, by
//! whoever owns the sink. Each numbers what it hears, from 0, in the order in which it heard it.
//!
//! What a line says follows from the event alone: no time of day, no address of this process. Two
//! runs with one seed in the virtual mode give the same bytes. The format is described in
//! `docs/formats/events.md`.
//!
//! Names are numbered by each of them, from 0, in the order in which they were asked for. Nothing
//! is forgotten: a sink holds every name that its machine has ever told it.

mod line;
mod log;
mod names;
mod ring;
mod tee;

pub use log::{EVENT_FORMAT, EVENT_VERSION, EventLog};
pub use ring::{EventRing, Heard, Kept};
pub use tee::Tee;
