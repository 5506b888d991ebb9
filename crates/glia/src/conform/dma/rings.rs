//! What is done to engines and to queues of processes.
//!
//! Where Glia refuses what the reference does with a ring, the replay makes sure of the refusal and
//! then orders the same in words that Glia takes, so that both stay together.

use glia_abi::PAGE_SIZE_BYTES;
use glia_abi::addr::{BusAddr, Span};
use glia_abi::divergence::Divergence;
use glia_abi::handle::{EngineId, QUEUES_PER_ENGINE, QueueId};
use glia_abi::regs::QueueReg;
use glia_abi::udma::{
    Barrier, DESC_BYTES_MAX, DESC_SIZE_BYTES, Direction, RING_GAP_DESCS, Transfer,
};
use glia_driver::dma::Dma;
use glia_driver::dma::user::{
    DMA_REVISION, EngineState, QueueError, QueueRegisters, QueueRequest, RingRequest, UserRingState,
};

use super::super::compare::Difference;
use super::super::judge::Verdict;
use super::super::value::{Fields, Value};
use super::bring_up::{host_place, note_set_up};
use super::content::{Content, Piece};
use super::engine::Pair;
use super::judge::{self, declared_if_none};
use super::log::{ACCESSES_SHOWN_MAX, Log, hex, tell_accesses, unannounced};
use super::ring_op::{Push, QueueInit, RingCall};
use super::session::{Session, hardware};
use super::trace::{DmaProblem, Record};
use super::words::Name;

/// In the length word of a destination's descriptor: an interrupt when it is done. The op layer
/// never asks for one.
const INTERRUPT_BIT: u32 = 1 << 28;

/// A stop of the reference: a ring that it must not fill has no slots.
const SLOTLESS: &str = "null_descriptor_slot";
/// The ways in which the reference stops.
const BUGS: [&str; 3] = [
    SLOTLESS,
    "ring_size_not_power_of_two",
    "doorbell_count_out_of_range",
];

/// What was done.
struct Did {
    fields: Fields<'static>,
    log: Log,
    result: Result<(), QueueError>,
}

impl Session {
    /// Performs an operation, and judges what came of it.
    pub(super) fn ring_call(
        &mut self,
        record: &Record<'_>,
        call: &RingCall,
    ) -> Result<Verdict, DmaProblem> {
        Ok(match call {
            RingCall::InitEngine(engine) => {
                let did = self.act(None, usize::MAX, |dma| dma.init_engine(*engine));
                judge::plain(record, &did.fields)
            }
            RingCall::InitQueue(init) => self.init_queue(record, init)?,
            RingCall::Push(push) => self.push(record, push),
            RingCall::Start { queue, tx, rx } => {
                let did = self.act(Some(*queue), ACCESSES_SHOWN_MAX, |dma| {
                    dma.queue_start(*queue, *tx, *rx)
                });
                self.judge_ring(record, *queue, did)
            }
            RingCall::Ack { queue, descs } => {
                let did = self.act(Some(*queue), ACCESSES_SHOWN_MAX, |dma| {
                    dma.queue_ack(*queue, *descs)
                });
                self.judge_ring(record, *queue, did)
            }
            RingCall::Exit(pid) => {
                let did = self.act(None, ACCESSES_SHOWN_MAX, |dma| {
                    dma.process_exit(*pid);
                    Ok(())
                });
                if !did.log.accesses.is_empty() {
                    self.exits.insert(*pid, did.log.accesses);
                    return Ok(judge::plain(record, &did.fields));
                }
                // The reference takes a process that has gone for an owner still.
                let differing = judge::found(record.name, &record.expected, &did.fields);
                match self.exits.get(pid) {
                    Some(accesses) if !differing.is_empty() => {
                        let mut again = did.fields;
                        tell_accesses(accesses, ACCESSES_SHOWN_MAX, &mut again);
                        let differing = judge::found(record.name, &record.expected, &again);
                        declared_if_none(differing, Divergence::KeptOwner)
                    }
                    _ => judge::plain(record, &did.fields),
                }
            }
            RingCall::QueueState(queue) => self.queue_state(record, *queue),
            RingCall::DescriptorInfo(queue) => self.descriptor_info(record, *queue),
            RingCall::EngineState(engine) => self.engine_state(record, *engine),
            RingCall::SetEngineState { engine, state } => {
                let known = EngineState::from_raw(*state);
                let did = self.act(None, ACCESSES_SHOWN_MAX, |dma| match known {
                    Some(state) => dma.set_engine_state(*engine, state),
                    None => Ok(()),
                });
                if known.is_some() {
                    return Ok(judge::plain(record, &did.fields));
                }
                // The driver's types have no such state, so that the answer is `EINVAL`; that of
                // the reference is 0, and it does nothing.
                let differing = judge::found(record.name, &record.expected, &did.fields);
                declared_if_none(differing, Divergence::EngineState)
            }
        })
    }

    /// Calls the driver, and tells what it did, and how a queue stands then if there is such a one.
    fn act(
        &mut self,
        queue: Option<QueueId>,
        shown_max: usize,
        act: impl FnOnce(&Dma) -> Result<(), QueueError>,
    ) -> Did {
        let start_us = self.rig.state().now_us();
        self.rig.begin();
        let result = act(&self.dma);
        let mut log = self.rig.end();
        note_set_up(self, &log.accesses);
        // Here the pairs of a batch were built before, and are told where they were.
        for batch in &mut log.batches {
            batch.handed.pairs.clear();
        }
        let end_us = self.rig.state().now_us();
        let ret = result
            .as_ref()
            .map_or_else(|error| error.errno().ret(), |()| 0);
        let mut fields = Fields::new()
            .with("ret", ret)
            .with("t", [start_us, end_us].into_iter().collect::<Value<'_>>());
        if let Some(queue) = queue.filter(|queue| self.exists(*queue)) {
            fields.push("queue", self.tell_user_queue(queue));
        }
        log.tell(&mut fields);
        tell_accesses(&log.accesses, shown_max, &mut fields);
        Did {
            fields,
            log,
            result,
        }
    }

    fn exists(&self, queue: QueueId) -> bool {
        QueueReg::Drl
            .at(self.profile, queue, Direction::Tx)
            .is_some()
    }

    fn tell_user_queue(&self, queue: QueueId) -> Fields<'static> {
        let driver = self.dma.user_ring_state(queue);
        let state = self.rig.state();
        let [tx, rx] = Direction::BOTH.map(|direction| state.engine.side(queue, direction));
        let side = |index: usize| {
            let ring = driver.and_then(|sides| sides.get(index).copied());
            let number = |field: fn(&UserRingState) -> u32| ring.as_ref().map_or(0, field);
            Fields::new()
                .with("next", number(|ring| ring.next))
                .with("acked", number(|ring| ring.acked))
                .with("ring_id", number(|ring| ring.ring_id))
                .with("avail", number(|ring| ring.available))
        };
        Fields::new()
            .with("eng", queue.engine.get())
            .with("qid", queue.number)
            .with("tx", side(0))
            .with("rx", side(1))
            .with("hw_tx", hardware(&tx))
            .with("hw_rx", hardware(&rx))
    }

    fn init_queue(&mut self, record: &Record<'_>, init: &QueueInit) -> Result<Verdict, DmaProblem> {
        let queue = init.queue;
        let span = |argument, name: &Option<Name>| match name {
            Some(name) => self.span(record.name, argument, name).map(Some),
            None => Ok(None),
        };
        let request = QueueRequest {
            tx: RingRequest {
                chunk: span("tx", &init.tx.0)?,
                descs: init.tx.1,
            },
            rx: RingRequest {
                chunk: span("rx", &init.rx.0)?,
                descs: init.rx.1,
            },
            completions: span("rxc", &init.completions)?,
            allocatable: init.allocatable,
        };
        for chunk in [request.tx.chunk, request.rx.chunk].into_iter().flatten() {
            self.rig.lend(chunk.start().get(), chunk.size_bytes());
        }
        let dummy = self.scenario.dummy_ring;
        let dummy = dummy.and_then(|at| host_place(self.profile, at, PAGE_SIZE_BYTES));
        self.rig.place(PAGE_SIZE_BYTES, &[dummy]);
        let by = self.caller;
        let did = self.act(Some(queue), ACCESSES_SHOWN_MAX, |dma| {
            dma.queue_init(by, queue, &request)
        });
        let is_larger = matches!(did.result, Err(QueueError::TooSmall { .. }))
            && request.completions.is_none()
            && (record.expected.get("reg_writes").is_some()
                || record.expected.get("ret") == Some(&0.into()));
        if !is_larger || !did.log.is_empty() {
            return Ok(self.judge_ring(record, queue, did));
        }
        // As if the chunks were large enough.
        let enlarged = |ring: RingRequest| RingRequest {
            chunk: ring.chunk.map(|chunk| {
                let size_bytes = u64::from(ring.descs) * DESC_SIZE_BYTES;
                Span::cut(chunk.start(), chunk.size_bytes().max(size_bytes))
            }),
            ..ring
        };
        let followed = QueueRequest {
            tx: enlarged(request.tx),
            rx: enlarged(request.rx),
            ..request
        };
        let did = self.act(Some(queue), ACCESSES_SHOWN_MAX, |dma| {
            dma.queue_init(by, queue, &followed)
        });
        let fields = self.with_odd_rings(queue, did.fields);
        let differing = judge::found(record.name, &record.expected, &fields);
        Ok(declared_if_none(differing, Divergence::RingSize))
    }

    /// Judges an operation on a ring that the reference may handle worse.
    fn judge_ring(&self, record: &Record<'_>, queue: QueueId, did: Did) -> Verdict {
        let mut expected = record.expected.clone();
        let Some(bug) = expected.take("bug") else {
            let plain = judge::plain(record, &did.fields);
            if plain.differences.is_empty() {
                return plain;
            }
            let odd = self.with_odd_rings(queue, did.fields);
            let differing = judge::found(record.name, &expected, &odd);
            return declared_if_none(differing, Divergence::OddRing);
        };
        // The reference stops; Glia refuses, and nothing changes.
        let mut fields = self.with_odd_rings(queue, did.fields);
        let Some(known) = BUGS.into_iter().find(|known| bug == Value::from(*known)) else {
            return judge::wrong(vec![Difference::new("bug", Some(&bug), None)]);
        };
        let ret = fields.take("ret");
        if known == SLOTLESS
            && let Some(Value::Object(queue)) = fields.get_mut("queue")
        {
            for side in ["tx", "rx"] {
                if let Some(Value::Object(side)) = queue.get_mut(side)
                    && let Some(Value::Int(ring_id)) = side.get_mut("ring_id")
                {
                    // It has begun another lap of a ring that it has no slots of.
                    *ring_id = (*ring_id + 1) & 3;
                }
            }
        }
        let mut differing = judge::found(record.name, &expected, &fields);
        if did.result.is_ok() {
            differing.push(Difference::new("ret", None, ret.as_ref()));
        }
        declared_if_none(differing, Divergence::Assertion)
    }

    /// The same, with the slots that the reference finds available in a ring whose length is no
    /// power of two.
    fn with_odd_rings(&self, queue: QueueId, mut fields: Fields<'static>) -> Fields<'static> {
        let Some(sides) = self.dma.user_ring_state(queue) else {
            return fields;
        };
        if let Some(Value::Object(queue)) = fields.get_mut("queue") {
            for (name, side) in ["tx", "rx"].into_iter().zip(sides) {
                if !side.descs.is_power_of_two()
                    && let Some(Value::Object(told)) = queue.get_mut(name)
                    && let Some(avail) = told.get_mut("avail")
                {
                    let first_of_gap = side.next.wrapping_add(RING_GAP_DESCS);
                    let mask = side.descs.wrapping_sub(1);
                    *avail = (side.acked.wrapping_sub(first_of_gap) & mask).into();
                }
            }
        }
        fields
    }

    fn push(&mut self, record: &Record<'_>, push: &Push) -> Verdict {
        let queue = push.queue;
        let barrier = match push.barrier {
            0 => Some(Barrier::None),
            1 => Some(Barrier::Dmb),
            2 => Some(Barrier::Write),
            _ => None,
        };
        let transfer = |size_bytes| Transfer {
            source: BusAddr::new(push.source.0),
            target: BusAddr::new(push.target.0),
            size_bytes,
            barrier: barrier.unwrap_or_default(),
        };
        let before = self.dma.user_ring_state(queue);
        if barrier.is_none() {
            return self.push_unknown(record, queue, &transfer(push.size_bytes));
        }
        let mut did = self.act(Some(queue), ACCESSES_SHOWN_MAX, |dma| {
            dma.queue_push(queue, &transfer(push.size_bytes))
        });
        let is_nothing = push.size_bytes == 0
            && matches!(did.result, Err(QueueError::Size(_)))
            && (record.expected.get("unrung").is_some()
                || record.expected.get("ret") == Some(&0.into()));
        if is_nothing {
            did = self.act(Some(queue), ACCESSES_SHOWN_MAX, |dma| {
                dma.queue_push(queue, &transfer(DESC_BYTES_MAX))
            });
        }
        if let (Ok(()), Some(before)) = (&did.result, before) {
            let pair = self.pair(queue, before, push.interrupts);
            did.fields.push("unrung", unannounced(pair.as_slice()));
        }
        if !is_nothing {
            return self.judge_ring(record, queue, did);
        }
        let differing = judge::found(record.name, &record.expected, &did.fields);
        declared_if_none(differing, Divergence::ZeroSize)
    }

    /// The op layer has no such barrier. The reference finds that out when it has taken the slots.
    fn push_unknown(
        &mut self,
        record: &Record<'_>,
        queue: QueueId,
        transfer: &Transfer,
    ) -> Verdict {
        let refused = |_: &Dma| Err(QueueError::Barrier);
        let did = self.act(Some(queue), ACCESSES_SHOWN_MAX, refused);
        let plain = judge::plain(record, &did.fields);
        let Some(before) = self
            .dma
            .user_ring_state(queue)
            .filter(|_| !plain.differences.is_empty())
        else {
            return plain;
        };
        // Slots are taken in the same way, and what was in them is put back.
        let slots: Vec<_> = (0..2)
            .filter_map(|side| self.slot(queue, side, before[side].next))
            .map(|at| (at, self.rig.content(at, DESC_SIZE_BYTES)))
            .collect();
        let taken = self.dma.queue_push(queue, transfer);
        for (at, content) in slots {
            self.rig.put(at, content);
        }
        let did = self.act(Some(queue), ACCESSES_SHOWN_MAX, refused);
        let mut differing = judge::found(record.name, &record.expected, &did.fields);
        if taken.is_err() {
            differing = plain.differences;
        }
        declared_if_none(differing, Divergence::UnknownBarrier)
    }

    /// Where a slot of a queue lies, as the device sees it.
    fn slot(&self, queue: QueueId, side: usize, slot: u32) -> Option<u64> {
        let direction = *Direction::BOTH.get(side)?;
        let side = self.rig.state().engine.side(queue, direction);
        side.base.checked_add(u64::from(slot) * DESC_SIZE_BYTES)
    }

    /// The pair that was put into the slots that came next.
    fn pair(&self, queue: QueueId, before: [UserRingState; 2], interrupts: bool) -> Option<Pair> {
        let [tx_slot, rx_slot] = before.map(|side| side.next);
        let (tx_at, rx_at) = (self.slot(queue, 0, tx_slot)?, self.slot(queue, 1, rx_slot)?);
        let words = |at| -> Option<[u32; 4]> {
            let bytes = Piece::bytes(&self.rig.content(at, DESC_SIZE_BYTES));
            let words: Vec<u32> = bytes
                .as_chunks()
                .0
                .iter()
                .copied()
                .map(u32::from_le_bytes)
                .collect();
            words.try_into().ok()
        };
        let mut rx = words(rx_at)?;
        if interrupts {
            rx[0] |= INTERRUPT_BIT;
            let bytes: Vec<u8> = rx.iter().flat_map(|word| word.to_le_bytes()).collect();
            let content = Content::of_bytes(&bytes);
            let size_bytes = DESC_SIZE_BYTES;
            self.rig.put(
                rx_at,
                vec![Piece {
                    size_bytes,
                    content,
                }],
            );
        }
        Some(Pair {
            tx_slot,
            tx: words(tx_at)?,
            rx_slot,
            rx,
        })
    }

    /// Registers as the driver reads them. The reference's own word on the queue is not compared.
    fn queue_state(&self, record: &Record<'_>, queue: QueueId) -> Verdict {
        let mut expected = record.expected.clone();
        let registers = self.dma.queue_registers(queue);
        let mut got = answer(&registers);
        if let Ok(sides) = registers {
            for (name, side) in ["tx", "rx"].into_iter().zip(sides) {
                if let Some(Value::Object(expected)) = expected.get_mut(name) {
                    expected.take("sw_status");
                }
                got.push(name, tell_registers(&side));
            }
        }
        judge::compared(record.name, &expected, &got)
    }

    fn descriptor_info(&self, record: &Record<'_>, queue: QueueId) -> Verdict {
        let registers = self.dma.queue_registers(queue);
        let mut got = answer(&registers);
        if let Ok([tx, rx]) = registers {
            let found = |at| u32::from(self.has_chunk(at));
            got = got
                .with("tx_pa", hex(tx.base.get()))
                .with("rx_pa", hex(rx.base.get()))
                .with("tx_size", tx.descs)
                .with("rx_size", rx.descs)
                .with("tx_found", found(tx.base))
                .with("rx_found", found(rx.base));
        }
        judge::plain(record, &got)
    }

    fn engine_state(&self, record: &Record<'_>, engine: EngineId) -> Verdict {
        let states = self.dma.engine_state(engine);
        let mut got = answer(&states);
        if let Ok([tx, rx]) = states {
            got = got
                .with("tx", tx as u32)
                .with("rx", rx as u32)
                .with("max_queues", QUEUES_PER_ENGINE)
                .with("num_queues", QUEUES_PER_ENGINE)
                .with("rev", DMA_REVISION);
        }
        judge::plain(record, &got)
    }
}

fn answer<T>(result: &Result<T, QueueError>) -> Fields<'static> {
    let ret = result
        .as_ref()
        .map_or_else(|error| error.errno().ret(), |_| 0);
    Fields::new().with("ret", ret)
}

fn tell_registers(side: &QueueRegisters) -> Fields<'static> {
    Fields::new()
        .with("hw_status", side.status)
        .with("base", hex(side.base.get()))
        .with("length", side.descs)
        .with("head", side.head)
        .with("tail", side.tail)
        .with("completion_base", hex(side.completion_base.get()))
        .with("completion_head", side.completion_head)
}
