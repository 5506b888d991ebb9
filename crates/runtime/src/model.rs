//! Loaded models: a name, what they have allocated, and what they have reserved of the scratchpad.

use std::panic::Location;
use std::sync::{Arc, Mutex, PoisonError};

use glia_abi::addr::BusAddr;

use crate::dmem::{AllocSpec, Allocator, AskedAt, Dmem};
use crate::dml::{ModelId, ModelReport};
use crate::error::RuntimeError;
#[cfg(doc)]
use crate::runtime::Runtime;
use crate::scratchpad::{Asker, Reservation, ScratchPlace, ScratchVariable, Scratchpad};

/// A loaded model. Dropping it unloads it: what it has allocated is freed, whoever still holds a
/// [`Dmem`] of it. (The reference leaves it behind.)
pub struct Model {
    pub(crate) id: ModelId,
    pub(crate) allocator: Allocator,
    pub(crate) scratchpad: Arc<Scratchpad>,
    pub(crate) reservations: Mutex<Vec<Reservation>>,
}

impl Model {
    /// The id by which reports name it.
    #[must_use]
    pub fn id(&self) -> ModelId {
        self.id
    }

    /// Allocates memory that lives with the model, or until its last [`Dmem`] is dropped.
    ///
    /// # Errors
    /// As [`Runtime::allocate`].
    #[track_caller]
    pub fn allocate(&self, spec: &AllocSpec<'_>) -> Result<Dmem, RuntimeError> {
        let caller = Location::caller();
        self.allocator.device().session.gate()?;
        self.allocator.allocate(spec, caller)
    }

    /// What it owns, and what its core holds.
    #[must_use]
    pub fn report(&self) -> ModelReport {
        let device = self.allocator.device();
        device.dml.model_report(self.id, self.allocator.core())
    }

    /// Logs what it owns in one message, as the reference does when a load is complete.
    pub fn log_usage(&self) {
        let session = &self.allocator.device().session;
        session.log_model(&self.report());
    }

    /// Reserves variables of the scratchpad until the model is unloaded; where each was put, in the
    /// order of the variables.
    ///
    /// # Errors
    /// [`RuntimeError::ScratchpadCeiling`] and [`RuntimeError::ScratchpadPages`] if there cannot be
    /// so much; as [`Runtime::allocate`] for a page or a private block; then nothing is reserved.
    #[track_caller]
    pub fn reserve_scratchpad(
        &self,
        variables: &[ScratchVariable],
    ) -> Result<Vec<ScratchPlace>, RuntimeError> {
        self.reserve_scratchpad_at(variables, None)
    }

    /// The same for a place in a program that the caller has a name for, as
    /// [`AllocSpec::site`]; `None` for the line of code that calls this. Pages that are there
    /// already stay those of whoever asked for them.
    ///
    /// # Errors
    /// As [`reserve_scratchpad`](Self::reserve_scratchpad).
    #[track_caller]
    pub fn reserve_scratchpad_at(
        &self,
        variables: &[ScratchVariable],
        site: Option<AskedAt<'_>>,
    ) -> Result<Vec<ScratchPlace>, RuntimeError> {
        let caller = Location::caller();
        self.allocator.device().session.gate()?;
        let asker = Asker { site, caller };
        let reserved = self.scratchpad.reserve(&self.allocator, variables, asker);
        let (reservation, places) = reserved?;
        let reservations = self.reservations.lock();
        let mut reservations = reservations.unwrap_or_else(PoisonError::into_inner);
        reservations.push(reservation);
        Ok(places)
    }

    /// Where an offset of the shared scratchpad is now, as the device sees it; `None` if no page has
    /// it. A contiguous scratchpad moves when a model makes it grow.
    #[must_use]
    pub fn scratchpad_address(&self, offset_bytes: u64) -> Option<BusAddr> {
        self.scratchpad.address(offset_bytes)
    }
}
