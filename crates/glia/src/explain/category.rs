//! The names under which the runtime accounts for device memory.
//!
//! Lists, failure lines and table headings write the same names in different ways; here they become
//! one. A name that is not known is kept as the log has it, in lower case: newer runtimes may have
//! more.

use std::borrow::Cow;

/// The name of a category.
pub type Name = Cow<'static, str>;

/// All DMA rings in one, until the runtime of SDK 2.20.
pub const RINGS: &str = "dma rings";
/// Scratchpad that all models of a core share.
pub const SHARED_SCRATCHPAD: &str = "shared scratchpad";
/// Scratchpad that one model owns.
pub const SCRATCHPAD: &str = "scratchpad";
/// What the profiler records into.
pub const PROFILER: &str = "profiler buffers";
/// Instructions of models, and the microcode of the core.
pub const CODE: &str = "model code";
/// Tensors that the application has made.
pub const TENSORS: &str = "tensors";

/// What belongs to a core and to no model of it: rows of models have `n/a` there.
pub const ONLY_OF_CORES: [&str; 4] = [TENSORS, SHARED_SCRATCHPAD, XT_CC, PROFILER];

/// Every known category, in the order of a list or a table; `total` goes before all.
const ORDER: [&str; 14] = [
    CODE,
    "model constants",
    TENSORS,
    SHARED_SCRATCHPAD,
    SCRATCHPAD,
    "runtime",
    RINGS,
    "dma rings io",
    "dma rings spill",
    "dma rings collectives",
    "dma rings runtime",
    "collectives",
    "xt cc",
    PROFILER,
];

/// The column that only tables of early 2025 have.
const XT_CC: &str = "xt cc";
/// What stands in the lower row of the heading, in the order of the columns, and what it means
/// there.
const LOWER: [(&str, &str); 13] = [
    ("code", CODE),
    ("constants", "model constants"),
    (TENSORS, TENSORS),
    (SCRATCHPAD, SHARED_SCRATCHPAD),
    (SCRATCHPAD, SCRATCHPAD),
    ("runtime", "runtime"),
    ("io", "dma rings io"),
    ("spill", "dma rings spill"),
    ("collectives", "dma rings collectives"),
    ("runtime", "dma rings runtime"),
    ("collectives", "collectives"),
    (XT_CC, XT_CC),
    ("buffers", PROFILER),
];

/// The category that `text` names, whatever its case and white space.
#[must_use]
pub fn named(text: &[u8]) -> Name {
    known(text).map_or_else(|| Cow::Owned(plain(text)), Cow::Borrowed)
}

/// The known category that `text` names.
#[must_use]
pub fn known(text: &[u8]) -> Option<&'static str> {
    // Mostly it stands there as it is known.
    let same = ORDER.into_iter().find(|name| name.as_bytes() == text);
    same.or_else(|| ORDER.into_iter().find(|name| same_letters(name, text)))
}

/// Where a category stands in a list; `None` for one that is not known.
#[must_use]
pub fn position(name: &str) -> Option<usize> {
    ORDER.iter().position(|&known| known == name)
}

/// Whether it is one of the ring categories.
#[must_use]
pub fn is_ring(name: &str) -> bool {
    name.starts_with(RINGS)
}

/// The categories of a table's columns behind TOTAL, of which only the count is known.
#[must_use]
pub fn columns_by_count(count: usize) -> Option<Vec<Name>> {
    let without = usize::from(count + 1 == LOWER.len());
    if count != LOWER.len() && without == 0 {
        return None;
    }
    let columns = LOWER.iter().map(|&(_, name)| name);
    Some(
        columns
            .filter(|&name| without == 0 || name != XT_CC)
            .map(Cow::Borrowed)
            .collect(),
    )
}

/// The categories of the columns behind TOTAL, by the two rows of their heading. The upper row may
/// be missing.
#[must_use]
pub fn columns_by_heading(upper: Option<&[&[u8]]>, lower: &[&[u8]]) -> Vec<Name> {
    let mut next = 0;
    lower
        .iter()
        .enumerate()
        .map(|(index, cell)| {
            let above = upper.and_then(|upper| upper.get(index));
            if let Some(above) = above {
                let both = [above, b" ".as_slice(), cell].concat();
                let name = named(&both);
                let place = LOWER.iter().position(|(_, known)| *known == name);
                next = place.map_or(next, |place| place + 1);
                return name;
            }
            // Without the upper row, or behind its end, a name such as "Runtime" means what it means
            // at the first such column still to come.
            let found = LOWER[next..]
                .iter()
                .position(|(word, _)| same_letters(word, cell));
            found.map_or_else(
                || named(cell),
                |found| {
                    next += found + 1;
                    Cow::Borrowed(LOWER[next - 1].1)
                },
            )
        })
        .collect()
}

fn same_letters(name: &str, text: &[u8]) -> bool {
    let letters = |byte: &u8| !byte.is_ascii_whitespace();
    let name = name.bytes().filter(letters);
    let text = text.iter().copied().filter(letters);
    name.eq(text.map(|byte| byte.to_ascii_lowercase()))
}

/// Lower case, single spaces.
fn plain(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text).to_lowercase();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(text: &str) -> Vec<&[u8]> {
        text.split('|').map(str::as_bytes).collect()
    }

    #[test]
    fn a_name_is_known_in_any_spelling() {
        assert_eq!(named(b"Shared Scratchpad"), SHARED_SCRATCHPAD);
        assert_eq!(named(b"dmarings io"), "dma rings io");
        assert_eq!(named(b" Something  New"), "something new");
    }

    #[test]
    fn a_heading_names_its_columns() {
        let upper = cells("Model||Shared||DMA Rings|DMA Rings||New");
        let lower = cells("Code|Tensors|Scratchpad|Scratchpad|IO|Runtime|Runtime|Kind");
        let names = columns_by_heading(Some(&upper), &lower);
        let wanted = [
            CODE,
            TENSORS,
            SHARED_SCRATCHPAD,
            SCRATCHPAD,
            "dma rings io",
            "dma rings runtime",
            "runtime",
            "new kind",
        ];
        assert_eq!(names, wanted);
    }

    #[test]
    fn the_lower_row_alone_names_them_too() {
        let lower = cells(
            "Code|Constants|Tensors|Scratchpad|Scratchpad|Runtime|IO|Spill|Collectives|Runtime|Collectives|Buffers",
        );
        assert_eq!(
            columns_by_heading(None, &lower),
            columns_by_count(12).unwrap()
        );
    }

    #[test]
    fn only_two_counts_name_columns() {
        assert_eq!(columns_by_count(13).unwrap()[11], XT_CC);
        assert_eq!(columns_by_count(12).unwrap()[11], PROFILER);
        assert_eq!(columns_by_count(11), None);
        assert_eq!(columns_by_count(0), None);
    }
}
