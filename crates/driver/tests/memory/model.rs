//! Random operations of every kind, on devices of every shape, against a model that is slow and
//! obviously right.
//!
//! The model follows the reference's rules literally: a bool per granule, a vector per list, a
//! stack of handles. After each operation the two must agree on the outcome, error fields and all,
//! and on every figure of the books; and the books must agree with the live chunks.
//!
//! | file | story |
//! | --- | --- |
//! | `device.rs` | what a random device is |
//! | `ops.rs` | what is done to it |
//! | `machine.rs` | host memory and kernel memory that fail on order |
//! | `bits.rs` | where the reference places: its loop over a bitmap |
//! | `handles.rs` | the reference's handle table |
//! | `placement.rs` | the reference's rules: which pool, and which refusal |
//! | `reference.rs` | the reference's rules: birth, death, counters |
//! | `lives.rs` | the reference's rules: processes, sweeps, the device's end |
//! | `pair.rs` | each operation, on both sides |
//! | `books.rs` | the comparison of the books |

mod bits;
mod books;
mod device;
mod handles;
mod lives;
mod machine;
mod ops;
mod pair;
mod placement;
mod reference;

use std::mem::ManuallyDrop;
use std::sync::Arc;

use glia_driver::arena::{Arena, ExtentTree, NaiveBitmap};
use glia_driver::memory::DeviceMemory;
use proptest::prelude::*;

use device::{Device, any_device};
use machine::Machine;
use ops::{Op, any_op};
use pair::Pair;

fn run<A: Arena>(device: &Device, ops: &[Op]) {
    let machine = Machine::new(device.host_bytes, device.bring_up_refusals);
    let built = DeviceMemory::<A>::new(
        device.config,
        Arc::clone(&machine) as Arc<_>,
        Arc::clone(&machine) as Arc<_>,
    );
    match built {
        Err(error) => assert_eq!(
            Some(error.errno().ret()),
            pair::bring_up_refusal(device),
            "{error}"
        ),
        Ok(memory) => {
            // Dropped when all is well only; see `Pair::pins`.
            let memory = ManuallyDrop::new(memory);
            let mut pair = Pair::new(device, &memory, &machine);
            for op in ops {
                pair.step(op);
                pair.check();
            }
            pair.finish();
            drop(ManuallyDrop::into_inner(memory));
        }
    }
    assert_eq!(machine.used_bytes(), 0, "nothing is left of the device");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn the_extent_tree_behaves_as_the_model(
        device in any_device(),
        ops in prop::collection::vec(any_op(), 1..200),
    ) {
        run::<ExtentTree>(&device, &ops);
    }

    #[test]
    fn the_naive_bitmap_behaves_as_the_model(
        device in any_device(),
        ops in prop::collection::vec(any_op(), 1..100),
    ) {
        run::<NaiveBitmap>(&device, &ops);
    }
}
