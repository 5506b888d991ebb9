//! Blocks to free: as many as there are, put together as they are looked at.
//!
//! There may be a hundred thousand, of which the text shows five. What is kept of each is what the
//! driver's picture has, and the packed facts of this process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use glia_abi::addr::{BusAddr, Span};
use glia_abi::handle::{CoreId, Pid};
use glia_abi::insight::ChunkFacts;
use glia_abi::mem_usage::MemUsage;
use glia_abi::usage::Category;

use super::unload::ScratchBook;
use crate::dml::{Allocation, Facts, ModelId};

/// Whose a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// This process.
    This,
    /// Another process.
    Other(Pid),
    /// The driver, which does not give it back.
    Driver,
}

/// A block in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Its bytes, in whole pages.
    pub span: Span<BusAddr>,
    /// Whose it is.
    pub owner: Owner,
    /// The core that it is charged to.
    pub core: CoreId,
    /// What it is for, as far as the driver knows.
    pub category: Category,
    /// What the runtime knows of it, which it does of its own blocks only: usage, model, name, bytes
    /// that it asked for.
    pub allocation: Option<Allocation>,
    /// Where it was asked for: by the runtime's word for its own blocks, else by the driver's;
    /// `None` if nobody said.
    pub site: Option<Arc<str>>,
    /// Whether it goes back only as models are unloaded, as what a scratchpad has does.
    pub goes_with_models: bool,
    /// Allocations that the device has made since: its age.
    pub allocations_since: u64,
}

/// What the driver says of an allocation whose site nobody has told.
const UNKNOWN_SITE: &str = "unknown";

impl Block {
    fn new(chunk: &ChunkFacts, picture: &Picture) -> Self {
        let Picture { births, own, .. } = picture;
        let owner = own.owner(chunk);
        let allocation = match owner {
            Owner::This => own.find(chunk),
            Owner::Other(_) | Owner::Driver => None,
        };
        let told = allocation.as_ref().and_then(|one| one.site.as_ref());
        let site = match told {
            Some(site) => Some(site.to_string().into()),
            None => Some(Arc::clone(&chunk.site)).filter(|site| **site != *UNKNOWN_SITE),
        };
        Self {
            span: chunk.span,
            owner,
            core: chunk.core,
            category: chunk.category,
            allocation,
            site,
            goes_with_models: picture
                .with_models
                .binary_search(&chunk.span.start())
                .is_ok(),
            allocations_since: births.saturating_sub(chunk.birth.saturating_add(1)),
        }
    }

    /// What it is for; `None` where only the driver's category is known.
    #[must_use]
    pub fn usage(&self) -> Option<MemUsage> {
        Some(self.allocation.as_ref()?.usage)
    }

    /// Whether it is a page of the contiguous scratchpad.
    pub(super) fn is_contiguous_page(&self) -> bool {
        self.category == Category::CONTIGUOUS_SCRATCHPAD_DEVICE
    }

    /// The model that owns it, if this process knows of one.
    #[must_use]
    pub fn model(&self) -> Option<ModelId> {
        self.allocation.as_ref()?.model
    }

    /// What this process calls it, if it does.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.allocation.as_ref()?.hint.as_deref()
    }
}

/// What is known of this process.
#[derive(Default)]
pub(crate) struct Own {
    pub(crate) process: Option<Pid>,
    /// Its live device memory.
    pub(crate) blocks: Facts,
    /// Its scratchpads,
    pub(crate) scratchpads: Vec<ScratchBook>,
    /// and what its models are called.
    pub(crate) models: BTreeMap<ModelId, String>,
}

impl Own {
    fn find(&self, chunk: &ChunkFacts) -> Option<Allocation> {
        // One that has just gone may have left its address to another.
        self.blocks.find(chunk.span.start(), chunk.handle?)
    }

    pub(crate) fn owner(&self, chunk: &ChunkFacts) -> Owner {
        let is_own = match (self.process, chunk.handle) {
            (Some(pid), _) => chunk.owner == pid,
            (None, Some(handle)) => self.blocks.has(chunk.span.start(), handle),
            (None, None) => false,
        };
        match is_own {
            true => Owner::This,
            false if chunk.owner == Pid::default() => Owner::Driver,
            false => Owner::Other(chunk.owner),
        }
    }
}

/// The chunks that some blocks are made of.
struct Picture {
    /// By address.
    chunks: Vec<ChunkFacts>,
    /// Allocations of the device so far.
    births: u64,
    own: Own,
    /// The starts of those that go back only as models are unloaded, by address.
    with_models: Vec<BusAddr>,
}

/// Blocks, by address.
#[derive(Clone)]
pub struct Blocks {
    picture: Arc<Picture>,
    /// Places in the picture's list, which rise.
    chunks: Vec<u32>,
}

impl Blocks {
    /// Those of a list of chunks, by their places there, which rise: one for each set.
    pub(super) fn sets<const N: usize>(
        mut chunks: Vec<ChunkFacts>,
        births: u64,
        mut own: Own,
        with_models: Vec<BusAddr>,
        sets: [&[usize]; N],
    ) -> [Self; N] {
        let mut kept = sets.concat();
        if N > 1 {
            kept.sort_unstable();
            kept.dedup();
        }
        let (mut at, mut next) = (0, kept.iter().peekable());
        chunks.retain(|_| {
            at += 1;
            next.next_if(|&&kept| kept + 1 == at).is_some()
        });
        chunks.shrink_to_fit();
        own.blocks
            .keep(chunks.iter().map(|chunk| chunk.span.start()));
        let picture = Arc::new(Picture {
            chunks,
            births,
            own,
            with_models,
        });
        sets.map(|set| {
            let mut kept = (0..).zip(&kept);
            let places = set
                .iter()
                .filter_map(|chunk| kept.find(|(_, kept)| *kept == chunk));
            Self {
                picture: Arc::clone(&picture),
                chunks: places.map(|(place, _)| place).collect(),
            }
        })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    fn chunk_facts(&self) -> impl ExactSizeIterator<Item = &ChunkFacts> {
        // PANIC: places of the list, of which nothing is taken.
        let chunks = self.chunks.iter();
        chunks.map(|&place| &self.picture.chunks[place as usize])
    }

    fn block(&self, chunk: &ChunkFacts) -> Block {
        Block::new(chunk, &self.picture)
    }

    /// Each of them, by address.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Block> {
        self.chunk_facts().map(|chunk| self.block(chunk))
    }

    /// The largest, so many of them; of two of a size the lower one first.
    #[must_use]
    pub fn largest(&self, count: usize) -> Vec<Block> {
        let mut largest: Vec<&ChunkFacts> = Vec::with_capacity(count + 1);
        for chunk in self.chunk_facts() {
            let size_bytes = chunk.span.size_bytes();
            let place = largest.partition_point(|one| one.span.size_bytes() >= size_bytes);
            if place < count {
                largest.insert(place, chunk);
                largest.truncate(count);
            }
        }
        largest.into_iter().map(|chunk| self.block(chunk)).collect()
    }

    /// Whether all of them are this process' own.
    #[must_use]
    pub fn are_own(&self) -> bool {
        let own = &self.picture.own;
        self.chunk_facts()
            .all(|chunk| own.owner(chunk) == Owner::This)
    }
}

impl PartialEq for Blocks {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Blocks {}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
