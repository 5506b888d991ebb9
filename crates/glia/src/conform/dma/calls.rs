//! The calls of a scenario, one by one.

use glia_abi::addr::BusAddr;
use glia_abi::errno::Errno;
use glia_abi::handle::CoreId;
use glia_abi::mem::Location;
use glia_abi::udma::DESC_BYTES_MAX;
use glia_driver::dma::descriptors::DescriptorError;
use glia_driver::dma::scrub::BatchWait;
use glia_driver::dma::{Awaited, Dma, DmaError, Place, WaitHandle, budget};

use super::super::judge::Verdict;
use super::super::value::{Fields, Value};
use super::bring_up::{self, note_set_up};
use super::content::Hasher;
use super::judge::{self, Case, Kind};
use super::log::hash_text;
use super::op::{Call, Spot};
use super::rig::Rig;
use super::session::{Done, Session, context_of};
use super::table_op;
use super::trace::{DmaProblem, Record};
use super::words::{RawHandle, Size};

/// What is called, as far as the record's other fields depend on it.
#[derive(Debug, Clone)]
pub(super) struct Doing {
    /// The queue that the record shows.
    pub(super) core: CoreId,
    /// The context that the request reaches, and the sizes of its parts.
    pub(super) request: Option<(usize, Vec<u64>)>,
    /// The range that is hashed afterwards.
    pub(super) target: Option<(u64, u64)>,
    /// The handle that the record tells.
    pub(super) handle: Option<WaitHandle>,
}

impl Session {
    /// Calls the driver, and judges what came of it.
    ///
    /// # Errors
    /// [`DmaProblem`] if the record names what is not there.
    pub(super) fn call(
        &mut self,
        record: &Record<'_>,
        call: &Call,
        hasher: &mut Hasher,
    ) -> Result<Verdict, DmaProblem> {
        let op = record.name;
        let verdict = match call {
            Call::InitCores(map) => bring_up::init_cores(self, record, *map),
            Call::CloseCores(map) => bring_up::close_cores(self, record, *map),
            Call::RingInit(queue) => bring_up::ring_init(self, record, *queue),
            Call::Ring(call) => self.ring_call(record, call)?,
            Call::Table(call) => judge::plain(record, &call.look_up(self)),
            Call::H2tQueue(core) => {
                let got = table_op::h2t_queue(self.profile, *core, &record.expected);
                judge::plain(record, &got)
            }
            Call::CopyDescriptors {
                source,
                target,
                size,
                side,
            } => {
                // The reference checks what lies at the start of the buffer.
                let start = self.place(
                    op,
                    &Spot {
                        offset: 0,
                        ..source.clone()
                    },
                )?;
                let ends = (self.place(op, source)?, self.place(op, target)?);
                self.copy_descriptors(record, hasher, start, ends, *size, *side)
            }
            Call::DeviceBatch {
                core,
                source,
                target,
                copies,
                is_pipelined,
                is_d2d,
            } => {
                let wait = BatchWait {
                    is_pipelined: *is_pipelined,
                    is_d2d: *is_d2d,
                };
                let ends = (BusAddr::new(source.0), BusAddr::new(target.0));
                self.device_batch(record, hasher, *core, ends, *copies, wait)
            }
            Call::WaitTime {
                count,
                is_pipelined,
            } => {
                let awaited = Awaited {
                    descs: *count,
                    is_pipelined: *is_pipelined,
                    is_d2d: false,
                };
                judge::wait_time(record, self.profile, self.scenario.platform, awaited)
            }
            Call::Advance { length_us } => {
                self.rig.begin();
                self.rig.advance(*length_us);
                let moved_bytes = self.rig.end().moved_bytes;
                let now_us = self.rig.state().now_us();
                let got = Fields::new().with("t", now_us).with("moved", moved_bytes);
                judge::plain(record, &got)
            }
            Call::Hash { spot, size } => {
                let at = self.range(op, spot, size.0)?;
                let hash = self.hash(hasher, at, size.0);
                judge::plain(record, &Fields::new().with("fnv", hash_text(hash)))
            }
            Call::Copy {
                source,
                target,
                size,
                with_buffer,
            } => {
                let mut ends = (self.place(op, source)?, self.place(op, target)?);
                if *with_buffer {
                    let chunk = [ends.0, ends.1]
                        .into_iter()
                        .find(|end| end.location == Location::Device);
                    let core = chunk.map_or(CoreId::new(0), |chunk| chunk.core);
                    (ends.0.core, ends.1.core) = (core, core);
                }
                self.copy(record, hasher, ends, *size)
            }
            Call::CopyRaw {
                core,
                source,
                target,
                size,
            } => {
                let place = |at: u64| Place {
                    at: BusAddr::new(at),
                    location: match self.profile.bus_to_host(BusAddr::new(at)) {
                        Some(_) => Location::Host,
                        None => Location::Device,
                    },
                    core: *core,
                };
                let ends = (place(source.0), place(target.0));
                self.copy(record, hasher, ends, *size)
            }
            Call::CopyAsync {
                source,
                target,
                size,
                previous,
            } => {
                let ends = (self.place(op, source)?, self.place(op, target)?);
                self.copy_async(record, hasher, ends, *size, *previous)
            }
            Call::Wait {
                source,
                target,
                handle,
            } => {
                let ends = (self.place(op, source)?, self.place(op, target)?);
                self.wait(record, hasher, ends, *handle)
            }
            Call::Memset {
                target,
                size,
                value,
            } => {
                let target = self.place(op, target)?;
                let [value, ..] = value.to_le_bytes();
                self.memset(record, hasher, target, *size, value)
            }
        };
        Ok(verdict)
    }

    /// One batch as of a scrub of HBM, which keeps no books of its context.
    fn device_batch(
        &mut self,
        record: &Record<'_>,
        hasher: &mut Hasher,
        core: CoreId,
        (source, target): (BusAddr, BusAddr),
        copies: u32,
        wait: BatchWait,
    ) -> Verdict {
        let doing = Doing {
            core,
            request: None,
            target: None,
            handle: None,
        };
        let case = self.case(record, core, Kind::Sync);
        let queue = self.queue(core);
        let before = self.rig.state().books.get(&queue).cloned();
        let by = self.caller;
        let mut done = self.perform(&doing, hasher, |dma| {
            dma.device_batch(by, core, source, target, copies, wait)
        });
        self.rig
            .state()
            .books
            .insert(queue, before.unwrap_or_default());
        if let Some(fields) = done.fields.get_mut("queue") {
            *fields = self.tell_queue(queue, core).into();
        }
        // What stands in the record is how long would be waited if it were no copy within HBM.
        let timed = |descs, is_d2d| {
            let awaited = Awaited {
                descs,
                is_pipelined: wait.is_pipelined,
                is_d2d,
            };
            budget(&self.profile.wait, self.scenario.platform, awaited)
        };
        for told in &mut done.log.waits {
            let (waited, plain) = (timed(told.count, wait.is_d2d), timed(told.count, false));
            if (told.first, told.following) == (waited.first, waited.following) {
                (told.first, told.following) = (plain.first, plain.following);
            }
            told.is_pipelined = wait.is_pipelined;
        }
        done.tell_waits();
        case.judge(&done)
    }

    fn copy(
        &mut self,
        record: &Record<'_>,
        hasher: &mut Hasher,
        (source, target): (Place, Place),
        Size(size): Size,
    ) -> Verdict {
        let core = match (target.location, source.location) {
            (Location::Host, Location::Device) => source.core,
            _ => target.core,
        };
        let doing = Doing {
            core,
            request: Some((0, vec![size])),
            target: Some((target.at.get(), size)),
            handle: None,
        };
        let by = self.caller;
        let copy = |size| move |dma: &Dma| dma.copy(by, source, target, size);
        let case = self.case(record, core, Kind::Sync);
        let done = self.perform(&doing, hasher, copy(size));
        if size > 0 || !case.is_zero_size(&done) {
            return case.judge(&done);
        }
        let followed = self.follow_nothing(&doing, hasher, copy(DESC_BYTES_MAX));
        case.judge_followed(&done, &followed)
    }

    fn copy_async(
        &mut self,
        record: &Record<'_>,
        hasher: &mut Hasher,
        (source, target): (Place, Place),
        Size(size): Size,
        RawHandle(raw): RawHandle,
    ) -> Verdict {
        let previous = WaitHandle::from_raw(raw.cast_unsigned());
        let core = async_core(source, target);
        let context = previous.map(|previous| context_of(previous.next()));
        let in_use = self.in_use(core);
        // A request for a context that is in use is either refused or waits: see the judge.
        let reaches = context.filter(|&context| !in_use.get(context).is_some_and(|in_use| *in_use));
        let doing = Doing {
            core,
            request: reaches.map(|context| (context, vec![size])),
            target: Some((target.at.get(), size)),
            handle: previous.map(WaitHandle::next),
        };
        let kind = Kind::Async { previous, size };
        let case = self.case(record, core, kind);
        let Some(previous) = previous else {
            // The op layer takes no such handle.
            let done = self.perform(&doing, hasher, |_| Err(Refusal::Unknown));
            return case.judge(&done);
        };
        let by = self.caller;
        let copy = |size| {
            move |dma: &Dma| -> Result<(), DmaError> {
                dma.copy_async(by, source, target, size, previous).map(drop)
            }
        };
        let done = self.perform(&doing, hasher, copy(size));
        if size > 0 || !case.is_zero_size(&done) {
            return case.judge(&done);
        }
        if previous != WaitHandle::None || !done.log.is_empty() {
            // A copy that was waited for is gone, so the same cannot be ordered again.
            return case.declared_zero_size();
        }
        // The copy of nothing is waited for, which leaves everything as it was.
        let waited = self.dma.wait(by, source, target, previous.next());
        if waited.is_err() {
            return case.judge(&done);
        }
        let followed = self.follow_nothing(&doing, hasher, copy(DESC_BYTES_MAX));
        case.judge_followed(&done, &followed)
    }

    fn wait(
        &mut self,
        record: &Record<'_>,
        hasher: &mut Hasher,
        (source, target): (Place, Place),
        RawHandle(raw): RawHandle,
    ) -> Verdict {
        let handle = WaitHandle::from_raw(raw.cast_unsigned());
        let core = async_core(source, target);
        let doing = Doing {
            core,
            request: None,
            target: None,
            handle: None,
        };
        let case = self.case(record, core, Kind::Wait { handle });
        let by = self.caller;
        let done = self.perform(&doing, hasher, |dma| match handle {
            Some(handle) => Ok(dma.wait(by, source, target, handle)?),
            None => Err(Refusal::Unknown),
        });
        case.judge(&done)
    }

    fn memset(
        &mut self,
        record: &Record<'_>,
        hasher: &mut Hasher,
        target: Place,
        Size(size): Size,
        value: u8,
    ) -> Verdict {
        let first = size.min(DESC_BYTES_MAX);
        let sizes = [first, size - first];
        let sizes = sizes[..if size > first { 2 } else { 1 }].to_vec();
        let doing = Doing {
            core: target.core,
            request: Some((0, sizes)),
            target: Some((target.at.get(), size)),
            handle: None,
        };
        let kind = match target.location {
            Location::Host => Kind::MemsetHost,
            Location::Device => Kind::Sync,
        };
        let case = self.case(record, target.core, kind);
        let by = self.caller;
        let done = self.perform(&doing, hasher, |dma| dma.fill(by, target, size, value));
        if size > 0 || !case.is_zero_size(&done) {
            return case.judge(&done);
        }
        let buffer = Place {
            at: BusAddr::new(self.scenario.fill_buffer.0),
            location: Location::Host,
            core: target.core,
        };
        let followed = self.follow_nothing(&doing, hasher, |dma| {
            dma.copy(by, buffer, target, DESC_BYTES_MAX)
        });
        case.judge_followed(&done, &followed)
    }

    /// Makes the copy that the reference makes of a copy of nothing.
    pub(super) fn follow_nothing<E: Into<Refusal>>(
        &mut self,
        doing: &Doing,
        hasher: &mut Hasher,
        act: impl FnOnce(&Dma) -> Result<(), E>,
    ) -> Done {
        let queue = self.queue(doing.core);
        let context = doing.request.as_ref().map_or(0, |(context, _)| *context);
        self.perform_and(doing, hasher, act, |rig| {
            let mut state = rig.state();
            state.books.entry(queue).or_default().claim_nothing(context);
        })
    }

    pub(super) fn perform<E: Into<Refusal>>(
        &mut self,
        doing: &Doing,
        hasher: &mut Hasher,
        act: impl FnOnce(&Dma) -> Result<(), E>,
    ) -> Done {
        self.perform_and(doing, hasher, act, |_| {})
    }

    /// Calls the driver and tells what it did.
    fn perform_and<E: Into<Refusal>>(
        &mut self,
        doing: &Doing,
        hasher: &mut Hasher,
        act: impl FnOnce(&Dma) -> Result<(), E>,
        finish: impl FnOnce(&Rig),
    ) -> Done {
        let queue = self.queue(doing.core);
        self.rig.begin();
        if let Some((context, sizes)) = &doing.request {
            let mut state = self.rig.state();
            state.books.entry(queue).or_default().enter(*context, sizes);
        }
        let start_us = self.rig.state().now_us();
        let result = act(&self.dma).map_err(Into::into);
        finish(&self.rig);
        let log = self.rig.end();
        note_set_up(self, &log.accesses);
        let end_us = self.rig.state().now_us();
        let ret = result.as_ref().map_or_else(Refusal::ret, |()| 0);
        let mut fields = Fields::new()
            .with("ret", ret)
            .with("t", [start_us, end_us].into_iter().collect::<Value<'_>>())
            .with("queue", self.tell_queue(queue, doing.core));
        log.tell(&mut fields);
        log.tell_registers(&mut fields);
        if let Some(handle) = doing.handle {
            fields.push("handle", handle.to_raw().cast_signed());
        }
        if let Some((at, size_bytes)) = doing.target.filter(|(_, size_bytes)| *size_bytes > 0) {
            let hash = self.hash(hasher, at, size_bytes);
            fields.push("dst_fnv", hash_text(hash));
        }
        Done {
            fields,
            log,
            books: self
                .rig
                .state()
                .books
                .get(&queue)
                .cloned()
                .unwrap_or_default(),
            has_timed_out: matches!(result, Err(Refusal::Driver(DmaError::TimedOut(_)))),
            start_us,
        }
    }

    pub(super) fn case<'a>(&self, record: &'a Record<'_>, core: CoreId, kind: Kind) -> Case<'a> {
        let queue = self.queue(core);
        let books = self.rig.state().books.get(&queue).cloned();
        Case {
            record,
            kind,
            platform: self.scenario.platform,
            in_use: self.in_use(core),
            books: books.unwrap_or_default(),
            queue,
            is_lost_ring: self.lost_rings.contains(&queue),
        }
    }
}

/// The core whose ring an asynchronous copy takes.
fn async_core(source: Place, target: Place) -> CoreId {
    match source.location {
        Location::Device => source.core,
        Location::Host => target.core,
    }
}

/// Why an operation did not succeed.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The driver said so.
    Driver(DmaError),
    /// The driver said so of descriptors.
    Descriptors(DescriptorError),
    /// An argument that the driver's types do not have.
    Unknown,
}

impl Refusal {
    fn ret(&self) -> i32 {
        match self {
            Self::Driver(error) => error.errno().ret(),
            Self::Descriptors(error) => error.errno().ret(),
            Self::Unknown => Errno::EINVAL.ret(),
        }
    }
}

impl From<DescriptorError> for Refusal {
    fn from(error: DescriptorError) -> Self {
        match error {
            DescriptorError::Copy(error) => Self::Driver(error),
            other => Self::Descriptors(other),
        }
    }
}

impl From<DmaError> for Refusal {
    fn from(error: DmaError) -> Self {
        Self::Driver(error)
    }
}
