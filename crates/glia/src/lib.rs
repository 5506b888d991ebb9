#![deny(unsafe_code)]
//! The tools around the driver, as a library; the binary `glia` is a command line over it.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`bench`](mod@bench) | measures what device memory costs, beside the reference's loop in the same run |
//! | [`conform`] | replays recorded answers of the reference driver against ours and names every difference |
//! | [`machine`] | joins devices, driver and processes |
//! | [`node`] | talks to a real driver by `/dev/neuron*`; untested on silicon |
//! | [`events`] | keeps what a machine tells of itself, in memory or in a file |
//! | [`coverage`] | counts which commands, errors and registers a run exercises |
//! | [`faults`] | reads plan files: what is to fail in a run, and how often |
//! | [`workload`], [`play`](mod@play) | reads what a program does to device memory, and does it |
//! | [`unpack`] | reads what may be packed with gzip |
//! | [`explain`](mod@explain) | reads logs of the runtime and says what ran out of memory, where, and what held it |
//!
//! There is no unsafe code but in one island, `node/island.rs`: the system calls of a real node.

pub mod bench;
pub mod conform;
pub mod coverage;
pub mod events;
pub mod explain;
pub mod faults;
pub mod machine;
pub mod node;
pub mod play;
pub mod unpack;
pub mod workload;

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
