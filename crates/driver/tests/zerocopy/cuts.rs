//! Contexts, descriptors and barriers, as events tell them.

use glia_abi::arch::Arch;
use glia_abi::event::Event;
use glia_abi::port::DmaMemory;
use glia_abi::transport::user_addr;
use glia_abi::udma::{DESC_WORDS, RxDesc, TxDesc};
use glia_device::PinLayout;

use crate::rig::{Plan, Rig, part, pattern};

/// Data descriptors and bytes of each batch.
fn batches(events: &[Event]) -> Vec<(u32, u64)> {
    let batch = |event: &Event| match *event {
        Event::BatchStaged {
            context,
            data_descs,
            size_bytes,
            ..
        } => {
            assert!(
                context >= 3,
                "contexts of zero copies come behind those of copies"
            );
            Some((data_descs, size_bytes))
        }
        _ => None,
    };
    events.iter().filter_map(batch).collect()
}

/// Where the source of each descriptor pair that was executed lies, and its bytes.
fn moves(events: &[Event]) -> Vec<(u64, u64)> {
    let of = |event: &Event| match *event {
        Event::Moved {
            source, size_bytes, ..
        } => Some((source.get(), size_bytes)),
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

/// The vectors of the sheet, by what the engine was given.
#[test]
fn pages_are_pinned_64_at_a_time_and_contiguous_ones_are_joined() {
    let rig = Rig::new(Arch::V3);
    let buffer = rig.buffer(&pattern(1 << 20, 1));
    let batches_of = |from, size_bytes| {
        let ops = [part(&buffer, from, size_bytes, 0)];
        rig.heard.take();
        rig.caller(&mut [], |caller| {
            rig.dma.zero_copy(caller, &rig.copy(true, &ops))
        })
        .unwrap();
        batches(&rig.heard.take())
    };
    assert_eq!(batches_of(0, 1), [(1, 1)]);
    assert_eq!(batches_of(0, 262_144), [(4, 262_144)]);
    let halves = [(2, 131_072), (2, 131_072), (1, 1)];
    assert_eq!(batches_of(0, 262_145), halves);
    assert_eq!(batches_of(0, 262_146), [(3, 135_168), (2, 126_978)]);
    assert_eq!(batches_of(0, 524_288), [(4, 262_144), (4, 262_144)]);
    let more = [(4, 262_144), (4, 262_144), (1, 1)];
    assert_eq!(batches_of(0, 524_289), more);
    // A descriptor does not begin at a page, but where the bytes do.
    assert_eq!(batches_of(100, 262_044), [(4, 262_044)]);
    let moved = moves(&{
        rig.heard.take();
        let ops = [part(&buffer, 100, 262_044, 0)];
        rig.caller(&mut [], |caller| {
            rig.dma.zero_copy(caller, &rig.copy(true, &ops))
        })
        .unwrap();
        rig.heard.take()
    });
    let sizes: Vec<_> = moved.iter().map(|(_, size)| *size).collect();
    assert_eq!(sizes, [65_536, 65_536, 65_536, 65_436, 4]);
}

#[test]
fn scattered_pages_give_a_descriptor_each_and_neighbours_are_joined() {
    let plan = Plan {
        pins: PinLayout::Scattered { seed: 9 },
        ..Plan::of(Arch::V3)
    };
    let rig = Rig::with(plan);
    let content = pattern(262_144, 1);
    rig.write(0, &content).unwrap();
    let events = rig.heard.take();
    let at = user_addr(&content).get() % 4096;
    let staged = batches(&events);
    // Lent memory begins anywhere in its page.
    let pages = (at + 262_144).div_ceil(4096);
    let descs: u32 = staged.iter().map(|(descs, _)| descs).sum();
    assert!(u64::from(descs) <= pages + 1, "{descs} for {pages} pages");
    assert!(u64::from(descs) > pages / 2, "{descs} for {pages} pages");
    let mut moved = moves(&events).into_iter();
    let mut data_bytes = 0;
    for (descs, size_bytes) in staged {
        let all: Vec<_> = moved.by_ref().take(descs as usize + 1).collect();
        let (marker, data) = all.split_last().unwrap();
        assert_eq!(marker.1, 4);
        assert_eq!(data.iter().map(|(_, size)| size).sum::<u64>(), size_bytes);
        for pair in data.windows(2) {
            let ((first, size), (next, _)) = (pair[0], pair[1]);
            // A descriptor ends where a page does, and only if the next page lies elsewhere.
            assert_eq!((first + size) % 4096, 0, "{pair:x?}");
            assert_ne!(first + size, next, "{pair:x?}");
        }
        data_bytes += size_bytes;
    }
    assert_eq!((data_bytes, moved.next()), (262_144, None));
    assert!(rig.hbm_bytes(0, 262_144) == content);
}

/// The pairs that lie in the ring of the core: all that were ever staged there.
fn ring(rig: &Rig, pairs: usize) -> Vec<(TxDesc, RxDesc)> {
    use glia_abi::regs::QueueReg;
    use glia_abi::udma::Direction;
    let profile = rig.profile();
    let queue = profile.h2t_queue(crate::rig::CORE).unwrap();
    let base = |direction| {
        let read = |register: QueueReg| {
            u64::from(rig.reg_read(register.at(profile, queue, direction).unwrap()))
        };
        let at = read(QueueReg::DrbpHigh) << 32 | read(QueueReg::DrbpLow);
        profile
            .bus_to_host(glia_abi::addr::BusAddr::new(at))
            .unwrap()
    };
    let descs = |direction| {
        let size_bytes = 16 * pairs as u64;
        let words = rig.host.words(base(direction), size_bytes).unwrap();
        let (chunks, _) = words.as_chunks::<DESC_WORDS>();
        let load = |chunk: &[glia_abi::sync::AtomicU32; DESC_WORDS]| {
            chunk
                .each_ref()
                .map(|word| word.load(glia_abi::sync::Ordering::Relaxed))
        };
        chunks.iter().map(load).collect::<Vec<_>>()
    };
    let tx = descs(Direction::Tx).into_iter().map(TxDesc::from_words);
    let rx = descs(Direction::Rx).into_iter().map(RxDesc::from_words);
    tx.zip(rx).collect()
}

/// Write barrier, data barrier and strong order of each pair.
fn barriers(rig: &Rig, pairs: usize) -> Vec<(bool, bool, bool)> {
    let of = |(tx, rx): &(TxDesc, RxDesc)| {
        (
            tx.meta_ctrl.write_barrier(),
            tx.len_ctrl.data_barrier(),
            rx.len_ctrl.strong_order(),
        )
    };
    ring(rig, pairs).iter().map(of).collect()
}

#[test]
fn only_the_last_context_of_a_write_has_a_barrier() {
    const NONE: (bool, bool, bool) = (false, false, false);
    const WRITE: (bool, bool, bool) = (true, false, false);
    const STRONG: (bool, bool, bool) = (false, false, true);
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let buffer = rig.buffer(&pattern(524_288, 1));
        // Two contexts of four descriptors, and their markers.
        let ops = [part(&buffer, 0, 524_288, 0)];
        rig.caller(&mut [], |caller| {
            rig.dma.zero_copy(caller, &rig.copy(true, &ops)).unwrap();
            rig.dma.zero_copy(caller, &rig.copy(false, &ops)).unwrap();
        });
        let mut expected = vec![NONE; 20];
        match arch {
            Arch::V2 => expected[8] = WRITE,
            Arch::V3 | Arch::V4 => expected[9] = STRONG,
        }
        assert_eq!(barriers(&rig, 20), expected, "{arch}");
    }
}
