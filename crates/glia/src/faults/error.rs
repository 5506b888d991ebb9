//! What is wrong with a plan file, and what was probably meant.

use std::fmt;
use std::io;

use glia_abi::fault::PlanError;

// LIMIT: what stands in a message for a value that may be as long as the file.
const SHOWN_CHARS_MAX: usize = 60;

/// A plan file that is refused: where, and why.
#[derive(Debug, thiserror::Error)]
#[error("{place}{why}")]
pub struct FaultsError {
    /// Where.
    pub place: Place,
    /// Why.
    pub why: Refusal,
}

/// A place in a plan file, as well as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// The line, from 1.
    pub line: Option<u64>,
    /// Which fault of the file, from 1.
    pub fault: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if let Some(fault) = self.fault {
            write!(f, "fault {fault}: ")?;
        }
        Ok(())
    }
}

/// Why a plan file is refused.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It is longer than a plan is.
    #[error("is longer than {limit_bytes} bytes")]
    TooLong {
        /// The most it can be.
        limit_bytes: u64,
    },
    /// It is packed.
    #[error("is packed with gzip: unpack it, only workloads and logs can be packed")]
    Packed,
    /// It is neither TOML nor JSON.
    #[error("{0}")]
    Syntax(String),
    /// No fault is in it.
    #[error("no fault is ordered: a plan has `[[fault]]` tables, or in JSON a list `fault`")]
    Empty,
    /// A key that does not exist here.
    #[error("unknown key `{key}`{}; allowed are {}", meant(*.nearest), allowed.join(", "))]
    UnknownKey {
        /// The key.
        key: String,
        /// The nearest right one.
        nearest: Option<&'static str>,
        /// All right ones.
        allowed: Vec<&'static str>,
    },
    /// A key that means nothing for this kind.
    #[error("`{key}` means nothing for `{kind}`; allowed are {}", allowed.join(", "))]
    Misplaced {
        /// The key.
        key: &'static str,
        /// The kind.
        kind: &'static str,
        /// The keys that mean something.
        allowed: Vec<&'static str>,
    },
    /// A key that stands there twice.
    #[error("`{key}` is there twice")]
    Twice {
        /// The key.
        key: String,
    },
    /// A key that is missing.
    #[error("`{key}` is missing: {what} needs it")]
    Missing {
        /// What needs it.
        what: &'static str,
        /// The key.
        key: &'static str,
    },
    /// A name that does not exist.
    #[error(
        "`{key}` is \"{found}\", which does not exist{}; allowed are {allowed}",
        meant(*.nearest)
    )]
    UnknownName {
        /// The key.
        key: &'static str,
        /// The name.
        found: String,
        /// The nearest right one.
        nearest: Option<&'static str>,
        /// What is right.
        allowed: String,
    },
    /// A value of the wrong sort.
    #[error("`{key}` is {found} and has to be {wanted}")]
    WrongType {
        /// The key.
        key: &'static str,
        /// What was found.
        found: String,
        /// What it has to be.
        wanted: &'static str,
    },
    /// A number that is not possible, on this machine or at all.
    #[error("`{key}` is {found} and has to be {least} to {most}{}", on(.machine))]
    OutOfRange {
        /// The key.
        key: &'static str,
        /// The number, as it was written.
        found: String,
        /// The least that is possible.
        least: u64,
        /// The most that is possible.
        most: u64,
        /// The machine that makes it so.
        machine: Option<String>,
    },
    /// A rule that cannot be meant.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

pub(crate) fn meant(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!(": did you mean `{name}`?"))
}

fn on(machine: &Option<String>) -> String {
    machine
        .as_ref()
        .map_or_else(String::new, |machine| format!(" on {machine}"))
}

/// Text from a file, cut to what a message has room for.
pub(super) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The right name that is nearest to a wrong one, if any is near.
pub(crate) fn nearest(
    wrong: &str,
    names: impl IntoIterator<Item = &'static str>,
) -> Option<&'static str> {
    // Case and the sort of dash are slips, too, but small ones.
    let plain = |name: &str| name.to_ascii_lowercase().replace('_', "-");
    let wrong = plain(&shown(wrong));
    let distance = |name: &str| strsim::damerau_levenshtein(&wrong, &plain(name));
    let names: Vec<&'static str> = names.into_iter().collect();
    let begun = |name: &&&str| wrong.len() >= 3 && plain(name).starts_with(&wrong);
    if let Some(name) = names.iter().find(begun) {
        return Some(name);
    }
    let best = names.into_iter().min_by_key(|name| distance(name))?;
    let near = best.chars().count().max(wrong.chars().count()).div_ceil(3);
    (distance(best) <= near.max(2)).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_seen_through_and_other_words_are_not() {
        let names = ["probability", "nth", "late-marker", "lost-marker"];
        for (wrong, right) in [
            ("probabilty", Some("probability")),
            ("Probability", Some("probability")),
            ("prob", Some("probability")),
            ("nht", Some("nth")),
            ("late_marker", Some("late-marker")),
            ("lostmarker", Some("lost-marker")),
            ("something else", None),
            ("", None),
        ] {
            assert_eq!(nearest(wrong, names), right, "{wrong}");
        }
        assert_eq!(nearest(&"x".repeat(1 << 20), names), None);
    }
}
