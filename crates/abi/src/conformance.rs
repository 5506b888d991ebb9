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
//!
//! | seam | checks |
//! | --- | --- |
//! | [`HostMemory`](crate::port::HostMemory) | [`host_memory::check`] |
//! | [`DmaMemory`](crate::port::DmaMemory) | [`dma_memory::check`] |
//! | [`MachineMemory`](crate::port::MachineMemory) | [`machine_memory::check`], which runs the two above |
//! | [`Port`](crate::port::Port) | [`port::check`]; [`port::check_pins`] for user memory under a device's hands |
//! | [`Sched`](crate::sched::Sched) | [`sched::check`], [`worker::check`], [`sleep_lock::check`], in this order |
//! | [`UserMemory`](crate::transport::UserMemory) | [`user_memory::check`] |
//! | [`Mapping`](crate::transport::Mapping), [`UserBuffer`](crate::transport::UserBuffer) | [`mapping::check`], [`mapping::check_shared`], [`mapping::check_buffer`] |
//! | [`Transport`](crate::transport::Transport) | [`transport::check`] for any driver; [`transport::check_copies`] for one with a device behind it |
//! | [`Faults`](crate::fault::Faults) | [`faults::check`] |
//! | [`Sink`](crate::event::Sink) | [`sink::check`]; [`sink::check_recorder`] for one that remembers |
//!
//! **What a check does not do.** It does not sleep, does not read a clock, and does not try what a
//! seam leaves open. An implementation that keeps its rules leaves it as it was; what a check took
//! before it found a violation is not given back.

pub mod dma_memory;
pub mod faults;
pub mod host_memory;
pub mod machine_memory;
pub mod mapping;
pub mod port;
pub mod sched;
pub mod sink;
pub mod sleep_lock;
pub mod transport;
pub mod user_memory;
pub mod worker;

use std::fmt::Debug;

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
    ($condition:expr, $rule:expr, $($found:tt)+) => {
        if !$condition {
            return Err($crate::conformance::Violation {
                rule: $rule,
                found: format!($($found)+),
            });
        }
    };
}
pub(crate) use hold;

/// Something that a check cannot go on without.
trait Must<T> {
    /// The value, or a violation of the rule by which it has to be there.
    fn must(self, rule: &'static str) -> Result<T, Violation>;
}

impl<T, E: Debug> Must<T> for Result<T, E> {
    fn must(self, rule: &'static str) -> Result<T, Violation> {
        self.map_err(|error| Violation {
            rule,
            found: format!("{error:?}"),
        })
    }
}

impl<T> Must<T> for Option<T> {
    fn must(self, rule: &'static str) -> Result<T, Violation> {
        self.ok_or_else(|| Violation {
            rule,
            found: "nothing".to_owned(),
        })
    }
}

/// Bytes that look like nothing in particular, others for each seed.
fn pattern(seed: u32, count: usize) -> Vec<u8> {
    let step = |state: &u32| Some(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    std::iter::successors(step(&seed), step)
        .map(|state| state.to_be_bytes()[0])
        .take(count)
        .collect()
}

/// Where two byte strings differ first, for a violation's text.
fn difference(expected: &[u8], found: &[u8]) -> String {
    let at = expected.iter().zip(found).position(|(want, is)| want != is);
    match at {
        Some(at) => format!("byte {at} is {:#04x}, not {:#04x}", found[at], expected[at]),
        None => format!("{} bytes, not {}", found.len(), expected.len()),
    }
}

/// A count of bytes of this address space as the number that seams speak of.
const fn bytes_of(count: usize) -> u64 {
    count as u64
}
