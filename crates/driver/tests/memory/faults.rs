//! Every failure of host memory and of kernel memory, at every point where it can strike.
//!
//! The same script is run again and again; in run n the n-th question is answered "no". Whatever
//! that stops, nothing may leak, the books must balance, and the device must serve the rest of the
//! script. Only the handle table may go down, and only by a missing page.

use std::sync::Arc;

use crate::support::{MIB, NthFault, PID, TestHost, small_device};
use glia_abi::fault::{FaultPoint, Faults, NoFaults};
use glia_abi::handle::{Channel, Pid};
use glia_abi::mem::Lifespan;
use glia_abi::port::HostMemory;
use glia_driver::alloc::AllocRequest;
use glia_driver::chunk::ChunkRef;
use glia_driver::memory::{DeviceMemory, InitError};

/// What one run came to.
struct Outcome {
    came_up: bool,
    refused: u32,
    table_down: bool,
}

/// Brings a device up, loads it, publishes, frees half, sweeps and tears down, on a host that must
/// end with nothing taken.
fn script(host: &Arc<TestHost>, faults: Arc<dyn Faults>) -> Outcome {
    let memory: DeviceMemory = match DeviceMemory::new(
        small_device(),
        Arc::clone(host) as Arc<dyn HostMemory>,
        faults,
    ) {
        Ok(memory) => memory,
        Err(error) => {
            assert!(
                matches!(
                    error,
                    InitError::HandleTable | InitError::Pool { .. } | InitError::Carveout { .. }
                ),
                "{error}"
            );
            assert_eq!(
                host.used_bytes(),
                0,
                "a device that fails to come up keeps nothing"
            );
            return Outcome {
                came_up: false,
                refused: 0,
                table_down: false,
            };
        }
    };
    memory.open(PID).unwrap();
    let mut refused = 0;
    let mut live: Vec<ChunkRef> = Vec::new();
    for n in 0..24_u64 {
        let lifespan = Lifespan::ALL[usize::try_from(n % 4).unwrap()];
        let request = if n % 3 == 0 {
            AllocRequest {
                lifespan,
                ..AllocRequest::host((n + 1) << 14)
            }
        } else {
            AllocRequest {
                lifespan,
                ..AllocRequest::device((n + 1) << 14, Channel::new(u32::try_from(n % 2).unwrap()))
            }
        };
        match memory.alloc(PID, &request) {
            Ok(chunk) => live.push(chunk),
            Err(error) => {
                assert_eq!(error.errno().ret(), -12, "{error}");
                refused += 1;
            }
        }
        assert_balanced(&memory);
    }
    for &chunk in &live {
        if let Err(error) = memory.publish(chunk) {
            assert_eq!(error.errno().ret(), -2, "{error}");
            refused += 1;
        }
    }
    for chunk in live.drain(..).step_by(2) {
        memory.free(PID, chunk).unwrap();
        assert_balanced(&memory);
    }
    // A device that met the fault still serves the same request.
    let chunk = memory
        .alloc(PID, &AllocRequest::device(MIB, Channel::new(0)))
        .unwrap_or_else(|_| {
            refused += 1;
            memory
                .alloc(PID, &AllocRequest::device(MIB, Channel::new(0)))
                .unwrap()
        });
    memory.free(PID, chunk).unwrap();
    let table_down = memory.handle_stats().is_down;
    memory.flush(PID);
    assert!(memory.release(PID).is_some());
    assert_balanced(&memory);
    memory.teardown(PID);
    assert_eq!(
        host.used_bytes(),
        0,
        "nothing is left of the device on the host"
    );
    Outcome {
        came_up: true,
        refused,
        table_down,
    }
}

fn assert_balanced(memory: &DeviceMemory) {
    let stats = memory.stats();
    let mut live = 0;
    for (channel, books) in (0..).map(Channel::new).zip(&stats.channels) {
        assert_eq!(
            books.allocated_bytes + books.main_free_bytes + books.small_free_bytes,
            32 * MIB
        );
        let chunks = memory.channel_chunks(channel);
        assert_eq!(
            chunks.iter().map(|chunk| chunk.size_bytes()).sum::<u64>(),
            books.allocated_bytes
        );
        live += books.allocated_bytes;
    }
    assert_eq!(stats.device_bytes, live);
}

#[test]
fn kernel_memory_may_fail_at_any_point() {
    let (mut failed_to_come_up, mut refused, mut runs) = (0, 0, 0);
    for nth in 0.. {
        let faults = NthFault::new(nth);
        let outcome = script(
            &TestHost::new(64 * MIB),
            Arc::clone(&faults) as Arc<dyn Faults>,
        );
        assert!(
            !outcome.table_down,
            "one page of handles is enough for this script"
        );
        runs += 1;
        if !outcome.came_up {
            failed_to_come_up += 1;
        } else if faults.asked() > nth {
            refused += 1;
            assert_eq!(
                outcome.refused, 1,
                "fault {nth} refuses exactly one request"
            );
        } else {
            assert_eq!(outcome.refused, 0);
            break;
        }
    }
    // Two questions for the handle table, four reserve pools, two channels, two for each carveout.
    assert_eq!(failed_to_come_up, 12);
    assert!(refused > 40, "{refused} of {runs}");
}

#[test]
fn host_memory_may_fail_at_any_point() {
    for nth in 0..40 {
        let host = TestHost::new(64 * MIB);
        host.refuse_after(nth);
        let outcome = script(&host, Arc::new(NoFaults));
        assert!(
            outcome.came_up,
            "a reserve pool with fewer pages is no error"
        );
        assert_eq!(
            outcome.refused, 0,
            "the reserve serves what the machine refuses"
        );
    }
}

#[test]
fn host_memory_that_is_never_there_is_an_error_of_the_request_only() {
    let outcome = script(&TestHost::new(0), Arc::new(NoFaults));
    assert!(outcome.came_up);
    assert_eq!(outcome.refused, 8, "all eight host requests, nothing else");
}

/// Refuses pages of the handle table from the first one after bring-up on.
struct NoPages;

impl Faults for NoPages {
    fn strikes(&self, point: FaultPoint) -> bool {
        point == FaultPoint::HandlePage
    }
}

#[test]
fn a_missing_page_takes_the_handle_table_down_and_nothing_else() {
    let host = TestHost::new(64 * MIB);
    let memory: DeviceMemory = DeviceMemory::new(small_device(), host, Arc::new(NoPages)).unwrap();
    let chunk = memory
        .alloc(PID, &AllocRequest::device(4096, Channel::new(0)))
        .unwrap();
    let handle = memory.publish(chunk).unwrap();
    for number in 0..8189 {
        memory.issue_handle(number).unwrap();
    }
    assert!(memory.issue_handle(0).is_err());
    assert!(memory.handle_stats().is_down);
    assert_eq!(memory.resolve(handle), None);
    let second = memory
        .alloc(PID, &AllocRequest::device(4096, Channel::new(0)))
        .unwrap();
    assert_eq!(memory.publish(second).unwrap_err().errno().ret(), -2);
    assert_eq!(
        memory.publish(chunk).unwrap(),
        handle,
        "a chunk keeps the handle that it has"
    );
    memory.free(PID, chunk).unwrap();
    memory.free(PID, second).unwrap();
    assert!(memory.teardown(Pid::new(0)).leaked.is_empty());
}
