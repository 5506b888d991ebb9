//! Memory that was given back after a time-out belongs to its next owner alone.

use std::sync::Arc;

use glia::machine::{MachineConfig, SchedMode};
use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::event::NoSink;
use glia_abi::mem::Location;
use glia_abi::sched::{Micros, Poll};
use glia_device::EngineTiming;
use glia_runtime::ndl::{NdlError, WaitHandle};

use super::rig::{Rig, pattern, whole};

const SIZE_BYTES: u64 = 4 * 65_536;

/// An engine so slow that no copy of four descriptors is done within its budget, and the time it
/// takes.
fn slow(arch: Arch, seed: u64) -> (Rig, Micros) {
    let rig = Rig::with(arch, |config| MachineConfig {
        timing: Some(EngineTiming {
            latency_ns: 0,
            bytes_per_us: 1,
        }),
        sink: Arc::new(NoSink),
        ..config.with_mode(SchedMode::Virtual { seed })
    });
    (rig, Micros(SIZE_BYTES))
}

#[test]
fn after_a_time_out_nothing_writes_into_memory_that_was_given_back() {
    for arch in [Arch::V2, Arch::V3] {
        for seed in 0..20 {
            let (rig, takes) = slow(arch, seed);
            let run = || {
                let client = rig.open(7).unwrap();
                let source = client.alloc(Location::Host, SIZE_BYTES).unwrap();
                let target = client.alloc(Location::Device, SIZE_BYTES).unwrap();
                let at = client.device.physical_address(target).unwrap();
                let map = client.device.map(source, SIZE_BYTES).unwrap();
                map.write(0, &pattern(SIZE_BYTES, 1)).unwrap();
                let copied = match seed % 2 {
                    0 => client.copy(source, target, SIZE_BYTES),
                    _ => client
                        .device
                        .copy_async(&whole(source, target, SIZE_BYTES), WaitHandle::None)
                        .and_then(|copy| client.device.copy_wait(source, target, copy)),
                };
                assert!(
                    matches!(
                        copied,
                        Err(NdlError::Call {
                            errno: Errno::ETIMEDOUT,
                            ..
                        })
                    ),
                    "{arch}, seed {seed}: {copied:?}"
                );
                client.device.free(target).unwrap();
                let next = rig.open(8).unwrap();
                let owned = next.alloc(Location::Device, SIZE_BYTES).unwrap();
                assert_eq!(next.device.physical_address(owned).unwrap(), at);
                let bytes = next.device.map(owned, SIZE_BYTES).unwrap();
                let content = pattern(SIZE_BYTES, 2);
                bytes.write(0, &content).unwrap();
                // As long as the whole copy would have taken, twice.
                let sched = rig.machine.sched();
                let end = sched.now().after(takes).after(takes);
                let mut over = || match sched.now() >= end {
                    true => Poll::Done,
                    false => Poll::Pending,
                };
                let length = Micros(2 * takes.0);
                sched.block(sched.wait_on(), &mut over, Some(length));
                assert!(sched.now() >= end);
                let mut found = vec![0; content.len()];
                bytes.read(0, &mut found).unwrap();
                assert!(found == content, "{arch}, seed {seed}: somebody wrote");
            };
            rig.machine.run_clients(vec![Box::new(run)]).unwrap();
        }
    }
}
