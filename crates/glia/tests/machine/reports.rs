//! Reports that are made while many threads allocate and free.

use std::fmt::Write as _;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use glia::explain::explain;
use glia::explain::report::{Report, Scope};
use glia::machine::{Client, Machine, MachineConfig, Model};
use glia_abi::chance::Chance;
use glia_abi::handle::{CoreId, DeviceId, Pid};
use glia_abi::mem_usage::{Aggregate, MemUsage};
use glia_runtime::dml::{Dump, Log, LogContext, UsageTable};
use glia_runtime::explanation::Cause;
use glia_runtime::{AllocSpec, Core, Dmem, Runtime, RuntimeConfig};

const DEVICE: DeviceId = DeviceId::new(0);
const THREADS: u64 = 6;
const REPORTS: usize = 300;

/// What the runtime logs, message by message.
#[derive(Default)]
struct Kept(Mutex<String>);

impl Log for Kept {
    fn context(&self) -> LogContext {
        LogContext {
            time: "2026-Jan-01 00:00:00.000000".to_owned(),
            pid: 5,
            tid: 5,
        }
    }

    fn write(&self, lines: &str) {
        self.0.lock().unwrap().write_str(lines).unwrap();
    }
}

impl Kept {
    /// What a reader of logs makes of it.
    fn reports(&self) -> Vec<Report> {
        let text = self.0.lock().unwrap().clone();
        let mut reports = Vec::new();
        let (file, result) = explain(text.as_bytes(), "log", |report| {
            reports.push(report);
            Ok(())
        });
        result.unwrap();
        assert!(file.unread.is_empty(), "{:?}", file.unread);
        reports
    }
}

/// Allocates and frees on its core until it is told to stop.
fn churn(runtime: &Runtime, number: u64, is_over: &AtomicBool) {
    let core = Core {
        device: DEVICE,
        core: CoreId::new(u32::try_from(number).unwrap()),
    };
    let mut chance = Chance::of(3, number);
    let mut live = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        if live.len() < 40 {
            let usages = MemUsage::ALL;
            let usage = usages[usize::try_from(chance.below(usages.len() as u64)).unwrap()];
            let spec = AllocSpec::device(1 + chance.below(5 << 20), usage);
            live.extend(runtime.allocate(core, &spec));
        } else {
            live.clear();
        }
    }
}

/// The parts of a table add up to the byte.
fn check_table(table: &UsageTable) {
    for bank in &table.banks {
        let cores = bank.cores.iter().map(|core| core.present.total());
        assert_eq!(bank.present_bytes, cores.sum::<u64>());
        assert!(bank.peak_bytes >= bank.present_bytes);
        for core in &bank.cores {
            let usages = MemUsage::ALL.map(|usage| core.present.get(usage));
            assert_eq!(core.present.total(), usages.iter().sum::<u64>());
            let columns = Aggregate::ALL.map(|column| core.present.aggregate(column));
            assert_eq!(core.present.total(), columns.iter().sum::<u64>());
        }
    }
}

/// As far as three decimals can tell; of so many HBMs and cores.
fn check_rows(report: &Report, counts: (usize, usize)) {
    assert!(report.unread.is_empty(), "{:?}", report.unread);
    let of = |scope| report.rows.iter().filter(move |row| row.scope == scope);
    let total = |row: &glia::explain::report::Row| row.total.as_ref().unwrap().bytes;
    assert_eq!((of(Scope::Hbm).count(), of(Scope::Core).count()), counts);
    for hbm in of(Scope::Hbm) {
        let cores = of(Scope::Core).filter(|core| core.hbm == hbm.hbm);
        let sum: u64 = cores.map(total).sum();
        // A cell of some GB is printed to a thousandth of that.
        let rounding_bytes = 3 << 20;
        assert!(total(hbm).abs_diff(sum) < rounding_bytes, "{hbm:?}");
    }
    for row in &report.rows {
        assert!(
            total(row).abs_diff(row.categories.sum_bytes())
                <= row.categories.rounding_bytes() + (1 << 20)
        );
    }
}

/// A program whose log is kept.
fn logged() -> (Machine, Runtime, Arc<Kept>) {
    let machine = Machine::new(MachineConfig::new(Model::Trn2)).unwrap();
    let log = Arc::new(Kept::default());
    let config = RuntimeConfig {
        log: Some(Arc::clone(&log) as Arc<_>),
        events_max: 1000,
        ..RuntimeConfig::default()
    };
    let process = machine.process(Pid::new(5));
    let runtime = Runtime::open(process as Arc<_>, &[DEVICE], config).unwrap();
    (machine, runtime, log)
}

#[test]
fn reports_made_while_many_threads_allocate_are_whole_and_add_up() {
    let (machine, runtime, log) = logged();
    let is_over = AtomicBool::new(false);
    let mut clients: Vec<Client<'_>> = Vec::new();
    for number in 0..THREADS {
        let (runtime, is_over) = (&runtime, &is_over);
        clients.push(Box::new(move || churn(runtime, number, is_over)));
    }
    clients.push(Box::new(|| {
        for _ in 0..REPORTS {
            check_table(&runtime.usage(DEVICE).unwrap());
            runtime.log_oom_report();
        }
        is_over.store(true, Ordering::Relaxed);
    }));
    machine.run_clients(clients).unwrap();

    let reports = log.reports();
    assert_eq!(reports.len(), REPORTS);
    reports.iter().for_each(|report| check_rows(report, (4, 8)));
    let totals = reports.iter().flat_map(|report| &report.rows);
    let used = totals.filter(|row| row.total.as_ref().is_some_and(|size| size.bytes != 0));
    assert!(
        used.count() > REPORTS,
        "hardly anything was allocated meanwhile"
    );
    // Nothing is live any more, and every view says so.
    let table = runtime.usage(DEVICE).unwrap();
    assert!(table.banks.iter().all(|bank| bank.present_bytes == 0));
}

/// Two threads are refused again and again while the others go on: each refusal is a report of its
/// own in the log and with the error, whole and of one moment, with its explanation.
#[test]
fn reports_of_real_refusals_beside_many_threads_are_whole_and_add_up() {
    const GREEDY: u32 = 2;
    const REFUSALS: u64 = 60;
    const TOO_MUCH: u64 = 25 << 30;
    let (machine, runtime, log) = logged();
    let is_over = AtomicBool::new(false);
    let greedy_left = AtomicU32::new(GREEDY);
    let mut clients: Vec<Client<'_>> = Vec::new();
    for number in 0..THREADS {
        let (runtime, is_over) = (&runtime, &is_over);
        clients.push(Box::new(move || churn(runtime, number, is_over)));
    }
    for number in 0..GREEDY {
        let (runtime, is_over, greedy_left) = (&runtime, &is_over, &greedy_left);
        clients.push(Box::new(move || {
            let core = Core {
                device: DEVICE,
                core: CoreId::new(number),
            };
            for turn in 0..REFUSALS {
                let asked_bytes = TOO_MUCH + turn;
                let spec = AllocSpec::device(asked_bytes, MemUsage::Tensor);
                let error = runtime.allocate(core, &spec).err().unwrap();
                let report = error.oom().unwrap();
                assert_eq!((report.core, report.asked_bytes), (core.core, asked_bytes));
                check_table(&report.table);
                let why = error.explanation().unwrap().bank().unwrap();
                assert_eq!((why.cause, why.request.core), (Cause::Capacity, core.core));
                let held: u64 = why.holders.iter().map(|holder| holder.bytes).sum();
                let bank = why
                    .banks
                    .iter()
                    .find(|bank| bank.channel == why.request.channel);
                let bank = bank.unwrap();
                assert_eq!(held + bank.free_bytes, bank.size_bytes);
            }
            if greedy_left.fetch_sub(1, Ordering::Relaxed) == 1 {
                is_over.store(true, Ordering::Relaxed);
            }
        }));
    }
    machine.run_clients(clients).unwrap();

    let reports = log.reports();
    assert_eq!(reports.len() as u64, u64::from(GREEDY) * REFUSALS);
    for report in &reports {
        check_rows(report, (1, 2));
        let asked_bytes = report.asked_bytes.unwrap();
        assert!(
            (TOO_MUCH..TOO_MUCH + REFUSALS).contains(&asked_bytes),
            "{asked_bytes}"
        );
    }
    let text = log.0.lock().unwrap().clone();
    assert_eq!(
        text.matches("Why: nd 0 HBM 0 is too small for this.")
            .count(),
        reports.len()
    );
}

/// Files of a dump, by name.
#[derive(Default)]
struct Files(Mutex<Vec<(String, String)>>);

impl Dump for Files {
    fn unix_time_s(&self) -> u64 {
        0x651a_7ca9
    }

    fn write(&self, file_name: &str, text: &str) -> io::Result<String> {
        let file = (file_name.to_owned(), text.to_owned());
        self.0.lock().unwrap().push(file);
        Ok(format!("/kept/{file_name}"))
    }
}

/// The chunks of the HBM that has no room are those that the driver has there, of all processes.
#[test]
fn chunks_go_to_a_file_when_device_memory_runs_out() {
    let machine = Machine::new(MachineConfig::new(Model::Trn2)).unwrap();
    let (files, log) = (Arc::new(Files::default()), Arc::new(Kept::default()));
    let open = |pid, config| {
        let process = machine.process(Pid::new(pid));
        Runtime::open(process as Arc<_>, &[DEVICE], config).unwrap()
    };
    let other = open(7, RuntimeConfig::default());
    let runtime = open(
        8,
        RuntimeConfig {
            dump: Some(Arc::clone(&files) as Arc<dyn Dump>),
            log: Some(Arc::clone(&log) as Arc<dyn Log>),
            ..RuntimeConfig::default()
        },
    );
    let core = |number| Core {
        device: DEVICE,
        core: CoreId::new(number),
    };
    let page = |_| AllocSpec::device(5000, MemUsage::Weight);
    // More of them than the driver is asked for at first.
    let of_other: Vec<_> = (0..100)
        .map(|number| other.allocate(core(2), &page(number)).unwrap())
        .collect();
    let elsewhere = runtime.allocate(core(0), &page(0)).unwrap();
    let too_much = AllocSpec::device(1 << 40, MemUsage::Tensor);
    let error = runtime.allocate(core(3), &too_much).err().unwrap();

    let name = "neuron_mem_log_device_0_hbm_1_651a7ca9.csv";
    let place = format!("/kept/{name}");
    assert_eq!(error.oom().unwrap().chunks_file.as_ref(), Some(&place));
    let line = format!("Wrote driver memory chunk info to {place}\n");
    assert!(log.0.lock().unwrap().contains(&line));
    assert_eq!(log.reports().len(), 1);
    let files = files.0.lock().unwrap();
    assert_eq!(files.len(), 2);
    let (_, text) = files.iter().find(|(file, _)| file == name).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("pa,size,mem_type"));
    // 10: constants in HBM.
    let of = |memory: &Dmem| format!("{:#x},8192,10", memory.pa().get());
    let listed: Vec<&str> = lines.collect();
    for memory in &of_other {
        assert!(listed.contains(&&*of(memory)), "{text}");
    }
    assert!(!listed.contains(&&*of(&elsewhere)));
}
