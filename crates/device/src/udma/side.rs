//! One side of a queue: its ring, its registers, and how far it has come.
//!
//! Positions count descriptors from the start and never go back to 0; `origin` is where the ring
//! was last set up, at slot 0 and ring id 1.

use std::sync::atomic::AtomicU64;

use glia_abi::addr::BusAddr;
use glia_abi::regs::{QUEUE_CFG_RESET, QUEUE_ENABLE_BITS, RingPointer};
use glia_abi::sync::{AtomicU32, Ordering};
use glia_abi::udma::RingId;

/// The bit of the rate-limit mask that keeps data memory barriers from taking effect.
pub(super) const RLIMIT_MASK_DMB: u32 = 0b100;
/// The rate-limit mask after power-on.
const RLIMIT_MASK_RESET: u32 = 0b111;

/// One ring, and its registers.
#[derive(Default)]
pub(super) struct Side {
    pub(super) desc_pref_cfg: AtomicU32,
    pub(super) cfg: AtomicU32,
    pub(super) drbp_low: AtomicU32,
    pub(super) drbp_high: AtomicU32,
    pub(super) drl: AtomicU32,
    pub(super) crbp_low: AtomicU32,
    pub(super) crbp_high: AtomicU32,
    pub(super) comp_cfg: AtomicU32,
    pub(super) rlimit_mask: AtomicU32,
    pub(super) sw_ctrl: AtomicU32,
    pub(super) posted: AtomicU64,
    pub(super) retired: AtomicU64,
    pub(super) origin: AtomicU64,
    /// Announced to a stopped queue: counted, so that positions stay those of whoever announces.
    pub(super) ignored: AtomicU64,
}

/// A place in a ring.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) index: u64,
    pub(super) ring_id: RingId,
}

impl Side {
    pub(super) fn new() -> Self {
        let side = Self::default();
        side.power_on();
        side
    }

    /// Gives the registers that are storage their values after power-on.
    pub(super) fn power_on(&self) {
        for register in [
            &self.desc_pref_cfg,
            &self.drbp_low,
            &self.drbp_high,
            &self.drl,
            &self.crbp_low,
            &self.crbp_high,
            &self.comp_cfg,
            &self.sw_ctrl,
        ] {
            register.store(0, Ordering::Relaxed);
        }
        self.cfg.store(QUEUE_CFG_RESET, Ordering::Relaxed);
        self.rlimit_mask.store(RLIMIT_MASK_RESET, Ordering::Relaxed);
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.cfg.load(Ordering::Relaxed) & QUEUE_ENABLE_BITS == QUEUE_ENABLE_BITS
    }

    pub(super) fn ring_len(&self) -> u64 {
        u64::from(self.drl.load(Ordering::Relaxed))
    }

    pub(super) fn ring_base(&self) -> BusAddr {
        let low = u64::from(self.drbp_low.load(Ordering::Relaxed));
        let high = u64::from(self.drbp_high.load(Ordering::Relaxed));
        BusAddr::new(low | high << 32)
    }

    /// Descriptors that are posted and not retired.
    pub(super) fn pending(&self) -> u64 {
        let retired = self.retired.load(Ordering::Acquire);
        // ORDER: pairs with the doorbell: the descriptors were stored before.
        self.posted.load(Ordering::Acquire).saturating_sub(retired)
    }

    /// The slot of a position. A side without a ring has slot 0 only.
    pub(super) fn slot(&self, position: u64) -> Slot {
        let in_ring = position.saturating_sub(self.origin.load(Ordering::Relaxed));
        let len = self.ring_len().max(1);
        // CAST: the low two bits count.
        #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
        let lap = (in_ring / len) as u32;
        Slot {
            index: in_ring % len,
            ring_id: RingId::new(RingId::FIRST.get().wrapping_add(lap) & 3),
        }
    }

    pub(super) fn pointer(&self, position: u64) -> u32 {
        let slot = self.slot(position);
        // CAST: a ring has less than 2^24 slots.
        #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
        let offset = slot.index as u32;
        RingPointer::new()
            .with_offset(offset)
            .with_ring_id(slot.ring_id.get())
            .into()
    }

    /// Forgets what is posted: slot 0, ring id 1.
    pub(super) fn reset(&self) {
        let ignored = self.ignored.swap(0, Ordering::Relaxed);
        let posted = self.posted.load(Ordering::Relaxed) + ignored;
        self.posted.store(posted, Ordering::Relaxed);
        self.origin.store(posted, Ordering::Relaxed);
        self.retired.store(posted, Ordering::Release);
    }
}
