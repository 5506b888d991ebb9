//! Rules of [`Sink`].

use super::{Violation, hold};
use crate::event::{Event, Ids, Sink};
use crate::sched::Tick;

/// A sink takes any event at any time, from several threads, and never changes its mind about what
/// it wants to hear.
///
/// # Errors
/// The rule that it breaks.
pub fn check(sink: &dyn Sink) -> Result<(), Violation> {
    let before = sink.detail();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for tick in [0, u64::MAX, 1] {
                    sink.event(Tick(tick), &Ids::default(), &Event::Opened);
                }
            });
        }
    });
    let after = sink.detail();
    hold!(
        before == after,
        "what a sink wants to hear never changes",
        "{before:?}, then {after:?}"
    );
    Ok(())
}
