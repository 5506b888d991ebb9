//! What becomes of the queues of a process that goes, and of all of them when the device goes.

use glia_abi::arch::{Arch, ArchProfile};
use glia_abi::handle::{EngineId, Pid, QueueId};
use glia_abi::udma::Direction;

use super::{DUMMY_DESCS, Engine};
use crate::dma::Dma;
use crate::ring::{set_up, stop};

/// Whether a queue belongs to the network accelerator of the instance, which keeps its ring when
/// its process goes (driver 2.24.7).
#[must_use]
pub fn is_nx_queue(profile: &ArchProfile, queue: QueueId) -> bool {
    const NX_QUEUE: u32 = 14;
    let of_core = queue.engine.get() % 16;
    let has_one = match profile.arch {
        Arch::V2 => of_core < 11,
        Arch::V3 | Arch::V4 => matches!(of_core, 0..=4 | 7 | 8),
    };
    queue.number == NX_QUEUE && has_one
}

impl Dma {
    /// A process goes: nobody owns its queues any more, and those of compute engines get a ring that
    /// is never filled. Queues of other engines, and [those](is_nx_queue) of the network accelerator,
    /// keep their rings (driver 2.24.7; it keeps the owner, too), and with them the pins on their
    /// memory, until somebody sets them up again. What such a queue has been told to move it must not
    /// go on moving, since the chunks that its descriptors name are about to be given back: it is
    /// stopped, unless nobody ever rang it (divergence `kept-running`).
    pub fn process_exit(&self, by: Pid) {
        let links = &self.links;
        for id in (0..links.profile.engines).map(EngineId::new) {
            let Some(mut engine) = self.engine(id) else {
                continue;
            };
            let is_compute = id.get() < links.profile.h2t_engine_first;
            let Engine { rings, kept, .. } = &mut *engine;
            let mut gone = Vec::new();
            let all = std::mem::take(rings).into_iter();
            let (mine, others): (Vec<_>, _) = all.partition(|(_, ring)| ring.owner == by);
            *rings = others.into_iter().collect();
            for (number, ring) in mine {
                let queue = QueueId::new(id, number);
                if is_compute && !is_nx_queue(links.profile, queue) {
                    self.set_up_dummy(queue);
                    gone.push(ring.pins);
                    continue;
                }
                if ring.is_rung {
                    stop(&*links.port, links.profile, queue);
                }
                if ring.pins.iter().any(Option::is_some) {
                    kept.insert(number, ring.pins);
                }
            }
            // The last pin takes the lock of the device's memory: not under this one.
            drop(engine);
            drop(gone);
        }
    }

    /// Stops the queues whose rings lie in chunks, before those are let go.
    pub(in crate::dma) fn stop_user_queues(&self) {
        let links = &self.links;
        for id in (0..links.profile.engines).map(EngineId::new) {
            let Some(mut engine) = self.engine(id) else {
                continue;
            };
            let rings = std::mem::take(&mut engine.rings);
            let rings = rings.into_iter().map(|(number, ring)| (number, ring.pins));
            let kept = std::mem::take(&mut engine.kept);
            drop(engine);
            for (number, pins) in rings.chain(kept) {
                if pins.iter().any(Option::is_some) {
                    stop(&*links.port, links.profile, QueueId::new(id, number));
                }
            }
        }
    }

    fn set_up_dummy(&self, queue: QueueId) {
        let links = &self.links;
        if let Some(ring) = self.dummy_ring.get() {
            let base = links.profile.host_to_bus(*ring);
            for direction in Direction::BOTH {
                set_up(
                    &*links.port,
                    links.profile,
                    queue,
                    direction,
                    base,
                    DUMMY_DESCS,
                );
            }
        }
    }
}
