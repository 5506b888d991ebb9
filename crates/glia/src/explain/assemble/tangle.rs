//! Two lists of one source of which the lines alternate.
//!
//! No line says which list it is of. But the items of each come to its total, so of all ways to
//! part the lines the right one does. It is looked for before a report is closed; what it leaves
//! open is a guess, and said.

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::category::Name;
use super::super::list::is_complete;
use super::super::open::Open;
use super::super::size::Size;
use super::Assembler;

// LIMIT: two lists of eleven items and a total have 12 choices; each doubles the ways.
const CHOICES_MAX: usize = 12;
// LIMIT: threads that fail at once are some dozens.
const TANGLES_MAX: usize = 64;

/// An item of a list; without a name, the total.
#[derive(Debug, Clone, PartialEq)]
struct Item {
    line: u64,
    name: Option<Name>,
    size: Size,
}

/// What may be of either list under one name: one item, or one for each.
#[derive(Debug)]
struct Choice {
    first: Item,
    other: Option<Item>,
}

/// The items of two lists, and the names of which it is a guess.
#[derive(Debug)]
struct Parted {
    items: [Vec<Item>; 2],
    unsure: Vec<String>,
}

/// Two lists of which the lines alternate.
#[derive(Debug)]
struct Tangled {
    /// Where they were begun.
    lines: [u64; 2],
    fixed: [Vec<Item>; 2],
    /// In the order of their lines.
    free: Vec<Item>,
}

/// Parts items that may be of either list; `fixed` are those that are not in question.
fn part(fixed: [Vec<Item>; 2], free: Vec<Item>) -> Option<Parted> {
    let mut items = fixed;
    let mut choices: Vec<Choice> = Vec::new();
    for item in free {
        let has = [0, 1].map(|at: usize| items[at].iter().any(|known| known.name == item.name));
        let place = choices
            .iter()
            .position(|choice| choice.first.name == item.name);
        match (has, place) {
            ([true, true], _) => return None,
            ([false, false], None) => choices.push(Choice {
                first: item,
                other: None,
            }),
            ([false, false], Some(place)) => {
                if choices[place].other.is_some() {
                    return None;
                }
                if choices[place].first.size == item.size {
                    // It is the same either way.
                    items[0].push(choices.remove(place).first);
                    items[1].push(item);
                } else {
                    choices[place].other = Some(item);
                }
            }
            ([first, _], _) => items[usize::from(first)].push(item),
        }
    }
    if choices.len() > CHOICES_MAX {
        return None;
    }
    let ways = (0..1_u32 << choices.len()).filter(|way| {
        [0, 1].into_iter().all(|list| {
            let chosen = choices.iter().enumerate();
            let chosen = chosen.filter_map(|(at, choice)| choice.of(list, way >> at & 1 == 1));
            comes_to_total(items[list].iter().chain(chosen))
        })
    });
    let ways: Vec<u32> = ways.collect();
    // Lines that alternate do so to the end, and the first is mostly of the list begun first.
    let swapped = |way: u32| {
        let pairs = choices
            .iter()
            .enumerate()
            .filter(|(_, choice)| choice.other.is_some());
        let swaps = pairs.clone().filter(|(at, _)| way >> at & 1 == 1).count();
        (swaps.min(pairs.count() - swaps), swaps)
    };
    let best = ways.iter().copied().min_by_key(|&way| swapped(way))?;
    let mut unsure = Vec::new();
    for (at, choice) in choices.iter().enumerate() {
        let bit = |way: u32| way >> at & 1 == 1;
        if ways.iter().any(|&way| bit(way) != bit(best)) {
            let name = choice.first.name.as_deref();
            unsure.push(name.unwrap_or("total").to_owned());
        }
        for (list, items) in items.iter_mut().enumerate() {
            items.extend(choice.of(list, bit(best)).cloned());
        }
    }
    Some(Parted { items, unsure })
}

impl Choice {
    /// What a list gets.
    fn of(&self, list: usize, is_swapped: bool) -> Option<&Item> {
        if (list == 1) == is_swapped {
            Some(&self.first)
        } else {
            self.other.as_ref()
        }
    }
}

fn comes_to_total<'i>(items: impl Iterator<Item = &'i Item>) -> bool {
    let (mut total, mut sum, mut rounding) = (None, 0_u64, 0_u64);
    for item in items {
        rounding = rounding.saturating_add(item.size.rounding_bytes());
        match item.name {
            Some(_) => sum = sum.saturating_add(item.size.bytes),
            None => total = Some(item.size.bytes),
        }
    }
    total.is_some_and(|total| total.abs_diff(sum) <= rounding)
}

impl Assembler<'_> {
    /// Notes the lists that could have had the item as well as the one that gets it.
    pub(super) fn note_tangle(&mut self, index: usize, name: Option<&Name>) {
        if !self.open.has_unfinished_lists() || self.tangles.len() >= TANGLES_MAX {
            return;
        }
        let chosen = &self.open[index];
        let Some(opened) = chosen.list.as_ref().map(|list| list.opened) else {
            return;
        };
        let others = self.open.iter().filter(|open| open.source == chosen.source);
        let others: Vec<u64> = others
            .filter_map(Open::list_and_row)
            .filter(|(list, row)| {
                list.opened != opened && list.lacks(row, name) && !is_complete(row)
            })
            .map(|(list, _)| list.opened)
            .filter(|&other| self.open.is_unfinished(other))
            .collect();
        for other in others {
            let pair = (opened.min(other), opened.max(other));
            if !self.tangles.contains(&pair) {
                self.tangles.push(pair);
            }
        }
    }

    /// Parts the lists that may have got one another's items.
    pub(super) fn untangle(&mut self) {
        let index_of = |opened: u64| {
            let is_it = |open: &Open| open.list_and_row().is_some_and(|it| it.0.opened == opened);
            self.open.iter().position(is_it)
        };
        let pairs = self.tangles.iter();
        let pairs = pairs.filter_map(|&(one, two)| Some((index_of(one)?, index_of(two)?)));
        let pairs: Vec<_> = pairs
            .filter_map(|(one, two)| Some((one, two, self.tangled(one, two)?)))
            .collect();
        self.tangles.clear();
        let mut count = FxHashMap::default();
        for &list in pairs.iter().flat_map(|(one, two, _)| [one, two]) {
            *count.entry(list).or_insert(0) += 1;
        }
        let mut several = FxHashSet::default();
        for (one, two, items) in pairs {
            if count[&one] == 1 && count[&two] == 1 {
                self.part_lists(one, two, items);
            } else {
                // Of three and more there are too many ways.
                several.extend([one, two]);
            }
        }
        for index in several {
            let Some((_, row)) = self.open[index].list_and_row() else {
                continue;
            };
            let line = row.line;
            let what = "a guess which items are of this list: those of several lists alternate";
            self.open[index].unread(line, what.to_owned());
        }
    }

    /// The items of two lists that are in question, if their lines alternate; the first was begun
    /// first.
    fn tangled(&self, first: usize, second: usize) -> Option<Tangled> {
        let one = self.open[first].list_and_row()?;
        let two = self.open[second].list_and_row()?;
        let begun = two.1.line;
        let left = one.0.left.iter().chain(&two.0.left).cloned();
        let left: Vec<Item> = left
            .map(|(line, name, size)| Item { line, name, size })
            .collect();
        let is_free = |item: &Item| item.line > begun;
        let (mut free, fixed_one): (Vec<_>, Vec<_>) = items(one).into_iter().partition(is_free);
        let (free_two, fixed_two): (Vec<_>, Vec<_>) = items(two).into_iter().partition(is_free);
        let lines = || free_two.iter().map(|item| item.line);
        let ends = lines().min().zip(lines().max());
        let is_between =
            |item: &Item| ends.is_some_and(|(from, to)| from <= item.line && item.line <= to);
        let is_apart = !free.iter().any(is_between);
        free.extend(left);
        if free.is_empty() || is_apart && is_complete(one.1) && is_complete(two.1) {
            return None;
        }
        free.extend(free_two);
        free.sort_by_key(|item| item.line);
        Some(Tangled {
            lines: [one.1.line, begun],
            fixed: [fixed_one, fixed_two],
            free,
        })
    }

    /// Parts two lists, or says that nobody can.
    fn part_lists(&mut self, first: usize, second: usize, tangled: Tangled) {
        let Tangled { lines, fixed, free } = tangled;
        let parted = part(fixed, free);
        let said = match &parted {
            None => Some((
                "which items are".to_owned(),
                ": no way comes to both totals",
            )),
            Some(parted) => told(&parted.unsure).map(|names| (format!("whether {names} are"), "")),
        };
        if let Some(Parted { items, .. }) = parted {
            for (index, items) in [first, second].into_iter().zip(items) {
                let items = items
                    .into_iter()
                    .map(|item| (item.line, item.name, item.size));
                self.open[index].set_list(items.collect());
            }
        }
        if let Some((which, why)) = said {
            for (index, line, other) in [(first, lines[0], lines[1]), (second, lines[1], lines[0])]
            {
                let what = format!("a guess {which} of this list or that of line {other}{why}");
                self.open[index].unread(line, what);
            }
        }
    }
}

/// A few names.
fn told(names: &[String]) -> Option<String> {
    const TOLD_MAX: usize = 3;
    let told = names.iter().take(TOLD_MAX).cloned().collect::<Vec<_>>();
    let more = if names.len() > TOLD_MAX {
        " and more"
    } else {
        ""
    };
    (!names.is_empty()).then(|| format!("{}{more}", told.join(", ")))
}

/// The items of a list that have a size, each with its line.
fn items((list, row): (&super::super::list::List, &super::super::report::Row)) -> Vec<Item> {
    let total = row.total.map(|size| Item {
        line: list.total_line,
        name: None,
        size,
    });
    let categories = row.categories.0.iter().zip(&list.lines);
    let categories = categories.filter_map(|((name, size), &line)| {
        Some(Item {
            line,
            name: Some(name.clone()),
            size: (*size)?,
        })
    });
    total.into_iter().chain(categories).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(line: u64, name: &'static str, size: &str) -> Item {
        Item {
            line,
            name: (name != "total").then(|| name.into()),
            size: Size::parse(size.as_bytes()).unwrap().0,
        }
    }

    #[test]
    fn the_only_way_that_comes_to_both_totals_is_taken() {
        let fixed = [vec![item(1, "total", "8.000GB")], Vec::new()];
        let free = vec![
            item(3, "tensors", "9.000GB"),
            item(4, "total", "10.000GB"),
            item(5, "tensors", "5.000GB"),
            item(6, "dma rings", "3.000GB"),
            item(7, "dma rings", "1.000GB"),
        ];
        let parted = part(fixed, free).unwrap();
        let sizes = |list: usize| -> Vec<String> {
            let items = parted.items[list].iter();
            items.map(|item| item.size.text.to_string()).collect()
        };
        assert_eq!(sizes(0), ["8.000GB", "5.000GB", "3.000GB"]);
        assert_eq!(sizes(1), ["10.000GB", "9.000GB", "1.000GB"]);
        assert_eq!(parted.unsure, [""; 0]);
    }

    #[test]
    fn what_comes_to_both_totals_in_several_ways_is_unsure() {
        let free = vec![
            item(3, "total", "2.000GB"),
            item(4, "total", "3.000GB"),
            item(5, "tensors", "2.000GB"),
            item(6, "tensors", "3.000GB"),
        ];
        let parted = part([Vec::new(), Vec::new()], free).unwrap();
        assert_eq!(&*parted.items[0][0].size.text, "2.000GB");
        assert_eq!(parted.unsure, ["total", "tensors"]);
    }

    #[test]
    fn three_of_a_name_are_not_parted() {
        let free = (0..3).map(|line| item(line, "tensors", &format!("{line}.000GB")));
        assert!(part([Vec::new(), Vec::new()], free.collect()).is_none());
        let no_sum = vec![item(1, "total", "2.000GB"), item(2, "tensors", "1.000GB")];
        assert!(part([Vec::new(), Vec::new()], no_sum).is_none());
    }
}
