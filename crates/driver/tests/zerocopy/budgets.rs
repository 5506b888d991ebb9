//! The pin budget: what does not fit is pinned when there is room.

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_driver::dma::zerocopy::ZeroCopyLimits;

use crate::rig::{Plan, Rig, bytes_of, part, pattern, whole};

fn tight(pinned_pages: u64) -> Rig {
    Rig::with(Plan {
        limits: ZeroCopyLimits {
            pinned_pages,
            ..ZeroCopyLimits::default()
        },
        timing: true,
        ..Plan::of(Arch::V3)
    })
}

#[test]
fn what_is_over_the_budget_is_pinned_later_and_ends_in_order() {
    let rig = tight(100);
    let mut completions = rig.completions();
    let content = pattern(2_000_000, 1);
    let source = rig.buffer(&content);
    let target = rig.buffer(&vec![0; 2_000_000]);
    // 489 pages each, of which 100 can be pinned.
    rig.begin(true, &source, 1).unwrap();
    rig.begin(false, &target, 2).unwrap();
    rig.begin_ops(true, &[part(&source, 0, 4096, 4 << 20)], 3)
        .unwrap();
    assert!(rig.queue().pinned_pages <= 100);
    // A synchronous one comes behind them all.
    rig.write(5 << 20, &[7; 10]).unwrap();
    assert_eq!(completions.all(), [(1, 0), (2, 0), (3, 0)]);
    assert!(bytes_of(&target) == content);
    rig.assert_at_rest();
}

#[test]
fn a_synchronous_copy_waits_for_its_own_pages() {
    let rig = tight(64);
    let content = pattern(3_000_000, 1);
    rig.write(0, &content).unwrap();
    assert!(rig.hbm_bytes(0, 3_000_000) == content);
    rig.assert_at_rest();
}

#[test]
fn a_context_that_never_fits_the_budget_is_refused() {
    let rig = tight(63);
    let mut completions = rig.completions();
    // 64 pages in one context.
    let source = rig.buffer(&pattern(262_144, 1));
    let ops = [whole(&source)];
    let refused = rig.caller(&mut [], |caller| {
        rig.dma.zero_copy(caller, &rig.copy(true, &ops))
    });
    assert_eq!(refused.unwrap_err().errno(), Errno::ENOMEM);
    rig.assert_at_rest();
    rig.begin(true, &source, 5).unwrap();
    let no_memory = i64::from(Errno::ENOMEM.ret());
    assert_eq!(completions.all(), [(5, no_memory)]);
    rig.assert_at_rest();
}
