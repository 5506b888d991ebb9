//! What the op layer tells.

use glia_abi::arch::Arch;
use glia_abi::event::{Event, Ids};
use glia_abi::handle::{CoreId, DeviceId, EngineId, Pid, QueueId};
use glia_abi::port::NotCompleted;
use glia_abi::udma::Direction;
use glia_driver::dma::WaitHandle;

use crate::engine::Mode;
use crate::rig::{PID, Rig, hbm};

fn ids(process: Option<Pid>) -> Ids {
    Ids {
        process,
        core: Some(CoreId::new(0)),
        ..Ids::queue(DeviceId::new(3), QueueId::new(EngineId::new(32), 0))
    }
}

/// A batch of so many data descriptors that completes at the first look.
fn completed(context: u32, first: u64, data_descs: u32, size_bytes: u64) -> [Event; 4] {
    let descs = data_descs + 1;
    let acknowledged = |direction| Event::Acknowledged { direction, descs };
    [
        Event::BatchStaged {
            context,
            first,
            data_descs,
            size_bytes,
        },
        Event::BatchDone { context, polls: 1 },
        acknowledged(Direction::Rx),
        acknowledged(Direction::Tx),
    ]
}

#[test]
fn a_ring_that_is_set_up_is_told() {
    let rig = Rig::bare(Arch::V2);
    rig.dma.bring_up(CoreId::new(0)).unwrap();
    let ready = Event::RingReady { descs: 8192 };
    assert_eq!(rig.heard.take(), [(ids(None), ready)]);
}

#[test]
fn a_copy_tells_its_batches_with_absolute_counts() {
    let rig = Rig::new();
    rig.up(0, 65_537).unwrap();
    rig.up(0, 10).unwrap();
    let expected: Vec<_> = completed(0, 0, 2, 65_537)
        .into_iter()
        .chain(completed(0, 3, 1, 10))
        .map(|event| (ids(Some(PID)), event))
        .collect();
    assert_eq!(rig.heard.take(), expected);
}

#[test]
fn a_failed_ring_tells_every_batch_on_its_own_account() {
    let rig = Rig::new();
    rig.machine.script(&[Mode::Hang]);
    let other = Pid::new(88);
    rig.dma
        .copy_async(other, rig.host(0), hbm(0), 1, WaitHandle::None)
        .unwrap();
    rig.up(0, 1).unwrap_err();
    let told = rig.heard.take();
    let failed = |context, reason| Event::BatchFailed { context, reason };
    assert_eq!(
        told[2..],
        [
            (ids(Some(PID)), failed(0, NotCompleted::TimeOver)),
            (ids(Some(other)), failed(1, NotCompleted::Stopped)),
            (ids(None), Event::RingReady { descs: 8192 }),
        ]
    );
    rig.machine.script(&[Mode::Normal]);
    rig.up(0, 1).unwrap();
    // The lost batches count: the device's own count goes on, too.
    assert_eq!(rig.heard.take()[0].1, completed(0, 4, 1, 1)[0]);
}
