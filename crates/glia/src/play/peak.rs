//! What lived when most was in use, for each HBM channel.
//!
//! At a peak nothing is copied: memory has a birth (how many were taken before it), so whatever is
//! older than the peak and still lives lived at it. What is given back later is noted then, until
//! the next peak. So the cost of an operation does not depend on what lives, and what is noted is at
//! most what lived at the peak.

use std::collections::BTreeMap;
use std::sync::Arc;

use glia_abi::handle::{Channel, DeviceId};
use glia_abi::mem_usage::{Aggregate, MemUsage};
use glia_runtime::dml::UsageBytes;

use super::object::{Place, Storage};

/// Names that are told one by one.
const NAMES_MAX: usize = 10;

/// How many were taken before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Birth(u64);

/// What lived when most of an HBM channel was in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peak {
    /// The device.
    pub device: DeviceId,
    /// Its channel.
    pub hbm: Channel,
    /// Bytes.
    pub bytes: u64,
    /// The line that took them to this.
    pub line: u64,
    /// Bytes by category of the report, the largest first.
    pub categories: Vec<(Aggregate, u64)>,
    /// The names with the most bytes, the largest first.
    pub largest: Vec<Named>,
    /// All the others.
    pub others: Named,
}

/// Allocations under one name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Named {
    /// The name.
    pub name: String,
    /// Allocations.
    pub count: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// The channels of all devices.
#[derive(Debug, Default)]
pub(super) struct Peaks {
    births: u64,
    levels: Vec<Vec<Level>>,
}

#[derive(Debug, Default)]
struct Level {
    present_bytes: u64,
    peak_bytes: u64,
    /// The last one that was taken up to the peak, and the line that took it.
    born: Birth,
    line: u64,
    /// What lived at the peak and has been given back.
    gone: Vec<(Arc<str>, MemUsage, u64)>,
}

impl Peaks {
    fn level(&mut self, place: &Place) -> &mut Level {
        let (device, channel) = (place.device.index(), place.channel.index());
        if self.levels.len() <= device {
            self.levels.resize_with(device + 1, Vec::new);
        }
        let levels = &mut self.levels[device];
        if levels.len() <= channel {
            levels.resize_with(channel + 1, Level::default);
        }
        &mut levels[channel]
    }

    /// Notes that a line took memory.
    pub(super) fn taken(&mut self, line: u64, place: &Place) -> Birth {
        self.births += 1;
        let born = Birth(self.births);
        let level = self.level(place);
        level.present_bytes = level.present_bytes.saturating_add(place.counted_bytes);
        if level.present_bytes > level.peak_bytes {
            (level.peak_bytes, level.born, level.line) = (level.present_bytes, born, line);
            level.gone.clear();
        }
        born
    }

    /// Notes that it was given back.
    pub(super) fn given_back(&mut self, place: &Place, born: Birth, name: Arc<str>) {
        let level = self.level(place);
        level.present_bytes = level.present_bytes.saturating_sub(place.counted_bytes);
        if born <= level.born {
            level.gone.push((name, place.usage, place.counted_bytes));
        }
    }

    /// Bytes in use and the most that ever were.
    pub(super) fn levels(&self, device: DeviceId, hbm: Channel) -> (u64, u64) {
        let levels = self.levels.get(device.index());
        let level = levels.and_then(|levels| levels.get(hbm.index()));
        level.map_or((0, 0), |level| (level.present_bytes, level.peak_bytes))
    }

    /// What lived at the peaks, given what lives now.
    pub(super) fn told<'a>(
        &'a self,
        live: impl Iterator<Item = (&'a Storage, Birth)> + Clone,
    ) -> Vec<Peak> {
        let devices = (0..).map(DeviceId::new).zip(&self.levels);
        let levels = devices.flat_map(|(device, levels)| {
            let levels = (0..).map(Channel::new).zip(levels);
            levels.map(move |(channel, level)| (device, channel, level))
        });
        let used = levels.filter(|(.., level)| level.peak_bytes > 0);
        used.map(|(device, hbm, level)| {
            let live = live.clone().filter_map(|(storage, birth)| {
                let place = storage.place.as_ref()?;
                let is_here = (place.device, place.channel) == (device, hbm);
                (is_here && birth <= level.born).then_some((
                    &*storage.name,
                    place.usage,
                    place.counted_bytes,
                ))
            });
            let gone = level.gone.iter();
            let gone = gone.map(|(name, usage, bytes)| (&**name, *usage, *bytes));
            level.told(device, hbm, live.chain(gone))
        })
        .collect()
    }
}

impl Level {
    fn told<'a>(
        &self,
        device: DeviceId,
        hbm: Channel,
        lived: impl Iterator<Item = (&'a str, MemUsage, u64)>,
    ) -> Peak {
        let mut usages = UsageBytes::default();
        let mut names: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (name, usage, bytes) in lived {
            usages.add(usage, bytes);
            let named = names.entry(name).or_default();
            *named = (named.0 + 1, named.1.saturating_add(bytes));
        }
        let mut categories: Vec<_> = Aggregate::ALL
            .into_iter()
            .map(|one| (one, usages.aggregate(one)))
            .filter(|&(_, bytes)| bytes > 0)
            .collect();
        categories.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
        let mut largest: Vec<_> = names.into_iter().collect();
        largest.sort_by_key(|&(_, (_, bytes))| std::cmp::Reverse(bytes));
        let mut others = Named::default();
        for (_, (count, bytes)) in largest.drain(NAMES_MAX.min(largest.len())..) {
            others.count += count;
            others.bytes += bytes;
        }
        let named = |(name, (count, bytes)): (&str, (u64, u64))| Named {
            name: name.to_owned(),
            count,
            bytes,
        };
        Peak {
            device,
            hbm,
            bytes: self.peak_bytes,
            line: self.line,
            categories,
            largest: largest.into_iter().map(named).collect(),
            others,
        }
    }
}
