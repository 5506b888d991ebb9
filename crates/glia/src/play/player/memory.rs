//! Objects come to life: taken, cut from a tensor, or the program's own.

use std::sync::Arc;

use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_abi::transport::UserBuffer;
use glia_runtime::{AllocSpec, AskedAt, Core, Model, Placement, RuntimeError, Tensor};

use super::{Player, no_model};
use crate::play::bytes::{Done, no_tensor};
use crate::play::failure::Found;
use crate::play::object::{Memory, Object, Place, Storage};
use crate::play::program::Program;
use crate::workload::{Alloc, Attach, Slice};

impl Player<'_> {
    /// Takes memory the way a program would, or its model.
    fn take(
        program: &Program,
        line: u64,
        alloc: &Alloc<'_>,
        owner: Option<&Model>,
    ) -> Result<Memory, RuntimeError> {
        let site = Some(AskedAt::Line(line));
        let core = Core {
            device: alloc.device,
            core: alloc.core,
        };
        let is_device = alloc.location == Location::Device;
        let is_tensor = alloc.usage == MemUsage::Tensor && alloc.align_bytes == 0;
        if is_device && is_tensor && owner.is_none() {
            let (place, bytes) = (Placement::Device, alloc.size_bytes);
            let (runtime, name) = (&program.runtime, alloc.name);
            let tensor = Tensor::allocate_at(runtime, core, place, bytes, name, site)?;
            return Ok(Memory::Tensor(tensor));
        }
        let spec = AllocSpec {
            size_bytes: alloc.size_bytes,
            align_bytes: alloc.align_bytes,
            usage: alloc.usage,
            location: alloc.location,
            channel: None,
            hint: Some(alloc.name),
            site,
        };
        let block = match owner {
            Some(model) => model.allocate(&spec),
            None => program.runtime.allocate(core, &spec),
        };
        block.map(Memory::Block)
    }

    pub(super) fn alloc(&mut self, line: u64, alloc: &Alloc<'_>) -> Done {
        self.store.is_new(alloc.id)?;
        let owner = |id| self.models.get(id).ok_or_else(|| no_model(id));
        let owner = alloc.model.map(owner).transpose()?;
        let (key, program) = match owner {
            Some(owner) => (owner.program, &self.programs[owner.program]),
            None => self.program(alloc.process)?,
        };
        let memory = match Self::take(program, line, alloc, owner.map(|loaded| &loaded.model)) {
            Ok(memory) => memory,
            Err(error) => return Ok(Err(error.into())),
        };
        let device = owner.map_or(alloc.device, |loaded| loaded.core.device);
        let block = match &memory {
            Memory::Tensor(tensor) => tensor.memory(),
            Memory::Block(block) => Some(block),
        };
        let place = block.and_then(|block| Place::of(block, device));
        let id: Arc<str> = Arc::from(alloc.id);
        // Mostly that is its name, too.
        let name = if alloc.name == alloc.id {
            Arc::clone(&id)
        } else {
            Arc::from(alloc.name)
        };
        let storage = Storage::new(name, place, alloc.model);
        let storage = self.store.take(line, storage);
        let object = Object {
            memory,
            storage: Some(storage),
            base_bytes: 0,
            program: key,
            line,
        };
        self.store.enter(id, object);
        let at = place.map(|place| place.at);
        match (alloc.at, at) {
            (Some(wanted), Some(found)) if wanted != found => {
                Ok(Err(Found::Elsewhere { found, wanted }))
            }
            (Some(_), _) => Ok(Ok(())),
            (None, at) => {
                self.lies_at = at;
                Ok(Ok(()))
            }
        }
    }

    pub(super) fn slice(&mut self, line: u64, slice: &Slice<'_>) -> Done {
        self.store.is_new(slice.id)?;
        let whole = self.store.get(slice.of)?;
        let Memory::Tensor(tensor) = &whole.memory else {
            return Err(no_tensor(slice.of, "slice"));
        };
        let cut = slice.range.within(whole).and_then(|(at, end)| {
            let view = tensor.slice(at, end - at, slice.name)?;
            Ok((view, whole.base_bytes + at))
        });
        let (view, base_bytes) = match cut {
            Ok(cut) => cut,
            Err(error) => return Ok(Err(error.into())),
        };
        let storage = whole.storage;
        let object = Object {
            memory: Memory::Tensor(view),
            storage,
            base_bytes,
            program: whole.program,
            line,
        };
        self.store.share(storage);
        self.store.enter(Arc::from(slice.id), object);
        Ok(Ok(()))
    }

    pub(super) fn attach(&mut self, line: u64, attach: &Attach<'_>) -> Done {
        let key = match self.store.get(attach.id) {
            Ok(object) => match &object.memory {
                Memory::Tensor(_) => object.program,
                Memory::Block(_) => return Err(no_tensor(attach.id, "attach")),
            },
            Err(_) => self.program(attach.process)?.0,
        };
        Ok(self.try_attach(line, attach, key).map_err(Found::from))
    }

    fn try_attach(
        &mut self,
        line: u64,
        attach: &Attach<'_>,
        key: usize,
    ) -> Result<(), RuntimeError> {
        let program = &self.programs[key];
        let buffer: Arc<dyn UserBuffer> = program.buffer(attach.size_bytes)?;
        if self.store.is_new(attach.id).is_ok() {
            let tensor = Tensor::allocate_empty(&program.runtime, attach.name)?;
            let object = Object {
                memory: Memory::Tensor(tensor),
                storage: None,
                base_bytes: 0,
                program: key,
                line,
            };
            self.store.enter(Arc::from(attach.id), object);
        }
        let storage = Storage::new(Arc::from(attach.name), None, None);
        let storage = self.store.take(line, storage);
        let put = |tensor: &mut Tensor| tensor.attach_buffer(buffer);
        self.store.attach(attach.id, storage, put)
    }
}
