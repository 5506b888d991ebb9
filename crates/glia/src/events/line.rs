//! An event as a JSON object: its number, its time, its name, its ids, its own fields.
//!
//! The tables below are the format. Each names every variant with every field, so that one that is
//! added does not compile until it is told here; a test keeps `docs/formats/events.md` equal.

use std::fmt;

use glia_abi::event::{CommandClass, CopyPath, CopyWay, EngineFault, Event, Ids, NameId};
use glia_abi::fault::PairFault;
use glia_abi::handle::{Channel, ChunkId, CoreId, DeviceId, McHandle, Pid};
use glia_abi::port::NotCompleted;
use glia_abi::sched::Tick;
use glia_driver::command_of;
use serde::ser::{Serialize, SerializeMap, Serializer};

/// A line of the log.
pub(super) struct Line<'a> {
    pub(super) n: u64,
    pub(super) at: Tick,
    pub(super) ids: &'a Ids,
    pub(super) event: &'a Event,
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Ids {
            process,
            device,
            core,
            channel,
            chunk,
            handle,
            queue,
        } = *self.ids;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("n", &self.n)?;
        map.serialize_entry("t_ns", &self.at.0)?;
        map.serialize_entry("event", self.event.name())?;
        known(&mut map, "process", process.map(Pid::get))?;
        known(&mut map, "device", device.map(DeviceId::get))?;
        known(&mut map, "core", core.map(CoreId::get))?;
        known(&mut map, "channel", channel.map(Channel::get))?;
        known(&mut map, "chunk", chunk.map(life))?;
        known(&mut map, "handle", handle.map(McHandle::get))?;
        known(&mut map, "engine", queue.map(|queue| queue.engine.get()))?;
        known(&mut map, "queue", queue.map(|queue| queue.number))?;
        self.event.tell(&mut map)?;
        map.end()
    }
}

/// What is not known is left out.
fn known<M: SerializeMap>(
    map: &mut M,
    key: &'static str,
    id: Option<impl Serialize>,
) -> Result<(), M::Error> {
    match id {
        Some(id) => map.serialize_entry(key, &id),
        None => Ok(()),
    }
}

/// What has a name and fields of its own.
trait Told {
    /// Every name, and the keys that come with it.
    #[cfg(test)]
    const TABLE: &'static [(&'static str, &'static [&'static str])];

    fn name(&self) -> &'static str;

    fn tell<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error>;
}

macro_rules! told {
    ($type:ident: $($name:literal $pattern:pat => { $($key:literal: $value:expr),* $(,)? })*) => {
        impl Told for $type {
            #[cfg(test)]
            const TABLE: &'static [(&'static str, &'static [&'static str])] =
                &[$(($name, &[$($key),*])),*];

            #[expect(unused_variables, reason = "the patterns bind what `tell` writes")]
            fn name(&self) -> &'static str {
                match *self {
                    $($pattern => $name,)*
                }
            }

            fn tell<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
                match *self {
                    $($pattern => { $(map.serialize_entry($key, &$value)?;)* })*
                }
                Ok(())
            }
        }
    };
}

told! { Event:
    "opened" Self::Opened => {}
    "closed" Self::Closed => {}
    "ioctl" Self::Ioctl { word, class, ret } => {
        "word": hex(word),
        "command": command_of(word).map(|command| command.name),
        "class": class_name(class),
        "ret": ret,
    }
    "claim_refused" Self::ClaimRefused { cores, longest, holder } => {
        "cores": cores,
        "longest": longest,
        "holder": holder.get(),
    }
    "chunk_taken" Self::ChunkTaken { at, size_bytes, location, category, site } => {
        "at": hex(at.get()),
        "size_bytes": size_bytes,
        "location": Text(location),
        "category": category.0,
        "counter": category.counter(location).name(),
        "site": site.map(NameId::get),
    }
    "chunk_freed" Self::ChunkFreed { size_bytes, location } => {
        "size_bytes": size_bytes,
        "location": Text(location),
    }
    "ring_ready" Self::RingReady { descs } => { "descs": descs }
    "batch_staged" Self::BatchStaged { context, first, data_descs, size_bytes } => {
        "context": context,
        "first": first,
        "data_descs": data_descs,
        "size_bytes": size_bytes,
    }
    "batch_done" Self::BatchDone { context, polls } => { "context": context, "polls": polls }
    "batch_failed" Self::BatchFailed { context, reason } => {
        "context": context,
        "reason": reason_name(reason),
    }
    "completion_posted" Self::CompletionPosted { sequence, result } => {
        "sequence": sequence,
        "result": result,
    }
    "acknowledged" Self::Acknowledged { direction, descs } => {
        "direction": direction.name(),
        "descs": descs,
    }
    "doorbell" Self::Doorbell { direction, descs, total } => {
        "direction": direction.name(),
        "descs": descs,
        "total": total,
    }
    "moved" Self::Moved { index, source, target, size_bytes } => {
        "index": index,
        "source": hex(source.get()),
        "target": hex(target.get()),
        "size_bytes": size_bytes,
    }
    "executed" Self::Executed { first, descs, size_bytes } => {
        "first": first,
        "descs": descs,
        "size_bytes": size_bytes,
    }
    "ordered" Self::Ordered { index, fault } => { "index": index, "fault": Nested(fault) }
    "queue_reset" Self::QueueReset { direction } => { "direction": direction.name() }
    "reset_began" Self::ResetBegan { cores } => { "cores": hex(cores) }
    "reset_ended" Self::ResetEnded { cores } => { "cores": hex(cores) }
    "stopped" Self::Stopped { fault } => { "fault": Nested(fault) }
    "stray_register" Self::StrayRegister { at, value } => {
        "at": hex(at.get()),
        "value": value.map(hex),
    }
    "runtime_opened" Self::RuntimeOpened => {}
    "runtime_closed" Self::RuntimeClosed => {}
    "model_loaded" Self::ModelLoaded { model, model_name } => {
        "model": model,
        "model_name": model_name.map(NameId::get),
    }
    "model_unloaded" Self::ModelUnloaded { model } => { "model": model }
    "allocated" Self::Allocated {
        at, size_bytes, allocated_bytes, location, usage, model, model_name, hint,
        site
    } => {
        "at": hex(at.get()),
        "size_bytes": size_bytes,
        "allocated_bytes": allocated_bytes,
        "location": Text(location),
        "usage": usage.name(),
        "model": model,
        "model_name": model_name.map(NameId::get),
        "hint": hint.map(NameId::get),
        "site": site.map(NameId::get),
    }
    "allocation_failed" Self::AllocationFailed {
        size_bytes, align_bytes, location, usage, hint, site, status
    } => {
        "size_bytes": size_bytes,
        "align_bytes": align_bytes,
        "location": Text(location),
        "usage": usage.name(),
        "hint": hint.map(NameId::get),
        "site": site.map(NameId::get),
        "status": status.name(),
    }
    "freed" Self::Freed { size_bytes, allocated_bytes, location, usage, status } => {
        "size_bytes": size_bytes,
        "allocated_bytes": allocated_bytes,
        "location": Text(location),
        "usage": usage.name(),
        "status": status.name(),
    }
    "copied" Self::Copied { way, path, offset_bytes, size_bytes, status } => {
        "way": way_name(way),
        "path": path_name(path),
        "offset_bytes": offset_bytes,
        "size_bytes": size_bytes,
        "status": status.name(),
    }
}

told! { PairFault:
    "hang" Self::Hang => {}
    "lost" Self::Lost => {}
    "late" Self::Late(delay) => { "delay_us": delay.0 }
    "retired_late" Self::RetiredLate(delay) => { "delay_us": delay.0 }
    "flipped" Self::Flipped { offset_bytes, size_bytes, mask } => {
        "offset_bytes": offset_bytes,
        "size_bytes": size_bytes,
        "mask": hex(mask),
    }
    "abort" Self::Abort => {}
    "uncorrectable" Self::Uncorrectable => {}
}

told! { EngineFault:
    "doorbell" Self::Doorbell { direction, count, room } => {
        "direction": direction.name(),
        "count": count,
        "room": room,
    }
    "not_ready" Self::NotReady { direction } => { "direction": direction.name() }
    "ring_address" Self::RingAddress { direction, at } => {
        "direction": direction.name(),
        "at": hex(at.get()),
    }
    "ring_id" Self::RingId { direction, expected, found } => {
        "direction": direction.name(),
        "expected": expected,
        "found": found,
    }
    "lengths" Self::Lengths { tx_size_bytes, rx_size_bytes } => {
        "tx_size_bytes": tx_size_bytes,
        "rx_size_bytes": rx_size_bytes,
    }
    "address" Self::Address { direction, at, size_bytes } => {
        "direction": direction.name(),
        "at": hex(at.get()),
        "size_bytes": size_bytes,
    }
    "aborted" Self::Aborted { at } => { "at": hex(at.get()) }
    "uncorrectable" Self::Uncorrectable { at } => { "at": hex(at.get()) }
    "unimplemented" Self::Unimplemented { direction, len_ctrl, word1 } => {
        "direction": direction.name(),
        "len_ctrl": hex(len_ctrl),
        "word1": hex(word1),
    }
}

fn class_name(class: CommandClass) -> &'static str {
    match class {
        CommandClass::Built => "built",
        CommandClass::Unimplemented => "unimplemented",
        CommandClass::Unknown => "unknown",
        CommandClass::WrongLane => "wrong_lane",
    }
}

fn reason_name(reason: NotCompleted) -> &'static str {
    match reason {
        NotCompleted::TimeOver => "time_over",
        NotCompleted::Idle => "idle",
        NotCompleted::Stopped => "stopped",
    }
}

fn way_name(way: CopyWay) -> &'static str {
    match way {
        CopyWay::In => "in",
        CopyWay::Out => "out",
    }
}

fn path_name(path: CopyPath) -> &'static str {
    match path {
        CopyPath::Staged => "staged",
        CopyPath::Mapped => "mapped",
        CopyPath::ZeroCopy => "zero_copy",
        CopyPath::Between => "between",
        CopyPath::Filled => "filled",
    }
}

/// An object of its own, with the name as `kind`.
struct Nested<T>(T);

impl<T: Told> Serialize for Nested<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", self.0.name())?;
        self.0.tell(&mut map)?;
        map.end()
    }
}

/// A string, written without one being made.
struct Text<T>(T);

impl<T: fmt::Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// Addresses, register offsets, words and bit maps.
fn hex(number: impl fmt::LowerHex) -> impl Serialize {
    struct Hex<N>(N);
    impl<N: fmt::LowerHex> fmt::Display for Hex<N> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{:#x}", self.0)
        }
    }
    Text(Hex(number))
}

/// Slot and generation are one name.
fn life(chunk: ChunkId) -> impl Serialize {
    struct Life(ChunkId);
    impl fmt::Display for Life {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}.{}", self.0.slot, self.0.generation)
        }
    }
    Text(Life(chunk))
}

#[cfg(test)]
mod tests;
