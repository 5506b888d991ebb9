//! The context queue of a ring: which contexts are to be pinned, staged and waited for, in order
//! (driver 2.27.4).
//!
//! ```text
//!        head          first pinned          first unpinned           tail
//!   ───────┼────────────────┼─────────────────────┼─────────────────────┼───────
//!    free  │   submitted    │       pinned        │      unpinned       │   free
//!          │ (the engine's) │  (to be submitted)  │   (to be pinned)    │
//! ```
//!
//! Contexts enter at the tail, are pinned and submitted in order, and leave at the head. One that is
//! [cancelled](ContextQueue::remove_unsubmitted) leaves a hole, over which the cursors step.
//!
//! Many contexts of one request enter as a **run**: they have their slots, and each is cut out of it
//! when a cursor comes to it. So a request costs whoever makes it the same, however large it is.
//!
//! **The invariant** is the order of the four cursors around the ring, with every context in the
//! region of its state, and no cursor at a hole unless its region is empty. So a pinned context does not enter behind an unpinned one
//! ([`push`](ContextQueue::push) refuses it; the reference lets its cursors cross there).

use std::collections::VecDeque;

/// In which region a context enters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Region {
    /// It has what it needs to be submitted.
    Pinned,
    /// Its pages have to be pinned first.
    Unpinned,
}

/// A ring of contexts, see the module. `R` gives those of a run.
pub(crate) struct ContextQueue<T, R> {
    /// `None` where nothing is, nothing is any more, or it has not been cut.
    slots: Box<[Option<T>]>,
    mask: u32,
    head: u32,
    first_pinned: u32,
    first_unpinned: u32,
    tail: u32,
    /// In order; none is empty.
    runs: VecDeque<Run<R>>,
}

/// The contexts of a run that have not been cut.
struct Run<R> {
    /// The slot of the first.
    next: u32,
    rest: R,
}

impl<T, R: ExactSizeIterator<Item = T>> ContextQueue<T, R> {
    /// An empty queue of so many slots, a power of two, of which one stays free. `None` for any
    /// other number.
    pub(crate) fn new(capacity: u32) -> Option<Self> {
        let is_ring = capacity.is_power_of_two() && capacity > 1;
        is_ring.then(|| Self {
            slots: (0..capacity).map(|_| None).collect(),
            mask: capacity - 1,
            head: 0,
            first_pinned: 0,
            first_unpinned: 0,
            tail: 0,
            runs: VecDeque::new(),
        })
    }

    /// Slots that can be taken. Holes count as taken until the head has passed them.
    pub(crate) fn free(&self) -> u32 {
        self.mask - (self.tail.wrapping_sub(self.head) & self.mask)
    }

    /// Whether everything in it is pinned.
    pub(crate) fn has_no_unpinned(&self) -> bool {
        self.first_unpinned == self.tail
    }

    /// Enters a context.
    ///
    /// # Errors
    /// Gives it back if the queue is full, or it is pinned and one that is not is before it.
    pub(crate) fn push(&mut self, region: Region, context: T) -> Result<(), T> {
        if self.free() == 0 || (region == Region::Pinned && !self.has_no_unpinned()) {
            return Err(context);
        }
        let slot = self.tail;
        self.slots[slot as usize] = Some(context);
        self.move_tail(region, 1);
        Ok(())
    }

    /// Enters the contexts of a run.
    ///
    /// # Errors
    /// Gives it back if there are not so many slots, or they are pinned and one that is not is before
    /// them.
    pub(crate) fn push_run(&mut self, region: Region, rest: R) -> Result<(), R> {
        let count = match u32::try_from(rest.len()) {
            Ok(0) => return Ok(()),
            Ok(count) if count <= self.free() => count,
            _ => return Err(rest),
        };
        if region == Region::Pinned && !self.has_no_unpinned() {
            return Err(rest);
        }
        let next = self.tail;
        self.runs.push_back(Run { next, rest });
        self.move_tail(region, count);
        Ok(())
    }

    fn move_tail(&mut self, region: Region, count: u32) {
        self.tail = self.tail.wrapping_add(count) & self.mask;
        if region == Region::Pinned {
            self.first_unpinned = self.tail;
        }
    }

    /// How many contexts there are.
    pub(crate) fn len(&self) -> usize {
        let uncut: usize = self.runs.iter().map(|run| run.rest.len()).sum();
        uncut + self.between(self.head, self.tail).count()
    }

    /// The oldest context that is submitted, with its slot.
    pub(crate) fn oldest_submitted(&mut self) -> Option<(u32, &mut T)> {
        self.at(self.head, self.first_pinned)
    }

    /// The context that is to be submitted next.
    pub(crate) fn next_pinned(&mut self) -> Option<(u32, &mut T)> {
        self.at(self.first_pinned, self.first_unpinned)
    }

    /// The context that is to be pinned next.
    pub(crate) fn next_unpinned(&mut self) -> Option<(u32, &mut T)> {
        self.at(self.first_unpinned, self.tail)
    }

    /// The [next pinned](Self::next_pinned) context is submitted now.
    pub(crate) fn mark_submitted(&mut self) {
        if self.first_pinned != self.first_unpinned {
            self.cut(self.first_pinned);
            self.first_pinned = self.next_valid(self.after(self.first_pinned), self.first_unpinned);
        }
    }

    /// The [next unpinned](Self::next_unpinned) context is pinned now.
    pub(crate) fn mark_pinned(&mut self) {
        if self.first_unpinned != self.tail {
            self.cut(self.first_unpinned);
            self.first_unpinned = self.next_valid(self.after(self.first_unpinned), self.tail);
        }
    }

    /// Takes the oldest context out, if it is submitted.
    pub(crate) fn pop_submitted(&mut self) -> Option<(u32, T)> {
        let slot = self.head;
        if slot == self.first_pinned {
            return None;
        }
        let context = self.slots[slot as usize].take()?;
        // No further than the next cursor, which never stands at a hole.
        self.head = self.next_valid(self.after(slot), self.tail);
        Some((slot, context))
    }

    /// Takes those contexts out that are not submitted and of which this is true, in order.
    pub(crate) fn remove_unsubmitted(&mut self, mut goes: impl FnMut(&T) -> bool) -> Vec<T> {
        self.cut_all();
        let slots = self.slots_between(self.first_pinned, self.tail);
        let mut gone = Vec::new();
        for slot in slots {
            let slot = &mut self.slots[slot as usize];
            if slot.as_ref().is_some_and(&mut goes) {
                gone.extend(slot.take());
            }
        }
        // The order of the reference: each cursor stops at the next one's new place.
        self.first_unpinned = self.next_valid(self.first_unpinned, self.tail);
        self.first_pinned = self.next_valid(self.first_pinned, self.first_unpinned);
        self.head = self.next_valid(self.head, self.tail);
        gone
    }

    /// Takes everything out, in order.
    pub(crate) fn drain(&mut self) -> Vec<(u32, T)> {
        self.cut_all();
        let slots = self.slots_between(self.head, self.tail);
        let taken = |slot| Some((slot, self.slots[slot as usize].take()?));
        let all = slots.filter_map(taken).collect();
        self.head = self.tail;
        self.first_pinned = self.tail;
        self.first_unpinned = self.tail;
        all
    }

    /// The submitted contexts with their slots, the oldest first.
    pub(crate) fn submitted(&self) -> impl DoubleEndedIterator<Item = (u32, &T)> {
        self.between(self.head, self.first_pinned)
    }

    /// The context in a slot.
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// All contexts, the oldest first.
    pub(crate) fn iter(&mut self) -> impl Iterator<Item = &T> {
        self.cut_all();
        self.between(self.head, self.tail)
            .map(|(_, context)| context)
    }

    fn at(&mut self, slot: u32, end: u32) -> Option<(u32, &mut T)> {
        if slot == end {
            return None;
        }
        self.cut(slot);
        Some((slot, self.slots[slot as usize].as_mut()?))
    }

    /// Makes the context of a slot, if it belongs to a run.
    #[inline]
    fn cut(&mut self, slot: u32) {
        if self.slots[slot as usize].is_none() {
            self.cut_upto(slot);
        }
    }

    /// The same, with those before it in the run.
    #[inline(never)]
    fn cut_upto(&mut self, slot: u32) {
        let Some(number) = self.run_of(slot) else {
            return;
        };
        let (mask, run) = (self.mask, &mut self.runs[number]);
        let count = (slot.wrapping_sub(run.next) & mask) + 1;
        for _ in 0..count {
            self.slots[run.next as usize] = run.rest.next();
            run.next = run.next.wrapping_add(1) & mask;
        }
        if run.rest.len() == 0 {
            self.runs.remove(number);
        }
    }

    fn cut_all(&mut self) {
        for Run { mut next, rest } in std::mem::take(&mut self.runs) {
            for context in rest {
                self.slots[next as usize] = Some(context);
                next = self.after(next);
            }
        }
    }

    /// The run that a slot belongs to.
    #[inline(never)]
    fn run_of(&self, slot: u32) -> Option<usize> {
        let place = |slot: u32| slot.wrapping_sub(self.head) & self.mask;
        let place_of = |run: &Run<R>| place(run.next);
        let upto = self
            .runs
            .partition_point(|run| place_of(run) <= place(slot));
        let number = upto.checked_sub(1)?;
        let run = self.runs.get(number)?;
        let is_in = ((place(slot) - place_of(run)) as usize) < run.rest.len();
        is_in.then_some(number)
    }

    fn after(&self, slot: u32) -> u32 {
        slot.wrapping_add(1) & self.mask
    }

    /// The first slot from here on that holds a context, or `stop`.
    fn next_valid(&self, mut slot: u32, stop: u32) -> u32 {
        let is_empty =
            |slot: u32| self.slots[slot as usize].is_none() && self.run_of(slot).is_none();
        while slot != stop && is_empty(slot) {
            slot = self.after(slot);
        }
        slot
    }

    fn between(&self, from: u32, to: u32) -> impl DoubleEndedIterator<Item = (u32, &T)> {
        let slots = self.slots_between(from, to);
        slots.filter_map(|slot| Some((slot, self.slots[slot as usize].as_ref()?)))
    }

    fn slots_between(
        &self,
        from: u32,
        to: u32,
    ) -> impl DoubleEndedIterator<Item = u32> + use<T, R> {
        let mask = self.mask;
        let count = to.wrapping_sub(from) & mask;
        (0..count).map(move |place| from.wrapping_add(place) & mask)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CAPACITY: u32 = 16;

    type Queue = ContextQueue<u32, std::vec::IntoIter<u32>>;

    /// What a context has come to.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Stage {
        Submitted,
        Pinned,
        Unpinned,
    }

    /// The queue as a list, with its holes: a slot is free when everything before it has gone.
    #[derive(Default)]
    struct Model {
        /// Number and stage, or a hole.
        slots: std::collections::VecDeque<Option<(u32, Stage)>>,
    }

    impl Model {
        fn live(&self) -> impl Iterator<Item = (u32, Stage)> {
            self.slots.iter().flatten().copied()
        }

        fn first(&self, stage: Stage) -> Option<u32> {
            let mut all = self.live();
            all.find_map(|(number, of)| (of == stage).then_some(number))
        }

        fn fits(&self, region: Region, count: u32) -> bool {
            let unpinned = self.first(Stage::Unpinned).is_some();
            let crosses = region == Region::Pinned && unpinned;
            let free = CAPACITY as usize - 1 - self.slots.len();
            count == 0 || count as usize <= free && !crosses
        }

        fn push(&mut self, region: Region, number: u32) {
            let stage = match region {
                Region::Pinned => Stage::Pinned,
                Region::Unpinned => Stage::Unpinned,
            };
            self.slots.push_back(Some((number, stage)));
        }

        fn change(&mut self, from: Stage, to: Stage) -> bool {
            let mut all = self.slots.iter_mut().flatten();
            let first = all.find(|(_, stage)| *stage == from);
            first.map(|(_, stage)| *stage = to).is_some()
        }

        /// Holes at the front are given back at once.
        fn trim(&mut self) {
            while let Some(None) = self.slots.front() {
                self.slots.pop_front();
            }
        }
    }

    #[derive(Debug, Clone, Copy)]
    enum Action {
        Push(Region),
        /// So many at once.
        PushRun(Region, u32),
        /// Has all of them made.
        LookAtAll,
        Pin,
        Submit,
        Pop,
        /// All whose number leaves this rest when divided by 3.
        Cancel(u32),
        Drain,
    }

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![
            4 => Just(Action::Push(Region::Pinned)),
            4 => Just(Action::Push(Region::Unpinned)),
            2 => (0..5_u32).prop_map(|count| Action::PushRun(Region::Pinned, count)),
            2 => (0..5_u32).prop_map(|count| Action::PushRun(Region::Unpinned, count)),
            1 => Just(Action::LookAtAll),
            4 => Just(Action::Pin),
            4 => Just(Action::Submit),
            4 => Just(Action::Pop),
            2 => (0..3_u32).prop_map(Action::Cancel),
            1 => Just(Action::Drain),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_queue_is_its_model(actions in prop::collection::vec(action(), 1..120)) {
            let mut queue = Queue::new(CAPACITY).unwrap();
            let mut model = Model::default();
            for (number, action) in (0..).zip(actions) {
                let number = number * 10;
                match action {
                    Action::Push(region) => {
                        let fits = model.fits(region, 1);
                        prop_assert_eq!(queue.push(region, number).is_ok(), fits);
                        if fits {
                            model.push(region, number);
                        }
                    }
                    Action::PushRun(region, count) => {
                        let fits = model.fits(region, count);
                        let numbers = number..number + count;
                        prop_assert_eq!(queue.push_run(region, Vec::from_iter(numbers.clone()).into_iter()).is_ok(), fits);
                        if fits {
                            numbers.for_each(|number| model.push(region, number));
                        }
                    }
                    Action::LookAtAll => {
                        let live = model.live().map(|(number, _)| number);
                        prop_assert!(queue.iter().copied().eq(live));
                    }
                    Action::Pin => {
                        queue.mark_pinned();
                        model.change(Stage::Unpinned, Stage::Pinned);
                    }
                    Action::Submit => {
                        queue.mark_submitted();
                        model.change(Stage::Pinned, Stage::Submitted);
                    }
                    Action::Pop => {
                        let popped = queue.pop_submitted().map(|(_, number)| number);
                        prop_assert_eq!(popped, model.first(Stage::Submitted));
                        if popped.is_some() {
                            // It is the first of all.
                            model.slots.pop_front();
                            model.trim();
                        }
                    }
                    Action::Cancel(rest) => {
                        let gone = queue.remove_unsubmitted(|number| number % 3 == rest);
                        let mut expected = Vec::new();
                        for slot in &mut model.slots {
                            if let Some((number, stage)) = *slot
                                && number % 3 == rest
                                && stage != Stage::Submitted
                            {
                                expected.push(number);
                                *slot = None;
                            }
                        }
                        model.trim();
                        // Holes at the end are free again only when the queue has got there.
                        prop_assert_eq!(gone, expected);
                    }
                    Action::Drain => {
                        let all: Vec<_> = queue.drain().into_iter().map(|(_, it)| it).collect();
                        prop_assert!(all.into_iter().eq(model.live().map(|(number, _)| number)));
                        model.slots.clear();
                    }
                }
                let live: Vec<_> = model.live().collect();
                prop_assert!(live.is_sorted_by_key(|(_, stage)| *stage));
                prop_assert_eq!(queue.len(), live.len());
                let unpinned = model.first(Stage::Unpinned);
                prop_assert_eq!(queue.has_no_unpinned(), unpinned.is_none());
                prop_assert_eq!(queue.free() as usize, CAPACITY as usize - 1 - model.slots.len());
                let number = |found: Option<(u32, &mut u32)>| found.map(|(_, number)| *number);
                prop_assert_eq!(number(queue.oldest_submitted()), model.first(Stage::Submitted));
                prop_assert_eq!(number(queue.next_pinned()), model.first(Stage::Pinned));
                prop_assert_eq!(number(queue.next_unpinned()), unpinned);
                let submitted = queue.submitted().map(|(_, number)| *number);
                let expected = live.iter().filter(|(_, stage)| *stage == Stage::Submitted);
                prop_assert!(submitted.eq(expected.map(|(number, _)| *number)));
            }
        }
    }

    #[test]
    fn a_queue_has_a_power_of_two_slots_and_one_stays_free() {
        for capacity in [0, 1, 3, 1023] {
            assert!(Queue::new(capacity).is_none());
        }
        assert_eq!(Queue::new(1024).unwrap().free(), 1023);
    }

    /// In the reference the cursors cross here, and a context is pinned twice.
    #[test]
    fn a_pinned_context_does_not_enter_behind_an_unpinned_one() {
        let mut queue = Queue::new(8).unwrap();
        queue.push(Region::Unpinned, 1).unwrap();
        assert_eq!(queue.push(Region::Pinned, 2), Err(2));
        queue.mark_pinned();
        queue.push(Region::Pinned, 2).unwrap();
        assert_eq!(queue.next_pinned(), Some((0, &mut 1)));
        assert_eq!(queue.next_unpinned(), None);
    }
}
