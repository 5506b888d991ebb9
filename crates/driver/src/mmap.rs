//! Mappings: which device-visible memory a process may map, and what holds it.
//!
//! The offset given to mmap is the address of a chunk, as `MEM_GET_INFO` reports it. Any address in
//! the chunk will do, and the mapping begins at the chunk's first byte all the same; its length
//! must be the chunk's. Only a page of the contiguous scratchpad may be mapped at any length that
//! ends within the scratchpad. Everything else would be raw device memory, for which the reference
//! wants a privilege that nobody has here: `EPERM`. (The table of register windows that the
//! reference looks into before that is empty here.)
//!
//! A mapping is **read-only** without an error if the caller is not the process that took the
//! chunk, unless the chunk was taken to live as long as the device (driver 2.27 looks at the
//! record's own lifespan), or if the file was not opened for writing. The driver's own rings, markers
//! and carveouts live that long: whoever knows their addresses can map them and write to them, as in
//! the reference, and a process that does spoils the copies of others.
//!
//! **Who holds what.** A record per mapping holds a pin on its chunk, and on all others that it
//! shows of the scratchpad, so a free leaves the memory to the mapping (divergence `pinned-range`;
//! the reference would show it the next owner's). The record goes with the unmap, or when its process
//! closes the device for the last time. A process that is not attached can map, too; then only the
//! unmap or its exit ends the record.
//!
//! **Accesses** are made by whoever has the bytes, each [within](MapLife::access) the mapping's life:
//! the pin goes when those that have begun are over, and later ones are refused. So nobody reads or
//! writes through a mapping what is the next owner's.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use glia_abi::addr::{Alignment, BusAddr};
use glia_abi::errno::Errno;
use glia_abi::handle::{DeviceId, Pid};
use glia_abi::mem::Lifespan;
use glia_abi::usage::Category;

use crate::memory::OwnedPin;

/// Names a mapping; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MapId(pub u64);

/// What the driver lets a process map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapGrant {
    /// What to unmap.
    pub map: MapId,
    /// First byte, as the device sees it.
    pub at: BusAddr,
    /// Bytes, a multiple of 4,096.
    pub size_bytes: u64,
    /// Whether the process may write it.
    pub writable: bool,
}

/// The time in which a mapping may be used: from its mmap to its unmap, to its process's last close
/// of the device or to its exit.
#[derive(Debug, Default)]
pub struct MapLife {
    is_over: RwLock<bool>,
    /// Whether somebody was [lent](Self::lend) its memory.
    is_lent: AtomicBool,
}

impl MapLife {
    /// Makes an access, which must not wait for anybody; `None` if the mapping has ended. It does not
    /// end before the access has.
    pub fn access<T>(&self, access: impl FnOnce() -> T) -> Option<T> {
        let is_over = self.is_over.read().unwrap_or_else(PoisonError::into_inner);
        (!*is_over).then(access)
    }

    /// The same for an access that hands out the memory itself: nobody can tell how long it is used,
    /// so it is held until the unmap, whoever ends before.
    pub fn lend<T>(&self, access: impl FnOnce() -> T) -> Option<T> {
        self.access(|| {
            self.is_lent.store(true, Ordering::Relaxed);
            access()
        })
    }

    /// Ends it when the accesses that have begun are over; whether its memory can be given back.
    fn end(&self) -> bool {
        let mut is_over = self.is_over.write().unwrap_or_else(PoisonError::into_inner);
        *is_over = true;
        !self.is_lent.load(Ordering::Relaxed)
    }
}

/// The live mappings of a driver.
#[derive(Default)]
pub(crate) struct Mappings {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    records: HashMap<MapId, Record>,
    /// Mappings so far.
    count: u64,
}

struct Record {
    device: DeviceId,
    process: Pid,
    life: Arc<MapLife>,
    #[expect(dead_code, reason = "held, not read")]
    pin: OwnedPin,
}

/// The bytes of a mapping with this offset and length, checked as Linux does before the driver is
/// asked: the length, in whole pages.
pub(crate) fn page_range(offset: u64, size_bytes: u64) -> Result<u64, Errno> {
    let size_bytes = Alignment::PAGE.round_up(size_bytes).ok_or(Errno::ENOMEM)?;
    if size_bytes == 0 || !Alignment::PAGE.divides(offset) {
        return Err(Errno::EINVAL);
    }
    Ok(size_bytes)
}

/// Whether this many bytes from the chunk's first one may be mapped. All of them are held then.
pub(crate) fn check_length(pin: &mut OwnedPin, size_bytes: u64) -> Result<(), Errno> {
    let record = pin.record();
    let fits = match record.category() {
        Category::CONTIGUOUS_SCRATCHPAD_DEVICE => pin.hold_access(0, size_bytes).is_ok(),
        _ => record.size_bytes() == size_bytes,
    };
    // The reference goes on to raw device memory, which nobody here may map.
    if fits { Ok(()) } else { Err(Errno::EPERM) }
}

/// Whether `caller` may write what it maps of the chunk.
pub(crate) fn may_write(pin: &OwnedPin, caller: Pid) -> bool {
    let record = pin.record();
    record.owner() == caller || record.lifespan() == Lifespan::Device
}

impl Mappings {
    /// Keeps the pin until the mapping goes.
    pub(crate) fn add(&self, device: DeviceId, process: Pid, pin: OwnedPin) -> MapId {
        let mut table = self.lock();
        let map = MapId(table.count);
        table.count += 1;
        let record = Record {
            device,
            process,
            life: Arc::default(),
            pin,
        };
        table.records.insert(map, record);
        map
    }

    /// Ends a mapping. One that has gone already is not an error.
    pub(crate) fn remove(&self, map: MapId) {
        let gone = self.lock().records.remove(&map);
        // The last pin takes the lock of the device's memory: not under this one.
        drop(gone);
    }

    /// When a mapping may be used; `None` if it has gone.
    pub(crate) fn life(&self, map: MapId) -> Option<Arc<MapLife>> {
        self.lock().records.get(&map).map(|it| Arc::clone(&it.life))
    }

    /// Ends the mappings that a process has of a device.
    pub(crate) fn remove_of(&self, device: DeviceId, process: Pid) {
        self.end(|record| record.process == process && record.device == device);
    }

    /// Ends all mappings of a process.
    pub(crate) fn remove_all(&self, process: Pid) {
        self.end(|record| record.process == process);
    }

    fn end(&self, is_meant: impl Fn(&Record) -> bool) {
        let lives: Vec<_> = {
            let table = self.lock();
            let meant = table.records.iter().filter(|(_, record)| is_meant(record));
            meant
                .map(|(map, record)| (*map, Arc::clone(&record.life)))
                .collect()
        };
        // Accesses are waited for without the lock.
        let mut ended: Vec<_> = lives
            .into_iter()
            .filter_map(|(map, life)| life.end().then_some(map))
            .collect();
        // The oldest first: what they held is given back in one order in every run.
        ended.sort_unstable();
        for map in ended {
            self.remove(map);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
