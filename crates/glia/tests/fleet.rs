//! What a machine with many devices costs before anybody uses it. Alone in its process, whose
//! memory is measured.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Instant;

use glia::machine::{Machine, MachineConfig, Model};

/// Bytes of this process that lie in memory.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// A Trn2 instance: 1.5 TiB of HBM, 128 rings for copies.
#[test]
fn sixteen_trn2_devices_come_up_in_less_than_100_mib() {
    let before = resident_bytes();
    let began = Instant::now();
    let machine = Machine::new(MachineConfig {
        devices: 16,
        ..MachineConfig::new(Model::Trn2)
    })
    .unwrap();
    let took = began.elapsed();
    let taken = resident_bytes().saturating_sub(before);
    println!("16 devices: {took:?}, {} KiB", taken >> 10);
    assert_eq!(machine.devices().len(), 16);
    assert!(taken < 100 << 20, "{taken} bytes");
}
