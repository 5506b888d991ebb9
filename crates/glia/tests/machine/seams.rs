//! A process of a machine keeps the rules of the seams that it implements.

use glia::machine::{Machine, MachineConfig, Model};
use glia_abi::conformance;
use glia_abi::conformance::transport::TransportFixture;
use glia_abi::handle::{DeviceId, Pid};

#[test]
fn a_process_is_a_transport_on_every_machine() {
    for model in Model::ALL {
        let machine = Machine::new(MachineConfig {
            devices: 2,
            ..MachineConfig::new(model)
        })
        .unwrap();
        let process = machine.process(Pid::new(31));
        let fixture = TransportFixture {
            transport: &*process,
            device: DeviceId::new(1),
            missing: DeviceId::new(2),
        };
        conformance::transport::check(&fixture).unwrap();
        conformance::transport::check_copies(&fixture).unwrap();
    }
}
