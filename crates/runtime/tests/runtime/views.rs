//! All views of the ledger, against the memory that is live.

use glia_abi::arch::Arch;
use glia_abi::handle::{Channel, CoreId};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_abi::usage::Counter;
use glia_runtime::dml::Allocation;
use glia_runtime::{AllocSpec, Dmem, Runtime};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::fake::{DEVICE, Fake, core, open};

/// Bytes of what is live and is so.
fn bytes(live: &[Dmem], is_so: impl Fn(&Allocation) -> bool) -> u64 {
    let facts = live.iter().map(Dmem::facts);
    let facts = facts.filter(|facts| is_so(facts));
    facts.map(|facts| facts.allocated_bytes).sum()
}

fn on_core(facts: &Allocation, core: CoreId) -> bool {
    facts.location == Location::Device && facts.core == core
}

fn every_view_is_the_sum_of(live: &[Dmem], runtime: &Runtime) {
    let table = runtime.usage(DEVICE).unwrap();
    let metrics = runtime.metrics(DEVICE).unwrap();
    for bank in &table.banks {
        let is_there = |facts: &Allocation| {
            facts.location == Location::Device && facts.channel == bank.channel
        };
        assert_eq!(bank.present_bytes, bytes(live, is_there));
    }
    for number in 0..8 {
        let core_id = CoreId::new(number);
        let of_core = table.core(core_id).unwrap();
        let total = bytes(live, |facts| on_core(facts, core_id));
        assert_eq!(of_core.present.total(), total);
        assert_eq!(
            runtime.memory_stats(core(number)).unwrap().used_bytes,
            total
        );
        let counters = metrics.core(core_id).unwrap();
        assert_eq!(counters.get(Counter::DeviceTotal).present_bytes, total);
        for model in &of_core.models {
            let owned = bytes(live, |facts| facts.model == Some(model.id));
            assert_eq!(model.present.total(), owned);
        }
    }
    let mut host_bytes = 0;
    for (core, counter, balance) in metrics.leaves() {
        let is_there = |facts: &Allocation| match core {
            Some(core) => on_core(facts, core),
            None => facts.location == Location::Host,
        };
        let counted = |facts: &Allocation| {
            let category = facts.usage.category(facts.location).unwrap();
            is_there(facts) && category.counter(facts.location) == counter
        };
        assert_eq!(balance.present_bytes, bytes(live, counted), "{counter:?}");
        assert!(balance.peak_bytes >= balance.present_bytes);
        host_bytes += if core.is_none() {
            balance.present_bytes
        } else {
            0
        };
    }
    assert_eq!(
        metrics.host.get(Counter::HostTotal).present_bytes,
        host_bytes
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_view_is_the_sum_of_what_is_live(
        steps in proptest::collection::vec(
            (0..8_u32, 0..4_u32, 0..22_usize, 1..100_000_u64, any::<Index>(), 0..8_u32),
            1..80,
        ),
    ) {
        let fake = Fake::new(Arch::V3);
        let (runtime, _) = open(&fake);
        let model = runtime.load_model(core(3), "a.neff").unwrap();
        let mut live = Vec::new();
        for (number, channel, usage, size_bytes, index, kind) in steps {
            let usage = MemUsage::ALL[usage];
            let location = match kind {
                0 if usage.category(Location::Host).is_some() => Location::Host,
                _ => Location::Device,
            };
            let spec = AllocSpec {
                location,
                // The driver has no such alignment, so that the runtime asks for more.
                align_bytes: if kind == 1 { 4 << 30 } else { 0 },
                channel: (kind == 2).then_some(Channel::new(channel)),
                ..AllocSpec::device(size_bytes, usage)
            };
            match kind {
                3 | 4 if !live.is_empty() => drop(live.swap_remove(index.index(live.len()))),
                5 => live.push(model.allocate(&spec).unwrap()),
                _ => live.push(runtime.allocate(core(number), &spec).unwrap()),
            }
        }
        every_view_is_the_sum_of(&live, &runtime);
        live.clear();
        every_view_is_the_sum_of(&live, &runtime);
    }
}
