//! Rules of [`Port`], checked as a driver meets a device: by registers, descriptors and host memory
//! alone.
//!
//! The checks bring up a queue by hand, with rings of 32 descriptors, so that laps go round soon.
//! They wait for single words only, and for words that never come: the answer "idle" or "stopped"
//! tells when the device has done all that it will do. They run in a client of the device's
//! scheduler.

mod copies;
mod memory;
mod registers;
mod rig;
mod stops;

use super::{Violation, hold};
use crate::addr::{BusAddr, Span, UserAddr};
use crate::arch::MemoryLayout;
use crate::handle::{DeviceId, QueueId};
use crate::port::{MachineMemory, Port};
use crate::transport::UserMemory;

/// What the checks drive a device with.
#[derive(Clone, Copy)]
pub struct PortFixture<'a> {
    /// The device.
    pub port: &'a dyn Port,
    /// The host memory that it reaches, with 1 MiB free.
    pub memory: &'a dyn MachineMemory,
    /// The device's address map.
    pub layout: &'a MemoryLayout,
    /// Its number.
    pub device: DeviceId,
    /// Two queues that nobody else uses. They are left reset and disabled.
    pub queues: [QueueId; 2],
    /// HBM that nobody else uses, of 256 KiB at least; it is overwritten.
    pub hbm: Span<BusAddr>,
}

/// What [`check_pins`] needs besides: the memory of a process that calls.
#[derive(Clone, Copy)]
pub struct PinFixture<'a> {
    /// The process's memory, as far as it may be used by this call.
    pub user: &'a dyn UserMemory,
    /// A buffer that may be read and written, of 2 pages at least; it is overwritten.
    pub writable: Span<UserAddr>,
}

/// Registers read as they have to; pairs of descriptors are executed in order, once both sides have
/// announced them; whatever cannot be executed stops its queue, and only that, until it is reset; a
/// wait ends when its word is there, or cannot come; BAR4 is the same memory.
///
/// # Errors
/// The rule that it breaks.
pub fn check(fixture: &PortFixture<'_>) -> Result<(), Violation> {
    hold!(
        fixture.hbm.size_bytes() >= 256 << 10,
        "the check has 256 KiB of HBM to work in",
        "{}",
        fixture.hbm
    );
    registers::check(fixture)?;
    copies::check(fixture)?;
    stops::check(fixture)?;
    memory::check_bar4(fixture)
}

/// A device reads and writes user memory as long as it is pinned, writes it only if it was pinned
/// for that, and finds nothing there afterwards.
///
/// # Errors
/// The rule that is broken, by the device, the user memory or the host memory.
pub fn check_pins(fixture: &PortFixture<'_>, pins: &PinFixture<'_>) -> Result<(), Violation> {
    memory::check_pins(fixture, pins)
}
