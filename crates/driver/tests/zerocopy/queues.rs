//! Zero copies by queues that a process has asked for.

use std::sync::Arc;

use glia_abi::arch::Arch;
use glia_abi::completion::{self, Consumer};
use glia_abi::handle::{CoreId, QueueId};
use glia_driver::dma::h2t::{H2tError, H2tUse};
use glia_driver::dma::zerocopy::Reply;

use crate::rig::{CORE, PID, Rig, bytes_of, pattern, whole};

fn begin(
    rig: &Rig,
    queue: QueueId,
    to_device: bool,
    buffer: &Arc<dyn glia_abi::transport::UserBuffer>,
    sequence: u64,
) {
    let ops = [whole(buffer)];
    let reply = Reply {
        sequence,
        context: sequence + 1000,
    };
    let begun = rig.caller(&mut [], |caller| {
        let copy = rig.copy(to_device, &ops);
        rig.dma
            .zero_copy_async_by(caller, &copy, Some(queue), reply, None)
    });
    begun.unwrap();
}

#[test]
fn bytes_go_by_the_queue_and_completions_come_to_its_own_ring() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let queue = rig.dma.request_queue(PID, CORE, H2tUse::Copies).unwrap();
        let own = rig.queue();
        let chunk = rig.dma.completion_queue_of(CORE, Some(queue)).unwrap();
        assert_ne!(chunk, rig.dma.completion_queue(CORE).unwrap());
        let mapping = rig.mapping_of(chunk);
        let words = mapping.words(0, completion::SIZE_BYTES).unwrap();
        let mut consumer = Consumer::attach(words).unwrap();
        let content = pattern(700_000, 5);
        let (source, target) = (rig.buffer(&content), rig.buffer(&vec![0; 700_000]));
        begin(&rig, queue, true, &source, 41);
        begin(&rig, queue, false, &target, 42);
        assert!(bytes_of(&target) == content, "{arch}");
        let taken = [
            consumer.take(words),
            consumer.take(words),
            consumer.take(words),
        ];
        let taken = taken.map(|entry| entry.map(|entry| (entry.sequence, entry.result)));
        assert_eq!(taken, [Some((41, 0)), Some((42, 0)), None]);
        assert_eq!(
            rig.queue().announced,
            own.announced,
            "the core's own had nothing to do"
        );
        rig.assert_at_rest();
    }
}

#[test]
fn a_queue_that_is_given_back_takes_its_memory_with_it_and_is_given_again() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        rig.dma.completion_queue(CORE).unwrap();
        let host_bytes = rig.host_bytes();
        let queue = rig.dma.request_queue(PID, CORE, H2tUse::Copies).unwrap();
        rig.dma.completion_queue_of(CORE, Some(queue)).unwrap();
        assert!(rig.host_bytes() > host_bytes);
        rig.dma.release_queue(CORE, queue.number).unwrap();
        assert_eq!(rig.host_bytes(), host_bytes, "{arch}");
        assert!(rig.dma.completion_queue_of(CORE, Some(queue)).is_err());
        assert_eq!(rig.dma.request_queue(PID, CORE, H2tUse::Copies), Ok(queue));
        let content = pattern(200_000, 3);
        let source = rig.buffer(&content);
        begin(&rig, queue, true, &source, 1);
        assert!(rig.hbm_bytes(0, 200_000) == content);
    }
}

#[test]
fn two_cores_that_share_an_engine_share_its_queues_and_not_their_names() {
    let rig = Rig::new(Arch::V3);
    let other = CoreId::new(1);
    let mine = rig.dma.request_queue(PID, CORE, H2tUse::Copies).unwrap();
    let theirs = rig.dma.request_queue(PID, other, H2tUse::Copies).unwrap();
    assert_eq!((mine.engine, mine.number), (theirs.engine, 2));
    assert_eq!(theirs.number, 3);
    assert!(rig.dma.requested_queue(other, 2).is_none());
    assert_eq!(
        rig.dma.release_queue(other, 2),
        Err(H2tError::NotGiven {
            core: other,
            number: 2
        })
    );
    rig.dma.release_queue(CORE, 2).unwrap();
    let again = rig.dma.request_queue(PID, other, H2tUse::Copies).unwrap();
    assert_eq!(again, mine, "for the other core now");
}
