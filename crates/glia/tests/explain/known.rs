//! Logs made from known data, in every family and every clothing: what is read is what was printed.
//!
//! A log is a list of writes, each of whole lines, from several threads, mixed; then the clothing:
//! prefixes of other tools, colours, line ends, tabs, wrapping, packing into JSON. A seed decides
//! all of it, and a failure names its seed and shows the log.

use std::fmt::Write as _;

use glia::explain::report::{Family, Kind, Report, Row, Scope};
use glia::play::compare::compare;
use glia::play::play;
use glia::workload::rebuild::rebuild;
use glia_abi::chance::Chance;

use super::printer::size;
use super::reports;

struct Numbers(Chance);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.0.below(end as u64)).unwrap()
    }

    fn is(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Bytes of any magnitude, 0 among them.
    fn bytes(&mut self) -> u64 {
        let bits = self.0.below(34);
        match self.below(4) {
            0 => 0,
            1 => 1 << bits,
            _ => self.0.below((1 << bits) + 1),
        }
    }
}

const ITEMS: [&str; 7] = [
    "model code",
    "model constants",
    "tensors",
    "shared scratchpad",
    "scratchpad",
    "runtime",
    "collectives",
];
const RINGS: [&str; 4] = [
    "dma rings io",
    "dma rings spill",
    "dma rings collectives",
    "dma rings runtime",
];
const NAMES: [&str; 6] = [
    "1.0.41235.0+df4a714bb-/local/out-test0_meta_dense",
    "2.0.1-/models/a b/model.neff",
    "/tmp/tmp8x/graph.neff",
    "module.neff",
    "2.23.0-/var/cache/MODULE_123+abc/model.neff",
    "x",
];
/// Upper and lower heading, category, width.
const COLUMNS: [(&str, &str, &str, usize); 13] = [
    ("Model", "Code", "model code", 10),
    ("Model", "Constants", "model constants", 10),
    ("", "Tensors", "tensors", 10),
    ("Shared", "Scratchpad", "shared scratchpad", 10),
    ("", "Scratchpad", "scratchpad", 10),
    ("", "Runtime", "runtime", 10),
    ("DMA Rings", "IO", "dma rings io", 10),
    ("DMA Rings", "Spill", "dma rings spill", 10),
    ("DMA Rings", "Collectives", "dma rings collectives", 11),
    ("DMA Rings", "Runtime", "dma rings runtime", 10),
    ("", "Collectives", "collectives", 11),
    ("", "XT CC", "xt cc", 10),
    ("Profiler", "Buffers", "profiler buffers", 10),
];
const NOT_OF_A_MODEL: [&str; 4] = ["tensors", "shared scratchpad", "xt cc", "profiler buffers"];

/// A row as a line of text: scope, ids, total, cells.
fn told(row: &Row) -> String {
    let mut text = format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {}:",
        row.scope,
        row.device,
        row.hbm,
        row.core,
        row.neff,
        row.name,
        row.total.as_ref().map_or("none", |total| &total.text)
    );
    for (name, size) in &row.categories.0 {
        let size = size.as_ref().map_or("n/a", |size| &size.text);
        let _ = write!(text, " {name} {size},");
    }
    text
}

/// A report as text, without its lines.
fn tell(report: &Report) -> String {
    let mut text = format!(
        "{:?} {:?} asked {:?} {:?} {:?} aligned {:?} for {:?} on {:?} {:?} by {:?}, lnc {:?} {:?}, unread {:?}",
        report.family,
        report.kind,
        report.asked,
        report.asked_bytes,
        report.asked_exact,
        report.alignment,
        report.usage,
        report.device,
        report.core,
        report.thread.map(|thread| thread.to_string()),
        report.lnc_size,
        report.hbm_cores,
        report.unread
    );
    for row in &report.rows {
        let _ = write!(text, "\n  {}", told(row));
    }
    text
}

/// What is printed, and what is to be read of it.
struct Printed {
    /// What is written at once, with the prefix before its first line.
    writes: Vec<String>,
    told: String,
}

struct Log {
    numbers: Numbers,
    pid: u32,
    has_thread: bool,
    four_digits: bool,
    micros: u64,
    failures: u64,
}

impl Log {
    fn prefix(&mut self, tid: u32, level: &str, function: &str) -> String {
        self.micros += self.numbers.0.below(1_000_000);
        let (second, micro) = (self.micros / 1_000_000 % 60, self.micros % 1_000_000);
        let fraction = if self.four_digits {
            format!("{:04}", micro / 100)
        } else {
            format!("{micro:06}")
        };
        let thread = if self.has_thread {
            format!(" {:>5}:{tid:<5}", self.pid)
        } else {
            String::new()
        };
        format!("2026-Mar-01 10:00:{second:02}.{fraction}{thread} {level:>5}  TDRV:{function:<40}")
    }

    fn error(&mut self, tid: u32, function: &str, message: &str) -> String {
        format!("{}{message}\n", self.prefix(tid, "ERROR", function))
    }

    fn thread(&self, tid: u32) -> String {
        let thread = self.has_thread.then(|| format!("{}:{tid}", self.pid));
        format!("{thread:?}")
    }

    /// The line with the exact bytes, in one of its wordings.
    fn exact(&mut self, tid: u32, bytes: u64) -> String {
        let message = match self.numbers.below(3) {
            0 => format!("Failed to alloc DEVICE memory: {bytes}"),
            1 => format!(
                "Failed to allocate DEVICE memory ({bytes} bytes): memory allocation failed (ret=-12)"
            ),
            _ => format!("Failed to allocate DEVICE memory ({bytes} bytes): ret=-12"),
        };
        self.error(tid, "dmem_alloc_internal", &message)
    }

    fn asked(&mut self) -> u64 {
        // Two that print alike would be one failure, told twice.
        self.failures += 1;
        self.failures * 41_000_000 + self.numbers.0.below(1_000_000)
    }

    fn single(&mut self, tid: u32) -> Printed {
        let bytes = self.asked();
        let thread = self.thread(tid);
        Printed {
            writes: vec![self.exact(tid, bytes)],
            told: format!(
                "A DeviceOom asked None Some({bytes}) Some(true) aligned None for None on None None by {thread}, lnc None [], unread []"
            ),
        }
    }

    /// Names and bytes of a list, in order.
    fn items(&mut self) -> Vec<(&'static str, u64)> {
        let mut items: Vec<_> = ITEMS[..6].to_vec();
        if self.numbers.is(50) {
            items.push("dma rings");
        } else {
            items.extend(RINGS);
        }
        items.push("collectives");
        let items = items.into_iter().map(|item| (item, self.numbers.bytes()));
        items.filter(|(_, bytes)| *bytes > 0).collect()
    }

    fn list(&mut self, tid: u32, device: u32, core: u32) -> Printed {
        let asked = self.asked();
        let has_exact = self.numbers.is(70);
        let items = self.items();
        let total: u64 = items.iter().map(|item| item.1).sum();
        let usage = self
            .numbers
            .one(&["dma rings", "tensors", "model code", "shared scratchpad"]);
        let head = format!(
            "Failed to allocate {} (usage: {usage}) on ND {device}:NC {core}, current utilization:",
            size(asked)
        );
        let mut text = self.error(tid, "log_dev_mem", &head);
        let mut row = format!(
            "Core Some({device}) None Some({core}) None None {}:",
            size(total)
        );
        let _ = writeln!(text, "\t* total: {}", size(total));
        for (name, bytes) in items {
            let _ = writeln!(text, "\t* {name}: {}", size(bytes));
            let _ = write!(row, " {name} {},", size(bytes));
        }
        text += "\n";
        let mut writes = Vec::new();
        if has_exact {
            writes.push(self.exact(tid, asked));
        }
        if self.numbers.is(50) {
            let message = format!(
                "Wrote nrt memory alloc debug info to /tmp/nrt_mem_log_device_{device}_69a40ea0.csv"
            );
            writes.push(self.error(tid, "dml_dump", &message));
        }
        writes.push(text);
        let (bytes, thread) = (self.bytes_of(asked, has_exact), self.thread(tid));
        Printed {
            writes,
            told: format!(
                "B DeviceOom asked Some({:?}) Some({bytes}) Some({has_exact}) aligned None for Some({usage:?}) on Some({device}) Some({core}) by {thread}, lnc None [], unread []\n  {row}",
                size(asked)
            ),
        }
    }

    /// What a reader makes of a printed size.
    fn bytes_of(&self, asked: u64, is_exact: bool) -> u64 {
        if is_exact {
            return asked;
        }
        let text = size(asked);
        let (parsed, _) = glia::explain::size::Size::parse(text.as_bytes()).unwrap();
        parsed.bytes
    }

    fn line(&self, label: &str, cells: &[String], has_xt_cc: bool) -> String {
        let mut text = format!("{label:<14}|{:^10}|", cells[0]);
        for (cell, column) in cells[1..].iter().zip(COLUMNS) {
            if has_xt_cc || column.2 != "xt cc" {
                let _ = write!(text, "{cell:^width$}|", width = column.3);
            }
        }
        text + "\n"
    }

    /// A row of the table, its line and what is to be read of it.
    fn row(
        &self,
        label: &str,
        ids: &str,
        bytes: &[u64; 13],
        of_model: bool,
        has_xt_cc: bool,
    ) -> (String, String) {
        let counts = |name: &str| !of_model || !NOT_OF_A_MODEL.contains(&name);
        let shown = |name: &str| has_xt_cc || name != "xt cc";
        let all = COLUMNS.iter().zip(bytes);
        let total = all
            .clone()
            .filter(|(column, _)| counts(column.2) && shown(column.2));
        let total: u64 = total.map(|(_, bytes)| bytes).sum();
        let mut cells = vec![size(total)];
        let mut told = format!("{ids} {}:", size(total));
        for (column, bytes) in all {
            let cell = if counts(column.2) {
                size(*bytes)
            } else {
                "n/a".to_owned()
            };
            if shown(column.2) {
                let _ = write!(told, " {} {cell},", column.2);
            }
            cells.push(cell);
        }
        (self.line(label, &cells, has_xt_cc), told)
    }

    fn table(&mut self, tid: u32, device: u32, first_core: u32) -> Printed {
        let asked = self.asked();
        let has_exact = self.numbers.is(70);
        let has_xt_cc = self.numbers.is(50);
        let is_device = self.numbers.is(40);
        let alignment = match self.numbers.below(2) {
            0 => "none".to_owned(),
            _ => size(1 << (12 + self.numbers.below(20))),
        };
        let cores: Vec<u32> = (first_core..=first_core + 1).collect();
        let indent = self.numbers.one(&["", "  "]);
        let hbm = first_core / 2;
        let mut rows = Vec::new();
        let mut sum = [0; 13];
        let mut names = String::new();
        for &core in &cores {
            let mut own: [u64; 13] = std::array::from_fn(|_| self.numbers.bytes());
            let mut models = Vec::new();
            for _ in 0..self.numbers.below(4) {
                let bytes: [u64; 13] = std::array::from_fn(|_| self.numbers.bytes() >> 4);
                let neff = 1001 + names.lines().count();
                let name = self.numbers.one(&NAMES);
                let _ = writeln!(names, "{neff}: \"{name}\"");
                let label = format!("  \\_NEFF {neff}");
                let hbm = if is_device {
                    "None".to_owned()
                } else {
                    format!("Some({hbm})")
                };
                let ids =
                    format!("Neff Some({device}) {hbm} Some({core}) Some({neff}) Some({name:?})");
                models.push(self.row(&label, &ids, &bytes, true, has_xt_cc));
                for (own, bytes) in own.iter_mut().zip(bytes) {
                    *own += bytes;
                }
            }
            let hbm = if is_device {
                "None".to_owned()
            } else {
                format!("Some({hbm})")
            };
            let ids = format!("Core Some({device}) {hbm} Some({core}) None None");
            rows.push(self.row(
                &format!("{indent}\\_NC {core}"),
                &ids,
                &own,
                false,
                has_xt_cc,
            ));
            rows.extend(models);
            for (sum, own) in sum.iter_mut().zip(own) {
                *sum += own;
            }
        }
        let (label, ids) = if is_device {
            (
                format!("ND {device} Overall"),
                format!("Device Some({device}) None None None None"),
            )
        } else {
            (
                format!("ND {device} HBM {hbm}"),
                format!("Hbm Some({device}) Some({hbm}) None None None"),
            )
        };
        rows.insert(0, self.row(&label, &ids, &sum, false, has_xt_cc));
        let mut writes = Vec::new();
        if has_exact {
            writes.push(self.exact(tid, asked));
        }
        let lnc = format!(
            "LNC size is 1. Neuron Cores using this HBM: NC {first_core} and NC {}",
            first_core + 1
        );
        writes.push(self.error(tid, "print_lnc_hbm_details", &lnc));
        let usage = self.numbers.one(&[
            "tensors",
            "shared scratchpad",
            "dma rings io",
            "collectives",
        ]);
        let head = format!(
            "Failed to allocate {} (alignment: {alignment}, usage: {usage}) on ND{device:>2}:NC{first_core:>2}",
            size(asked)
        );
        writes.push(self.error(tid, "log_dev_mem", &head));
        // The table is one write, or one for each line.
        let mut table = self.error(
            tid,
            "log_dev_mem_usage_table",
            "Displaying Current Memory Utilization:",
        );
        let mut upper = vec![String::new()];
        upper.extend(COLUMNS.iter().map(|column| column.0.to_owned()));
        let mut lower = vec!["TOTAL".to_owned()];
        lower.extend(COLUMNS.iter().map(|column| column.1.to_owned()));
        table += &self.line("", &upper, has_xt_cc);
        table += &self.line("", &lower, has_xt_cc);
        for (line, _) in &rows {
            table += line;
        }
        table += "\n";
        if !names.is_empty() {
            table = table + "NEFF id to name mapping:\n" + &names;
        }
        writes.push(table);
        let (bytes, thread) = (self.bytes_of(asked, has_exact), self.thread(tid));
        let mut told = format!(
            "C DeviceOom asked Some({:?}) Some({bytes}) Some({has_exact}) aligned Some({alignment:?}) for Some({usage:?}) on Some({device}) Some({first_core}) by {thread}, lnc Some(1) [{first_core}, {}], unread []",
            size(asked),
            first_core + 1
        );
        for (_, row) in rows {
            told = told + "\n  " + &row;
        }
        Printed { writes, told }
    }

    fn info(&mut self, tid: u32, device: u32, core: u32) -> Printed {
        let name = self.numbers.one(&NAMES);
        let of_model: Vec<u64> = (0..9).map(|_| self.numbers.bytes()).collect();
        let (shared, tensors) = (self.numbers.bytes(), self.numbers.bytes());
        let names = [
            "model code",
            "model constants",
            "scratchpad",
            "runtime",
            RINGS[0],
            RINGS[1],
            RINGS[2],
            RINGS[3],
            "collectives",
        ];
        let own: u64 = of_model.iter().sum();
        let total = size(own + shared + tensors);
        let mut text = self.prefix(tid, " INFO", "dml_log_dev_neff_mem") + "\n";
        let _ = writeln!(text, "[ND {device}:NC {core}] Current Usage Total: {total}");
        let mut row = format!(
            "Core Some({device}) None Some({core}) None None {total}: shared scratchpad {},",
            size(shared)
        );
        if self.numbers.is(50) {
            let _ = writeln!(text, "\tshared scratchpad: {}", size(shared));
        } else {
            let _ = writeln!(
                text,
                "\tShared Scratchpad: {}\n\tTensors: {}",
                size(shared),
                size(tensors)
            );
            let _ = write!(row, " tensors {},", size(tensors));
        }
        let _ = writeln!(
            text,
            "Per NEFF memory usage breakdown for [{name}]:\n\tTotal: {}",
            size(own)
        );
        let mut model = format!(
            "Neff Some({device}) None Some({core}) None Some({name:?}) {}:",
            size(own)
        );
        for (name, bytes) in names.iter().zip(of_model) {
            let _ = writeln!(text, "\t* {name}: {}", size(bytes));
            let _ = write!(model, " {name} {},", size(bytes));
        }
        let thread = self.thread(tid);
        Printed {
            writes: vec![text],
            told: format!(
                "D Usage asked None None None aligned None for None on Some({device}) Some({core}) by {thread}, lnc None [], unread []\n  {row}\n  {model}"
            ),
        }
    }

    fn noise(&mut self) -> String {
        match self.numbers.below(6) {
            0 => self.error(
                900,
                "dma_ring_create_static_rings_for_queue_bundle_instance",
                "Failed to create static rings",
            ),
            1 => "[2026-03-01 10:00:00,123] [INFO] step=3 loss=1.25 | lr 1e-4 | mem=12.5GB\n"
                .to_owned(),
            2 => {
                self.prefix(901, " INFO", "io_create_queues")
                    + "Rank: 0, Vring: qSPIO0 has 6528/6528 desc's\n"
            }
            3 => "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n"
                .to_owned(),
            4 => "-- HBM usage looks high, see https://example.com/NEFF --\n".to_owned(),
            _ => "\n".to_owned(),
        }
    }
}

/// A log of some reports: its lines, and what is to be read.
fn log(seed: u64, pid: u32) -> (String, Vec<String>) {
    let mut numbers = Numbers(Chance::new(seed));
    let (has_thread, four_digits) = (numbers.is(80), numbers.is(20));
    let mut log = Log {
        numbers,
        pid,
        has_thread,
        four_digits,
        micros: 0,
        failures: seed % 20 + 20 * u64::from(pid - 4100),
    };
    let count = 1 + log.numbers.below(4);
    let mut printed = Vec::new();
    for index in 0..u32::try_from(count).unwrap() {
        let (tid, core) = (10 + index, 2 * index);
        let device = index;
        printed.push(match log.numbers.below(4) {
            0 => log.single(tid),
            1 => log.list(tid, device, core),
            2 => log.table(tid, device, core),
            _ => log.info(tid, device, core),
        });
    }
    let told = printed.iter().map(|one| one.told.clone()).collect();
    // The writes of a thread stay in order; without threads, reports are one behind the other.
    let mut queues: Vec<_> = printed
        .into_iter()
        .map(|one| one.writes.into_iter())
        .collect();
    let mut text = String::new();
    while !queues.is_empty() {
        while log.numbers.is(30) {
            text += &log.noise();
        }
        let at = if has_thread {
            log.numbers.below(queues.len())
        } else {
            0
        };
        match queues[at].next() {
            Some(write) => text += &write,
            None => drop(queues.remove(at)),
        }
    }
    (text, told)
}

/// What terminals, containers and launchers make of a log.
fn dressed(text: &str, clothing: usize, numbers: &mut Numbers) -> String {
    let each = |dress: &mut dyn FnMut(&str) -> String| -> String {
        text.lines().map(|line| dress(line) + "\n").collect()
    };
    match clothing {
        0 => text.to_owned(),
        1 => text.replace('\n', "\r\n"),
        2 => text.replace('\t', "        "),
        3 => each(&mut |line| line.trim_end().to_owned()),
        4 => each(&mut |line| line.trim_start().to_owned()),
        5 => each(&mut |line| format!("\u{1b}[0m{line}")),
        6 => each(&mut |line| format!("\u{1b}[31m{line}\u{1b}[0m\u{1b}[K")),
        7 => each(&mut |line| format!("2026-03-01T10:00:00.123456789Z stdout F {line}")),
        8 => each(&mut |line| format!("[rank3]: {line}")),
        9 => each(&mut |line| format!("[default3]:{line}")),
        10 => each(&mut |line| format!("3: {line}")),
        11 => each(&mut |line| format!("[1,3]<stderr>:{line}")),
        12 => {
            each(&mut |line| format!("\u{1b}[36m(RayWorker pid=77, ip=10.0.0.1)\u{1b}[0m {line}"))
        }
        13 => each(&mut |line| format!("Mar 01 10:00:00 host-1 python[4100]: {line}")),
        14 => each(&mut |line| {
            let text = serde_json::to_string(&format!("{line}\n")).unwrap();
            format!("{{\"log\":{text},\"stream\":\"stderr\",\"time\":\"2026-03-01T10:00:00.1Z\"}}")
        }),
        15 => each(&mut |line| format!("worker-0 | {line}")),
        16 => text.replace("2026-Mar-01 ", "").replace("10:00:", ""),
        17 => text
            .replace("2026-Mar-01 ", "2026-03-01T")
            .replace("  TDRV:", " TDRV:"),
        18 => {
            let width = 60 + numbers.below(120);
            each(&mut |line| {
                let letters: Vec<char> = line.chars().collect();
                let pieces: Vec<String> = letters
                    .chunks(width)
                    .map(|piece| piece.iter().collect())
                    .collect();
                pieces.join("\n")
            })
        }
        19 => each(&mut |line| format!("> {line}")),
        20 => each(&mut |line| format!("{line}   ")),
        21 => each(&mut |line| format!("\t{line}")),
        22 => {
            let text = serde_json::to_string(text).unwrap();
            format!("{{\"level\":\"error\",\"message\":{text}}}\n")
        }
        23 => each(&mut |line| format!("2026-03-01 10:00:00 [pod/w-0/main] {line}")),
        // The end of a line is lost before some of the runtime's own.
        _ => {
            let mut glued = String::new();
            for line in text.lines() {
                let is_glued = line.starts_with("2026-") && numbers.is(30);
                if !glued.is_empty() && !is_glued {
                    glued.push('\n');
                }
                glued += line;
            }
            glued
        }
    }
}

const CLOTHINGS: usize = 25;

fn check(seed: u64, clothing: usize) {
    let (text, told) = log(seed, 4100);
    let mut numbers = Numbers(Chance::new(seed));
    let text = dressed(&text, clothing, &mut numbers);
    let mut wanted = told;
    if text.matches("4100:").count() == 0 {
        wanted = wanted.iter().map(|told| without_thread(told)).collect();
    }
    is_told(&text, wanted, &format!("seed {seed}, clothing {clothing}"));
}

/// The reports of a log are these.
fn is_told(text: &str, mut wanted: Vec<String>, which: &str) {
    // An error line of the noise is a failure of something, where there is none of memory.
    let found = reports(text).into_iter();
    let found = found.filter(|report| report.family != Family::N);
    let mut found: Vec<String> = found.map(|report| tell(&report)).collect();
    found.sort();
    wanted.sort();
    let (found, wanted) = (found.join("\n"), wanted.join("\n"));
    for (found, wanted) in found.lines().zip(wanted.lines()) {
        assert_eq!(found, wanted, "{which}:\n{text}");
    }
    assert_eq!(found, wanted, "{which}:\n{text}");
}

fn without_thread(told: &str) -> String {
    let at = told.find("by ").unwrap();
    let end = at + told[at..].find(", lnc").unwrap();
    format!("{}by None{}", &told[..at], &told[end..])
}

#[test]
fn what_is_read_is_what_was_printed_in_any_clothing() {
    for clothing in 0..CLOTHINGS {
        for seed in 0..100 {
            check(seed, clothing);
        }
    }
}

/// Each rank's lines have its prefix, and lines of all ranks alternate.
#[test]
fn lines_of_several_ranks_alternate() {
    for seed in 0..100 {
        let mut numbers = Numbers(Chance::new(seed));
        let mut wanted = Vec::new();
        let mut queues = Vec::new();
        for rank in 0..3 {
            let pid = 4100 + rank;
            let mut logs = (0..).map(|next| log(seed * 7 + u64::from(rank) + 1000 * next, pid));
            // Without a thread, nobody can tell what belongs together.
            let has_thread = |(text, _): &(String, _)| text.contains(&format!("{pid}:"));
            let (text, told) = logs.find(has_thread).unwrap();
            wanted.extend(told);
            let lines: Vec<String> = text
                .lines()
                .map(|line| format!("[rank{rank}]: {line}\n"))
                .collect();
            queues.push(lines.into_iter());
        }
        let mut text = String::new();
        while !queues.is_empty() {
            let at = numbers.below(queues.len());
            match queues[at].next() {
                Some(line) => text += &line,
                None => drop(queues.remove(at)),
            }
        }
        is_told(&text, wanted, &format!("seed {seed}"));
    }
}

#[test]
fn scopes_are_all_made() {
    let all: Vec<Report> = (0..60)
        .flat_map(|seed| reports(log(seed, 4100).0))
        .collect();
    for scope in [Scope::Device, Scope::Hbm, Scope::Core, Scope::Neff] {
        let mut rows = all.iter().flat_map(|report| &report.rows);
        assert!(rows.any(|row| row.scope == scope), "{scope:?}");
    }
}

/// How many reports of a log with a state came to a run, and how many cells that has.
fn rebuilt(text: &str, which: &str) -> (usize, u64) {
    let (mut equal, mut cells) = (0, 0);
    for (number, report) in (1..).zip(reports(text)) {
        if !matches!(report.kind, Kind::DeviceOom | Kind::Usage) || report.rows.is_empty() {
            continue;
        }
        let rebuilt = rebuild(&report, number, &[]).unwrap();
        let played = play(rebuilt.text.as_bytes()).unwrap();
        let compared = compare(&report, &played);
        assert_eq!(
            compared.differences,
            [],
            "{which}, report {number}:\n{text}\n{}",
            rebuilt.text
        );
        equal += 1;
        cells += compared.cells;
    }
    (equal, cells)
}

#[test]
fn reports_are_rebuilt_with_all_cells() {
    let all = (0..120).map(|seed| rebuilt(&log(seed, 4100).0, &format!("seed {seed}")));
    let (equal, cells) = all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    println!("{equal} reports rebuilt, all {cells} cells equal");
    assert!(equal >= 60, "{equal}");
}

/// What a cut has left of a report is rebuilt, and the rest is whatever it can have been.
#[test]
fn reports_that_are_cut_are_rebuilt_with_the_cells_that_are_left() {
    let mut equal = 0;
    for seed in 0..120 {
        let mut numbers = Numbers(Chance::new(seed));
        let (mut text, _) = log(seed, 4100);
        text.truncate(text.len() - numbers.below(text.len()));
        equal += rebuilt(&text, &format!("seed {seed}")).0;
    }
    assert!(equal >= 60, "{equal}");
}
