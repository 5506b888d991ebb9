//! What an explanation takes from the runtime: this process, its blocks and their names.

use std::sync::Weak;

use glia_abi::errno::Errno;
use glia_abi::handle::{Channel, CoreId, DeviceId};
use glia_abi::insight::PoolSnapshot;
use glia_abi::mem::Location;
use glia_abi::transport::Transport;

use crate::dml::Level;
use crate::error::RuntimeError;
use crate::explanation::{Explanation, Own, Request};
use crate::ndl::{COPY_BUFFER_SIZE_BYTES, NdlError};
use crate::runtime::{OpenDevice, Session};

impl OpenDevice {
    /// Why an HBM has no room; `None` where nobody can look into the driver, or is to.
    pub(super) fn explain_bank(&self, request: Request) -> Option<Explanation> {
        let profile = self.ndl.profile();
        let cores_of = |channel: Channel| {
            let cores = (0..profile.cores).map(CoreId::new);
            let is_there = |core: &CoreId| profile.default_channel(*core) == channel;
            cores.filter(is_there).collect()
        };
        self.explain(|snapshot, own| Explanation::of_bank(snapshot, request, own, cores_of))
    }

    /// Why there is no host memory.
    pub(super) fn explain_host(&self, asked_bytes: u64) -> Option<Explanation> {
        let device = self.ndl.id();
        self.explain(|snapshot, own| {
            Some(Explanation::of_host(device, asked_bytes, &snapshot, &own))
        })
    }

    /// Why there is no handle.
    pub(super) fn explain_handles(&self) -> Option<Explanation> {
        let device = self.ndl.id();
        self.explain(|snapshot, own| Some(Explanation::of_handles(device, &snapshot, &own)))
    }

    fn explain(
        &self,
        explain: impl FnOnce(PoolSnapshot, Own) -> Option<Explanation>,
    ) -> Option<Explanation> {
        let config = self.session.config();
        if !config.explain_oom {
            return None;
        }
        let snapshot = self.ndl.insight()?;
        let scratchpads = self.scratchpads.get().into_iter().flatten();
        let scratchpads = scratchpads.filter_map(Weak::upgrade);
        let own = Own {
            process: config.process.or_else(|| self.ndl.owner_in(&snapshot)),
            blocks: self.dml.facts(Location::Device),
            scratchpads: scratchpads.map(|one| one.book()).collect(),
            models: self.dml.model_names(),
        };
        explain(snapshot, own)
    }
}

impl Session {
    /// What it means that a device cannot be opened. Want of an attach slot, or of host memory for the
    /// copy buffers, is explained.
    pub(crate) fn explain_open(
        &self,
        transport: &dyn Transport,
        device: DeviceId,
        error: NdlError,
    ) -> RuntimeError {
        let NdlError::Call { call, errno, .. } = &error else {
            return error.into();
        };
        let wants_slot = (*call, *errno) == ("open", Errno::EBUSY);
        let wants_memory = *call != "open" && *errno == Errno::ENOMEM;
        let config = self.config();
        let wanted = (wants_slot || wants_memory) && config.explain_oom;
        let snapshot = wanted.then(|| transport.insight(device)).flatten();
        let Some(snapshot) = snapshot else {
            return error.into();
        };
        let explanation = match wants_slot {
            true => Explanation::of_slots(device, config.process, &snapshot),
            // The copy buffers, which are host memory.
            false => {
                let own = Own {
                    process: config.process,
                    ..Own::default()
                };
                Explanation::of_host(device, COPY_BUFFER_SIZE_BYTES, &snapshot, &own)
            }
        };
        let message = error.to_string();
        self.log_explained(
            Level::Error,
            "ndl_open_device",
            &message,
            Some(&explanation),
        );
        RuntimeError::Exhausted {
            source: error,
            explanation: Box::new(explanation),
        }
    }
}
