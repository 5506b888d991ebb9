//! The cases: what is set up, what is asked, and what the project wants to reach.
//!
//! The list is data. A case is a [`Scene`], its bars, and how far its cost may grow with the number
//! of live chunks.

use std::time::Duration;

use glia_driver::arena::{Arena, NaiveBitmap};

use super::records;
use super::rig::{Ask, Ground};
use super::scene::Scene;
use super::search;
use super::tables;
use super::timing::{Op, Pace};

/// One line of `--case`.
#[derive(Debug)]
pub struct Case {
    /// The name, as it is given on the command line and printed.
    pub id: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// What stands on the other side; `None` if it would take minutes.
    pub peer: Option<&'static str>,
    /// The operations that are reported, and what they are to reach.
    pub bars: &'static [Bar],
    pub(super) scene: Scene,
    pub(super) growth: Option<Growth>,
}

/// What an operation is to reach, on the machine of the project.
#[derive(Debug, Clone, Copy)]
pub struct Bar {
    /// Which operation.
    pub op: Op,
    /// Nanoseconds at most.
    pub ns_max: Option<f64>,
    /// How many times the peer's cost is to be Glia's, at least.
    pub ratio_min: Option<f64>,
}

/// How far the cost may grow from few chunks (or holes) to many.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growth {
    pub(super) few: u32,
    pub(super) many: u32,
    pub(super) factor_max: f64,
}

/// How much trouble to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Everything: under a minute.
    Full,
    /// A hundredth of the chunks and a few batches: shows that all cases run. The figures mean
    /// little.
    Quick,
}

/// A name that is no case's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no case is named {name:?}; there are {}", known.join(", "))]
pub struct UnknownCase {
    /// The name given.
    pub name: String,
    /// The names of those that there are.
    pub known: Vec<&'static str>,
}

const NAIVE: Option<&str> = Some(NaiveBitmap::NAME);
const MILLION: u32 = 1_000_000;
const MIB_PAGES: u32 = 256;
const GIB_PAGES: u32 = 1024 * MIB_PAGES;
/// Operations to a reading of the clock,
const BATCH: usize = 64;
/// and of the largest chunks, of which more do not fit.
const LARGE_BATCH: usize = 16;

const CHECKERBOARD: Ground = Ground::Pierced {
    lead: 0,
    holes: GIB_PAGES / 2,
    hole_pages: 1,
};
const CHECKERBOARD_GROWTH: Growth = Growth {
    few: 500,
    many: MILLION,
    factor_max: 4.0,
};

/// The cases of `glia bench pool`, in the order of the report.
pub static POOL_CASES: [Case; 13] = [
    Case {
        id: "empty_4k",
        about: "4 KiB, empty pool",
        peer: NAIVE,
        bars: &[
            Bar::none(Op::Alloc),
            Bar::none(Op::Free),
            Bar::both(Op::Pair, 60.0, 0.6),
        ],
        scene: Scene::Steady {
            ground: Ground::Empty,
            ask: Ask::plain(1),
            batch: BATCH,
        },
        growth: None,
    },
    Case {
        id: "behind_1m_4k",
        about: "4 KiB behind 1,000,000 live 4 KiB chunks",
        peer: NAIVE,
        bars: &[Bar::both(Op::Alloc, 60.0, 25.0), Bar::ns(Op::Free, 60.0)],
        scene: Scene::Steady {
            ground: Ground::Solid { live: MILLION },
            ask: Ask::plain(1),
            batch: BATCH,
        },
        growth: Some(Growth {
            few: 1000,
            many: MILLION,
            factor_max: 2.0,
        }),
    },
    Case {
        id: "holes_1m_4k",
        about: "64 random ones of 1,000,000 4 KiB chunks freed, the holes refilled",
        peer: NAIVE,
        bars: &[Bar::both(Op::Alloc, 250.0, 3.0), Bar::ns(Op::Free, 500.0)],
        scene: Scene::Holes { live: MILLION },
        growth: Some(Growth {
            few: 1000,
            many: MILLION,
            factor_max: 9.0,
        }),
    },
    Case {
        id: "checkerboard_2m",
        about: "2 MiB, every other 4 KiB page of 1 GiB free",
        peer: NAIVE,
        bars: &[
            Bar::both(Op::Alloc, 120.0, 4000.0),
            Bar::ns(Op::Free, 200.0),
        ],
        scene: Scene::Steady {
            ground: CHECKERBOARD,
            ask: Ask::plain(2 * MIB_PAGES),
            batch: BATCH,
        },
        growth: Some(CHECKERBOARD_GROWTH),
    },
    Case {
        id: "checkerboard_64k_aligned",
        about: "64 KiB aligned to 64 KiB, the same ground",
        peer: NAIVE,
        bars: &[Bar::both(Op::Alloc, 160.0, 500.0), Bar::ns(Op::Free, 220.0)],
        scene: Scene::Steady {
            ground: CHECKERBOARD,
            ask: Ask::aligned(16, 16),
            batch: BATCH,
        },
        growth: Some(CHECKERBOARD_GROWTH),
    },
    Case {
        id: "adversarial_aligned",
        about: "8 pages aligned to 16; 340,000 free extents of 15 pages, each one page past a multiple of 16",
        peer: NAIVE,
        bars: &[
            Bar::ns(Op::First, 2e6),
            Bar::both(Op::Alloc, 300.0, 2000.0),
            Bar::ns(Op::Free, 300.0),
        ],
        scene: Scene::First {
            ground: Ground::Pierced {
                lead: 1,
                holes: 340_000,
                hole_pages: 15,
            },
            ask: Ask::aligned(8, 16),
            batch: BATCH,
        },
        growth: None,
    },
    Case {
        id: "empty_1g",
        about: "1 GiB, empty pool",
        peer: NAIVE,
        bars: &[
            Bar::both(Op::Alloc, 60.0, 100.0),
            Bar::both(Op::Free, 60.0, 100.0),
        ],
        scene: Scene::Steady {
            ground: Ground::Empty,
            ask: Ask::plain(GIB_PAGES),
            batch: LARGE_BATCH,
        },
        growth: None,
    },
    Case {
        id: "churn_1k",
        about: "one of 1,000 chunks of 4 to 64 KiB freed at random, one taken",
        peer: NAIVE,
        bars: &[Bar::both(Op::Pair, 180.0, 3.0)],
        scene: Scene::Churn {
            live: 1000,
            pages_max: 16,
        },
        growth: None,
    },
    Case {
        id: "churn_10k",
        about: "the same among 10,000",
        peer: NAIVE,
        bars: &[Bar::both(Op::Pair, 260.0, 12.0)],
        scene: Scene::Churn {
            live: 10_000,
            pages_max: 16,
        },
        growth: None,
    },
    Case {
        id: "churn_100k",
        about: "the same among 100,000",
        peer: NAIVE,
        bars: &[Bar::both(Op::Pair, 550.0, 60.0)],
        scene: Scene::Churn {
            live: 100_000,
            pages_max: 16,
        },
        growth: None,
    },
    Case {
        id: "churn_1m",
        about: "the same among 1,000,000 of 4 to 32 KiB",
        peer: None,
        bars: &[Bar::ns(Op::Pair, 1000.0)],
        scene: Scene::Churn {
            live: MILLION,
            pages_max: 8,
        },
        growth: Some(Growth {
            few: 1000,
            many: MILLION,
            factor_max: 9.0,
        }),
    },
    SEARCH_1M,
    SEARCH_1M_INDEX,
];

/// The cases of `glia bench handles`.
pub static HANDLE_CASES: [Case; 9] = [
    Case {
        id: "table_100k",
        about: "the handle table alone, random ones of 100,000 handles",
        peer: Some(tables::PEER),
        bars: TABLE_BARS,
        scene: Scene::Table { live: 100_000 },
        growth: None,
    },
    Case {
        id: "table_1m",
        about: "the same of 1,000,000",
        peer: Some(tables::PEER),
        bars: TABLE_BARS,
        scene: Scene::Table { live: MILLION },
        growth: None,
    },
    Case {
        id: "record_1k",
        about: "a copy of the record of the chunk with a random handle, 1,000 live",
        peer: Some(records::RECORDS),
        bars: &[Bar::ns(Op::Find, 8.0)],
        scene: Scene::Record { live: 1000 },
        growth: None,
    },
    Case {
        id: "record_1m",
        about: "the same among 1,000,000",
        peer: Some(records::RECORDS),
        bars: &[Bar::ratio(Op::Find, 1.0 / 6.0)],
        scene: Scene::Record { live: MILLION },
        growth: None,
    },
    Case {
        id: "record_two_threads",
        about: "the same among 1,000 on two threads: time over all lookups, beside that of one thread",
        peer: Some(records::ONE_THREAD),
        bars: &[Bar::ratio(Op::Find, 1.7), Bar::none(Op::HandOff)],
        scene: Scene::RecordTwoThreads { live: 1000 },
        growth: None,
    },
    Case {
        id: "pin_1k",
        about: "a pin on the chunk with a random handle taken and dropped, 1,000 live",
        peer: Some(records::COUNTED),
        bars: &[Bar::ns(Op::Pair, 12.0)],
        scene: Scene::Pin { live: 1000 },
        growth: None,
    },
    SEARCH_1M,
    SEARCH_1M_INDEX,
    Case {
        id: "search_1m_busy",
        about: "search_1m beside a thread that frees and allocates all the time",
        peer: Some(search::IDLE),
        bars: &[Bar::ratio(Op::Find, 1.0 / 1.5), Bar::none(Op::HandOff)],
        scene: Scene::SearchBusy {
            live: MILLION,
            pages_max: 8,
        },
        growth: None,
    },
];

/// At most 1.3 times the slab.
const TABLE_BARS: &[Bar] = &[
    Bar::ratio(Op::Alloc, 1.0 / 1.3),
    Bar::ratio(Op::Find, 1.0 / 1.3),
    Bar::ratio(Op::Free, 1.0 / 1.3),
];

const SEARCH_1M: Case = Case {
    id: "search_1m",
    about: "the chunk at a random address and a copy of its record, 1,000,000 live",
    peer: Some(search::PEER),
    bars: &[Bar::both(Op::Find, 140.0, 3.0)],
    scene: Scene::Search {
        live: MILLION,
        pages_max: 8,
    },
    growth: None,
};

const SEARCH_1M_INDEX: Case = Case {
    id: "search_1m_index",
    about: "the same by the address index alone, without the record",
    peer: Some(search::PEER),
    bars: &[Bar::both(Op::Find, 50.0, 8.0)],
    scene: Scene::SearchBare {
        live: MILLION,
        pages_max: 8,
    },
    growth: None,
};

impl Case {
    /// The one of `cases` that has this name.
    ///
    /// # Errors
    /// [`UnknownCase`], which lists those that there are.
    pub fn find(cases: &'static [Self], id: &str) -> Result<&'static Self, UnknownCase> {
        let found = cases.iter().find(|case| case.id == id);
        found.ok_or_else(|| UnknownCase {
            name: id.to_owned(),
            known: cases.iter().map(|case| case.id).collect(),
        })
    }
}

impl Bar {
    const fn none(op: Op) -> Self {
        Self {
            op,
            ns_max: None,
            ratio_min: None,
        }
    }

    const fn ns(op: Op, ns_max: f64) -> Self {
        Self {
            ns_max: Some(ns_max),
            ..Self::none(op)
        }
    }

    const fn ratio(op: Op, ratio_min: f64) -> Self {
        Self {
            ratio_min: Some(ratio_min),
            ..Self::none(op)
        }
    }

    const fn both(op: Op, ns_max: f64, ratio_min: f64) -> Self {
        Self {
            ratio_min: Some(ratio_min),
            ..Self::ns(op, ns_max)
        }
    }
}

impl Effort {
    /// The scene at this effort.
    pub(super) fn scaled(self, scene: Scene) -> Scene {
        match self {
            Self::Full => scene,
            Self::Quick => scene.resized(|count| count.min((count / 100).max(1000))),
        }
    }

    pub(super) fn pace(self) -> Pace {
        match self {
            Self::Full => Pace {
                turns: 9,
                turn_time: Duration::from_millis(25),
            },
            Self::Quick => Pace {
                turns: 3,
                turn_time: Duration::from_millis(1),
            },
        }
    }
}
