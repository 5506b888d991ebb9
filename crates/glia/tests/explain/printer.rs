//! Prints what the runtime prints. It shares nothing with the reader but the sheet both were
//! written from.

use std::fmt::Write as _;

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

/// A size with three decimals.
pub(crate) fn size(bytes: u64) -> String {
    let (divisor, unit) = match bytes {
        0..1024 => (1, "B"),
        1024..0x10_0000 => (1 << 10, "KB"),
        0x10_0000..0x4000_0000 => (1 << 20, "MB"),
        _ => (1_u64 << 30, "GB"),
    };
    #[expect(clippy::cast_precision_loss, reason = "the runtime does the same")]
    let number = bytes as f64 / divisor as f64;
    format!("{number:.3}{unit}")
}

/// The prefix of a line, padded to where its message begins.
pub(crate) fn prefix(tid: u32, level: &str, function: &str) -> String {
    format!("2026-Mar-01 10:00:00.123456  4100:{tid:<5} {level:>5}  TDRV:{function:<40}")
}

pub(crate) fn error(tid: u32, function: &str, message: &str) -> String {
    format!("{}{message}\n", prefix(tid, "ERROR", function))
}

/// A failure of the older kind: its size, its list.
pub(crate) struct ListReport {
    pub(crate) tid: u32,
    pub(crate) asked: u64,
    pub(crate) usage: &'static str,
    pub(crate) device: u32,
    pub(crate) core: u32,
    pub(crate) items: Vec<(&'static str, u64)>,
}

impl ListReport {
    pub(crate) fn sample(tid: u32, device: u32, core: u32) -> Self {
        Self {
            tid,
            asked: 31_457_300,
            usage: "dma rings",
            device,
            core,
            items: vec![
                ("model code", 301 * MIB),
                ("tensors", 12 * GIB + u64::from(tid) * MIB),
                ("runtime", 1088),
                ("dma rings", 3 * GIB),
                ("collectives", 301 * MIB + 1),
            ],
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.items.iter().map(|(_, bytes)| bytes).sum()
    }

    /// The line with the exact size.
    pub(crate) fn first(&self) -> String {
        let message = format!("Failed to alloc DEVICE memory: {}", self.asked);
        error(self.tid, "dmem_alloc_internal", &message)
    }

    pub(crate) fn head(&self) -> String {
        let message = format!(
            "Failed to allocate {} (usage: {}) on ND {}:NC {}, current utilization:",
            size(self.asked),
            self.usage,
            self.device,
            self.core
        );
        error(self.tid, "log_dev_mem", &message)
    }

    pub(crate) fn list(&self) -> String {
        let mut text = format!("\t* total: {}\n", size(self.total()));
        for (name, bytes) in &self.items {
            let _ = writeln!(text, "\t* {name}: {}", size(*bytes));
        }
        text + "\n"
    }

    pub(crate) fn whole(&self) -> String {
        self.first() + &self.head() + &self.list()
    }
}

/// A table's column: its two headings, its width.
const COLUMNS: [(&str, &str, usize); 14] = [
    ("", "TOTAL", 10),
    ("Model", "Code", 10),
    ("Model", "Constants", 10),
    ("", "Tensors", 10),
    ("Shared", "Scratchpad", 10),
    ("", "Scratchpad", 10),
    ("", "Runtime", 10),
    ("DMA Rings", "IO", 10),
    ("DMA Rings", "Spill", 10),
    ("DMA Rings", "Collectives", 11),
    ("DMA Rings", "Runtime", 10),
    ("", "Collectives", 11),
    ("", "XT CC", 10),
    ("Profiler", "Buffers", 10),
];
const XT_CC: usize = 12;
/// What a model's row has no figure for.
const NOT_OF_A_MODEL: [usize; 4] = [3, 4, XT_CC, 13];

/// A failure of the newer kind: its size, its table.
#[derive(Clone)]
pub(crate) struct TableReport {
    pub(crate) tid: u32,
    pub(crate) asked: u64,
    pub(crate) alignment: u64,
    pub(crate) device: u32,
    /// Both cores of the HBM; the first is the one that fails.
    pub(crate) cores: [u32; 2],
    pub(crate) has_xt_cc: bool,
    /// What stands before a core's label.
    pub(crate) indent: &'static str,
}

impl TableReport {
    pub(crate) fn sample(tid: u32, device: u32, cores: [u32; 2]) -> Self {
        Self {
            tid,
            asked: GIB + 12_345,
            alignment: 0,
            device,
            cores,
            has_xt_cc: false,
            indent: "",
        }
    }

    /// The bytes of a core's categories, without the total.
    pub(crate) fn core(&self, core: u32) -> [u64; 13] {
        let of = |what: u64| (u64::from(core) + 1) * what + u64::from(self.device);
        let tensors = if core == self.cores[0] { 21 * GIB } else { 0 };
        [
            96 * MIB,
            of(1000),
            tensors,
            64 * MIB,
            of(70_000),
            of(3_000),
            of(1 << 17),
            of(1 << 16),
            0,
            of(4096),
            of(9 * MIB),
            0,
            128 * MIB,
        ]
    }

    fn cells(&self, values: &[u64; 13], is_model: bool) -> Vec<String> {
        let counts = |column: usize| !is_model || !NOT_OF_A_MODEL.contains(&column);
        let total = (1..14)
            .filter(|&column| counts(column))
            .map(|column| values[column - 1])
            .sum();
        let all = std::iter::once(size(total)).chain((1..14).map(|column| {
            if counts(column) {
                size(values[column - 1])
            } else {
                "n/a".to_owned()
            }
        }));
        all.collect()
    }

    fn line(&self, label: &str, cells: &[String]) -> String {
        let mut text = format!("{label:<14}|");
        for (column, cell) in cells.iter().enumerate() {
            if column != XT_CC || self.has_xt_cc {
                let _ = write!(text, "{cell:^width$}|", width = COLUMNS[column].2);
            }
        }
        text + "\n"
    }

    pub(crate) fn heading(&self) -> [String; 2] {
        let upper: Vec<_> = COLUMNS.iter().map(|column| column.0.to_owned()).collect();
        let lower: Vec<_> = COLUMNS.iter().map(|column| column.1.to_owned()).collect();
        [self.line("", &upper), self.line("", &lower)]
    }

    /// HBM row, and for each core its row and a model's.
    pub(crate) fn rows(&self) -> Vec<String> {
        let each = self.cores.map(|core| self.core(core));
        let sum = std::array::from_fn(|column| each[0][column] + each[1][column]);
        let hbm = self.cores[0] / 2;
        let label = format!("ND {} HBM {hbm}", self.device);
        let mut rows = vec![self.line(&label, &self.cells(&sum, false))];
        for (index, core) in self.cores.into_iter().enumerate() {
            let label = format!("{}\\_NC {core}", self.indent);
            rows.push(self.line(&label, &self.cells(&each[index], false)));
            let label = format!("  \\_NEFF {}", 1001 + index);
            rows.push(self.line(
                &label,
                &self.cells(&each[index].map(|bytes| bytes / 2), true),
            ));
        }
        rows
    }

    pub(crate) fn failure(&self) -> String {
        let alignment = match self.alignment {
            0 => "none".to_owned(),
            bytes => size(bytes),
        };
        let message = format!(
            "Failed to allocate {} (alignment: {alignment}, usage: tensors) on ND{:>2}:NC{:>2}",
            size(self.asked),
            self.device,
            self.cores[0]
        );
        error(self.tid, "log_dev_mem", &message)
    }

    /// All lines of the failure, each with its end.
    pub(crate) fn parts(&self) -> Vec<String> {
        let first = format!(
            "Failed to allocate DEVICE memory ({} bytes): memory allocation failed (ret=-12)",
            self.asked
        );
        let shared = format!(
            "LNC size is 1. Neuron Cores using this HBM: NC {} and NC {}",
            self.cores[0], self.cores[1]
        );
        let mut parts = vec![
            error(self.tid, "dmem_alloc_internal", &first),
            error(self.tid, "print_lnc_hbm_details", &shared),
            self.failure(),
            error(
                self.tid,
                "log_dev_mem_usage_table",
                "Displaying Current Memory Utilization:",
            ),
        ];
        parts.extend(self.heading());
        parts.extend(self.rows());
        parts.push("\n".to_owned());
        parts.push("NEFF id to name mapping:\n".to_owned());
        for (id, core) in [1001, 1002].into_iter().zip(self.cores) {
            parts.push(format!(
                "{id}: \"2.0.1-/models/nd{}nc{core}\"\n",
                self.device
            ));
        }
        parts
    }

    pub(crate) fn whole(&self) -> String {
        self.parts().concat()
    }
}
