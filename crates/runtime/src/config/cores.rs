//! Logical cores: which a process may use, and the physical cores that each is made of.
//!
//! Programs of the C API number logical cores (`vnc`) from 0, over all devices, and among those that
//! they may use. `NEURON_RT_VIRTUAL_CORE_SIZE` says how many physical cores make one;
//! `NEURON_RT_VISIBLE_CORES` and `NEURON_RT_NUM_CORES` say which may be used.

use std::ops::Range;

use glia_abi::arch::Arch;
use glia_abi::handle::{CoreId, DeviceId};

use crate::ndl::{Device, NdlError};
use crate::runtime::Core;

/// Which logical cores of a machine a process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum VisibleCores {
    /// All.
    #[default]
    All,
    /// The first ones in a row that no other process has: so many, 0 for all
    /// (`NEURON_RT_NUM_CORES`). Who does not [ask the driver](LogicalCores::claim) takes all for free.
    First(u32),
    /// Those from one to another, with both (`NEURON_RT_VISIBLE_CORES`).
    Between(u32, u32),
}

impl VisibleCores {
    /// What `NEURON_RT_VISIBLE_CORES` says: `3`, `0-3` or `0,1,2`, rising and without a gap; `None`
    /// for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut behind = None;
        let mut first = None;
        for part in text.split(',') {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let (from, to): (u32, u32) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
            let follows = behind.is_none_or(|behind| behind == from);
            if from > to || !follows {
                return None;
            }
            first = first.or(Some(from));
            behind = Some(to.checked_add(1)?);
        }
        Some(Self::Between(first?, behind? - 1))
    }
}

/// More logical cores are wanted than there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("logical cores up to {last} are wanted, and there are {total}, from 0 on")]
pub struct CoresError {
    /// The last one that is wanted.
    pub last: u32,
    /// How many there are.
    pub total: u32,
}

/// The cores that are wanted cannot be had for this process alone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// There are not so many.
    #[error(transparent)]
    Cores(#[from] CoresError),
    /// Another process has one of them, which is named, or the driver refuses to say.
    #[error(transparent)]
    Driver(#[from] NdlError),
}

/// A logical core.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LogicalCore {
    /// Its device.
    pub device: DeviceId,
    /// The physical cores that it is made of.
    pub cores: Range<u32>,
}

impl LogicalCore {
    /// Its first physical core, to which its scratchpad is charged.
    #[must_use]
    pub fn first(&self) -> Core {
        Core {
            device: self.device,
            core: CoreId::new(self.cores.start),
        }
    }
}

/// The logical cores that a process may use, by their numbers for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogicalCores {
    visible: Vec<LogicalCore>,
    total: u32,
}

impl LogicalCores {
    /// Those of a machine with these devices, of which each logical core takes `lnc_size` physical
    /// ones; of V2, one. Cores that are left over make none.
    ///
    /// # Errors
    /// [`CoresError`] if there are fewer than wanted.
    ///
    /// ```
    /// use glia_abi::arch::Arch;
    /// use glia_abi::handle::DeviceId;
    /// use glia_runtime::config::{LogicalCores, VisibleCores};
    ///
    /// // Two devices of eight cores, two of which make one: logical cores 0 to 7.
    /// let devices = [0, 1].map(|number| (DeviceId::new(number), Arch::V3));
    /// let cores = LogicalCores::new(&devices, 2, VisibleCores::Between(3, 5))?;
    /// assert_eq!((cores.total(), cores.len()), (8, 3));
    /// assert_eq!(cores.get(1).unwrap().device, DeviceId::new(1));
    /// assert_eq!(cores.get(2).unwrap().cores, 2..4);
    /// # Ok::<(), glia_runtime::config::CoresError>(())
    /// ```
    pub fn new(
        devices: &[(DeviceId, Arch)],
        lnc_size: u32,
        visible: VisibleCores,
    ) -> Result<Self, CoresError> {
        let all = all(devices, lnc_size);
        let total = u32::try_from(all.len()).unwrap_or(u32::MAX);
        let wanted = match visible {
            VisibleCores::All | VisibleCores::First(0) => 0..total,
            VisibleCores::First(count) => 0..count,
            VisibleCores::Between(first, last) => first..last.saturating_add(1).max(first),
        };
        let visible = all.get(wanted.start as usize..wanted.end as usize);
        let visible = visible.ok_or(CoresError {
            last: wanted.end.saturating_sub(1),
            total,
        })?;
        Ok(Self {
            visible: visible.to_vec(),
            total,
        })
    }

    /// Those of [`new`](Self::new), claimed in the driver for this process, so that others keep out of
    /// them ([`claim_cores`](Device::claim_cores), which tells how long). Of
    /// [`First`](VisibleCores::First) ones those that no process has are taken: the lowest in a row,
    /// whole logical cores. (The reference takes "the first free"; that it takes them in a row is not
    /// public.)
    ///
    /// `first` is the first of the devices, which are all of the machine's, in order.
    ///
    /// # Errors
    /// [`ClaimError::Cores`] if there are fewer than wanted; [`ClaimError::Driver`] with
    /// [`NdlError::CoresTaken`] if a process has one of them, or so many that no row is left.
    pub fn claim(
        first: &Device,
        devices: &[(DeviceId, Arch)],
        lnc_size: u32,
        visible: VisibleCores,
    ) -> Result<Self, ClaimError> {
        let mut cores = Self::new(devices, lnc_size, visible)?;
        let all = all(devices, lnc_size);
        let is_first = matches!(visible, VisibleCores::First(count) if count > 0);
        if !is_first {
            claim_row(first, devices, &cores.visible)?;
            return Ok(cores);
        }
        let mut refusal = None;
        for row in all.windows(cores.len()) {
            match claim_row(first, devices, row) {
                Ok(()) => {
                    cores.visible = row.to_vec();
                    return Ok(cores);
                }
                Err(taken @ NdlError::CoresTaken { .. }) => refusal = refusal.or(Some(taken)),
                Err(error) => return Err(error.into()),
            }
        }
        // One row at least was looked at.
        refusal.map_or(Ok(cores), |refusal| Err(refusal.into()))
    }

    /// The logical core of a number; `None` if the process may not use so many.
    #[must_use]
    pub fn get(&self, vnc: u32) -> Option<&LogicalCore> {
        self.visible.get(vnc as usize)
    }

    /// How many the process may use (`nrt_get_visible_vnc_count`).
    #[must_use]
    pub fn len(&self) -> usize {
        self.visible.len()
    }

    /// Whether it may use none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.visible.is_empty()
    }

    /// How many the machine has (`nrt_get_total_vnc_count`).
    #[must_use]
    pub fn total(&self) -> u32 {
        self.total
    }

    /// The devices of those that the process may use: the ones to open.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceId> {
        let mut devices: Vec<DeviceId> = self.visible.iter().map(|core| core.device).collect();
        devices.dedup();
        devices
    }
}

/// All logical cores of these devices.
fn all(devices: &[(DeviceId, Arch)], lnc_size: u32) -> Vec<LogicalCore> {
    let all = devices.iter().flat_map(|&(device, arch)| {
        let size = match arch {
            Arch::V2 => 1,
            Arch::V3 | Arch::V4 => lnc_size.max(1),
        };
        // What is left over makes none.
        let count = arch.profile().cores / size;
        (0..count).map(move |number| LogicalCore {
            device,
            cores: number * size..(number + 1) * size,
        })
    });
    all.collect()
}

/// Claims all cores of a row of logical ones, or none. Cores that lie between them and are left over
/// are claimed with them.
fn claim_row(
    by: &Device,
    devices: &[(DeviceId, Arch)],
    row: &[LogicalCore],
) -> Result<(), NdlError> {
    let (Some(first), Some(last)) = (row.first(), row.last()) else {
        return Ok(());
    };
    // The driver counts the cores of all devices, one device after the other.
    let before = |device: DeviceId| {
        let others = devices.iter().take_while(|(other, _)| *other != device);
        others.map(|(_, arch)| arch.profile().cores).sum::<u32>()
    };
    let start = before(first.device) + first.cores.start;
    let end = before(last.device) + last.cores.end;
    let among = CoreId::new(start)..=CoreId::new(end - 1);
    by.claim_cores(end - start, among).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_cores_rise_without_a_gap() {
        let between = |first, last| Some(VisibleCores::Between(first, last));
        let cases = [
            ("0", between(0, 0)),
            ("0-3", between(0, 3)),
            ("4,5,6", between(4, 6)),
            ("0-1, 2-3", between(0, 3)),
            ("", None),
            ("0,2", None),
            ("1,0", None),
            ("3-0", None),
            ("0,0", None),
            ("a", None),
            ("0-", None),
            ("-1", None),
            ("4294967295", None),
        ];
        for (text, wanted) in cases {
            assert_eq!(VisibleCores::parse(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_logical_core_has_no_core_that_the_device_lacks() {
        let devices = [(DeviceId::new(0), Arch::V3)];
        let cores = |size| LogicalCores::new(&devices, size, VisibleCores::All).unwrap();
        assert_eq!((cores(3).len(), cores(9).len()), (2, 0));
        assert_eq!(cores(3).get(1).unwrap().cores, 3..6);
        assert_eq!(cores(u32::MAX).total(), 0);
    }

    #[test]
    fn more_cores_than_there_are_is_an_error() {
        let devices = [(DeviceId::new(3), Arch::V3)];
        let cores = |visible| LogicalCores::new(&devices, 2, visible);
        assert_eq!(cores(VisibleCores::First(4)).unwrap().len(), 4);
        let error = cores(VisibleCores::First(5)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "logical cores up to 4 are wanted, and there are 4, from 0 on"
        );
        assert!(cores(VisibleCores::Between(4, 4)).is_err());
        assert!(cores(VisibleCores::Between(2, 1)).unwrap().is_empty());
    }

    #[test]
    fn a_generation_of_single_cores_has_as_many_logical_ones() {
        let devices = [(DeviceId::new(0), Arch::V2), (DeviceId::new(1), Arch::V4)];
        let cores = LogicalCores::new(&devices, 2, VisibleCores::All).unwrap();
        assert_eq!((cores.total(), cores.len()), (2 + 4, 6));
        let core = cores.get(3).unwrap();
        assert_eq!((core.first().core, &core.cores), (CoreId::new(2), &(2..4)));
        assert_eq!(cores.get(6), None);
        assert_eq!(cores.devices(), [0, 1].map(DeviceId::new));
        let one = LogicalCores::new(&devices, 1, VisibleCores::Between(5, 5)).unwrap();
        assert_eq!(one.devices(), [DeviceId::new(1)]);
    }
}
