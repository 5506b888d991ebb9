//! The runtime of a process as the C API sees it: there is one, and a gate before every call.
//!
//! | state | a call |
//! | --- | --- |
//! | not initialised, or not yet | [`RuntimeError::Uninitialized`] |
//! | initialised | goes on |
//! | a forked child | [`RuntimeError::WrongState`] |
//! | closed | [`RuntimeError::Closed`] |
//!
//! Tensors and models that are left of a runtime answer as the table says, too.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::RuntimeError;
use crate::runtime::Runtime;

/// The gate of a process.
#[derive(Default)]
pub struct Process(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    Start,
    /// The devices are being opened.
    Opening,
    Init(Arc<Runtime>),
    Child,
    Closed,
}

impl Process {
    /// A process whose runtime is not initialised.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Initialises the runtime (`nrt_init`), once in the life of a process (uncertain).
    ///
    /// # Errors
    /// [`RuntimeError::WrongState`] if it is initialised, or the process is a child of one where it
    /// was; [`RuntimeError::Closed`], also if it is closed meanwhile; whatever `open` answers, and
    /// then it is not initialised.
    pub fn init(
        &self,
        open: impl FnOnce() -> Result<Runtime, RuntimeError>,
    ) -> Result<Arc<Runtime>, RuntimeError> {
        let mut state = self.state();
        match &*state {
            State::Start => *state = State::Opening,
            State::Opening | State::Init(_) | State::Child => {
                return Err(RuntimeError::WrongState);
            }
            State::Closed => return Err(RuntimeError::Closed),
        }
        // Devices are opened without the lock: that may wait.
        drop(state);
        let opened = open();
        let mut state = self.state();
        let left = match &*state {
            State::Child => Err(RuntimeError::WrongState),
            State::Closed => Err(RuntimeError::Closed),
            State::Start | State::Opening | State::Init(_) => Ok(()),
        };
        if let Err(error) = left {
            // It was left while the devices were being opened, and stays so.
            drop(state);
            return opened.and(Err(error));
        }
        match opened {
            Ok(runtime) => {
                let runtime = Arc::new(runtime);
                *state = State::Init(Arc::clone(&runtime));
                Ok(runtime)
            }
            Err(error) => {
                *state = State::Start;
                Err(error)
            }
        }
    }

    /// The runtime, if calls may go on.
    ///
    /// # Errors
    /// See the table of the [module](self).
    pub fn runtime(&self) -> Result<Arc<Runtime>, RuntimeError> {
        match &*self.state() {
            State::Start | State::Opening => Err(RuntimeError::Uninitialized),
            State::Init(runtime) => Ok(Arc::clone(runtime)),
            State::Child => Err(RuntimeError::WrongState),
            State::Closed => Err(RuntimeError::Closed),
        }
    }

    /// Says that this process is a fork of the one that initialised the runtime: the devices are
    /// not its own. What is left of the runtime answers [`RuntimeError::WrongState`].
    pub fn forked(&self) {
        if let Some(runtime) = self.leave(State::Child) {
            runtime.forked();
        }
    }

    /// Closes the runtime (`nrt_close`). What is left of it answers [`RuntimeError::Closed`].
    pub fn close(&self) {
        if let Some(runtime) = self.leave(State::Closed) {
            runtime.close();
        }
    }

    /// Goes from initialised, or on the way there, to another state; the runtime, if it was.
    fn leave(&self, next: State) -> Option<Arc<Runtime>> {
        let mut state = self.state();
        if !matches!(*state, State::Opening | State::Init(_)) {
            return None;
        }
        match std::mem::replace(&mut *state, next) {
            State::Init(runtime) => Some(runtime),
            State::Start | State::Opening | State::Child | State::Closed => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
