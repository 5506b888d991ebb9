//! What the runtime is told when it is opened.

mod cores;
mod env;
mod log;

use std::sync::Arc;

use glia_abi::arch::Arch;
use glia_abi::event::{NoSink, Sink};
use glia_abi::handle::{DeviceId, Pid};

use crate::dml::{Dump, Log, ReportProfile};
use crate::ndl;
use crate::trace::Tracer;

pub use cores::{ClaimError, CoresError, LogicalCore, LogicalCores, VisibleCores};
pub use env::EnvError;
pub use log::{LogLevel, LogLocation};

const MIB: u64 = 1 << 20;

/// What the runtime is told when it is opened.
#[derive(Clone)]
pub struct RuntimeConfig {
    /// How reports look.
    pub profile: ReportProfile,
    /// Events that are kept for each device (runtime 2.31: `NEURON_RT_DEBUG_MEMLOG_MAX_SIZE`).
    pub events_max: usize,
    /// Where log lines go; `None` for nowhere.
    pub log: Option<Arc<dyn Log>>,
    /// Which of them (`NEURON_RT_LOG_LEVEL`).
    pub log_level: LogLevel,
    /// Where they are wanted (`NEURON_RT_LOG_LOCATION`). Whoever gives the [`log`](Self::log) goes
    /// by it; the runtime does not.
    pub log_location: LogLocation,
    /// Who hears events: as a rule, whoever hears those of the machine.
    pub sink: Arc<dyn Sink>,
    /// Who hears of the events of the reference's trace; `None` for nobody.
    pub tracer: Option<Arc<dyn Tracer>>,
    /// The process that events are about, as the driver calls it; `None` if that is not known.
    pub process: Option<Pid>,
    /// Physical cores that make a logical one (`NEURON_RT_VIRTUAL_CORE_SIZE`). V2 has 1 whatever
    /// this says; 0 counts as 1.
    pub lnc_size: u32,
    /// Which logical cores the process may use. Whoever opens the runtime goes by it
    /// ([`logical_cores`](Self::logical_cores)); calls that name a physical core do not.
    pub visible_cores: VisibleCores,
    /// How large a page of the paged scratchpad is.
    pub scratchpad_page: PageSize,
    /// Whether the scratchpad is to be contiguous, where it can be
    /// (`NEURON_RT_CONTIGUOUS_SCRATCHPAD`; on by itself from runtime 2.33 on).
    pub contiguous_scratchpad: bool,
    /// Whether a table has a column for each usage (`NEURON_RT_DBG_VERBOSE_DEV_MEM`).
    pub verbose_tables: bool,
    /// Whether tensors and allocations in HBM are copied by the caller's own pages and not through
    /// the copy buffer, where the driver can do that (`NEURON_RT_DBG_ZEROCOPY`).
    pub zero_copy: bool,
    /// The most bytes of a write by the caller's pages that the processor may store by itself
    /// (`NEURON_RT_DBG_DIRECT_BAR4_WRITE_SIZE`); `None` for what the generation has: 4,096 bytes
    /// since V3, nothing before.
    pub bar4_wr_threshold_bytes: Option<u16>,
    /// Where the events of a device are written when an allocation fails for want of memory, as
    /// [`events_csv`](crate::dml::events_csv), and the chunks of the HBM that has no room, as
    /// [`chunks_csv`](crate::dml::chunks_csv); `None` for nowhere. (The reference writes to `/tmp`.)
    pub dump: Option<Arc<dyn Dump>>,
    /// Whether a failed allocation is reported in the log, and its events are written
    /// (`NEURON_RT_ENABLE_DEVICE_MEMORY_OOM_LOG`). The error carries the report in any case.
    pub oom_log: bool,
    /// The value that every byte of HBM has when it is allocated (`NEURON_RT_HBM_INIT_VAL`); `None`
    /// for whatever was there. It shows who reads what nobody has written, and takes a command for
    /// each allocation. (The reference has it for debugging; when it fills is not public.)
    pub hbm_init_value: Option<u8>,
    /// Whether a failed allocation is [explained](crate::explanation), where the driver lets itself
    /// be looked into. A program that tries sizes until one fits may want to do without: it takes
    /// time with the number of live blocks.
    pub explain_oom: bool,
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        Self {
            profile: ReportProfile::default(),
            events_max: 1 << 20,
            log: None,
            log_level: LogLevel::default(),
            log_location: LogLocation::default(),
            sink: Arc::new(NoSink),
            tracer: None,
            process: None,
            lnc_size: 1,
            visible_cores: VisibleCores::All,
            scratchpad_page: PageSize::default(),
            contiguous_scratchpad: false,
            verbose_tables: false,
            zero_copy: false,
            bar4_wr_threshold_bytes: None,
            dump: None,
            oom_log: true,
            hbm_init_value: None,
            explain_oom: true,
        }
    }
}

impl RuntimeConfig {
    /// The logical cores that the process may use on a machine with these devices, and so which of
    /// them to open.
    ///
    /// # Errors
    /// [`CoresError`] if there are fewer than wanted.
    pub fn logical_cores(&self, devices: &[(DeviceId, Arch)]) -> Result<LogicalCores, CoresError> {
        LogicalCores::new(devices, self.lnc_size, self.visible_cores)
    }

    /// The same, claimed for this process by the first of the devices: see [`LogicalCores::claim`].
    ///
    /// # Errors
    /// [`ClaimError`] if there are fewer than wanted, or others have them.
    pub fn claim_logical_cores(
        &self,
        first: &ndl::Device,
        devices: &[(DeviceId, Arch)],
    ) -> Result<LogicalCores, ClaimError> {
        LogicalCores::claim(first, devices, self.lnc_size, self.visible_cores)
    }
}

/// Bytes of a page of the paged scratchpad: a multiple of 512 MiB below 4 GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageSize(u64);

impl PageSize {
    /// All sizes are multiples of this one, which is the least and the default.
    pub const STEP_BYTES: u64 = 512 * MIB;
    /// All sizes are below this.
    pub const END_BYTES: u64 = 4096 * MIB;

    /// A size in bytes; `None` if it is not allowed.
    #[must_use]
    pub const fn new(bytes: u64) -> Option<Self> {
        match bytes {
            Self::STEP_BYTES..Self::END_BYTES if bytes.is_multiple_of(Self::STEP_BYTES) => {
                Some(Self(bytes))
            }
            _ => None,
        }
    }

    /// A size in units of 1,048,576 bytes, as `NEURON_SCRATCHPAD_PAGE_SIZE` has it; `None` if it is
    /// not allowed.
    #[must_use]
    pub const fn from_mib(mib: u64) -> Option<Self> {
        match mib.checked_mul(MIB) {
            Some(bytes) => Self::new(bytes),
            None => None,
        }
    }

    /// All sizes, the least first.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..).map_while(|steps| Self::new(steps * Self::STEP_BYTES))
    }

    /// Bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Units of 1,048,576 bytes.
    #[must_use]
    pub const fn mib(self) -> u64 {
        self.0 / MIB
    }
}

impl Default for PageSize {
    fn default() -> Self {
        Self(Self::STEP_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_a_multiple_of_512_mib_below_4_gib() {
        let allowed: Vec<u64> = (0..=4096)
            .filter(|&mib| PageSize::from_mib(mib).is_some())
            .collect();
        assert_eq!(allowed, [512, 1024, 1536, 2048, 2560, 3072, 3584]);
        assert_eq!(PageSize::from_mib(u64::MAX), None);
        assert_eq!(PageSize::default().mib(), 512);
        let all: Vec<u64> = PageSize::all().map(PageSize::mib).collect();
        assert_eq!(all, allowed);
    }
}
