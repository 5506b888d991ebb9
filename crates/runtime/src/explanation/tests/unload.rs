//! What goes back with models, against a model that tries every set of models and blocks.

use super::*;

const PAGE: u64 = 2;

/// What a bank with scratchpads is made of.
#[derive(Debug, Clone, Copy)]
enum Thing {
    Hole(u64),
    /// A block that is freed by itself.
    Block(u64, Pid),
    /// What a model owns; what is private to it.
    Weight(u64, usize),
    Private(u64, usize),
    /// A page of this process' scratchpad, and of another's.
    Page,
    OtherPage,
}

/// A bank, and what models need of the scratchpad.
struct Loaded {
    bank: ChannelSnapshot,
    things: Vec<Thing>,
    /// Pages of both processes, as chunks, the oldest first.
    pages: Vec<usize>,
    other_pages: Vec<usize>,
    /// Pages that each model needs.
    needs: Vec<usize>,
    facts: Vec<(McHandle, Allocation)>,
}

fn model(number: usize) -> ModelId {
    ModelId(1001 + number as u32)
}

impl Loaded {
    /// With pages taken in the order of some numbers.
    fn new(things: Vec<Thing>, orders: &[u8], mut needs: Vec<usize>, category: Category) -> Self {
        let parts = things.iter().map(|thing| match *thing {
            Thing::Hole(pages) => Hole(pages),
            Thing::Block(pages, owner) => Chunk(pages, owner),
            Thing::Weight(pages, _) | Thing::Private(pages, _) => Chunk(pages, THIS),
            Thing::Page => Chunk(PAGE, THIS),
            Thing::OtherPage => Chunk(PAGE, OTHER),
        });
        let mut bank = channel(0, 0, &joined(parts.collect()), &[Hole(1)]);
        let is_chunk = |thing: &Thing| !matches!(thing, Thing::Hole(_));
        let things: Vec<Thing> = things.into_iter().filter(is_chunk).collect();
        let mut facts = Vec::new();
        for (number, thing) in things.iter().enumerate() {
            let chunk = &mut bank.chunks[number];
            chunk.birth = u64::from(orders[number]) * 100 + number as u64;
            let owner = match thing {
                Thing::Page | Thing::OtherPage => {
                    chunk.category = category;
                    None
                }
                Thing::Private(_, owner) => {
                    chunk.category = Category::SCRATCHPAD_NONSHARED_DEVICE;
                    Some(model(*owner))
                }
                Thing::Weight(_, owner) => Some(model(*owner)),
                Thing::Block(..) | Thing::Hole(_) => None,
            };
            if let Some(handle) = chunk.handle.filter(|_| chunk.owner == THIS) {
                let page = chunk.span.start().get() / PAGE_SIZE_BYTES;
                let allocation = Allocation {
                    model: owner,
                    ..own_block(page, chunk.span.size_bytes())
                };
                facts.push((handle, allocation));
            }
        }
        let pages_of = |is_page: fn(&Thing) -> bool| {
            let numbers = (0..things.len()).filter(|&number| is_page(&things[number]));
            let mut numbers: Vec<usize> = numbers.collect();
            numbers.sort_by_key(|&number| bank.chunks[number].birth);
            numbers
        };
        let pages = pages_of(|thing| matches!(thing, Thing::Page));
        let other_pages = pages_of(|thing| matches!(thing, Thing::OtherPage));
        // Somebody needs the last page, and nobody more.
        for need in &mut needs {
            *need = (*need).min(pages.len());
        }
        let last = needs.iter().copied().max().unwrap_or(0);
        if let Some(need) = needs.iter_mut().find(|need| **need == last) {
            *need = pages.len();
        }
        Self {
            bank,
            things,
            pages,
            other_pages,
            needs,
            facts,
        }
    }

    fn own(&self) -> Own {
        let at = |&number: &usize| self.bank.chunks[number].span.start();
        let private_of = |owner: usize| {
            let numbers = 0..self.things.len();
            let numbers = numbers
                .filter(|&n| matches!(self.things[n], Thing::Private(_, one) if one == owner));
            numbers.map(|number| at(&number)).collect()
        };
        let users = self
            .needs
            .iter()
            .enumerate()
            .map(|(number, &pages)| ScratchUser {
                model: model(number),
                pages,
                private: private_of(number),
            });
        let book = ScratchBook {
            pages: self.pages.iter().map(at).collect(),
            users: users.collect(),
        };
        let names = (0..self.needs.len()).map(|number| (model(number), format!("m{number}")));
        Own {
            process: Some(THIS),
            blocks: super::facts(&self.facts),
            scratchpads: vec![book],
            models: names.collect(),
        }
    }

    /// All sets that can be carried out: some models are unloaded, other processes give pages back, and
    /// blocks are freed. Not the asking model, and none of the pages that are kept.
    fn sets(&self, asking: Option<usize>, kept: usize, is_own: bool) -> Vec<Vec<usize>> {
        let mut sets = Vec::new();
        let alone = |number: &usize| match self.things[*number] {
            Thing::Block(_, owner) => owner == THIS || owner == OTHER && !is_own,
            Thing::Weight(..) => true,
            _ => false,
        };
        let alone: Vec<usize> = (0..self.things.len()).filter(alone).collect();
        for models in 0..1_usize << self.needs.len() {
            let is_gone = |owner: usize| models >> owner & 1 == 1;
            if asking.is_some_and(is_gone) {
                continue;
            }
            let left = (0..self.needs.len()).filter(|&number| !is_gone(number));
            let left = left.map(|number| self.needs[number]).max().unwrap_or(0);
            if left < kept {
                continue;
            }
            let goes = |number: &usize| match self.things[*number] {
                Thing::Weight(_, owner) | Thing::Private(_, owner) => is_gone(owner),
                _ => false,
            };
            let mut with_models: Vec<usize> = (0..self.things.len()).filter(goes).collect();
            with_models.extend(&self.pages[left..]);
            let others = if is_own { 0 } else { self.other_pages.len() };
            for given in 0..=others {
                let from = self.other_pages.len() - given;
                for bits in 0..1_u32 << alone.len() {
                    let mut set = with_models.clone();
                    set.extend(&self.other_pages[from..]);
                    let picked = alone.iter().enumerate();
                    let picked = picked.filter(|(bit, _)| bits >> bit & 1 == 1);
                    set.extend(picked.map(|(_, &number)| number));
                    set.sort_unstable();
                    set.dedup();
                    sets.push(set);
                }
            }
        }
        sets
    }

    fn cost(&self, set: &[usize]) -> (u64, usize) {
        let sizes = set.iter().map(|&n| self.bank.chunks[n].span.size_bytes());
        (sizes.sum(), set.len())
    }

    /// Holds an explanation against all sets.
    fn judge(
        &self,
        request: Request,
        asking: Option<usize>,
        kept: usize,
        has_room: impl Fn(&[usize]) -> bool,
    ) {
        let kept_pages = &self.pages[..kept];
        let mut kept_at: Vec<BusAddr> = kept_pages
            .iter()
            .map(|&number| self.bank.chunks[number].span.start())
            .collect();
        kept_at.sort_unstable();
        let request = Request {
            kept: kept_at,
            model: asking.map(model),
            ..request
        };
        let mut pools = snapshot(vec![self.bank.clone()]);
        pools.small_alloc_max_bytes = SMALL_PAGES_MAX * PAGE_SIZE_BYTES;
        let found = explained_for(&pools, request, self.own());
        if has_room(&[]) {
            assert_eq!(found.cause, Cause::Passing);
            return;
        }
        let least = |is_own| {
            let sets = self.sets(asking, kept, is_own).into_iter();
            let sets = sets.filter(|set| has_room(set));
            sets.map(|set| self.cost(&set)).min()
        };
        let told = |opening: &Option<Opening>| {
            let opening = opening.as_ref()?;
            let set = numbers(&self.bank, opening);
            assert!(self.sets(asking, kept, false).contains(&set), "{opening:?}");
            assert!(has_room(&set), "{opening:?}");
            assert_eq!(opening.freed_bytes, self.cost(&set).0);
            let is_held = |n: &usize| {
                matches!(
                    self.things[*n],
                    Thing::Page | Thing::OtherPage | Thing::Private(..)
                )
            };
            let held = opening.blocks.iter().map(|block| block.goes_with_models);
            assert!(held.eq(set.iter().map(is_held)));
            let is_known = !set.iter().any(|n| self.other_pages.contains(n));
            assert_eq!(opening.is_least, is_known);
            // What is freed by itself is not of a model that goes.
            let models: Vec<ModelId> = opening.unloads.iter().map(|one| one.model).collect();
            let is_with = |n: &&usize| match self.things[**n] {
                Thing::Weight(_, owner) | Thing::Private(_, owner) => {
                    models.contains(&model(owner))
                }
                Thing::Page => true,
                _ => false,
            };
            assert_eq!(
                opening.unloaded_blocks,
                set.iter().filter(is_with).count() as u64
            );
            Some(self.cost(&set))
        };
        assert_eq!(told(&found.opening), least(false), "{found:?}");
        // What could go at the most is more than can go together, where models share pages that stay.
        let is_exact = found.request.whole.len() < 2 && kept == 0;
        let is_never = found.opening.is_none();
        match is_exact {
            true => assert_eq!(found.is_never, is_never, "{found:?}"),
            false => assert!(is_never || !found.is_never, "{found:?}"),
        }
        let is_mixed = found
            .opening
            .as_ref()
            .is_some_and(|one| !one.blocks.are_own());
        let of_own = is_mixed.then(|| least(true)).flatten();
        assert_eq!(told(&found.own_opening), of_own, "{found:?}");
        let words = Explanation::Bank(Box::new(found.clone())).words();
        for unload in found.opening.iter().flat_map(|one| &one.unloads) {
            assert!(words.contains(&format!("NEFF {} \"{}\"", unload.model, unload.name)));
        }
    }
}

fn any_thing() -> impl Strategy<Value = Thing> {
    let owner = prop_oneof![2 => Just(THIS), 2 => Just(OTHER), 1 => Just(DRIVER)];
    prop_oneof![
        3 => (1..4_u64).prop_map(Thing::Hole),
        3 => (1..5_u64, owner).prop_map(|(pages, owner)| Thing::Block(pages, owner)),
        1 => (1..4_u64, 0..3_usize).prop_map(|(pages, owner)| Thing::Weight(pages, owner)),
        2 => (1..4_u64, 0..3_usize).prop_map(|(pages, owner)| Thing::Private(pages, owner)),
        3 => Just(Thing::Page),
        2 => Just(Thing::OtherPage),
    ]
}

/// A bank, the model that asks, and how many pages it has.
fn any_bank(category: Category) -> impl Strategy<Value = (Loaded, Option<usize>, usize)> {
    let things = proptest::collection::vec(any_thing(), 2..9);
    let orders = proptest::collection::vec(0..4_u8, 9);
    let needs = proptest::collection::vec(0..4_usize, 3);
    let asking = proptest::option::of(0..3_usize);
    (things, orders, needs, asking, 0..3_usize).prop_map(
        move |(things, orders, needs, asking, kept)| {
            let loaded = Loaded::new(things, &orders, needs, category);
            let kept = kept.min(loaded.pages.len());
            (loaded, asking, if asking.is_some() { kept } else { 0 })
        },
    )
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?} {:?}", self.things, self.needs, self.bank.free)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn for_a_block_the_least_set_is_of_those_that_can_be_carried_out(
        (loaded, asking, kept) in any_bank(Category::SCRATCHPAD_DEVICE),
        pages in 1..9_u64,
        step_bits in 0..3_u32,
    ) {
        let step = 1 << step_bits;
        let wanted = request(pages, step * PAGE_SIZE_BYTES);
        let has_room = |gone: &[usize]| largest(&loaded.bank, gone, step) >= pages;
        loaded.judge(wanted, asking, kept, has_room);
    }

    #[test]
    fn for_blocks_that_are_alike_it_is_so_too(
        (loaded, asking, kept) in any_bank(Category::SCRATCHPAD_DEVICE),
        (count, pages, step_bits) in (2..5_u64, 1..4_u64, 0..2_u32),
    ) {
        let step = 1 << step_bits;
        let wanted = request_of(&[(count, pages, step)]);
        let blocks = vec![(pages, step); count as usize];
        loaded.judge(wanted, asking, kept, |gone| gives_all(&loaded.bank, gone, &blocks));
    }

    #[test]
    fn for_pages_and_private_blocks_it_is_so_too(
        (loaded, asking, kept) in any_bank(Category::SCRATCHPAD_DEVICE),
        pages in 1..3_u64,
        others in proptest::collection::vec(1..4_u64, 1..3),
    ) {
        let mut pieces = vec![(pages, PAGE, 1)];
        pieces.extend(others.iter().map(|&pages| (1, pages, 1)));
        let mut blocks = vec![(PAGE, 1); pages as usize];
        blocks.extend(others.iter().map(|&pages| (pages, 1)));
        let has_room = |gone: &[usize]| gives_all(&loaded.bank, gone, &blocks);
        loaded.judge(request_of(&pieces), asking, kept, has_room);
    }

    #[test]
    fn for_pages_of_a_contiguous_scratchpad_it_is_so_too(
        (loaded, asking, kept) in any_bank(Category::CONTIGUOUS_SCRATCHPAD_DEVICE),
        pages in 1..4_u64,
    ) {
        let wanted = page(pages * PAGE);
        let has_room = |gone: &[usize]| has_page_room(&loaded.bank, gone, pages * PAGE);
        loaded.judge(wanted, asking, kept, has_room);
    }
}

/// Private blocks of a page, each of another model, between blocks of the driver; one in `step` has two
/// neighbours instead.
fn many_models(count: usize) -> Loaded {
    let things = (0..count).flat_map(|number| {
        let border = (number % 4 == 0).then_some(Thing::Block(1, DRIVER));
        border.into_iter().chain([Thing::Private(1, number)])
    });
    let things: Vec<Thing> = things.collect();
    let orders = vec![0; things.len()];
    let needs = vec![0; count];
    Loaded::new(things, &orders, needs, Category::SCRATCHPAD_DEVICE)
}

#[test]
fn of_many_models_those_are_found_that_stand_beside_each_other() {
    let loaded = many_models(24);
    let wanted = request(3, 0);
    let found = explained_for(&snapshot(vec![loaded.bank.clone()]), wanted, loaded.own());
    let opening = found.opening.unwrap();
    let models: Vec<ModelId> = opening.unloads.iter().map(|one| one.model).collect();
    assert_eq!(models, [0, 1, 2].map(model));
    assert!(opening.is_least);
    assert_eq!(
        (opening.freed_bytes, opening.unloaded_blocks),
        (3 * 4096, 3)
    );
}

#[test]
fn where_there_are_too_many_sets_of_models_one_is_found_that_is_enough() {
    // Three blocks of three pages: nobody knows a better way than to try all sets of 24 models.
    let loaded = many_models(24);
    let wanted = request_of(&[(3, 3, 1)]);
    let found = explained_for(&snapshot(vec![loaded.bank.clone()]), wanted, loaded.own());
    let opening = found.opening.unwrap();
    assert!(!opening.is_least);
    let set = numbers(&loaded.bank, &opening);
    assert!(gives_all(&loaded.bank, &set, &[(3, 1); 3]));
    assert_eq!(opening.unloads.len(), set.len());
}

#[test]
fn where_others_have_too_many_pages_a_set_is_found_that_is_enough() {
    // Pages of six cores take turns; of each core the last ones lie highest.
    let things = vec![Thing::OtherPage; 60];
    let mut loaded = Loaded::new(things, &[0; 60], vec![0], Category::SCRATCHPAD_DEVICE);
    for (chunk, number) in loaded.bank.chunks.iter_mut().zip(0..) {
        chunk.core = CoreId::new(number % 6);
    }
    let wanted = request(80, 0);
    let found = explained_for(&snapshot(vec![loaded.bank.clone()]), wanted, loaded.own());
    let opening = found.opening.unwrap();
    let mut set = numbers(&loaded.bank, &opening);
    assert!(largest(&loaded.bank, &set, 1) >= 80);
    // Of each core none stays that is newer than one that goes.
    set.reverse();
    for core in 0..6 {
        let of_core = set.iter().copied().filter(|number| number % 6 == core);
        let newest = (0..10).rev().map(|turn| turn * 6 + core);
        assert!(of_core.clone().eq(newest.take(of_core.count())));
    }
}
