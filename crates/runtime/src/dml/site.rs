//! Where an allocation was asked for.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::Location;
use std::sync::Arc;

/// Where an allocation was asked for. Printed as a file and a line, or as the name.
#[derive(Debug, Clone, Eq)]
pub enum Site {
    /// A line of the program that has called the runtime.
    Code(&'static Location<'static>),
    /// What the caller calls the place: an operator of a framework, a file and its line.
    Named(Arc<str>),
    /// A line of what the caller reads, such as a workload.
    Line(u64),
}

impl PartialEq for Site {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            // As a rule a line has one such record; its text is compared only if it has more.
            (Self::Code(one), Self::Code(other)) => std::ptr::eq(*one, *other) || one == other,
            (Self::Named(one), Self::Named(other)) => one == other,
            (Self::Line(one), Self::Line(other)) => one == other,
            (Self::Code(_) | Self::Named(_) | Self::Line(_), _) => false,
        }
    }
}

impl Hash for Site {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            // Two files with a call at the same line and column are rare, and no error.
            Self::Code(at) => (at.line(), at.column()).hash(state),
            Self::Named(name) => name.hash(state),
            Self::Line(number) => number.hash(state),
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(at) => write!(f, "{}:{}:{}", at.file(), at.line(), at.column()),
            Self::Named(name) => f.write_str(name),
            Self::Line(number) => write!(f, "line {number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn here() -> Site {
        Site::Code(Location::caller())
    }

    #[test]
    fn a_site_is_printed_as_a_line_of_code_or_as_its_name() {
        let line = line!() + 1;
        let printed = here().to_string();
        assert!(
            printed.ends_with(&format!("site.rs:{line}:23")),
            "{printed}"
        );
        assert_eq!(Site::Named("w.jsonl:7".into()).to_string(), "w.jsonl:7");
        assert_eq!(Site::Line(7).to_string(), "line 7");
    }
}
