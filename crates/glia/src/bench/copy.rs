//! What moving bytes costs: copies and fills by the engine, beside the C library's in the same run.
//!
//! A copy goes the driver's way: [`Dma::copy`](glia_driver::dma::Dma::copy) stages descriptors into
//! a ring, rings the doorbells, and waits for the marker that the engine copies behind the data.
//! Beside it runs `copy_from_slice` of the whole size, which is the C library's `memcpy`, between
//! buffers of the same kind: anonymous memory with huge pages, touched before.
//!
//! **Hot** cases copy the same bytes over and over, **cold** ones walk through a window that no
//! cache holds. A turn of either begins with copies off the clock, so that caches and the engine's
//! own memory of what it touched are those of the case.
//!
//! **Zero copies** go from and to memory of the kind that the peer has, lent to the call. With the
//! engine on a thread of its own, what crosses from one processor to the other costs more or less as
//! the host has placed the two.
//!
//! **What this does not do.** The op layer has no batch of several copies, so `batch` is as many
//! calls. Staged copies of a process (ioctl, bounce buffer) are the runtime's and not here.

mod report;
mod rig;

use serde::Serialize;

use super::timing::{Op, interleave};
use super::{BenchError, Effort, Step};

pub use report::{CopyBar, CopyReport, CopyRow};

use rig::{Kind, Peer, Subjects, Windows};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Sizes of the classic copies.
const SIZES: [u64; 12] = [
    64,
    4 * KIB,
    64 * KIB,
    256 * KIB,
    512 * KIB,
    MIB,
    4 * MIB,
    8 * MIB,
    16 * MIB,
    64 * MIB,
    256 * MIB,
    GIB,
];
/// Sizes of zero copies.
const ZC_SIZES: [u64; 9] = [
    4 * KIB,
    64 * KIB,
    256 * KIB,
    512 * KIB,
    MIB,
    4 * MIB,
    16 * MIB,
    64 * MIB,
    GIB,
];
/// The same with an engine on a thread of its own.
const ZC_THREADED_SIZES: [u64; 4] = [256 * KIB, MIB, 16 * MIB, 64 * MIB];
/// Sizes of fills and first touches.
const FEW_SIZES: [u64; 4] = [MIB, 16 * MIB, 64 * MIB, GIB];
/// Larger ones are not hot: the caches have let go of their beginning when they end.
const HOT_BYTES_MAX: u64 = 64 * MIB;
/// Smaller ones are not cold: the processor fetches ahead what comes next.
const COLD_BYTES_MIN: u64 = 64 * KIB;
/// A quick run ends here.
const QUICK_BYTES_MAX: u64 = 4 * MIB;

/// What moves, from where to where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyMode {
    /// Host memory to HBM.
    H2d,
    /// HBM to host memory.
    D2h,
    /// HBM to HBM of another channel.
    D2d,
    /// 256 copies of 4 KiB from host memory to HBM, one after the other.
    Batch,
    /// HBM set to a byte.
    Memset,
    /// Host memory to HBM that nobody has touched.
    FirstTouch,
    /// User memory to HBM without a copy in between.
    ZcH2d,
    /// HBM to user memory without a copy in between.
    ZcD2h,
    /// As `ZcH2d`, with the engine on a thread of its own.
    ZcH2dThreaded,
    /// As `ZcD2h`, with the engine on a thread of its own.
    ZcD2hThreaded,
    /// An asynchronous request for user memory to HBM, until it returns.
    ZcSubmit,
    /// As `H2d` with a fault plan that holds no rule, beside the same without.
    EmptyPlan,
}

impl CopyMode {
    /// All of them, in the order of the report.
    pub const ALL: [Self; 12] = [
        Self::H2d,
        Self::D2h,
        Self::D2d,
        Self::Batch,
        Self::Memset,
        Self::FirstTouch,
        Self::ZcH2d,
        Self::ZcD2h,
        Self::ZcH2dThreaded,
        Self::ZcD2hThreaded,
        Self::ZcSubmit,
        Self::EmptyPlan,
    ];

    /// As it is printed, in tables and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::H2d => "h2d",
            Self::D2h => "d2h",
            Self::D2d => "d2d",
            Self::Batch => "batch",
            Self::Memset => "memset",
            Self::FirstTouch => "first_touch",
            Self::ZcH2d => "zc_h2d",
            Self::ZcD2h => "zc_d2h",
            Self::ZcH2dThreaded => "zc_h2d_threaded",
            Self::ZcD2hThreaded => "zc_d2h_threaded",
            Self::ZcSubmit => "zc_submit",
            Self::EmptyPlan => "empty_plan",
        }
    }

    /// One line about it.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::H2d => "host memory to HBM",
            Self::D2h => "HBM to host memory",
            Self::D2d => "HBM to HBM of another channel",
            Self::Batch => "256 copies of 4 KiB from host memory to HBM",
            Self::Memset => "HBM set to a byte, beside the C library's memset",
            Self::FirstTouch => {
                "host memory to fresh HBM, beside memcpy to fresh memory in pages of 4 KiB"
            }
            Self::ZcH2d => "user memory to HBM by zero copy",
            Self::ZcD2h => "HBM to user memory by zero copy",
            Self::ZcH2dThreaded => "user memory to HBM by zero copy, on a machine of threads",
            Self::ZcD2hThreaded => "HBM to user memory by zero copy, on a machine of threads",
            Self::ZcSubmit => {
                "an asynchronous zero copy until it returns, beside a copy of 64 bytes (extra ns)"
            }
            Self::EmptyPlan => "h2d with a fault plan that holds no rule, beside the same without",
        }
    }

    /// The mode of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    fn sizes(self) -> &'static [u64] {
        match self {
            Self::H2d | Self::D2h | Self::D2d => &SIZES,
            Self::ZcH2d | Self::ZcD2h => &ZC_SIZES,
            Self::ZcH2dThreaded | Self::ZcD2hThreaded => &ZC_THREADED_SIZES,
            Self::ZcSubmit => &[MIB, 64 * MIB],
            Self::EmptyPlan => &[4 * KIB, 64 * KIB],
            Self::Batch => &[MIB],
            Self::Memset | Self::FirstTouch => &FEW_SIZES,
        }
    }
}

/// One row of the report before it is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CopyCase {
    mode: CopyMode,
    size_bytes: u64,
    hot: bool,
}

impl CopyCase {
    /// The cases of some modes, in the order of the report.
    fn of(modes: &[CopyMode], effort: Effort) -> Vec<Self> {
        let size_bytes_max = match effort {
            Effort::Full => u64::MAX,
            Effort::Quick => QUICK_BYTES_MAX,
        };
        let both = modes.iter().flat_map(|&mode| {
            let sizes = mode
                .sizes()
                .iter()
                .filter(move |&&size| size <= size_bytes_max);
            sizes.flat_map(move |&size_bytes| {
                [true, false].map(|hot| Self {
                    mode,
                    size_bytes,
                    hot,
                })
            })
        });
        both.filter(Self::is_real).collect()
    }

    /// Whether there is such a thing as this size, hot or cold.
    fn is_real(&self) -> bool {
        match self.mode {
            CopyMode::FirstTouch => !self.hot,
            CopyMode::ZcSubmit | CopyMode::EmptyPlan => self.hot,
            _ if self.hot => self.size_bytes <= HOT_BYTES_MAX,
            _ => self.size_bytes >= COLD_BYTES_MIN,
        }
    }

    /// What the project wants to reach, on the machine of the project.
    fn bar(&self) -> CopyBar {
        match (self.mode, self.hot) {
            (CopyMode::H2d | CopyMode::D2h | CopyMode::D2d, true) => match self.size_bytes {
                4096 => CopyBar::extra_ns(250.0),
                size if size == 64 * KIB => CopyBar::ratio(0.80),
                size if size < 64 * KIB => CopyBar::NONE,
                size if size <= 512 * KIB || size >= 8 * MIB => CopyBar::ratio(0.90),
                _ => CopyBar::NONE,
            },
            (CopyMode::H2d | CopyMode::D2h | CopyMode::D2d, false) if self.size_bytes >= MIB => {
                CopyBar::ratio(1.4)
            }
            (CopyMode::ZcH2d | CopyMode::ZcD2h, true) => match self.size_bytes {
                size if size == 256 * KIB => CopyBar::ratio(0.80),
                size if size >= 512 * KIB => CopyBar::ratio(0.90),
                _ => CopyBar::NONE,
            },
            (CopyMode::ZcH2d | CopyMode::ZcD2h, false) if self.size_bytes >= MIB => {
                CopyBar::ratio(1.4)
            }
            (CopyMode::ZcH2dThreaded | CopyMode::ZcD2hThreaded, _) => CopyBar::ratio(0.80),
            (CopyMode::ZcSubmit, _) if self.size_bytes == 64 * MIB => CopyBar::extra_ns(3000.0),
            (CopyMode::EmptyPlan, _) => CopyBar::ratio(0.97),
            (CopyMode::Memset, false) => CopyBar::ratio(0.90),
            (CopyMode::FirstTouch, _) => CopyBar::ratio(3.0),
            _ => CopyBar::NONE,
        }
    }

    fn name(&self) -> String {
        let Self {
            mode,
            size_bytes,
            hot,
        } = self;
        let size = match size_bytes {
            size if *size >= GIB => format!("{}g", size / GIB),
            size if *size >= MIB => format!("{}m", size / MIB),
            size if *size >= KIB => format!("{}k", size / KIB),
            size => size.to_string(),
        };
        let warmth = if *hot { "hot" } else { "cold" };
        format!("{}_{size}_{warmth}", mode.name())
    }
}

/// Runs the cases of some modes.
///
/// `on_step` is told what comes next; the clock does not run meanwhile.
///
/// # Errors
/// [`BenchError`] if the machine or memory for it cannot be had.
pub fn run_copies(
    modes: &[CopyMode],
    effort: Effort,
    on_step: &mut dyn FnMut(Step),
) -> Result<CopyReport, BenchError> {
    let cases = CopyCase::of(modes, effort);
    let window_bytes = match effort {
        Effort::Full => GIB,
        Effort::Quick => 8 * QUICK_BYTES_MAX,
    };
    let windows = Windows::new(window_bytes, Kind::Plain)?;
    // Smaller ones: no case of theirs is larger.
    let other = |wanted: &[CopyMode], kind, bytes_max: u64| {
        let is_wanted = modes.iter().any(|mode| wanted.contains(mode));
        let windows = || Windows::new(window_bytes.min(bytes_max), kind);
        is_wanted.then(windows).transpose()
    };
    let threaded = [
        CopyMode::ZcH2dThreaded,
        CopyMode::ZcD2hThreaded,
        CopyMode::ZcSubmit,
    ];
    let threaded = other(&threaded, Kind::Threaded, 256 * MIB)?;
    let planned = other(&[CopyMode::EmptyPlan], Kind::EmptyPlan, 32 * MIB)?;
    let peer = Peer::new(window_bytes)?;
    let mut rows = Vec::new();
    for (done, case) in (0..).zip(&cases) {
        on_step(Step {
            case: case.mode.name(),
            done,
            total: cases.len() as u64,
        });
        let mut subjects = Subjects {
            windows: &windows,
            threaded: threaded.as_ref(),
            planned: planned.as_ref(),
            peer: &peer,
        }
        .of(*case);
        let medians = interleave(&mut subjects, &effort.pace())?;
        let figure = |side: usize| medians.get(side)?.get(&Op::Copy).copied();
        if let Some((glia_ns, memcpy_ns)) = figure(0).zip(figure(1)) {
            rows.push(CopyRow::new(case, glia_ns, memcpy_ns));
        }
    }
    Ok(CopyReport { effort, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classic_copies_go_from_64_bytes_to_1_gib_and_names_are_unique() {
        let cases = CopyCase::of(&CopyMode::ALL, Effort::Full);
        let mut names: Vec<_> = cases.iter().map(CopyCase::name).collect();
        for name in ["h2d_64_hot", "d2h_1g_cold", "d2d_512k_hot", "batch_1m_cold"] {
            assert!(names.iter().any(|it| it == name), "{name}");
        }
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_quick_run_has_every_mode() {
        let cases = CopyCase::of(&CopyMode::ALL, Effort::Quick);
        for mode in CopyMode::ALL {
            assert!(cases.iter().any(|case| case.mode == mode), "{mode:?}");
            assert_eq!(CopyMode::named(mode.name()), Some(mode));
        }
    }
}
