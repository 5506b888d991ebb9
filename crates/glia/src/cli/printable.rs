//! Text from files and users, made fit for a line of output.
//!
//! A trace or a log may hold anything: escape sequences that move the cursor, line breaks that
//! would forge a line of ours, megabytes in one name. What is printed of it goes through here.

// LIMIT: a lost field can be a list of thousands of ids; `--json` has all of it.
const SHOWN_CHARS_MAX: usize = 200;

// LIMIT: an error lists what would have been allowed; what was found may be as long as a file.
const MESSAGE_CHARS_MAX: usize = 2000;

/// The text with control characters escaped and, if it is long, only its beginning.
pub(crate) fn printable(text: &str) -> String {
    escaped(text, SHOWN_CHARS_MAX)
}

/// A whole message that quotes such text, likewise.
pub(crate) fn printable_message(text: &str) -> String {
    escaped(text, MESSAGE_CHARS_MAX)
}

/// Lines of our own that quote such text: all of them, each with its control characters escaped, but
/// for the tabs before the items of a list.
pub(crate) fn lines(text: &str) -> String {
    let lines = text.split('\n').map(|line| {
        let rest = line.trim_start_matches('\t');
        let tabs = &line[..line.len() - rest.len()];
        tabs.to_owned() + &escaped(rest, usize::MAX)
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn escaped(text: &str, chars_max: usize) -> String {
    let cut = text.char_indices().nth(chars_max).map(|(end, _)| end);
    let mut shown = String::new();
    for character in text[..cut.unwrap_or(text.len())].chars() {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    if cut.is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_and_line_breaks_are_shown_and_not_obeyed() {
        assert_eq!(printable("a\u{1b}[2J\nb"), "a\\u{1b}[2J\\nb");
    }

    #[test]
    fn lines_keep_their_ends_and_the_tabs_before_them() {
        assert_eq!(lines("a\n\t\t* b\tc\u{1b}\n"), "a\n\t\t* b\\tc\\u{1b}\n");
    }

    #[test]
    fn of_a_long_text_only_the_beginning_is_shown() {
        let shown = printable(&"ä".repeat(1000));
        assert_eq!(shown.chars().count(), SHOWN_CHARS_MAX + 1);
        assert!(shown.ends_with('…'));
    }
}
