//! The calls of a scenario, one by one.

use glia_abi::addr::BusAddr;
use glia_abi::errno::Errno;
use glia_abi::handle::{CoreId, Pid};
use glia_abi::mem::Location;
use glia_abi::udma::DESC_BYTES_MAX;
use glia_driver::dma::{Awaited, Dma, DmaError, Place, WaitHandle};

use super::super::judge::Verdict;
use super::super::value::{Fields, Value};
use super::bring_up;
use super::content::Hasher;
use super::judge::{self, Case, Kind};
use super::log::hash_text;
use super::op::Call;
use super::rig::Rig;
use super::session::{Done, Replayed, Session, context_of};
use super::trace::{DmaProblem, Record};
use super::words::{RawHandle, Size};

/// On whose account copies are made.
const CALLER: Pid = Pid::new(1000);

/// What is called, as far as the record's other fields depend on it.
#[derive(Debug, Clone)]
struct Doing {
    /// The queue that the record shows.
    core: CoreId,
    /// The context that the request reaches, and the sizes of its parts.
    request: Option<(usize, Vec<u64>)>,
    /// The range that is hashed afterwards.
    target: Option<(u64, u64)>,
    /// The handle that the record tells.
    handle: Option<WaitHandle>,
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
    ) -> Result<Replayed, DmaProblem> {
        let op = record.name;
        let verdict = match call {
            Call::InitCores { map } => bring_up::init_cores(self, record, map.0),
            Call::RingInit(queue) => return Ok(bring_up::ring_init(self, record, *queue)),
            Call::H2tQueue(core) => bring_up::h2t_queue(self.profile, record, *core),
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
        Ok(Replayed::Judged(verdict))
    }

    fn copy(
        &self,
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
        let copy = |size| move |dma: &Dma| dma.copy(CALLER, source, target, size);
        let case = self.case(record, core, Kind::Sync);
        let done = self.perform(&doing, hasher, copy(size));
        if size > 0 || !case.is_zero_size(&done) {
            return case.judge(&done);
        }
        let followed = self.follow_nothing(&doing, hasher, copy(DESC_BYTES_MAX));
        case.judge_followed(&done, &followed)
    }

    fn copy_async(
        &self,
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
            let done = self.perform(&doing, hasher, |_| Err(Refusal::BadHandle));
            return case.judge(&done);
        };
        let copy = |size| {
            move |dma: &Dma| -> Result<(), DmaError> {
                dma.copy_async(CALLER, source, target, size, previous)
                    .map(drop)
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
        let waited = self.dma.wait(CALLER, source, target, previous.next());
        if waited.is_err() {
            return case.judge(&done);
        }
        let followed = self.follow_nothing(&doing, hasher, copy(DESC_BYTES_MAX));
        case.judge_followed(&done, &followed)
    }

    fn wait(
        &self,
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
        let done = self.perform(&doing, hasher, |dma| match handle {
            Some(handle) => Ok(dma.wait(CALLER, source, target, handle)?),
            None => Err(Refusal::BadHandle),
        });
        case.judge(&done)
    }

    fn memset(
        &self,
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
        let done = self.perform(&doing, hasher, |dma| dma.fill(CALLER, target, size, value));
        if size > 0 || !case.is_zero_size(&done) {
            return case.judge(&done);
        }
        let buffer = Place {
            at: BusAddr::new(self.scenario.fill_buffer.0),
            location: Location::Host,
            core: target.core,
        };
        let followed = self.follow_nothing(&doing, hasher, |dma| {
            dma.copy(CALLER, buffer, target, DESC_BYTES_MAX)
        });
        case.judge_followed(&done, &followed)
    }

    /// Makes the copy that the reference makes of a copy of nothing.
    fn follow_nothing<E: Into<Refusal>>(
        &self,
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

    fn perform<E: Into<Refusal>>(
        &self,
        doing: &Doing,
        hasher: &mut Hasher,
        act: impl FnOnce(&Dma) -> Result<(), E>,
    ) -> Done {
        self.perform_and(doing, hasher, act, |_| {})
    }

    /// Calls the driver and tells what it did.
    fn perform_and<E: Into<Refusal>>(
        &self,
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
            has_timed_out: matches!(result, Err(Refusal::Driver(DmaError::TimedOut(_)))),
            start_us,
        }
    }

    fn case<'a>(&self, record: &'a Record<'_>, core: CoreId, kind: Kind) -> Case<'a> {
        let queue = self.queue(core);
        let books = self.rig.state().books.get(&queue).cloned();
        Case {
            record,
            kind,
            platform: self.scenario.platform,
            in_use: self.in_use(core),
            books: books.unwrap_or_default(),
            queue,
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
enum Refusal {
    /// The driver said so.
    Driver(DmaError),
    /// A handle that the driver's types do not have.
    BadHandle,
}

impl Refusal {
    fn ret(&self) -> i32 {
        match self {
            Self::Driver(error) => error.errno().ret(),
            Self::BadHandle => Errno::EINVAL.ret(),
        }
    }
}

impl From<DmaError> for Refusal {
    fn from(error: DmaError) -> Self {
        Self::Driver(error)
    }
}
