//! From a handle to the chunk's record: a copy of it, or a pin on it, beside a `slab` that does the
//! same without a thought for other threads.
//!
//! The driver goes from the handle's cell to the record and checks that both are of one life. It
//! does so on any number of threads, while others allocate and free.

use std::hint::black_box;
use std::sync::Arc;

use glia_abi::handle::McHandle;
use glia_driver::arena::ExtentTree;
use slab::Slab;

use super::BenchError;
use super::herd::Herd;
use super::lookups::Lookups;
use super::rig::{Ask, Rig, SmallPool};
use super::threads::Crowd;
use super::timing::{Op, Subject};

/// The peer of a copy,
pub(super) const RECORDS: &str = "slab of records";
/// of a pin,
pub(super) const COUNTED: &str = "slab of Arc";
/// and of two threads.
pub(super) const ONE_THREAD: &str = "one thread";

/// Lookups to a reading of the clock.
const BATCH: usize = 1024;
/// Handles that are looked up in a row, at least. With many records it is as many as there are:
/// fewer, asked for again and again, would be in the cache.
const KEYS_MIN: usize = 1 << 16;

/// As large as the driver's record.
type Record = [u64; 8];

/// A device with `live` chunks of a page, each with a handle, and handles at random.
struct Published {
    rig: Rig<ExtentTree>,
    handles: Arc<[McHandle]>,
}

impl Published {
    fn new(live: u32) -> Result<Self, BenchError> {
        let rig = Rig::new(SmallPool::Off)?;
        let page = Ask::plain(1).request();
        let handles: Result<Vec<_>, _> = (0..live).map(|_| rig.publish(rig.take(&page)?)).collect();
        Ok(Self {
            rig,
            handles: random_ones(handles?),
        })
    }
}

/// A slab of `live` values, and keys at random.
fn slab_of<T>(live: u32, value: impl Fn(Record) -> T) -> (Slab<T>, Arc<[usize]>) {
    let mut slab = Slab::new();
    let keys = (0..live).map(|number| slab.insert(value([u64::from(number); 8])));
    let keys = keys.collect();
    (slab, random_ones(keys))
}

fn random_ones<K: Copy>(keys: Vec<K>) -> Arc<[K]> {
    let count = keys.len().max(KEYS_MIN);
    Herd::of(keys).sample(count).into()
}

/// A copy of the record: by handle, from the slab.
pub(super) fn copies(live: u32) -> Result<(impl Subject, impl Subject), BenchError> {
    let Published { rig, handles } = Published::new(live)?;
    let (slab, keys) = slab_of(live, |record| record);
    Ok((
        Lookups::of(handles, BATCH, move |handle| rig.find(handle)),
        Lookups::of(keys, BATCH, move |key| slab.get(key).copied()),
    ))
}

/// A pin on the record, taken and given back: by handle, and a counted reference from the slab.
pub(super) fn pins(live: u32) -> Result<(impl Subject, impl Subject), BenchError> {
    let Published { rig, handles } = Published::new(live)?;
    let (slab, keys) = slab_of(live, Arc::new);
    let pin = move |handle| {
        let pinned = rig.pin(handle)?;
        black_box(&pinned);
        Some(())
    };
    let count = move |key| {
        let held = slab.get(key).map(Arc::clone)?;
        black_box(&held);
        Some(())
    };
    Ok((
        Lookups::of(handles, BATCH, pin).counted_as(Op::Pair),
        Lookups::of(keys, BATCH, count).counted_as(Op::Pair),
    ))
}

/// A copy of the record by handle: on two threads, on one.
pub(super) fn two_threads(live: u32) -> Result<(impl Subject, impl Subject), BenchError> {
    let Published { rig, handles } = Published::new(live)?;
    let (rig, of_one) = (Arc::new(rig), Arc::clone(&handles));
    let find_on = |rig: Arc<Rig<ExtentTree>>| move |handle| rig.find(handle);
    Ok((
        Crowd::of_two(handles, find_on(Arc::clone(&rig))),
        Crowd::of_one(of_one, find_on(rig)),
    ))
}
