//! Queues that keep their ring when their process goes: their engines stop, since the chunks that
//! their descriptors name belong to somebody else from then on.

use glia_abi::arch::Arch;
use glia_abi::ioctl::DmaQueueInit;
use glia_abi::sched::Micros;

use crate::client::{Client, device_memory};
use crate::queue_rig::{ENGINE, QUEUE, Rings, descriptors};
use crate::support::{MIB, Plan, Rig};

const PIECE: u64 = 64 << 10;

/// A process rings a queue for 1 MiB and goes at once; the next owner of the target fills it, and
/// looks again when the engine has had all the time that it wants.
fn is_written_to_after_the_exit(arch: Arch, eng: u32, qid: u32) -> bool {
    let rig = Rig::with(Plan {
        has_timing: true,
        ..Plan::of(arch)
    });
    let rings = Rings::new(&rig, 7);
    let (client, file) = (&rings.client, rings.file);
    let take = |client: &Client<'_>, file| {
        let handle = client.alloc(file, device_memory(MIB)).unwrap();
        client.get_pa(file, handle).unwrap()
    };
    let (source, target) = (take(client, file), take(client, file));
    rings
        .init(DmaQueueInit {
            eng,
            qid,
            ..rings.request()
        })
        .unwrap();
    let pieces = 0..MIB / PIECE;
    let pairs = pieces.map(|n| descriptors(source + n * PIECE, target + n * PIECE, PIECE));
    let (tx, rx): (Vec<_>, Vec<_>) = pairs.unzip();
    rings.write(rings.tx, 0, &tx).unwrap();
    rings.write(rings.rx, 1, &rx).unwrap();
    rings.start(eng, qid, 16, 16).unwrap();
    rings.client.close(rings.file);

    let (next, next_file) = Client::attached(&rig, 8);
    let mut taken = (0..64).map(|_| take(&next, next_file));
    assert!(taken.any(|at| at == target), "the place is given on");
    let bytes = vec![0x55; MIB as usize];
    rig.poke(target, &bytes);
    rig.pass(Micros(100_000));
    rig.peek(target, MIB as usize) != bytes
}

#[test]
fn a_queue_that_keeps_its_ring_stops_when_its_process_goes() {
    for arch in Arch::ALL {
        let of_copies = arch.profile().h2t_engine_first;
        for (eng, qid) in [(0, 14), (of_copies, 5), (ENGINE, QUEUE)] {
            let is_written = is_written_to_after_the_exit(arch, eng, qid);
            assert!(!is_written, "{arch}: engine {eng}, queue {qid}");
        }
    }
}
