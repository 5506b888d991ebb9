//! The plan as those see it who ask it.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::{FaultKind, InternalAlloc, Matching, Trigger};
use super::*;
use crate::handle::{CoreId, EngineId, Pid};
use crate::sched::Micros;

const DEVICE: DeviceId = DeviceId::new(0);
const QUEUE: QueueId = QueueId::new(EngineId::new(3), 5);
/// A pair in the middle of a batch.
const DATA: PairAt = PairAt {
    device: DEVICE,
    queue: QUEUE,
    index: 0,
    in_batch: 1,
    is_last: false,
    size_bytes: 4096,
    reads_hbm: false,
    in_reset: false,
};
const MARKER: PairAt = PairAt {
    in_batch: 2,
    is_last: true,
    size_bytes: 4,
    ..DATA
};

fn rule(kind: FaultKind, trigger: Trigger) -> FaultRule {
    FaultRule {
        trigger,
        ..FaultRule::new(kind)
    }
}

/// The opportunities, from 1, at which a trigger strikes among the first twelve.
fn struck_at(trigger: Trigger) -> Vec<u64> {
    let plan = FaultPlan::new(1);
    plan.add(rule(FaultKind::FailedPin, trigger)).unwrap();
    (1..=12).filter(|_| plan.strikes(FaultPoint::Pin)).collect()
}

#[test]
fn each_condition_alone() {
    let all: Vec<u64> = (1..=12).collect();
    let always = Trigger::ALWAYS;
    assert_eq!(struck_at(always), all);
    assert_eq!(struck_at(Trigger::nth(3)), [3]);
    assert_eq!(
        struck_at(Trigger {
            after: 10,
            ..always
        }),
        [11, 12]
    );
    let every = Some(5);
    assert_eq!(struck_at(Trigger { every, ..always }), [1, 6, 11]);
    let count = Some(2);
    assert_eq!(struck_at(Trigger { count, ..always }), [1, 2]);
    let probability = Some(0.0);
    assert_eq!(
        struck_at(Trigger {
            probability,
            ..always
        }),
        [0; 0]
    );
    let probability = Some(1.0);
    assert_eq!(
        struck_at(Trigger {
            probability,
            ..always
        }),
        all
    );
}

#[test]
fn conditions_hold_together() {
    let always = Trigger::ALWAYS;
    let (every, count, sticky) = (Some(3), Some(2), true);
    let after = 2;
    assert_eq!(
        struck_at(Trigger {
            after,
            ..Trigger::nth(3)
        }),
        [5]
    );
    assert_eq!(
        struck_at(Trigger {
            after,
            every,
            ..always
        }),
        [3, 6, 9, 12]
    );
    let trigger = Trigger {
        after,
        every,
        count,
        ..always
    };
    assert_eq!(struck_at(trigger), [3, 6]);
    assert_eq!(struck_at(Trigger { sticky, ..trigger }), [3, 4]);
    let from_the_tenth = Trigger {
        sticky,
        ..Trigger::nth(10)
    };
    assert_eq!(struck_at(from_the_tenth), [10, 11, 12]);
    assert_eq!(
        struck_at(Trigger {
            every,
            ..Trigger::nth(7)
        }),
        [7]
    );
}

#[test]
fn the_first_rule_that_strikes_decides_and_those_behind_it_do_not_count() {
    let plan = FaultPlan::new(1);
    let first = plan
        .add(rule(FaultKind::DmaAbort, Trigger::nth(2)))
        .unwrap();
    let second = plan.add(FaultRule::new(FaultKind::StuckQueue)).unwrap();
    let third = plan
        .add(FaultRule::new(FaultKind::DelayedRetirement {
            delay: Micros(9),
        }))
        .unwrap();
    let late = Some(PairFault::RetiredLate(Micros(9)));
    let answers = [(); 3].map(|()| plan.pair(&DATA));
    assert_eq!(answers, [late, Some(PairFault::Abort), late]);
    let so_far = [first, second, third].map(|id| plan.so_far(id).unwrap());
    let struck = |opportunities, strikes| Struck {
        opportunities,
        strikes,
    };
    assert_eq!(so_far, [struck(3, 1), struck(0, 0), struck(2, 2)]);
}

#[test]
fn at_a_point_of_driver_or_host_too_the_first_rule_that_strikes_is_the_last_to_count() {
    let plan = FaultPlan::new(1);
    let pin = |trigger| plan.add(rule(FaultKind::FailedPin, trigger)).unwrap();
    let rules = [Trigger::nth(2), Trigger::ALWAYS, Trigger::ALWAYS].map(pin);
    let answers = [(); 3].map(|()| plan.strikes(FaultPoint::Pin));
    assert_eq!(answers, [true; 3]);
    let so_far = rules.map(|id| plan.so_far(id).unwrap());
    let struck = |opportunities, strikes| Struck {
        opportunities,
        strikes,
    };
    assert_eq!(so_far, [struck(3, 1), struck(2, 2), struck(0, 0)]);
}

#[test]
fn each_point_is_asked_about_by_one_kind() {
    let kinds = [
        FaultKind::FailedPin,
        FaultKind::FailedHostAlloc,
        FaultKind::FragmentedPages,
        FaultKind::ExhaustedHandles,
        FaultKind::ExhaustedRing,
        FaultKind::ExhaustedProcessSlots,
        FaultKind::FailedInternalAlloc(InternalAlloc::Request),
        FaultKind::FailedInternalAlloc(InternalAlloc::ChunkRecord),
        FaultKind::FailedInternalAlloc(InternalAlloc::HandleTable),
        FaultKind::FailedInternalAlloc(InternalAlloc::HandlePage),
        FaultKind::FailedInternalAlloc(InternalAlloc::Pool),
    ];
    for kind in kinds {
        let plan = FaultPlan::new(0);
        plan.add(FaultRule::new(kind)).unwrap();
        let struck = FaultPoint::ALL.into_iter().filter(|&at| plan.strikes(at));
        assert_eq!(struck.collect::<Vec<_>>(), [kind.point().unwrap()]);
        assert_eq!(plan.pair(&DATA), None);
    }
    assert_eq!(kinds.len(), FaultPoint::ALL.len());
}

/// What becomes of a data pair at the head of a batch, one within it, one that reads HBM, one in a
/// reset, and a marker, under one rule of this kind.
fn fates(kind: FaultKind) -> [Option<PairFault>; 5] {
    let plan = FaultPlan::new(0);
    plan.add(FaultRule::new(kind)).unwrap();
    let head = PairAt {
        in_batch: 0,
        ..DATA
    };
    let from_hbm = PairAt {
        reads_hbm: true,
        ..DATA
    };
    let in_reset = PairAt {
        in_reset: true,
        ..head
    };
    [head, DATA, from_hbm, in_reset, MARKER].map(|at| plan.pair(&at))
}

#[test]
fn each_kind_has_its_own_pairs() {
    let hang = Some(PairFault::Hang);
    let delay = Micros(7);
    assert_eq!(fates(FaultKind::StuckQueue), [hang, None, None, hang, None]);
    assert_eq!(fates(FaultKind::ResetHang), [None, None, None, hang, None]);
    let partial = FaultKind::PartialBatch { pairs: 1 };
    assert_eq!(fates(partial), [None, hang, hang, None, None]);
    let lost = Some(PairFault::Lost);
    assert_eq!(fates(FaultKind::LostMarker), [None, None, None, None, lost]);
    let late = Some(PairFault::Late(delay));
    let none = None;
    assert_eq!(
        fates(FaultKind::LateMarker { delay }),
        [none, none, none, none, late]
    );
    let late = Some(PairFault::RetiredLate(delay));
    let kind = FaultKind::DelayedRetirement { delay };
    assert_eq!(fates(kind), [late, late, late, late, None]);
    let abort = Some(PairFault::Abort);
    assert_eq!(
        fates(FaultKind::DmaAbort),
        [abort, abort, abort, abort, None]
    );
    let bad = Some(PairFault::Uncorrectable);
    assert_eq!(
        fates(FaultKind::UncorrectableHbm),
        [None, None, bad, None, None]
    );
}

#[test]
fn bits_are_flipped_in_pairs_that_have_them() {
    let plan = FaultPlan::new(0);
    let kind = FaultKind::FlippedBits {
        offset_bytes: 4095,
        size_bytes: 1,
        mask: 0x80,
    };
    let id = plan.add(FaultRule::new(kind)).unwrap();
    let short = PairAt {
        size_bytes: 4095,
        ..DATA
    };
    assert_eq!(plan.pair(&short), None);
    assert_eq!(plan.so_far(id).unwrap().opportunities, 0);
    let flipped = PairFault::Flipped {
        offset_bytes: 4095,
        size_bytes: 1,
        mask: 0x80,
    };
    assert_eq!(plan.pair(&DATA), Some(flipped));
}

#[test]
fn a_word_of_data_behind_which_more_comes_is_no_marker() {
    let plan = FaultPlan::new(0);
    plan.add(FaultRule::new(FaultKind::LostMarker)).unwrap();
    assert_eq!(
        plan.pair(&PairAt {
            is_last: false,
            ..MARKER
        }),
        None
    );
    assert_eq!(
        plan.pair(&PairAt {
            size_bytes: 8,
            ..MARKER
        }),
        None
    );
}

fn everybody() -> Scope {
    Scope {
        device: Some(DEVICE),
        process: Some(Pid::new(7)),
        core: Some(CoreId::new(1)),
        command: Some(0x66),
    }
}

#[test]
fn each_matching_field_alone_decides() {
    let matching = |matching| FaultRule {
        matching,
        ..FaultRule::new(FaultKind::FailedPin)
    };
    let (device, process) = (Some(DEVICE), Some(Pid::new(7)));
    let (core, command) = (Some(CoreId::new(1)), Some(0x66));
    let any = Matching::default();
    let cases = [
        (
            Matching { device, ..any },
            Scope {
                device: Some(DeviceId::new(1)),
                ..everybody()
            },
        ),
        (
            Matching { process, ..any },
            Scope {
                process: Some(Pid::new(8)),
                ..everybody()
            },
        ),
        (
            Matching { core, ..any },
            Scope {
                core: Some(CoreId::new(0)),
                ..everybody()
            },
        ),
        (
            Matching { command, ..any },
            Scope {
                command: Some(0x67),
                ..everybody()
            },
        ),
    ];
    for (wanted, other) in cases {
        let plan = FaultPlan::new(0);
        plan.add(matching(wanted)).unwrap();
        let asked_by = |scope: Scope| {
            let _scope = scope.enter();
            plan.strikes(FaultPoint::Pin)
        };
        assert!(asked_by(everybody()), "{wanted:?}");
        assert!(!asked_by(other), "{wanted:?}");
        assert!(!asked_by(Scope::NOBODY), "{wanted:?}");
    }
}

#[test]
fn a_rule_for_a_queue_is_about_that_one_alone() {
    let aborts = |engine, queue, at: &PairAt| {
        let plan = FaultPlan::new(0);
        let matching = Matching {
            engine,
            queue,
            ..Matching::default()
        };
        let rule = FaultRule {
            matching,
            ..FaultRule::new(FaultKind::DmaAbort)
        };
        plan.add(rule).unwrap();
        plan.pair(at).is_some()
    };
    let neighbour = PairAt {
        queue: QueueId::new(QUEUE.engine, 6),
        ..DATA
    };
    let elsewhere = PairAt {
        queue: QueueId::new(EngineId::new(4), 5),
        ..DATA
    };
    let (engine, queue) = (Some(QUEUE.engine), Some(QUEUE.number));
    assert_eq!(
        [DATA, neighbour, elsewhere].map(|at| aborts(engine, None, &at)),
        [true, true, false]
    );
    assert_eq!(
        [DATA, neighbour, elsewhere].map(|at| aborts(None, queue, &at)),
        [true, false, true]
    );
    assert_eq!(
        [DATA, neighbour, elsewhere].map(|at| aborts(engine, queue, &at)),
        [true, false, false]
    );
}

#[test]
fn rules_that_cannot_be_meant_are_refused_and_leave_the_plan_as_it_was() {
    let plan = FaultPlan::new(0);
    let pin = |trigger| rule(FaultKind::FailedPin, trigger);
    let always = Trigger::ALWAYS;
    let probability = |chance| Trigger {
        probability: Some(chance),
        ..always
    };
    let flipped = |offset_bytes, size_bytes, mask| {
        FaultRule::new(FaultKind::FlippedBits {
            offset_bytes,
            size_bytes,
            mask,
        })
    };
    let late = |delay| {
        FaultRule::new(FaultKind::LateMarker {
            delay: Micros(delay),
        })
    };
    let queue = Matching {
        queue: Some(1),
        ..Matching::default()
    };
    let at_queue = FaultRule {
        matching: queue,
        ..FaultRule::new(FaultKind::ExhaustedRing)
    };
    let refused = [
        (pin(Trigger::nth(0)), PlanError::Zero("nth")),
        (
            pin(Trigger {
                every: Some(0),
                ..always
            }),
            PlanError::Zero("every"),
        ),
        (
            pin(Trigger {
                count: Some(0),
                ..always
            }),
            PlanError::Zero("count"),
        ),
        (pin(probability(1.5)), PlanError::Probability(1.5)),
        (pin(probability(-0.1)), PlanError::Probability(-0.1)),
        (
            pin(Trigger {
                every: Some(3),
                ..Trigger::nth(3)
            }),
            PlanError::Never { every: 3, nth: 3 },
        ),
        (
            FaultRule::new(FaultKind::PartialBatch { pairs: 0 }),
            PlanError::Zero("pairs"),
        ),
        (flipped(0, 0, 1), PlanError::Zero("size_bytes")),
        (flipped(0, 1, 0), PlanError::Zero("mask")),
        (flipped(65_536, 1, 1), PlanError::Offset(65_536)),
        (late(0), PlanError::Zero("delay_us")),
        (late(u64::MAX), PlanError::Delay(Micros(u64::MAX))),
        (at_queue, PlanError::NoQueue(FaultKind::ExhaustedRing)),
    ];
    for (rule, why) in refused {
        assert_eq!(plan.add(rule), Err(why));
    }
    assert!(matches!(
        plan.add(pin(probability(f64::NAN))),
        Err(PlanError::Probability(_))
    ));
    assert!(!plan.is_armed());
}

/// The questions at which a rule with this chance strikes, of a thousand.
fn drawn(seed: u64, number: usize, probability: f64) -> Vec<usize> {
    let plan = FaultPlan::new(seed);
    for _ in 0..number {
        plan.add(FaultRule::new(FaultKind::FragmentedPages))
            .unwrap();
    }
    let probability = Some(probability);
    let trigger = Trigger {
        probability,
        ..Trigger::ALWAYS
    };
    plan.add(rule(FaultKind::FailedPin, trigger)).unwrap();
    (0..1000)
        .filter(|_| plan.strikes(FaultPoint::Pin))
        .collect()
}

#[test]
fn a_seed_decides_and_rules_of_one_seed_draw_apart() {
    assert_eq!(drawn(0, 0, 0.5), drawn(0, 0, 0.5));
    assert_ne!(drawn(0, 0, 0.5), drawn(1, 0, 0.5));
    let (first, second) = (drawn(0, 0, 0.5), drawn(0, 1, 0.5));
    let shifted: Vec<usize> = second.iter().map(|at| at + 1).collect();
    let both = |other: &[usize]| first.iter().filter(|at| other.contains(at)).count();
    assert!(
        (180..320).contains(&both(&second)),
        "independent: a quarter"
    );
    assert!(
        (180..320).contains(&both(&shifted)),
        "not the same row a step later"
    );
}

#[test]
fn questions_that_are_no_opportunity_draw_no_chance() {
    let answers = |disturbed| {
        let plan = FaultPlan::new(3);
        let probability = Some(0.5);
        let trigger = Trigger {
            probability,
            ..Trigger::ALWAYS
        };
        plan.add(rule(FaultKind::FailedPin, trigger)).unwrap();
        let ask = |_| {
            if disturbed {
                plan.strikes(FaultPoint::HostMemory);
                plan.pair(&DATA);
            }
            plan.strikes(FaultPoint::Pin)
        };
        (0..100).map(ask).collect::<Vec<bool>>()
    };
    assert_eq!(answers(true), answers(false));
}

proptest! {
    #[test]
    fn a_chance_strikes_about_as_often_as_it_says(seed in any::<u64>(), percent in 0_u32..=100) {
        let probability = f64::from(percent) / 100.0;
        let strikes = f64::from(u32::try_from(drawn(seed, 0, probability).len()).unwrap());
        // Five standard deviations of a thousand draws are at most 80.
        prop_assert!((strikes - 1000.0 * probability).abs() <= 80.0, "{strikes}");
    }

    #[test]
    fn a_pair_is_whose_batch_it_is_in_whatever_was_dropped(
        batches in prop::collection::vec((1_u32..5, 0_u64..4, any::<bool>()), 1..40),
    ) {
        let plan = FaultPlan::new(0);
        plan.add(FaultRule::new(FaultKind::FragmentedPages)).unwrap();
        let mut next = 0;
        let mut expected = Vec::new();
        for (number, &(pairs, untold, dropped)) in batches.iter().enumerate() {
            // Pairs that somebody staged without a word: nobody's.
            expected.extend((next..next + untold).map(|index| (index, None)));
            next += untold;
            let process = Some(Pid::new(u32::try_from(number).unwrap()));
            plan.staged(&StagedBatch {
                device: DEVICE,
                queue: QUEUE,
                first: next,
                pairs,
                scope: Scope { process, ..Scope::NOBODY },
            });
            let end = next + u64::from(pairs);
            if !dropped {
                expected.extend((next..end).map(|index| (index, process)));
            }
            next = end;
        }
        for (index, process) in expected {
            let scope = plan.state().scope_of(&PairAt { index, ..DATA });
            prop_assert_eq!(scope.process, process);
        }
        let left = plan.state().staged[&(DEVICE, QUEUE)].len();
        prop_assert!(left <= batches.len());
    }
}

fn batch(first: u64, pairs: u32, process: u32) -> StagedBatch {
    StagedBatch {
        device: DEVICE,
        queue: QUEUE,
        first,
        pairs,
        scope: Scope {
            process: Some(Pid::new(process)),
            ..Scope::NOBODY
        },
    }
}

#[test]
fn an_engine_fault_strikes_the_process_that_staged_the_pair() {
    let plan = FaultPlan::new(0);
    let process = Some(Pid::new(2));
    let matching = Matching {
        process,
        ..Matching::default()
    };
    let rule = FaultRule {
        matching,
        ..FaultRule::new(FaultKind::DmaAbort)
    };
    plan.add(rule).unwrap();
    plan.staged(&batch(0, 2, 1));
    plan.staged(&batch(2, 2, 2));
    let other_device = PairAt {
        device: DeviceId::new(1),
        index: 2,
        ..DATA
    };
    assert_eq!(plan.pair(&other_device), None);
    let aborted = |index| plan.pair(&PairAt { index, ..DATA }).is_some();
    assert_eq!(
        [0, 1, 2, 3, 4].map(aborted),
        [false, false, true, true, false]
    );
}

#[test]
fn of_a_queue_that_is_never_asked_about_only_the_last_batches_are_remembered() {
    let plan = FaultPlan::new(0);
    for first in 0..5000 {
        plan.staged(&batch(first, 1, 1));
    }
    assert_eq!(
        plan.state().staged[&(DEVICE, QUEUE)].len(),
        BATCHES_REMEMBERED
    );
    assert_eq!(
        plan.state().scope_of(&PairAt { index: 0, ..DATA }).process,
        None
    );
}

#[test]
fn a_second_machine_under_the_plan_counts_anew() {
    let plan = FaultPlan::new(0);
    plan.staged(&batch(0, 4, 1));
    plan.staged(&batch(4, 4, 1));
    plan.staged(&batch(0, 4, 2));
    let process = plan.state().scope_of(&PairAt { index: 3, ..DATA }).process;
    assert_eq!(process, Some(Pid::new(2)));
    plan.staged(&batch(u64::MAX, 9, 3));
    let last = PairAt {
        index: u64::MAX,
        ..DATA
    };
    assert_eq!(
        plan.state().scope_of(&last).process,
        None,
        "its end cannot be counted"
    );
}

#[test]
fn rules_come_and_go_while_others_ask() {
    let plan = Arc::new(FaultPlan::new(0));
    let stays = plan
        .add(rule(FaultKind::FailedPin, Trigger::nth(500)))
        .unwrap();
    let askers = [(); 4].map(|()| {
        let plan = Arc::clone(&plan);
        std::thread::spawn(move || (0..250).filter(|_| plan.strikes(FaultPoint::Pin)).count())
    });
    for _ in 0..100 {
        let goes = plan
            .add(FaultRule::new(FaultKind::FailedHostAlloc))
            .unwrap();
        assert!(plan.strikes(FaultPoint::HostMemory));
        assert_eq!(plan.remove(goes).unwrap().strikes, 1);
        assert!(!plan.strikes(FaultPoint::HostMemory));
        assert_eq!(plan.remove(goes), None);
    }
    let struck: usize = askers.map(|asker| asker.join().unwrap()).iter().sum();
    assert_eq!(
        struck, 1,
        "of a thousand questions the five-hundredth, whoever asked it"
    );
    let so_far = plan.so_far(stays).unwrap();
    assert_eq!(
        so_far,
        Struck {
            opportunities: 1000,
            strikes: 1
        }
    );
}

#[test]
fn a_plan_is_armed_while_it_has_rules() {
    let plan = FaultPlan::new(0);
    assert!(!plan.is_armed());
    let one = plan.add(FaultRule::new(FaultKind::FailedPin)).unwrap();
    let other = plan.add(FaultRule::new(FaultKind::FailedPin)).unwrap();
    assert_ne!(one, other);
    plan.remove(one);
    assert!(plan.is_armed());
    plan.remove(other);
    assert!(!plan.is_armed() && !plan.strikes(FaultPoint::Pin));
    plan.add(FaultRule::new(FaultKind::FailedPin)).unwrap();
    assert!(plan.is_armed());
    plan.clear();
    assert!(!plan.is_armed());
}
