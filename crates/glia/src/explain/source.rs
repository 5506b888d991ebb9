//! What another tool has put before the lines of a log: a rank, a pod, a container's stream.
//!
//! Lines without a thread that have the same words before them are of the same writer. Times differ
//! from line to line, so the digits of a word with many of them do not count.

use std::hash::Hasher as _;

use rustc_hash::FxHasher;

/// A word with as many digits is a time, or a number that goes up.
const TIME_DIGITS_MIN: usize = 6;

/// Who wrote a line, as far as what stands before it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Source(u64);

impl Source {
    /// That of a line with nothing before it.
    pub(super) const NONE: Self = Self(0);

    /// The source of a line that begins with `lead`.
    pub(super) fn of(lead: &[u8]) -> Self {
        let mut hasher = FxHasher::default();
        let lead = without_indent(lead);
        if lead.is_empty() {
            return Self::NONE;
        }
        let words = lead.split(u8::is_ascii_whitespace);
        for word in words.filter(|word| !word.is_empty()) {
            let digits = word.iter().filter(|byte| byte.is_ascii_digit());
            if digits.count() < TIME_DIGITS_MIN {
                hasher.write(word);
            } else {
                let counts = word.iter().filter(|byte| !byte.is_ascii_digit());
                counts.for_each(|&byte| hasher.write_u8(byte));
            }
            hasher.write_u8(b' ');
        }
        Self(hasher.finish())
    }
}

/// Leaves out what the runtime itself puts before a message: tabs, which may have become two
/// characters in a string, and a bracket.
fn without_indent(mut lead: &[u8]) -> &[u8] {
    loop {
        let shorter = lead.strip_suffix(b"\\t").unwrap_or(lead);
        let shorter = shorter.trim_ascii_end();
        let shorter = shorter.strip_suffix(b"[").unwrap_or(shorter);
        let shorter = shorter.strip_suffix(b"\"").unwrap_or(shorter);
        if shorter.len() == lead.len() {
            return lead;
        }
        lead = shorter;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_counts_and_a_time_does_not() {
        let of = |lead: &str| Source::of(lead.as_bytes());
        assert_eq!(
            of("2026-03-01T10:00:00.1Z [rank1]: "),
            of("2026-03-01T10:07:09.2Z  [rank1]:\t")
        );
        assert_ne!(of("[rank1]:"), of("[rank2]:"));
        assert_ne!(of("[rank1]:"), of(""));
        assert_eq!(of("  "), of(""));
        assert_eq!(of("{\"log\":\"[ND"), of("{\"log\":\"[ND"));
        assert_eq!(of("{\"log\":\"["), of("{\"log\":\"\\t"));
    }
}
