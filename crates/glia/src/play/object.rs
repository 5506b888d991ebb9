//! What lives: objects by name, and the memory that they are parts of.
//!
//! ```text
//!   "kv"     ──► whole of ──┐
//!   "kv[1]"  ──► part of  ──┴─► Storage: where it lies, what was written there, whose it is
//! ```
//!
//! A storage goes with its last object. A private block of the scratchpad is a storage that no
//! object names.

use std::sync::{Arc, OnceLock};

use glia_abi::addr::BusAddr;
use glia_abi::handle::{Channel, DeviceId};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_abi::transport::Mapping;
use glia_runtime::{Dmem, RuntimeError, Tensor};
use rustc_hash::FxHashMap;
use slab::Slab;

use super::peak::{Birth, Peaks};
use super::written::Written;
use crate::machine::Machine;
use crate::workload::Fault;

/// What the runtime gave.
pub(super) enum Memory {
    Tensor(Tensor),
    Block(Dmem),
}

impl Memory {
    pub(super) fn size_bytes(&self) -> u64 {
        match self {
            Self::Tensor(tensor) => tensor.size_bytes(),
            Self::Block(block) => block.size_bytes(),
        }
    }

    pub(super) fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), RuntimeError> {
        match self {
            Self::Tensor(tensor) => tensor.write(offset_bytes, bytes),
            Self::Block(block) => block.write(offset_bytes, bytes),
        }
    }

    pub(super) fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), RuntimeError> {
        match self {
            Self::Tensor(tensor) => tensor.read(offset_bytes, into),
            Self::Block(block) => block.read(offset_bytes, into),
        }
    }

    pub(super) fn fill(
        &self,
        offset_bytes: u64,
        size_bytes: u64,
        value: u8,
    ) -> Result<(), RuntimeError> {
        match self {
            Self::Tensor(tensor) => tensor.fill(offset_bytes, size_bytes, value),
            Self::Block(block) => block.fill(offset_bytes, size_bytes, value),
        }
    }
}

/// Memory under a name, or a part of some.
pub(super) struct Object {
    pub(super) memory: Memory,
    /// Its storage; `None` for a tensor without bytes.
    pub(super) storage: Option<usize>,
    /// Where it begins there.
    pub(super) base_bytes: u64,
    /// The process that made it.
    pub(super) program: usize,
    /// The line that made it.
    pub(super) line: u64,
}

/// Memory that objects are parts of.
pub(super) struct Storage {
    /// What reports call it.
    pub(super) name: Arc<str>,
    pub(super) written: Written,
    /// Where it lies in HBM; `None` for host memory.
    pub(super) place: Option<Place>,
    /// The model that owns it.
    pub(super) model: Option<Box<str>>,
    /// Objects that are parts of it.
    parts: u32,
    birth: Birth,
    /// Its bytes past runtime and driver, from the first look on.
    direct: OnceLock<Option<Arc<dyn Mapping>>>,
}

/// Where memory lies in HBM, and what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) device: DeviceId,
    pub(super) channel: Channel,
    pub(super) at: BusAddr,
    /// Bytes that can be used.
    pub(super) size_bytes: u64,
    /// Bytes that are counted.
    pub(super) counted_bytes: u64,
    pub(super) usage: MemUsage,
}

impl Place {
    /// That of an allocation; `None` for host memory.
    pub(super) fn of(block: &Dmem, device: DeviceId) -> Option<Self> {
        let facts = block.facts();
        (facts.location == Location::Device).then(|| Self {
            device,
            channel: facts.channel,
            at: block.pa(),
            size_bytes: facts.size_bytes,
            counted_bytes: facts.allocated_bytes,
            usage: facts.usage,
        })
    }
}

impl Storage {
    pub(super) fn new(name: Arc<str>, place: Option<Place>, model: Option<&str>) -> Self {
        Self {
            name,
            written: Written::default(),
            place,
            model: model.map(Box::from),
            parts: 1,
            birth: Birth::default(),
            direct: OnceLock::new(),
        }
    }

    /// Its bytes in HBM, past runtime and driver; `None` for host memory.
    pub(super) fn direct(&self, machine: &Machine) -> Option<&dyn Mapping> {
        let direct = self.direct.get_or_init(|| {
            let place = self.place?;
            let device = machine.devices().get(place.device.index())?;
            device.mapping(place.at, place.size_bytes)
        });
        direct.as_deref()
    }
}

/// All objects and storages.
#[derive(Default)]
pub(super) struct Store {
    objects: FxHashMap<Arc<str>, Object>,
    storages: Slab<Storage>,
    pub(super) peaks: Peaks,
}

impl Store {
    /// Objects that live.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn get(&self, id: &str) -> Result<&Object, Fault> {
        self.objects.get(id).ok_or_else(|| no_object(id))
    }

    pub(super) fn storage(&self, key: Option<usize>) -> Option<&Storage> {
        self.storages.get(key?)
    }

    pub(super) fn storage_mut(&mut self, key: Option<usize>) -> Option<&mut Storage> {
        self.storages.get_mut(key?)
    }

    /// An object, and what it is a part of.
    pub(super) fn both(&mut self, id: &str) -> Result<(&Object, Option<&mut Storage>), Fault> {
        let object = self.objects.get(id).ok_or_else(|| no_object(id))?;
        let storage = object.storage.and_then(|key| self.storages.get_mut(key));
        Ok((object, storage))
    }

    /// Refuses a name that lives.
    pub(super) fn is_new(&self, id: &str) -> Result<(), Fault> {
        match self.objects.get(id) {
            None => Ok(()),
            Some(object) => Err(Fault::Second {
                what: "an object",
                id: id.to_owned(),
                lives: "lives",
                since: object.line,
            }),
        }
    }

    /// Enters memory that was taken by a line.
    pub(super) fn take(&mut self, line: u64, mut storage: Storage) -> usize {
        if let Some(place) = &storage.place {
            storage.birth = self.peaks.taken(line, place);
        }
        self.storages.insert(storage)
    }

    /// One more part of a storage.
    pub(super) fn share(&mut self, storage: Option<usize>) {
        if let Some(storage) = self.storage_mut(storage) {
            storage.parts += 1;
        }
    }

    /// Enters an object.
    pub(super) fn enter(&mut self, id: Arc<str>, object: Object) {
        self.objects.insert(id, object);
    }

    /// Gives an object up, and its memory if it was the last part of it.
    pub(super) fn free(&mut self, id: &str) -> Result<(), Fault> {
        let object = self.objects.remove(id).ok_or_else(|| no_object(id))?;
        let storage = object.storage;
        drop(object);
        self.put(storage);
        Ok(())
    }

    /// One part of a storage less.
    pub(super) fn put(&mut self, storage: Option<usize>) {
        let Some(key) = storage.filter(|&key| self.storages.contains(key)) else {
            return;
        };
        self.storages[key].parts -= 1;
        if self.storages[key].parts > 0 {
            return;
        }
        let storage = self.storages.remove(key);
        if let Some(place) = &storage.place {
            self.peaks.given_back(place, storage.birth, storage.name);
        }
    }

    /// Gives up everything that `goes` says of, in the order in which it was made.
    pub(super) fn free_all(&mut self, goes: impl Fn(&Object, Option<&Storage>) -> bool) {
        let storages = &self.storages;
        let storage = |object: &Object| object.storage.and_then(|key| storages.get(key));
        let gone = self
            .objects
            .extract_if(|_, object| goes(object, storage(object)));
        let mut gone: Vec<(Arc<str>, Object)> = gone.collect();
        gone.sort_by_key(|(_, object)| object.line);
        for (_, object) in gone {
            let storage = object.storage;
            drop(object);
            self.put(storage);
        }
    }

    /// Puts another tensor's bytes in the place of an object's.
    pub(super) fn attach(
        &mut self,
        id: &str,
        storage: usize,
        attach: impl FnOnce(&mut Tensor) -> Result<(), RuntimeError>,
    ) -> Result<(), RuntimeError> {
        let Some(object) = self.objects.get_mut(id) else {
            return Ok(());
        };
        let Memory::Tensor(tensor) = &mut object.memory else {
            return Ok(());
        };
        if let Err(error) = attach(tensor) {
            self.put(Some(storage));
            return Err(error);
        }
        let before = object.storage.replace(storage);
        object.base_bytes = 0;
        self.put(before);
        Ok(())
    }

    /// All storages that live, with when they were born.
    pub(super) fn storages(&self) -> impl Iterator<Item = (&Storage, Birth)> + Clone {
        self.storages.iter().map(|(_, one)| (one, one.birth))
    }
}

impl Drop for Store {
    /// In the order in which they were made, so that two runs end alike.
    fn drop(&mut self) {
        self.free_all(|_, _| true);
    }
}

fn no_object(id: &str) -> Fault {
    Fault::NoObject { id: id.to_owned() }
}
