//! Two processes that want the same core: the second learns who has it.

use std::sync::{Arc, Mutex};

use glia::machine::{Machine, MachineConfig, Model};
use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::event::{Event, Ids, Sink};
use glia_abi::handle::{CoreId, DeviceId, Pid};
use glia_abi::sched::Tick;
use glia_runtime::config::{ClaimError, LogicalCore, LogicalCores, VisibleCores};
use glia_runtime::ndl::{Device, NdlError};

const DEVICE: DeviceId = DeviceId::new(0);

/// Keeps the refused claims.
#[derive(Default)]
struct Refusals(Mutex<Vec<(Ids, Event)>>);

impl Sink for Refusals {
    fn event(&self, _at: Tick, ids: &Ids, event: &Event) {
        if let Event::ClaimRefused { .. } = event {
            self.0.lock().unwrap().push((*ids, *event));
        }
    }
}

fn core(number: u32) -> CoreId {
    CoreId::new(number)
}

fn device(machine: &Machine, pid: u32) -> Arc<Device> {
    Device::open(machine.process(Pid::new(pid)) as Arc<_>, DEVICE).unwrap()
}

#[test]
fn the_second_to_claim_a_core_is_told_who_has_it() {
    for model in Model::ALL {
        let refusals = Arc::new(Refusals::default());
        let machine = Machine::new(MachineConfig {
            sink: Arc::clone(&refusals) as Arc<_>,
            ..MachineConfig::new(model)
        })
        .unwrap();
        let (first, second) = (device(&machine, 7), device(&machine, 8));
        let last = core(first.profile().cores - 1);
        assert_eq!(first.claim_cores(1, core(0)..=last), Ok(core(0)..core(1)));
        let count = first.profile().cores;
        let refused = second.claim_cores(count, core(0)..=last).unwrap_err();
        let expected = NdlError::CoresTaken {
            device: DEVICE,
            count,
            first: core(0),
            last,
            longest: count - 1,
            holder: Some((core(0), Pid::new(7))),
        };
        assert_eq!(refused, expected);
        assert_eq!(refused.errno(), Some(Errno::EBUSY));
        assert_eq!(
            refused.to_string(),
            format!(
                "nd 0: no {count} free cores in a row were seen among core 0 to {last}, but {}; core \
                 0 is pid 7's",
                count - 1
            )
        );
        let told = std::mem::take(&mut *refusals.0.lock().unwrap());
        let [(ids, event)] = told[..] else {
            unreachable!("{told:?}")
        };
        let expected = Event::ClaimRefused {
            cores: count,
            longest: count - 1,
            holder: Pid::new(7),
        };
        assert_eq!(
            (ids.process, ids.core, event),
            (Some(Pid::new(8)), Some(core(0)), expected)
        );
        // What is given back can be had.
        first.release_cores(core(0)..core(1)).unwrap();
        assert_eq!(
            second.claim_cores(count, core(0)..=last),
            Ok(core(0)..core(count))
        );
        // A process that goes has no core any more.
        drop(second);
        assert_eq!(first.claim_cores(1, last..=last), Ok(last..core(count)));
        assert!(refusals.0.lock().unwrap().is_empty());
    }
}

#[test]
fn nobody_is_named_where_all_cores_are_free_and_a_range_that_is_none_is_invalid() {
    let machine = Machine::trn2().unwrap();
    let device = device(&machine, 7);
    let refused = device.claim_cores(3, core(2)..=core(3)).unwrap_err();
    let NdlError::CoresTaken {
        longest: 2,
        holder: None,
        ..
    } = refused
    else {
        unreachable!("{refused:?}")
    };
    assert_eq!(
        refused.to_string(),
        "nd 0: no 3 free cores in a row were seen among core 2 to core 3, but 2"
    );
    let refused = device.claim_cores(1, core(0)..=core(u32::MAX));
    assert_eq!(refused.unwrap_err().errno(), Some(Errno::EINVAL));
    assert_eq!(
        device.claim_cores(0, core(2)..=core(3)),
        Ok(core(2)..core(2))
    );
}

/// Cores count through the machine: behind those of the first device come the second one's.
#[test]
fn a_core_of_another_device_has_its_holder_and_its_own_name() {
    for model in [Model::Trn1, Model::Trn2] {
        let refusals = Arc::new(Refusals::default());
        let machine = Machine::new(MachineConfig {
            devices: 2,
            sink: Arc::clone(&refusals) as Arc<_>,
            ..MachineConfig::new(model)
        })
        .unwrap();
        let (first, second) = (device(&machine, 7), device(&machine, 8));
        let cores = first.profile().cores;
        let (next, last) = (core(cores), core(cores + 1));
        first.claim_cores(1, last..=last).unwrap();
        let refused = second.claim_cores(2, next..=last).unwrap_err();
        let NdlError::CoresTaken { holder, .. } = refused else {
            unreachable!("{refused:?}")
        };
        assert_eq!(holder, Some((last, Pid::new(7))), "{model:?}");
        let told = std::mem::take(&mut *refusals.0.lock().unwrap());
        let [(ids, _)] = told[..] else {
            unreachable!("{told:?}")
        };
        let named = (ids.process, ids.device, ids.core);
        let expected = (Pid::new(8), DeviceId::new(1), core(1));
        assert_eq!(
            named,
            (Some(expected.0), Some(expected.1), Some(expected.2))
        );
    }
}

/// The release of another's core is no error, and releases nothing.
#[test]
fn nobody_releases_what_another_has() {
    let machine = Machine::trn2().unwrap();
    let (first, second) = (device(&machine, 7), device(&machine, 8));
    first.claim_cores(4, core(0)..=core(7)).unwrap();
    second.release_cores(core(0)..core(8)).unwrap();
    let refused = second.claim_cores(1, core(3)..=core(3)).unwrap_err();
    let NdlError::CoresTaken { holder, .. } = refused else {
        unreachable!("{refused:?}")
    };
    assert_eq!(holder, Some((core(3), Pid::new(7))));
}

/// The second process gets the first logical cores that are free in a row, whole ones; the third learns
/// who has them.
#[test]
fn so_many_cores_are_the_first_that_are_free() {
    let machine = Machine::new(MachineConfig {
        devices: 2,
        ..MachineConfig::new(Model::Trn2)
    })
    .unwrap();
    let devices = [0, 1].map(|number| (DeviceId::new(number), Arch::V3));
    let of_two = 2;
    let open = |pid| device(&machine, pid);
    let claim = |device: &Device, count| {
        LogicalCores::claim(device, &devices, of_two, VisibleCores::First(count))
    };
    let places = |cores: &LogicalCores| -> Vec<_> {
        let cores = (0..).map_while(|number| cores.get(number));
        let place = |core: &LogicalCore| (core.device.get(), core.cores.clone());
        cores.map(place).collect()
    };
    let (first, second, third) = (open(7), open(8), open(9));

    // Half of logical core 1 is taken.
    first.claim_cores(1, core(3)..=core(3)).unwrap();
    let one = claim(&second, 1).unwrap();
    assert_eq!(places(&one), [(0, 0..2)]);
    let three = claim(&second, 3).unwrap();
    assert_eq!(places(&three), [(0, 4..6), (0, 6..8), (1, 0..2)]);
    assert_eq!(three.total(), 8);

    // Cores 10 to 15 are left.
    let refused = claim(&third, 4).unwrap_err();
    let ClaimError::Driver(NdlError::CoresTaken { holder, .. }) = refused else {
        unreachable!("{refused:?}")
    };
    assert_eq!(holder, Some((core(0), Pid::new(8))));
    assert_eq!(places(&claim(&third, 3).unwrap()).len(), 3);
    assert!(matches!(claim(&third, 9), Err(ClaimError::Cores(_))));

    // What is named is had, or not.
    let named = VisibleCores::Between(1, 1);
    let taken = LogicalCores::claim(&third, &devices, of_two, named);
    assert!(taken.is_err());
    first.release_cores(core(3)..core(4)).unwrap();
    let given = LogicalCores::claim(&third, &devices, of_two, named).unwrap();
    assert_eq!(places(&given), [(0, 2..4)]);
}
