//! The driver's answers in the words of the format: one function per outcome that has more than two
//! fields.

use glia_driver::chunk::{Chunk, Place};
use glia_driver::memory::sweep::Sweep;
use glia_driver::memory::{DeviceMemory, MemoryStats};
use glia_driver::pool::ScratchpadOrder;
use glia_driver::usage::{Key, Usage};

use super::books::Books;
use super::value::{Fields, Value};

/// Low bits of a host address: what a trace does not record.
const HOST_OFFSET_MASK: u64 = 0xffff_ffff;

/// `{"ret":…}`.
pub(super) fn ret(ret: i32) -> Fields<'static> {
    Fields::new().with("ret", ret)
}

/// A device that has just been set up.
pub(super) fn init(memory: &DeviceMemory, host_used_bytes: u64) -> Fields<'static> {
    let layout = memory.config().layout;
    let channels = memory.channel_facts().into_iter().map(|facts| {
        let carveout = memory.chunk(facts.carveout);
        Fields::new()
            .with("base", facts.region.start().get())
            .with("size", facts.region.size_bytes())
            .with("main_end", facts.main_end.get())
            .with("small", facts.small_size_bytes)
            .with(
                "carveout_pa",
                carveout.map_or(Value::Null, |chunk| chunk.at().get().into()),
            )
            .with(
                "carveout_size",
                carveout.map_or(Value::Null, |chunk| chunk.size_bytes().into()),
            )
            .with("effective_base", facts.effective_base.get())
            .with("end", facts.region.end().get())
    });
    let reserves = memory.stats().reserves.into_iter().map(|reserve| {
        Fields::new()
            .with("page_size", reserve.page_size_bytes)
            .with("requested", reserve.pages_requested)
            .with("pages", reserve.pages)
    });
    ret(0)
        .with("channels", layout.channels())
        .with("regions", layout.profile().regions_per_channel)
        .with("pci_host_base", layout.profile().host_base)
        .with("granule", memory.granule_bytes())
        .with("ch", Value::from_iter(channels))
        .with("hrm", Value::from_iter(reserves))
        .with("host_used", host_used_bytes)
}

/// A chunk that has just been allocated.
pub(super) fn alloc(memory: &DeviceMemory, chunk: &Chunk) -> Fields<'static> {
    let outcome = ret(0).with("size", chunk.size_bytes());
    let at = chunk.at().get();
    let device = |outcome: Fields<'static>, pool| outcome.with("pa", at).with("pool", pool);
    let host = |outcome: Fields<'static>, pool| {
        outcome
            .with("pa_base", at & !HOST_OFFSET_MASK)
            .with("pool", pool)
    };
    match chunk.place() {
        Place::Main => device(outcome, "main"),
        Place::Small => device(outcome, "small"),
        Place::Coherent => host(outcome, "coherent"),
        Place::Reserve { pool, page } => {
            let page_at = memory.reserve_page(pool, page);
            let offset =
                page_at.and_then(|page_at| (at & HOST_OFFSET_MASK).checked_sub(page_at.get()));
            host(outcome, "hrm")
                .with("hrm", pool)
                .with("page", page)
                .with("off", offset.map_or(Value::Null, Value::from))
        }
    }
}

/// All books, with the usage counters if they are wanted.
pub(super) fn stats(
    stats: &MemoryStats,
    host_used_bytes: u64,
    usage: Option<&Usage>,
) -> Fields<'static> {
    let channels = stats.channels.iter().map(|channel| {
        Fields::new()
            .with("allocated", channel.allocated_bytes)
            .with("main_free", channel.main_free_bytes)
            .with("small_free", channel.small_free_bytes)
            .with("scratchpad", channel.scratchpad_bytes)
    });
    let reserves = stats.reserves.iter().map(|reserve| {
        Fields::new()
            .with("allocated", reserve.allocated_bytes)
            .with("free", reserve.free_bytes)
    });
    let lists = Fields::new()
        .with("local", stats.lists.local)
        .with("all", stats.lists.all)
        .with("device", stats.lists.device);
    let processes = stats.processes.iter().map(|process| {
        Fields::new()
            .with("slot", process.slot.get())
            .with("pid", process.pid.get())
            .with("open", process.open_count)
            .with("host", process.host.total_bytes)
            .with("device", process.device.total_bytes)
            .with("chunks", process.chunks)
    });
    let mut outcome = Fields::new()
        .with("host_mem", stats.host_bytes)
        .with("device_mem", stats.device_bytes)
        .with("chunks", stats.chunks)
        .with("ch", Value::from_iter(channels))
        .with("hrm", Value::from_iter(reserves))
        .with("host_used", host_used_bytes)
        .with("lists", lists)
        .with("procs", Value::from_iter(processes));
    if let Some(usage) = usage {
        outcome.push("usage", balances(usage));
    }
    outcome
}

/// The balances that are not zero, by counter and key.
fn balances(usage: &Usage) -> Fields<'static> {
    let mut counters = Fields::new();
    for (counter, key, balance) in usage.balances() {
        if balance.total_bytes == 0 {
            continue;
        }
        let key = match key {
            Key::Device => "nd".to_owned(),
            Key::Core(core) => core.get().to_string(),
        };
        match counters.get_mut(counter.name()) {
            Some(Value::Object(keys)) => keys.push(key, balance.total_bytes),
            _ => {
                let mut keys = Fields::new();
                keys.push(key, balance.total_bytes);
                counters.push(counter.name(), keys);
            }
        }
    }
    counters
}

/// A sweep. Its `forced` is written only if there are any, as a trace does.
pub(super) fn sweep(sweep: &Sweep, books: &Books) -> Fields<'static> {
    let kept = sweep.kept.iter().map(|kept| {
        Fields::new()
            .with("id", books.id_of(kept.chunk))
            .with("ref", kept.refs)
            .with("list", kept.list.to_string())
    });
    let mut outcome = Fields::new()
        .with(
            "freed",
            Value::from_iter(sweep.freed.iter().map(|&chunk| books.id_of(chunk))),
        )
        .with("kept", Value::from_iter(kept));
    if !sweep.forced.is_empty() {
        outcome.push(
            "forced",
            Value::from_iter(sweep.forced.iter().map(|&chunk| books.id_of(chunk))),
        );
    }
    outcome
}

/// The outcome with the driver's complaint, if there was one.
pub(super) fn with_complaint(
    outcome: Fields<'static>,
    complaint: Option<ScratchpadOrder>,
) -> Fields<'static> {
    match complaint {
        None => outcome,
        Some(complaint) => outcome
            .with("log", "scratchpad_order")
            .with("expected_pa", complaint.expected_at.get()),
    }
}
