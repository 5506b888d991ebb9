//! Synchronous zero copies: the bytes, and what is refused.

use glia_abi::addr::{BusAddr, UserAddr};
use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::transport::{Lent, user_addr};
use glia_device::PinLayout;
use glia_driver::dma::DmaError;
use glia_driver::dma::zerocopy::{ZeroCopy, ZeroCopyOp};

use crate::rig::{CORE, Plan, Rig, pattern};

#[test]
fn bytes_go_both_ways_on_every_generation_wherever_their_pages_lie() {
    for arch in Arch::ALL {
        for pins in [PinLayout::Contiguous, PinLayout::Scattered { seed: 3 }] {
            let plan = Plan {
                pins,
                ..Plan::of(arch)
            };
            let rig = Rig::with(plan);
            // Within a page, across one, a context, more than one, more than a descriptor ring's
            // worth of waiting.
            for (seed, size) in [1, 4, 5000, 262_144, 262_145, 524_289, 6_000_001]
                .into_iter()
                .enumerate()
            {
                let content = pattern(size, seed);
                rig.write(seed as u64, &content).unwrap();
                assert!(rig.hbm_bytes(seed as u64, size) == content, "{arch} {size}");
                let mut back = vec![0; size + 2];
                rig.read(seed as u64, &mut back[1..=size]).unwrap();
                assert!(back[1..=size] == content, "{arch} {size} back");
                assert_eq!((back[0], back[size + 1]), (0, 0));
                rig.assert_at_rest();
            }
        }
    }
}

#[test]
fn operations_are_done_in_order_and_empty_ones_are_nothing() {
    let rig = Rig::new(Arch::V3);
    let (first, second) = (pattern(9000, 1), pattern(300_000, 2));
    let op = |offset_bytes, bytes: &[u8]| ZeroCopyOp {
        offset_bytes,
        size_bytes: bytes.len() as u64,
        buffer: user_addr(bytes),
    };
    // The second covers the end of the first; the last one is empty, which in the reference loses
    // the barrier.
    let ops = [op(0, &[]), op(100, &first), op(5000, &second), op(0, &[])];
    let lent = &mut [Lent::In(&first), Lent::In(&second)];
    rig.caller(lent, |caller| {
        rig.dma.zero_copy(caller, &rig.copy(true, &ops))
    })
    .unwrap();
    assert!(rig.hbm_bytes(100, 4900) == first[..4900]);
    assert!(rig.hbm_bytes(5000, 300_000) == second);
    rig.caller(&mut [], |caller| {
        rig.dma.zero_copy(caller, &rig.copy(true, &ops[..1]))
    })
    .unwrap();
    rig.assert_at_rest();
}

#[test]
fn a_generation_that_stages_copies_again_has_no_zero_copy_without_the_parameter() {
    assert!(Rig::new(Arch::V2).dma.has_zero_copy(), "the rig sets it");
    let error = DmaError::NoZeroCopy { arch: Arch::V2 };
    assert_eq!(error.errno(), Errno::EINVAL);
    assert_eq!(
        error.to_string(),
        "v2 does zero copies only with the parameter zerocopy_trn1_override"
    );
}

#[test]
fn addresses_that_are_not_the_callers_are_faults_and_nothing_is_left() {
    let rig = Rig::new(Arch::V3);
    let content = pattern(600_000, 4);
    let at = user_addr(&content);
    let fault = |lent: &mut [Lent<'_>], to_device, buffer, size_bytes| {
        let ops = [
            // The first operation is in order.
            ZeroCopyOp {
                offset_bytes: 0,
                size_bytes: 300_000,
                buffer: at,
            },
            ZeroCopyOp {
                offset_bytes: 300_000,
                size_bytes,
                buffer,
            },
        ];
        let copied = rig.caller(lent, |caller| {
            rig.dma.zero_copy(caller, &rig.copy(to_device, &ops))
        });
        rig.assert_at_rest();
        copied.unwrap_err().errno()
    };
    let beyond = UserAddr::new(at.get() + 300_001);
    assert_eq!(
        fault(&mut [Lent::In(&content)], true, beyond, 300_000),
        Errno::EFAULT
    );
    let nowhere = UserAddr::new(0x1000);
    assert_eq!(
        fault(&mut [Lent::In(&content)], true, nowhere, 1),
        Errno::EFAULT
    );
    let wraps = UserAddr::new(u64::MAX - 1);
    assert_eq!(
        fault(&mut [Lent::In(&content)], true, wraps, 8),
        Errno::EFAULT
    );
    // What is lent to be read is not written.
    assert_eq!(
        fault(&mut [Lent::In(&content)], false, at, 8),
        Errno::EFAULT
    );
    assert!(content == pattern(600_000, 4));
}

#[test]
fn an_operation_that_leaves_the_address_space_is_invalid() {
    let rig = Rig::new(Arch::V3);
    let bytes = [0_u8; 8];
    let ops = [ZeroCopyOp {
        offset_bytes: 8,
        size_bytes: 8,
        buffer: user_addr(&bytes),
    }];
    let copy = ZeroCopy {
        core: CORE,
        to_device: true,
        base: BusAddr::new(u64::MAX - 9),
        ops: &ops,
    };
    let refused = rig.caller(&mut [Lent::In(&bytes)], |caller| {
        rig.dma.zero_copy(caller, &copy)
    });
    assert_eq!(refused.unwrap_err().errno(), Errno::EINVAL);
    rig.assert_at_rest();
}

#[test]
fn small_writes_may_be_stored_by_the_processor() {
    let rig = Rig::new(Arch::V3);
    let at = BusAddr::new(rig.at.get() + 16);
    rig.dma.store(at, &[1, 2, 3, 4]).unwrap();
    assert_eq!(rig.hbm_bytes(15, 6), [0, 1, 2, 3, 4, 0]);
    let outside = rig.dma.store(BusAddr::new(1 << 60), &[1]);
    assert_eq!(outside.unwrap_err().errno(), Errno::EINVAL);
    assert_eq!(rig.queue().announced, 0, "no descriptor");
}
