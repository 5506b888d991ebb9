//! What an explanation takes from the runtime: this process, its blocks and their names.

use glia_abi::errno::Errno;
use glia_abi::handle::{Channel, CoreId, DeviceId};
use glia_abi::insight::PoolSnapshot;
use glia_abi::mem::Location;
use glia_abi::transport::Transport;

use crate::dml::Level;
use crate::error::RuntimeError;
use crate::explanation::{Explanation, Own, Request};
use crate::ndl::NdlError;
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
        self.explain(|snapshot, own| Some(Explanation::of_host(device, asked_bytes, snapshot, own)))
    }

    /// Why there is no handle.
    pub(super) fn explain_handles(&self) -> Option<Explanation> {
        let device = self.ndl.id();
        self.explain(|snapshot, own| Some(Explanation::of_handles(device, snapshot, own)))
    }

    fn explain(
        &self,
        explain: impl FnOnce(&PoolSnapshot, &Own<'_>) -> Option<Explanation>,
    ) -> Option<Explanation> {
        let config = self.session.config();
        if !config.explain_oom {
            return None;
        }
        let snapshot = self.ndl.insight()?;
        let facts = self.lists.facts(Location::Device);
        let mut blocks: Vec<_> = facts.iter().map(|facts| (facts.pa, facts)).collect();
        blocks.sort_unstable_by_key(|(at, _)| *at);
        let own = Own {
            process: config.process,
            blocks: &blocks,
        };
        explain(&snapshot, &own)
    }
}

impl Session {
    /// What it means that a device cannot be opened. Want of an attach slot is explained.
    pub(crate) fn explain_open(
        &self,
        transport: &dyn Transport,
        device: DeviceId,
        error: NdlError,
    ) -> RuntimeError {
        let is_want = matches!(
            error,
            NdlError::Call {
                call: "open",
                errno: Errno::EBUSY,
                ..
            }
        );
        let config = self.config();
        let wanted = is_want && config.explain_oom;
        let snapshot = wanted.then(|| transport.insight(device)).flatten();
        let Some(snapshot) = snapshot else {
            return error.into();
        };
        let explanation = Explanation::of_slots(device, config.process, &snapshot);
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
