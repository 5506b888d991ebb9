//! What a run came to, and sizes on its way.

use std::time::Duration;

use glia_abi::handle::{Channel, DeviceId};
use glia_abi::mem_usage::MemUsage;
use glia_runtime::dml::{Log as _, UsageTable};

use super::Player;
use crate::faults::{Laid, RuleReport};
use crate::play::Played;
use crate::play::counts::Counts;
use crate::play::failure::{Failure, Found};
use crate::play::reporting::{LoadedModel, ProcessMetrics};
use crate::workload::{Check, Gauge, Header};

impl Player<'_> {
    pub(super) fn check(&self, check: &Check) -> Result<(), Found> {
        let &Check { device, hbm, .. } = check;
        let (present, peak) = self.store.peaks.levels(device, hbm);
        for &(gauge, bounds) in &check.bounds {
            let found = match gauge {
                Gauge::Present => present,
                Gauge::Peak => peak,
                Gauge::Free => self.holes(device, hbm).iter().sum(),
                Gauge::LargestFree => self.holes(device, hbm).into_iter().max().unwrap_or(0),
            };
            if !(bounds.least..=bounds.most).contains(&found) {
                return Err(Found::Beyond {
                    gauge: gauge.name(),
                    device,
                    hbm,
                    found,
                    bounds,
                });
            }
        }
        Ok(())
    }

    /// Bytes of each hole that the driver has on a channel.
    fn holes(&self, device: DeviceId, hbm: Channel) -> Vec<u64> {
        let pools = self.machine.driver().insight(device);
        let channels = pools.into_iter().flat_map(|pools| pools.channels);
        let mut here = channels.filter(|one| one.channel == hbm);
        let free = here.next().map(|one| one.free).unwrap_or_default();
        free.iter().map(|hole| hole.size_bytes()).collect()
    }

    /// Bytes moved so far.
    pub(in crate::play) fn moved_bytes(&self) -> u64 {
        self.moved.written_bytes + self.moved.read_bytes
    }

    /// What was done so far.
    pub(in crate::play) fn counts(&self) -> Counts {
        Counts {
            written_bytes: self.moved.written_bytes,
            read_bytes: self.moved.read_bytes,
            verified_bytes: self.moved.verified_bytes,
            live: self.store.len() as u64,
            ..self.counts
        }
    }

    /// Who holds what on a device, of all processes; `None` if none runs.
    fn table(&self, device: DeviceId) -> Option<UsageTable> {
        let programs = self.programs.iter();
        let tables = programs.filter_map(|(_, program)| program.runtime.usage(device).ok());
        let mut table = tables.reduce(|mut all, one| {
            for (bank, more) in all.banks.iter_mut().zip(one.banks) {
                bank.present_bytes += more.present_bytes;
                for (core, more) in bank.cores.iter_mut().zip(more.cores) {
                    for usage in MemUsage::ALL {
                        core.present.add(usage, more.present.get(usage));
                    }
                    core.models.extend(more.models);
                }
            }
            all
        })?;
        for bank in &mut table.banks {
            let (_, peak_bytes) = self.store.peaks.levels(device, bank.channel);
            bank.peak_bytes = peak_bytes.max(bank.present_bytes);
        }
        Some(table)
    }

    /// What is loaded, and what each model owns.
    fn loaded_models(&self) -> impl Iterator<Item = LoadedModel> {
        self.models.iter().map(|(id, loaded)| {
            let report = loaded.model.report();
            LoadedModel {
                id: id.clone(),
                process: self.programs[loaded.program].name.to_string(),
                log: report.text(self.config.profile, &self.memo.context()),
                report,
            }
        })
    }

    /// What each process has of each device, by the counters of sysfs.
    fn metrics(&self) -> impl Iterator<Item = ProcessMetrics> {
        self.programs.iter().flat_map(|(_, program)| {
            let devices = self.devices.iter();
            devices.filter_map(|&device| {
                Some(ProcessMetrics {
                    process: program.name.to_string(),
                    device,
                    metrics: program.runtime.metrics(device).ok()?,
                })
            })
        })
    }

    /// What it came to.
    pub(in crate::play) fn end(
        self,
        header: &Header,
        failure: Option<Failure>,
        stopped: Option<u64>,
    ) -> Played {
        let tables = self.devices.iter().filter_map(|&device| self.table(device));
        let ordered = self.ordered.iter().flat_map(|(id, (line, laid))| {
            let at = |rule| RuleReport {
                id: Some(id.clone()),
                line: Some(*line),
                ..rule
            };
            laid.told().into_iter().map(at)
        });
        let lines = ordered.chain(self.mended.iter().cloned());
        let faults = self.laid.iter().flat_map(Laid::told).chain(lines);
        let (programs, same) = (self.programs.iter(), self.programs.iter());
        Played {
            machine: header.machine.clone(),
            counts: self.counts(),
            tables: tables.collect(),
            peaks: self.store.peaks.told(self.store.storages()),
            processes: programs.map(|(_, it)| it.name.to_string()).collect(),
            pids: same.map(|(_, it)| it.pid()).collect(),
            models: self.loaded_models().collect(),
            metrics: self.metrics().collect(),
            warnings: self.warnings.clone(),
            report: header.report,
            assumed: header.assumed.clone(),
            failure,
            stopped,
            faults: faults.collect(),
            took: Duration::ZERO,
        }
    }
}
