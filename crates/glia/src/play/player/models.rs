//! Models of a workload, and the scratchpads that they share.

use std::sync::Arc;

use glia_abi::arch::Arch;
use glia_abi::handle::CoreId;
use glia_abi::mem_usage::MemUsage;
use glia_runtime::dml::ModelId;
use glia_runtime::scratchpad::ScratchPlace;
use glia_runtime::{AskedAt, Core, ScratchVariable};

use super::{Player, no_model, second};
use crate::play::bytes::Done;
use crate::play::failure::Found;
use crate::play::object::{Place, Storage};
use crate::play::program::Loaded;
use crate::workload::{Fault, Load, NEFFS_MAX};

/// What the peak calls a page of a scratchpad.
const SCRATCHPAD: &str = "scratchpad";

impl Player<'_> {
    /// Loads a model. Ids only go up: those on the way to the wanted one are used up.
    pub(super) fn load(&mut self, line: u64, load: &Load<'_>) -> Done {
        if let Some(loaded) = self.models.get(load.id) {
            return Err(second("a model", load.id, "is loaded", loaded.line));
        }
        let core = Core {
            device: load.device,
            core: load.core,
        };
        let (key, _) = self.program(load.process)?;
        let program = &mut self.programs[key];
        let wanted = load.neff.map(ModelId);
        let model = loop {
            let model = match program.runtime.load_model(core, load.name) {
                Ok(model) => model,
                Err(error) => return Ok(Err(error.into())),
            };
            let id = model.id();
            let first = *program.first_model.get_or_insert(id);
            let most = first.0.saturating_add(NEFFS_MAX);
            match wanted {
                Some(wanted) if wanted < id || wanted.0 > most => {
                    return Err(match id.0 <= most {
                        true => Fault::OutOfRange {
                            key: "neff",
                            found: wanted.0.into(),
                            least: id.0.into(),
                            most: most.into(),
                        },
                        false => Fault::NeffsUsed {
                            found: wanted.0,
                            most,
                        },
                    });
                }
                Some(wanted) if wanted > id => {}
                _ => break model,
            }
        };
        let loaded = Loaded {
            model,
            core,
            program: key,
            line,
            private: Vec::new(),
        };
        self.models.insert(load.id.to_owned(), loaded);
        Ok(Ok(()))
    }

    pub(super) fn unload(&mut self, id: &str) -> Result<(), Fault> {
        let loaded = self.models.remove(id).ok_or_else(|| no_model(id))?;
        self.store.free_all(|_, storage| {
            storage.is_some_and(|storage| storage.model.as_deref() == Some(id))
        });
        let Loaded {
            model,
            core,
            program,
            line,
            private,
        } = loaded;
        drop(model);
        private
            .into_iter()
            .for_each(|key| self.store.put(Some(key)));
        self.note_pages(line, program, core);
        Ok(())
    }

    pub(super) fn reserve(&mut self, line: u64, id: &str, variables: &[ScratchVariable]) -> Done {
        let loaded = self.models.get_mut(id).ok_or_else(|| no_model(id))?;
        let (core, program) = (loaded.core, loaded.program);
        let site = Some(AskedAt::Line(line));
        let reserved = loaded.model.reserve_scratchpad_at(variables, site);
        for place in reserved.iter().flatten() {
            if let ScratchPlace::Private(block) = place {
                let place = Place::of(block, core.device);
                let name = block.facts().hint.as_deref().unwrap_or(SCRATCHPAD);
                let storage = Storage::new(Arc::from(name), place, Some(id));
                loaded.private.push(self.store.take(line, storage));
            }
        }
        self.note_pages(line, program, core);
        Ok(reserved.map(|_| ()).map_err(Found::from))
    }

    /// Notes which pages the scratchpad of a core has now.
    fn note_pages(&mut self, line: u64, program: usize, core: Core) {
        let profile = self.machine.arch().profile();
        let lnc_size = match profile.arch {
            Arch::V2 => 1,
            Arch::V3 | Arch::V4 => self.config.lnc_size,
        };
        let logical = core.core.get() / lnc_size;
        let Ok(info) = self.programs[program].runtime.scratchpad(core) else {
            return;
        };
        let noted = self.pages.entry((program, core.device, logical));
        let noted = noted.or_default();
        while noted.len() > info.pages.len() {
            self.store.put(noted.pop());
        }
        let first = CoreId::new(logical * lnc_size);
        for page in &info.pages[noted.len()..] {
            let place = Place {
                device: core.device,
                channel: profile.default_channel(first),
                at: page.pa,
                size_bytes: info.page_size_bytes,
                counted_bytes: info.page_size_bytes,
                usage: MemUsage::Scratchpad,
            };
            let storage = Storage::new(Arc::from(SCRATCHPAD), Some(place), None);
            noted.push(self.store.take(line, storage));
        }
    }
}
