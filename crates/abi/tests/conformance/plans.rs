//! Sinks and fault plans.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use glia_abi::conformance::sink::Heard;
use glia_abi::conformance::{faults, sink};
use glia_abi::event::{Detail, Event, Ids, NameId, NoSink, Sink};
use glia_abi::fault::{
    FaultKind, FaultPlan, FaultPoint, FaultRule, Faults, Matching, NoFaults, PairAt, PairFault,
    StagedBatch, Trigger,
};
use glia_abi::handle::Pid;
use glia_abi::sched::{Micros, Tick};

use crate::breaks;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SinkFlaw {
    None,
    ChangesItsMind,
    PanicsLate,
    LosesDescriptorEvents,
    HearsTwice,
    Reorders,
    Forgets,
    DropsIds,
    ForgetsNames,
    MixesNamesUp,
    HasNoRoomForNames,
}

/// Remembers what it hears.
struct Recorder {
    flaw: SinkFlaw,
    asked: AtomicU64,
    heard: Mutex<Vec<Heard>>,
    names: Mutex<Vec<String>>,
}

impl Recorder {
    fn new(flaw: SinkFlaw) -> Self {
        Self {
            flaw,
            asked: AtomicU64::new(0),
            heard: Mutex::default(),
            names: Mutex::default(),
        }
    }

    fn heard(&self) -> Vec<Heard> {
        let heard = self.heard.lock().unwrap();
        match self.flaw {
            // Asked for the second time, after two questions for its detail.
            SinkFlaw::Forgets if self.asked.fetch_add(1, Ordering::Relaxed) == 3 => Vec::new(),
            _ => heard.clone(),
        }
    }
}

impl Sink for Recorder {
    fn detail(&self) -> Detail {
        match self.asked.fetch_add(1, Ordering::Relaxed) {
            0 if self.flaw == SinkFlaw::ChangesItsMind => Detail::Nothing,
            _ => Detail::Descriptors,
        }
    }

    fn name(&self, text: &str) -> Option<NameId> {
        let mut names = self.names.lock().unwrap();
        let text = match self.flaw {
            SinkFlaw::MixesNamesUp => text.trim(),
            _ => text,
        };
        let known = names.iter().position(|known| known == text);
        let known = known.filter(|_| self.flaw != SinkFlaw::ForgetsNames);
        if known.is_none() && self.flaw == SinkFlaw::HasNoRoomForNames && names.len() == 2 {
            return None;
        }
        let number = known.unwrap_or_else(|| {
            names.push(text.to_owned());
            names.len() - 1
        });
        u32::try_from(number).ok().map(NameId::new)
    }

    fn event(&self, at: Tick, ids: &Ids, event: &Event) {
        assert!(
            self.flaw != SinkFlaw::PanicsLate || at < Tick(u64::MAX),
            "no later time is known"
        );
        let ids = match self.flaw {
            SinkFlaw::DropsIds => Ids { core: None, ..*ids },
            _ => *ids,
        };
        let copies = match (self.flaw, event) {
            (SinkFlaw::LosesDescriptorEvents, Event::Moved { .. }) => 0,
            (SinkFlaw::HearsTwice, _) => 2,
            _ => 1,
        };
        let mut heard = self.heard.lock().unwrap();
        if self.flaw == SinkFlaw::Reorders && *event == Event::Closed {
            // Before the one that this thread told last.
            let last = heard
                .iter()
                .rposition(|(_, of, _)| of.device == ids.device)
                .unwrap_or(0);
            return heard.insert(last, (at, ids, *event));
        }
        heard.extend([(at, ids, *event)].repeat(copies));
    }
}

#[test]
fn sinks_that_keep_the_rules_pass() {
    sink::check(&NoSink).unwrap();
    let recorder = Recorder::new(SinkFlaw::None);
    sink::check_recorder(&recorder, &|| recorder.heard()).unwrap();
}

#[test]
fn mutant_sinks_are_caught() {
    let in_order = "a sink hears the events of a thread as they were told, in their order";
    let once = "a sink hears each event once";
    let mutants = [
        (
            SinkFlaw::ChangesItsMind,
            "what a sink wants to hear never changes",
        ),
        (SinkFlaw::PanicsLate, "a sink takes any event at any time"),
        (SinkFlaw::LosesDescriptorEvents, once),
        (SinkFlaw::HearsTwice, once),
        (SinkFlaw::Reorders, in_order),
        (SinkFlaw::DropsIds, in_order),
        (SinkFlaw::Forgets, "what a sink has heard stays heard"),
        (SinkFlaw::ForgetsNames, "a name keeps its number"),
        (SinkFlaw::MixesNamesUp, "two names have two numbers"),
        (SinkFlaw::HasNoRoomForNames, "two names have two numbers"),
    ];
    for (flaw, rule) in mutants {
        let recorder = Recorder::new(flaw);
        let found = sink::check_recorder(&recorder, &|| recorder.heard());
        breaks(found, rule, &flaw);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlanFlaw {
    None,
    CountsPerThread,
    DiffersPerCopy,
    DiffersPerPair,
    Panics,
    PanicsAtPairs,
    PanicsWhenTold,
    StrikesUnarmed,
}

/// Strikes at every third attempt, and at every third pair.
struct Thirds {
    flaw: PlanFlaw,
    copy: u64,
    attempts: AtomicU64,
    pairs: AtomicU64,
}

thread_local! {
    static OWN_ATTEMPTS: Cell<u64> = const { Cell::new(0) };
}

impl Faults for Thirds {
    fn is_armed(&self) -> bool {
        self.flaw != PlanFlaw::StrikesUnarmed
    }

    fn strikes(&self, point: FaultPoint) -> bool {
        assert!(
            self.flaw != PlanFlaw::Panics || point != FaultPoint::Pool,
            "this plan has no pools"
        );
        let before = match self.flaw {
            PlanFlaw::CountsPerThread => OWN_ATTEMPTS.replace(OWN_ATTEMPTS.get() + 1),
            PlanFlaw::DiffersPerCopy => self.copy + self.attempts.fetch_add(1, Ordering::Relaxed),
            _ => self.attempts.fetch_add(1, Ordering::Relaxed),
        };
        before % 3 == 2
    }

    fn staged(&self, _batch: &StagedBatch) {
        assert!(self.flaw != PlanFlaw::PanicsWhenTold, "nobody tells me");
    }

    fn pair(&self, _at: &PairAt) -> Option<PairFault> {
        assert!(
            self.flaw != PlanFlaw::PanicsAtPairs,
            "this plan has no engine"
        );
        let before = self.pairs.fetch_add(1, Ordering::Relaxed);
        let offset = match self.flaw {
            PlanFlaw::DiffersPerPair => self.copy,
            _ => 0,
        };
        ((before + offset) % 3 == 2).then_some(PairFault::Lost)
    }
}

fn check_plan(flaw: PlanFlaw) -> Result<(), glia_abi::conformance::Violation> {
    let copies = Cell::new(0);
    faults::check(&|| {
        OWN_ATTEMPTS.set(0);
        Box::new(Thirds {
            flaw,
            copy: copies.replace(copies.get() + 1),
            attempts: AtomicU64::new(0),
            pairs: AtomicU64::new(0),
        })
    })
}

/// A rule for each kind that a count, a chance or an owner decides.
fn real_plan() -> FaultPlan {
    let plan = FaultPlan::new(7);
    let every = |every| Trigger {
        every: Some(every),
        ..Trigger::ALWAYS
    };
    let chance = Trigger {
        probability: Some(0.25),
        ..Trigger::ALWAYS
    };
    let delay = Micros(5);
    let rules = [
        (FaultKind::FailedPin, every(3)),
        (FaultKind::FailedHostAlloc, every(7)),
        (FaultKind::ExhaustedHandles, Trigger::nth(5)),
        (FaultKind::LateMarker { delay }, every(4)),
        (FaultKind::DmaAbort, chance),
    ];
    for (kind, trigger) in rules {
        let rule = FaultRule {
            trigger,
            ..FaultRule::new(kind)
        };
        plan.add(rule).unwrap();
    }
    let process = Some(Pid::new(2));
    let rule = FaultRule {
        matching: Matching {
            process,
            ..Matching::default()
        },
        ..FaultRule::new(FaultKind::LostMarker)
    };
    plan.add(rule).unwrap();
    plan
}

#[test]
fn plans_that_keep_the_rules_pass() {
    faults::check(&|| Box::new(NoFaults)).unwrap();
    faults::check(&|| Box::new(FaultPlan::new(7))).unwrap();
    faults::check(&|| Box::new(real_plan())).unwrap();
    check_plan(PlanFlaw::None).unwrap();
}

#[test]
fn mutant_plans_are_caught() {
    let counts = "a plan counts the attempts of all threads";
    let alike = "a plan answers the same questions in the same way";
    let answers = "a plan answers about anything from any thread";
    let mutants = [
        (PlanFlaw::CountsPerThread, counts),
        (PlanFlaw::DiffersPerCopy, alike),
        (PlanFlaw::DiffersPerPair, alike),
        (PlanFlaw::Panics, answers),
        (PlanFlaw::PanicsAtPairs, answers),
        (PlanFlaw::PanicsWhenTold, answers),
        (
            PlanFlaw::StrikesUnarmed,
            "a plan that is not armed orders nothing",
        ),
    ];
    for (flaw, rule) in mutants {
        breaks(check_plan(flaw), rule, &flaw);
    }
}
