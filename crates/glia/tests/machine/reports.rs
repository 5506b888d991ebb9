//! Reports that are made while many threads allocate and free, and every view against what the driver
//! holds.

use std::fmt::Write as _;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard};

use glia::explain::explain;
use glia::explain::report::{Report, Scope};
use glia::machine::{Client, Machine, MachineConfig, Model};
use glia_abi::chance::Chance;
use glia_abi::handle::{Channel, CoreId, DeviceId, Pid};
use glia_abi::insight::{ChunkFacts, PoolSnapshot};
use glia_abi::mem_usage::{Aggregate, MemUsage};
use glia_abi::usage::Counter;
use glia_driver::usage::{Key, Usage};
use glia_runtime::dml::{Dump, Log, LogContext, MemoryMetrics, ModelId, UsageTable};
use glia_runtime::explanation::Cause;
use glia_runtime::{AllocSpec, Core, Dmem, Runtime, RuntimeConfig};

const DEVICE: DeviceId = DeviceId::new(0);
const PID: Pid = Pid::new(5);
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
    let mut model = runtime.load_model(core, "a.neff").unwrap();
    while !is_over.load(Ordering::Relaxed) {
        if live.len() < 40 {
            let spec = AllocSpec::device(1 + chance.below(5 << 20), any_usage(&mut chance));
            live.extend(match chance.below(3) {
                0 => model.allocate(&spec),
                _ => runtime.allocate(core, &spec),
            });
        } else {
            live.clear();
            model = runtime.load_model(core, "b.neff").unwrap();
        }
    }
}

fn any_usage(chance: &mut Chance) -> MemUsage {
    let usages = MemUsage::ALL;
    usages[usize::try_from(chance.below(usages.len() as u64)).unwrap()]
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
            for model in &core.models {
                let owned = MemUsage::ALL.map(|usage| (usage, model.present.get(usage)));
                let fits = |&(usage, bytes): &(MemUsage, u64)| bytes <= core.present.get(usage);
                assert!(owned.iter().all(fits), "{model:?} is part of its core");
                let sum: u64 = owned.iter().map(|(_, bytes)| bytes).sum();
                assert_eq!(model.present.total(), sum);
            }
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
        let sum: u64 = cores.clone().map(total).sum();
        let rounding =
            |row: &glia::explain::report::Row| row.total.as_ref().unwrap().rounding_bytes();
        let rounding_bytes: u64 = cores.chain([hbm]).map(rounding).sum();
        assert!(total(hbm).abs_diff(sum) <= rounding_bytes, "{hbm:?}");
    }
    for row in &report.rows {
        let rounding_bytes = row.total.as_ref().unwrap().rounding_bytes();
        assert!(
            total(row).abs_diff(row.categories.sum_bytes())
                <= row.categories.rounding_bytes() + rounding_bytes,
            "{row:?}"
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
    let process = machine.process(PID);
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
    let rows = reports.iter().flat_map(|report| &report.rows);
    let is_owner = |row: &&glia::explain::report::Row| {
        row.scope == Scope::Neff && row.total.as_ref().is_some_and(|size| size.bytes > 0)
    };
    assert!(rows.filter(is_owner).count() > REPORTS / 2);
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

/// A block that a thread has, and what it knows of it.
struct Held {
    _memory: Dmem,
    usage: MemUsage,
    model: Option<ModelId>,
    bytes: u64,
}

/// Some operations of one thread on its core, in whole pages.
fn work(
    runtime: &Runtime,
    core: Core,
    model: &mut Option<glia_runtime::Model>,
    held: &mut Vec<Held>,
    chance: &mut Chance,
) {
    for _ in 0..60 {
        match chance.below(12) {
            0..=2 if !held.is_empty() => {
                let at = usize::try_from(chance.below(held.len() as u64)).unwrap();
                held.swap_remove(at);
            }
            3 if chance.below(8) == 0 => {
                // Its blocks go with it.
                let id = model.take().map(|model| model.id());
                held.retain(|one| one.model.is_none() || one.model != id);
            }
            kind => {
                let usage = any_usage(chance);
                let bytes = 4096 * (1 + chance.below(600));
                let spec = AllocSpec::device(bytes, usage);
                let (memory, id) = match kind {
                    4..=7 => {
                        let loaded = model
                            .get_or_insert_with(|| runtime.load_model(core, "a.neff").unwrap());
                        (loaded.allocate(&spec), Some(loaded.id()))
                    }
                    _ => (runtime.allocate(core, &spec), None),
                };
                held.push(Held {
                    _memory: memory.unwrap(),
                    usage,
                    model: id,
                    bytes,
                });
            }
        }
    }
}

/// What every view must say, summed from what the threads hold and from the driver's live chunks.
struct Truth<'a> {
    held: &'a [MutexGuard<'a, (Core, Vec<Held>)>],
    pools: PoolSnapshot,
}

impl Truth<'_> {
    fn held_by(&self, core: CoreId) -> impl Iterator<Item = &Held> {
        let of_core = self.held.iter().filter(move |held| held.0.core == core);
        of_core.flat_map(|held| &held.1)
    }

    /// Bytes of the program's live chunks that are so, in the driver.
    fn chunks(&self, is_so: impl Fn(Channel, &ChunkFacts) -> bool) -> u64 {
        let chunks = self.pools.channels.iter().flat_map(|channel| {
            let is_so = &is_so;
            let chunks = channel.chunks.iter();
            chunks.filter(move |chunk| chunk.owner == PID && is_so(channel.channel, chunk))
        });
        chunks.map(|chunk| chunk.span.size_bytes()).sum()
    }

    fn check_table(&self, table: &UsageTable) {
        for bank in &table.banks {
            let here = self.chunks(|channel, _| channel == bank.channel);
            assert_eq!(bank.present_bytes, here);
            for core in &bank.cores {
                assert_eq!(
                    core.present.total(),
                    self.chunks(|_, chunk| chunk.core == core.core)
                );
                for usage in MemUsage::ALL {
                    let mine = self.held_by(core.core).filter(|held| held.usage == usage);
                    let bytes: u64 = mine.map(|held| held.bytes).sum();
                    assert_eq!(core.present.get(usage), bytes, "{usage}");
                }
                for model in &core.models {
                    for usage in MemUsage::ALL {
                        let mine = self.held_by(core.core);
                        let mine =
                            mine.filter(|held| (held.model, held.usage) == (Some(model.id), usage));
                        let bytes: u64 = mine.map(|held| held.bytes).sum();
                        assert_eq!(model.present.get(usage), bytes, "{usage}");
                    }
                }
            }
        }
    }

    /// The program's counters are the driver's, less what those were before the program.
    fn check_metrics(&self, metrics: &MemoryMetrics, now: &Usage, before: &Usage) {
        let change = |counter, key| {
            let [now, before] = [now, before].map(|usage| usage.balance(counter, key).total_bytes);
            u64::try_from(now - before).unwrap()
        };
        for (core, counter, balance) in metrics.leaves() {
            let key = core.map_or(Key::Device, Key::Core);
            assert_eq!(balance.present_bytes, change(counter, key), "{counter:?}");
        }
        for core in &metrics.cores {
            let total = core.counters.get(Counter::DeviceTotal).present_bytes;
            assert_eq!(total, change(Counter::DeviceTotal, Key::Core(core.core)));
            assert_eq!(total, self.chunks(|_, chunk| chunk.core == core.core));
        }
    }

    /// Every cell of the printed report is what is printed for the sum.
    fn check_report(&self, report: &Report) {
        const NOT_OF_MODELS: [Aggregate; 3] = [
            Aggregate::Tensors,
            Aggregate::SharedScratchpad,
            Aggregate::ProfilerBuffers,
        ];
        assert!(report.unread.is_empty(), "{:?}", report.unread);
        let mut core = None;
        for row in &report.rows {
            core = row.core.map(CoreId::new).or(core);
            let is_here = |held: &&Held| match row.neff {
                Some(neff) => held.model.is_some_and(|id| u64::from(id.0) == neff),
                None => true,
            };
            assert_ne!(row.scope, Scope::Device);
            let held: Vec<&Held> = match row.hbm.filter(|_| row.scope == Scope::Hbm) {
                Some(hbm) => {
                    let cores = [hbm * 2, hbm * 2 + 1].map(CoreId::new);
                    cores.iter().flat_map(|core| self.held_by(*core)).collect()
                }
                None => self.held_by(core.unwrap()).filter(is_here).collect(),
            };
            let is_counted =
                |column: &Aggregate| row.scope != Scope::Neff || !NOT_OF_MODELS.contains(column);
            let mut total = 0;
            for column in Aggregate::ALL {
                let of_column = held.iter().filter(|held| held.usage.aggregate() == column);
                let bytes: u64 = of_column.map(|held| held.bytes).sum();
                match is_counted(&column) {
                    true => {
                        total += bytes;
                        let cell = row.categories.get(column.name()).unwrap();
                        assert!(
                            cell.is_printed(bytes),
                            "{} of {row:?}: {bytes}",
                            column.name()
                        );
                    }
                    false => assert!(row.categories.get(column.name()).is_none(), "{row:?}"),
                }
            }
            assert!(
                row.total.as_ref().unwrap().is_printed(total),
                "{row:?}: {total}"
            );
        }
    }
}

/// Threads with models allocate and free side by side, and stop together now and then: at every stop
/// the table, the counters, the statistics and the printed report say what the driver's live chunks and
/// the threads' own lists say.
#[test]
fn every_view_is_the_sum_of_the_drivers_live_chunks_whenever_the_threads_stop() {
    const ROUNDS: usize = 24;
    let (machine, runtime, log) = logged();
    let memory = machine.driver().memory(DEVICE).unwrap();
    let before = memory.usage();
    let held: Vec<Mutex<(Core, Vec<Held>)>> = (0..8)
        .map(|number| {
            let core = CoreId::new(number);
            Mutex::new((
                Core {
                    device: DEVICE,
                    core,
                },
                Vec::new(),
            ))
        })
        .collect();
    let gate = Barrier::new(held.len() + 1);
    let mut clients: Vec<Client<'_>> = Vec::new();
    for (number, held) in (0..).zip(&held) {
        let (runtime, gate) = (&runtime, &gate);
        clients.push(Box::new(move || {
            let mut chance = Chance::of(11, number);
            let mut model = None;
            for _ in 0..ROUNDS {
                let mut own = held.lock().unwrap();
                let (core, held) = &mut *own;
                work(runtime, *core, &mut model, held, &mut chance);
                drop(own);
                gate.wait();
                // Now somebody looks.
                gate.wait();
            }
            held.lock().unwrap().1.clear();
        }));
    }
    clients.push(Box::new(|| {
        for _ in 0..ROUNDS {
            gate.wait();
            let all: Vec<_> = held.iter().map(|held| held.lock().unwrap()).collect();
            let truth = Truth {
                held: &all,
                pools: memory.insight(),
            };
            truth.check_table(&runtime.usage(DEVICE).unwrap());
            let metrics = runtime.metrics(DEVICE).unwrap();
            truth.check_metrics(&metrics, &memory.usage(), &before);
            runtime.log_oom_report();
            let reports = log.reports();
            log.0.lock().unwrap().clear();
            assert_eq!(reports.len(), 1);
            assert!(reports[0].rows.iter().any(|row| row.scope == Scope::Neff));
            truth.check_report(&reports[0]);
            for held in truth.held {
                let bytes: u64 = held.1.iter().map(|held| held.bytes).sum();
                assert_eq!(runtime.memory_stats(held.0).unwrap().used_bytes, bytes);
            }
            drop(all);
            gate.wait();
        }
    }));
    machine.run_clients(clients).unwrap();
    assert!(
        memory
            .insight()
            .channels
            .iter()
            .all(|one| one.chunks.iter().all(|c| c.owner != PID))
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
