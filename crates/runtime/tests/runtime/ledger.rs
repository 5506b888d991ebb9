//! The usage logger alone, without a runtime.

use glia_abi::addr::BusAddr;
use glia_abi::arch::Arch;
use glia_abi::handle::{Channel, CoreId};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_runtime::dml::{Action, Allocation, Dml, ModelId};

use crate::fake::DEVICE;

fn weights(core: u32, size_bytes: u64, model: Option<ModelId>) -> Allocation {
    Allocation {
        size_bytes,
        allocated_bytes: size_bytes + 64,
        pa: BusAddr::new(0x1000),
        align_offset_bytes: 64,
        location: Location::Device,
        usage: MemUsage::Weight,
        core: CoreId::new(core),
        channel: Channel::new(core / 2),
        model,
        hint: None,
        site: None,
    }
}

#[test]
fn books_can_be_kept_without_a_runtime() {
    let dml = Dml::new(DEVICE, Arch::V3.profile(), 2);
    dml.add_model(ModelId::FIRST, CoreId::new(2), "a.neff");
    let (of_model, of_core) = (
        weights(2, 1000, Some(ModelId::FIRST)),
        weights(2, 500, None),
    );
    dml.record(Action::Alloc, &of_model);
    dml.record(Action::Alloc, &of_core);

    let table = dml.table();
    let core = table.core(CoreId::new(2)).unwrap();
    assert_eq!(core.present.get(MemUsage::Weight), 1628);
    assert_eq!(core.models[0].name, "a.neff");
    assert_eq!(core.models[0].present.total(), 1064);
    assert_eq!(table.bank(Channel::new(1)).unwrap().present_bytes, 1628);

    dml.record(Action::Free, &of_model);
    dml.remove_model(ModelId::FIRST);
    let table = dml.table();
    let core = table.core(CoreId::new(2)).unwrap();
    assert_eq!((core.present.total(), core.peak_total_bytes), (564, 1628));
    assert!(core.models.is_empty());
    let events = dml.events();
    let channel: Vec<_> = events.iter().map(|event| event.channel_bytes).collect();
    assert_eq!(
        (channel, dml.events_dropped()),
        (vec![Some(1628), Some(564)], 1)
    );
}

#[test]
fn an_end_without_a_beginning_and_places_that_are_not_there_move_no_counter() {
    let dml = Dml::new(DEVICE, Arch::V3.profile(), 8);
    dml.record(Action::Free, &weights(2, 1000, None));
    dml.record(Action::Alloc, &weights(8, 1000, None));
    let banks = dml.table().banks;
    assert!(banks.iter().all(|bank| bank.present_bytes == 0));
    assert_eq!(dml.events().len(), 2);
}
