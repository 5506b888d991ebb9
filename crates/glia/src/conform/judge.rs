//! Whether an answer is the reference's, a declared divergence from it, or wrong.

use glia_abi::divergence::Divergence;
use glia_abi::errno::Errno;

use super::answer::{Answer, Reference, Reply};
use super::compare::{Difference, differences, differences_in_expected};
use super::trace::{Expected, Stop};
use super::value::{Fields, Value};

/// The judgement on one answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    /// What is wrong with it; empty if nothing is.
    pub differences: Vec<Difference>,
    /// The declared divergence that it is, if it is one.
    pub divergence: Option<Divergence>,
    /// Whether Glia and the reference are in different states from here on, so that no later
    /// difference says anything.
    pub taints: bool,
}

/// Judges Glia's answer to an operation by what the reference did.
#[must_use]
pub fn judge(op: &str, expected: &Expected<'_>, answer: &Answer) -> Verdict {
    match expected {
        Expected::Outcome(expected) => judge_outcome(op, expected, answer),
        Expected::Stop { stop, facts } => Verdict {
            taints: true,
            ..judge_stop(*stop, facts, answer)
        },
    }
}

fn judge_outcome(op: &str, expected: &Fields<'_>, answer: &Answer) -> Verdict {
    let own = match &answer.reply {
        Reply::Outcome(own) => own,
        Reply::Error(error) => {
            let expected = Value::Object(expected.clone());
            return wrong(vec![Difference::new(
                "out",
                Some(&expected),
                Some(&error_value(error)),
            )]);
        }
    };
    match &answer.reference {
        Some((divergence, Reference::Takes)) if took(expected) => Verdict {
            taints: true,
            ..declared(*divergence)
        },
        Some((divergence, Reference::Answers(accident))) => {
            let mut found = differences(op, expected, accident);
            if found.is_empty() {
                return declared(*divergence);
            }
            tell_own_answer(&mut found, &differences(op, expected, own), *divergence);
            wrong(found)
        }
        Some((_, Reference::Takes | Reference::Stops { .. })) | None => {
            wrong(differences(op, expected, own))
        }
    }
}

fn judge_stop(stop: Stop, facts: &Fields<'_>, answer: &Answer) -> Verdict {
    match &answer.reference {
        Some((divergence, Reference::Stops { ways, facts: own }))
            if stop == Stop::Oops || ways.contains(&stop) =>
        {
            match differences_in_expected(facts, own) {
                found if found.is_empty() => declared(*divergence),
                found => wrong(found),
            }
        }
        Some((divergence, Reference::Takes)) => declared(*divergence),
        Some((_, Reference::Stops { .. } | Reference::Answers(_))) | None => {
            let field = if stop == Stop::Oops { "oops" } else { "bug" };
            let got = match &answer.reply {
                Reply::Outcome(own) => Value::Object(own.clone()),
                Reply::Error(error) => error_value(error),
            };
            wrong(vec![Difference::new(
                field,
                Some(&stop.name().into()),
                Some(&got),
            )])
        }
    }
}

/// Whether the reference took a request that Glia refuses, or had no memory for it.
fn took(expected: &Fields<'_>) -> bool {
    let ret = expected.get("ret");
    ret == Some(&Value::from(0)) || ret == Some(&Value::from(Errno::ENOMEM.ret()))
}

/// Tells, in differences from the reference's accident, what Glia answered, and the accident in a
/// note.
///
/// A field that differs from the accident and not from Glia's answer is as the trace expects it in
/// the latter.
fn tell_own_answer(found: &mut [Difference], own_found: &[Difference], divergence: Divergence) {
    for difference in found {
        let same = own_found.iter().find(|own| own.field == difference.field);
        let own = same.map_or_else(|| difference.expected.clone(), |same| same.got.clone());
        if own != difference.got {
            let accident = std::mem::replace(&mut difference.got, own);
            let accident = accident.map_or_else(|| "absent".to_owned(), |value| value.to_string());
            difference.note = Some(format!("by {divergence} the reference's is {accident}"));
        }
    }
}

fn error_value(error: &str) -> Value<'static> {
    Value::from(format!("error: {error}"))
}

fn declared(divergence: Divergence) -> Verdict {
    Verdict {
        divergence: Some(divergence),
        ..Verdict::default()
    }
}

fn wrong(differences: Vec<Difference>) -> Verdict {
    Verdict {
        differences,
        ..Verdict::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(fields: Fields<'static>) -> Expected<'static> {
        Expected::Outcome(fields)
    }

    fn ret(ret: i32) -> Fields<'static> {
        Fields::new().with("ret", ret)
    }

    fn stop(stop: Stop) -> Expected<'static> {
        Expected::Stop {
            stop,
            facts: Fields::new(),
        }
    }

    fn host_scratchpad() -> Answer {
        Answer::outcome(ret(-22)).instead(Divergence::HostScratchpad, Reference::Takes)
    }

    fn dead_chunk() -> Answer {
        Answer::instead_of_stop(
            "gone",
            Divergence::DeadChunk,
            &[Stop::NullChunk],
            Fields::new(),
        )
    }

    fn wrapped() -> Answer {
        let fields = |ok: bool| Fields::new().with("ok", ok).with("wrapped", true);
        Answer::outcome(fields(false))
            .instead(Divergence::BoundsWrap, Reference::Answers(fields(true)))
    }

    #[test]
    fn the_same_answer_is_as_hoped() {
        assert_eq!(
            judge("free", &outcome(ret(0)), &Answer::outcome(ret(0))),
            Verdict::default()
        );
    }

    #[test]
    fn a_request_that_only_the_reference_takes_taints() {
        for taken in [0, -12] {
            let verdict = judge("alloc", &outcome(ret(taken)), &host_scratchpad());
            assert_eq!(
                verdict,
                Verdict {
                    taints: true,
                    ..declared(Divergence::HostScratchpad)
                }
            );
        }
    }

    #[test]
    fn a_request_that_both_refuse_is_no_divergence() {
        assert_eq!(
            judge("alloc", &outcome(ret(-22)), &host_scratchpad()),
            Verdict::default()
        );
        assert_eq!(
            judge("alloc", &outcome(ret(-2)), &host_scratchpad())
                .differences
                .len(),
            1
        );
    }

    #[test]
    fn the_accident_of_a_divergence_must_be_what_the_trace_has() {
        let accident = Fields::new().with("ok", true).with("wrapped", true);
        assert_eq!(
            judge("bounds", &outcome(accident), &wrapped()),
            declared(Divergence::BoundsWrap)
        );
        let other = Fields::new().with("ok", false).with("wrapped", true);
        let found = judge("bounds", &outcome(other), &wrapped()).differences;
        let told: Vec<_> = found
            .iter()
            .map(|found| (found.field.as_str(), found.note.as_deref()))
            .collect();
        assert_eq!(
            told,
            [("ok", Some("by bounds-wrap the reference's is true"))]
        );
        assert_eq!(found[0].got, Some(Value::Bool(false)));
    }

    #[test]
    fn a_stop_wants_an_error_of_its_kind() {
        let verdict = judge("free", &stop(Stop::NullChunk), &dead_chunk());
        assert_eq!(
            verdict,
            Verdict {
                taints: true,
                ..declared(Divergence::DeadChunk)
            }
        );
        let other = judge("free", &stop(Stop::BadMagic), &dead_chunk());
        assert_eq!(
            (
                other.differences[0].field.as_str(),
                other.divergence,
                other.taints
            ),
            ("bug", None, true)
        );
    }

    #[test]
    fn an_oops_is_met_by_any_error_that_stands_for_a_stop() {
        let verdict = judge("ref", &stop(Stop::Oops), &dead_chunk());
        assert_eq!(verdict.divergence, Some(Divergence::DeadChunk));
        let answered = judge("ref", &stop(Stop::Oops), &Answer::outcome(ret(0)));
        assert_eq!(
            (answered.differences[0].field.as_str(), answered.taints),
            ("oops", true)
        );
    }

    #[test]
    fn what_a_trace_tells_beside_a_stop_is_compared() {
        let facts = Fields::new()
            .with("remaining", 2)
            .with("forced", Value::List(Vec::new()));
        let answer = Answer::instead_of_stop(
            "leaked",
            Divergence::TeardownLeak,
            &[Stop::ChunksRemaining],
            facts,
        );
        let expected = |remaining: i32| Expected::Stop {
            stop: Stop::ChunksRemaining,
            facts: Fields::new().with("remaining", remaining),
        };
        assert_eq!(
            judge("teardown", &expected(2), &answer).divergence,
            Some(Divergence::TeardownLeak)
        );
        let wrong = judge("teardown", &expected(3), &answer);
        assert_eq!(
            (wrong.differences[0].field.as_str(), wrong.divergence),
            ("remaining", None)
        );
    }

    #[test]
    fn an_error_where_the_reference_answers_is_one_difference() {
        let found = judge(
            "free",
            &outcome(Fields::new().with("freed", true)),
            &dead_chunk(),
        )
        .differences;
        assert_eq!((found.len(), found[0].field.as_str()), (1, "out"));
        assert_eq!(found[0].got, Some(Value::from("error: gone")));
    }
}
