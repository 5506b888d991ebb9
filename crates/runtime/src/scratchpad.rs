//! The scratchpad: memory that the models of a core take turns to use.
//!
//! A model names its variables, each at an offset of one address range that all models of the core
//! share. The core has pages for the largest need of its models, not for the sum.
//!
//! ```text
//!            page 0      page 1      page 2      page 3
//!   model A  ████████████ ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒            512 MB at 0, 1 GB at 512 MB
//!   model B  ██▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒            100 MB at 0, 1.5 GB at 100 MB
//!            512 MB      512 MB      512 MB      512 MB
//! ```
//!
//! **Paged.** Pages lie anywhere. What crosses the end of a page (▒) gets a block of its own, which
//! belongs to the model; the shared need counts it all the same (documented waste of the reference).
//! A larger page size helps, and the log says which.
//!
//! **Contiguous.** Pages of 64 MiB lie one below the other, so that a variable may span them, and
//! nothing is private. The driver places them from the end of the channel down and takes them back
//! newest first only. A scratchpad is contiguous if the runtime is told so, the driver can do it, and
//! the cores that share an HBM do not have one each (since V3 they would, where a logical core is
//! one physical core).
//!
//! A scratchpad belongs to a logical core and is charged to its first physical core, never to a
//! model: one that is unloaded takes no page from the others. A page goes when its last user does.
//!
//! **Locks.** The pages have a sleeping lock, held while the driver is asked for more, and not while
//! anything is logged of that.

mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;

use glia_abi::PAGE_SIZE_BYTES;
use glia_abi::addr::BusAddr;
use glia_abi::arch::Arch;
use glia_abi::handle::CoreId;
use glia_abi::ioctl::feature;
use glia_abi::mem_usage::MemUsage;
use glia_abi::sched::{SleepGuard, SleepLock};

use crate::config::PageSize;
use crate::dmem::{AllocSpec, Allocator, AskedAt, Caller, Dmem, Owner, Refusal, Whole};
use crate::dml::Level;
use crate::error::RuntimeError;
use crate::explanation::{Explanation, ScratchBook, ScratchUser};
use crate::runtime::OpenDevice;

use plan::Plan;
pub use plan::ScratchVariable;

/// Bytes of a page of a contiguous scratchpad.
pub const CONTIGUOUS_PAGE_BYTES: u64 = 64 << 20;
/// Alignment of a page of a paged scratchpad.
const PAGE_ALIGN_BYTES: u64 = 4 << 20;
/// Pages of a core.
const PAGES_MAX: u64 = 1024;
const HINT: &str = "scratchpad";

/// What a core's scratchpad is at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScratchpadInfo {
    /// Whether its pages lie one below the other.
    pub is_contiguous: bool,
    /// Bytes of a page.
    pub page_size_bytes: u64,
    /// Its pages, in the order in which they were taken.
    pub pages: Vec<ScratchPage>,
    /// The largest variable that did not fit a page.
    pub largest_oversized_bytes: u64,
}

impl ScratchpadInfo {
    /// Bytes of all pages.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.page_size_bytes * self.pages.len() as u64
    }
}

/// A page of a scratchpad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScratchPage {
    /// Its first byte, as the device sees it.
    pub pa: BusAddr,
    /// Reservations that need it.
    pub refs: u32,
}

/// Where a variable was put.
#[derive(Clone)]
pub enum ScratchPlace {
    /// At its offset of the shared range.
    Shared,
    /// In a block of its own.
    Private(Dmem),
}

/// Who asks for memory of a scratchpad.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    /// The place, if he has a name for it.
    pub(crate) site: Option<AskedAt<'a>>,
    /// The line of code.
    pub(crate) caller: Caller,
}

/// The scratchpad of a logical core.
pub(crate) struct Scratchpad {
    allocator: Allocator,
    is_contiguous: bool,
    page_size_bytes: u64,
    pages: SleepLock<Pages>,
}

struct Pages {
    list: Vec<Page>,
    /// Who has reserved what, by the number of the reservation.
    users: BTreeMap<u64, ScratchUser>,
    next_user: u64,
    largest_oversized_bytes: u64,
    /// Page sizes with which nothing would have been private so far, the least first.
    sizes: Vec<PageSize>,
}

struct Page {
    memory: Dmem,
    refs: u32,
}

impl Pages {
    /// Gives back what nobody needs, newest first. (Who needs a page needs those before it.)
    fn trim(&mut self) {
        while self.list.pop_if(|page| page.refs == 0).is_some() {}
    }
}

impl Scratchpad {
    /// An empty one, charged to this core.
    pub(crate) fn new(device: Arc<OpenDevice>, core: CoreId) -> Self {
        let config = device.session.config();
        let arch = device.ndl.profile().arch;
        let is_contiguous = config.contiguous_scratchpad
            && device.ndl.has(feature::CONTIGUOUS_SCRATCHPAD)
            && (arch == Arch::V2 || device.lnc_size() > 1);
        let pages = Pages {
            list: Vec::new(),
            users: BTreeMap::new(),
            next_user: 0,
            largest_oversized_bytes: 0,
            sizes: PageSize::all().collect(),
        };
        Self {
            is_contiguous,
            page_size_bytes: match is_contiguous {
                true => CONTIGUOUS_PAGE_BYTES,
                false => config.scratchpad_page.bytes(),
            },
            pages: SleepLock::new(pages, device.ndl.sched()),
            allocator: Allocator::new(device, core, Owner::Core),
        }
    }

    pub(crate) fn info(&self) -> ScratchpadInfo {
        let pages = self.pages.lock(self.device().ndl.sched());
        let list = pages.list.iter().map(|page| ScratchPage {
            pa: page.memory.pa(),
            refs: page.refs,
        });
        ScratchpadInfo {
            is_contiguous: self.is_contiguous,
            page_size_bytes: self.page_size_bytes,
            pages: list.collect(),
            largest_oversized_bytes: pages.largest_oversized_bytes,
        }
    }

    /// What of it lives, and for whom: to explain what cannot be had. Not under the lock of the pages.
    pub(crate) fn book(&self) -> ScratchBook {
        let pages = self.pages.lock(self.device().ndl.sched());
        ScratchBook {
            pages: pages.list.iter().map(|page| page.memory.pa()).collect(),
            users: pages.users.values().cloned().collect(),
        }
    }

    /// Where an offset of the shared range is now; `None` if no page has it. A contiguous range
    /// moves down as it grows.
    pub(crate) fn address(&self, offset_bytes: u64) -> Option<BusAddr> {
        let pages = self.pages.lock(self.device().ndl.sched());
        let number = usize::try_from(offset_bytes / self.page_size_bytes).ok()?;
        let number = match self.is_contiguous {
            true => pages.list.len().checked_sub(1)?.checked_sub(number)?,
            false => number,
        };
        let page = pages.list.get(number)?;
        page.memory
            .pa()
            .checked_add(offset_bytes % self.page_size_bytes)
    }

    /// Reserves the variables of a model, whose allocator gives the private blocks. If it fails,
    /// nothing is left of it.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        model: &Allocator,
        variables: &[ScratchVariable],
        asker: Asker<'_>,
    ) -> Result<(Reservation, Vec<ScratchPlace>), RuntimeError> {
        let plan = Plan::new(variables, self.page_size_bytes, self.is_contiguous)?;
        let needed = self.page_count(&plan)?;
        let mut pages = self.pages.lock(self.device().ndl.sched());
        let oversized_bytes = plan.largest_oversized_bytes();
        pages.largest_oversized_bytes = pages.largest_oversized_bytes.max(oversized_bytes);
        let mut sizes = pages.sizes.clone();
        sizes.retain(|size| plan.fits_pages_of(size.bytes()));
        let grown = self.grow(&mut pages, needed, asker);
        let placed = grown.and_then(|()| place(model, &plan, asker));
        let places = match placed {
            Ok(places) => places,
            Err(failure) => {
                let failed = (failure, &plan, needed);
                return Err(self.fail(pages, failed, model, asker));
            }
        };
        for page in pages.list.iter_mut().take(needed) {
            page.refs += 1;
        }
        pages.sizes = sizes;
        let number = pages.next_user;
        pages.next_user += 1;
        if let Some(id) = model.model() {
            let private = places.iter().filter_map(|place| match place {
                ScratchPlace::Shared => None,
                ScratchPlace::Private(block) => Some(block.pa()),
            });
            let user = ScratchUser {
                model: id,
                pages: needed,
                private: private.collect(),
            };
            pages.users.insert(number, user);
        }
        let (largest_bytes, size) = (pages.largest_oversized_bytes, pages.sizes.first().copied());
        drop(pages);
        self.advise(&plan, largest_bytes, size);
        let reservation = Reservation {
            scratchpad: Arc::clone(self),
            number,
            pages: needed,
            _places: places.clone(),
        };
        Ok((reservation, places))
    }

    fn page_count(&self, plan: &Plan) -> Result<usize, RuntimeError> {
        let pages = plan.shared_bytes.div_ceil(self.page_size_bytes);
        let allowed = Some(pages).filter(|pages| *pages <= PAGES_MAX);
        let allowed = allowed.and_then(|pages| usize::try_from(pages).ok());
        allowed.ok_or(RuntimeError::ScratchpadPages {
            need_bytes: plan.shared_bytes,
            page_size_bytes: self.page_size_bytes,
            pages_max: PAGES_MAX,
        })
    }

    /// Takes pages until there are as many as needed. On failure it leaves those that it has got.
    fn grow(&self, pages: &mut Pages, needed: usize, asker: Asker<'_>) -> Result<(), Failure> {
        while pages.list.len() < needed {
            let spec = self.page_spec(asker);
            let page = match self.is_contiguous {
                true => self.allocator.try_allocate_page(&spec, asker.caller),
                false => self.allocator.try_allocate(&spec, asker.caller),
            };
            let memory = page.map_err(Failure::Page)?;
            let is_below = |last: &Page| {
                memory.pa().checked_add(self.page_size_bytes) == Some(last.memory.pa())
            };
            let is_placed = match self.is_contiguous {
                true => pages.list.last().is_none_or(is_below),
                false => true,
            };
            if !is_placed || !memory.pa().get().is_multiple_of(PAGE_SIZE_BYTES) {
                return Err(Failure::Misplaced(memory.pa()));
            }
            pages.list.push(Page { memory, refs: 0 });
        }
        Ok(())
    }

    /// What is asked for as a page.
    fn page_spec<'a>(&self, asker: Asker<'a>) -> AllocSpec<'a> {
        AllocSpec {
            align_bytes: match self.is_contiguous {
                true => 0,
                false => PAGE_ALIGN_BYTES,
            },
            hint: Some(HINT),
            site: asker.site,
            ..AllocSpec::device(self.page_size_bytes, MemUsage::Scratchpad)
        }
    }

    /// Gives back what a reservation has got that cannot be had whole, and tells why it cannot.
    /// Pages first: an explanation is about what the caller finds.
    fn fail(
        &self,
        mut pages: SleepGuard<'_, Pages>,
        (failure, plan, needed): (Failure, &Plan, usize),
        model: &Allocator,
        asker: Asker<'_>,
    ) -> RuntimeError {
        let reached_bytes = self.page_size_bytes * pages.list.len() as u64;
        pages.trim();
        // Others may need more pages than this one.
        let missing = needed.saturating_sub(pages.list.len()) as u64;
        let kept = pages.list.iter().take(needed);
        let mut whole = Whole {
            pieces: Vec::new(),
            kept: kept.map(|page| page.memory.pa()).collect(),
            model: model.model(),
        };
        whole.kept.sort_unstable();
        let device = self.device().ndl.id();
        let (allocator, spec, refusal) = match failure {
            Failure::Misplaced(pa) => return RuntimeError::ScratchpadMisplaced { device, pa },
            Failure::Page(refusal) if self.is_contiguous && refusal.is_want() => {
                // A ceiling: it is logged, and the model that needs more fails.
                let spec = AllocSpec {
                    size_bytes: self.page_size_bytes * missing,
                    ..self.page_spec(asker)
                };
                drop(pages);
                let explanation = self.allocator.explain_pages(&spec, &whole);
                let message = format!("The contiguous scratchpad ends at {reached_bytes} bytes");
                self.log(&message, explanation.as_deref());
                let ceiling = RuntimeError::ScratchpadCeiling {
                    device,
                    core: self.allocator.core(),
                    need_bytes: plan.shared_bytes,
                    have_bytes: reached_bytes,
                    explanation,
                };
                return self
                    .allocator
                    .tell(&self.page_spec(asker), asker.caller, ceiling);
            }
            Failure::Page(refusal) => (&self.allocator, self.page_spec(asker), refusal),
            Failure::Private(size_bytes, refusal) => {
                (model, private_spec(size_bytes, asker), refusal)
            }
        };
        whole.pieces = plan
            .private()
            .map(|one| model.piece(&private_spec(one.size_bytes, asker), 1))
            .collect();
        if missing > 0 {
            let missing = self.allocator.piece(&self.page_spec(asker), missing);
            whole.pieces.insert(0, missing);
        }
        // To explain and to log may take time, and a log may ask for the scratchpad.
        drop(pages);
        let error = allocator.explain(&spec, refusal, &whole);
        allocator.tell(&spec, asker.caller, error)
    }

    /// Says which page size would have left nothing private, of this model and of all before. (The
    /// reference rounds the largest of them up, which may be the size in force, or not do.)
    fn advise(&self, plan: &Plan, largest_bytes: u64, size: Option<PageSize>) {
        let private = plan.private().count();
        if private == 0 {
            return;
        }
        let page_mib = self.page_size_bytes >> 20;
        let advice = match size {
            Some(size) => format!("consider NEURON_SCRATCHPAD_PAGE_SIZE={}", size.mib()),
            None => "no page size has room for all".to_owned(),
        };
        let message = format!(
            "{private} scratchpad variables do not fit a page of {page_mib} MB; the largest has {largest_bytes} bytes: {advice}"
        );
        self.log(&message, None);
    }

    fn log(&self, message: &str, explanation: Option<&Explanation>) {
        let session = &self.device().session;
        session.log_explained(Level::Warn, "tdrv_scratchpad_reserve", message, explanation);
    }

    fn device(&self) -> &OpenDevice {
        self.allocator.device()
    }
}

/// Why a reservation could not be had whole.
enum Failure {
    /// A page was refused.
    Page(Refusal),
    /// A private block of so many bytes was.
    Private(u64, Refusal),
    /// A page is where none can be.
    Misplaced(BusAddr),
}

/// What is asked for as a private block.
fn private_spec(size_bytes: u64, asker: Asker<'_>) -> AllocSpec<'_> {
    AllocSpec {
        hint: Some(HINT),
        site: asker.site,
        ..AllocSpec::device(size_bytes, MemUsage::ScratchpadNotShared)
    }
}

/// Private blocks for what does not fit the shared range.
fn place(model: &Allocator, plan: &Plan, asker: Asker<'_>) -> Result<Vec<ScratchPlace>, Failure> {
    let places = plan.variables.iter().map(|&(variable, is_private)| {
        if !is_private {
            return Ok(ScratchPlace::Shared);
        }
        let size_bytes = variable.size_bytes;
        let block = model.try_allocate(&private_spec(size_bytes, asker), asker.caller);
        let block = block.map_err(|refusal| Failure::Private(size_bytes, refusal))?;
        Ok(ScratchPlace::Private(block))
    });
    places.collect()
}

/// What a model has reserved. Dropping it gives the pages and the private blocks up.
pub(crate) struct Reservation {
    scratchpad: Arc<Scratchpad>,
    number: u64,
    pages: usize,
    _places: Vec<ScratchPlace>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let sched = self.scratchpad.device().ndl.sched();
        let mut pages = self.scratchpad.pages.lock(sched);
        for page in pages.list.iter_mut().take(self.pages) {
            page.refs -= 1;
        }
        pages.users.remove(&self.number);
        pages.trim();
    }
}
