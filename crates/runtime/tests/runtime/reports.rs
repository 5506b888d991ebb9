//! The report of an allocation that fails, letter by letter and as data.

use std::io;
use std::sync::{Arc, Mutex};

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::{Channel, CoreId};
use glia_abi::ioctl;
use glia_abi::mem::Location;
use glia_abi::mem_usage::{Aggregate, MemUsage};
use glia_abi::transport::Transport;
use glia_runtime::dml::{Dump, Log, ReportProfile};
use glia_runtime::{AllocSpec, Dmem, Runtime, RuntimeConfig, ScratchVariable};

use crate::fake::{DEVICE, Fake, Kept, core, open, open_with};

/// Two cores of bank 1 with something in most columns, a model on one of them, and a neighbour on
/// another bank that must not show.
fn fill(runtime: &Runtime) -> (Vec<Dmem>, glia_runtime::Model) {
    let on = |number: u32, usage, size_bytes| {
        let spec = AllocSpec::device(size_bytes, usage);
        runtime.allocate(core(number), &spec).unwrap()
    };
    let model = runtime.load_model(core(2), "1.0.0-/models/a.neff").unwrap();
    let weights = model.allocate(&AllocSpec::device(272 << 10, MemUsage::Weight));
    let spill = model.allocate(&AllocSpec::device(1_977_615, MemUsage::DmaRingSpill));
    let live = vec![
        weights.unwrap(),
        spill.unwrap(),
        on(2, MemUsage::UcodeLib, 100_702_093),
        on(2, MemUsage::Tensor, 20 << 30),
        on(2, MemUsage::PoolStdio, 1088),
        on(3, MemUsage::Scratchpad, 512 << 20),
        on(3, MemUsage::Notification, 64 << 20),
        on(3, MemUsage::Cc, 0),
        on(0, MemUsage::Tensor, 7),
    ];
    (live, model)
}

#[test]
fn the_report_is_one_write_of_the_runtimes_lines() {
    let fake = Fake::new(Arch::V3);
    let (runtime, log) = open(&fake);
    let _live = fill(&runtime);
    let spec = AllocSpec {
        align_bytes: 4 << 20,
        hint: Some("kv"),
        ..AllocSpec::device(4 << 30, MemUsage::Tensor)
    };

    let error = runtime.allocate(core(2), &spec).err().unwrap();

    let wanted = r#"2026-Jan-02 03:04:05.678901  4711:4712  ERROR  TDRV:dmem_alloc_internal                     Failed to allocate DEVICE memory (4294967296 bytes): memory allocation failed (ret=-12)
2026-Jan-02 03:04:05.678901  4711:4712  ERROR  TDRV:dmem_alloc_internal                     Aligned allocations may fail even if HBM has space for the actual size requested, due to running out of alignment boundaries
2026-Jan-02 03:04:05.678901  4711:4712  ERROR  TDRV:print_lnc_hbm_details                   LNC size is 1. Neuron Cores using this HBM: NC 2 and NC 3
2026-Jan-02 03:04:05.678901  4711:4712  ERROR  TDRV:log_dev_mem                             Failed to allocate 4.000GB (alignment: 4.000MB, usage: tensors) on ND 0:NC 2
2026-Jan-02 03:04:05.678901  4711:4712  ERROR  TDRV:log_dev_mem_usage_table                 Displaying Current Memory Utilization:

              |          |  Model   |  Model   |          |  Shared  |          |          |DMA Rings |DMA Rings | DMA Rings |DMA Rings |           | Profiler |
              |  TOTAL   |   Code   |Constants | Tensors  |Scratchpad|Scratchpad| Runtime  |    IO    |  Spill   |Collectives| Runtime  |Collectives| Buffers  |
ND 0 HBM 1    | 20.658GB | 96.037MB |272.000KB | 20.000GB |512.000MB |  0.000B  | 1.062KB  |  0.000B  | 1.886MB  |  0.000B   |  0.000B  |  0.000B   | 64.000MB |
  \_NC 2      | 20.096GB | 96.037MB |272.000KB | 20.000GB |  0.000B  |  0.000B  | 1.062KB  |  0.000B  | 1.886MB  |  0.000B   |  0.000B  |  0.000B   |  0.000B  |
  \_NEFF 1001 | 2.152MB  |  0.000B  |272.000KB |   n/a    |   n/a    |  0.000B  |  0.000B  |  0.000B  | 1.886MB  |  0.000B   |  0.000B  |  0.000B   |   n/a    |
  \_NC 3      |576.000MB |  0.000B  |  0.000B  |  0.000B  |512.000MB |  0.000B  |  0.000B  |  0.000B  |  0.000B  |  0.000B   |  0.000B  |  0.000B   | 64.000MB |

NEFF id to name mapping:
1001: "1.0.0-/models/a.neff"
"#;
    assert_eq!(log.take(), [wanted]);
    let report = error.oom().unwrap();
    assert_eq!((report.asked_bytes, report.align_bytes), (4 << 30, 4 << 20));
    assert_eq!((report.device, report.core), (DEVICE, CoreId::new(2)));
    assert_eq!(
        (report.channel, report.usage),
        (Channel::new(1), MemUsage::Tensor)
    );
    assert_eq!(report.hint.as_deref(), Some("kv"));
    let bank = report.table.bank(Channel::new(1)).unwrap();
    assert_eq!(
        bank.present_bytes,
        (20 << 30) + (576 << 20) + 100_702_093 + 278_528 + 1_977_615 + 1088
    );
    let present = report.table.core(CoreId::new(2)).unwrap().present;
    assert_eq!(present.aggregate(Aggregate::Runtime), 1088);
    assert_eq!(present.get(MemUsage::DmaRingSpill), 1_977_615);
    assert_eq!(bank.cores[0].models[0].present.total(), 278_528 + 1_977_615);
    assert_eq!(
        report.table.core(CoreId::new(0)).unwrap().present.total(),
        7
    );
}

#[test]
fn an_older_profile_lists_the_core_that_failed() {
    let fake = Fake::new(Arch::V3);
    let log = Arc::new(Kept::default());
    let config = RuntimeConfig {
        profile: ReportProfile::Sdk2_20,
        log: Some(Arc::clone(&log) as Arc<dyn Log>),
        ..RuntimeConfig::default()
    };
    let transport = Arc::clone(&fake) as Arc<dyn Transport>;
    let runtime = Runtime::open(transport, &[DEVICE], config).unwrap();
    let _live = fill(&runtime);

    let spec = AllocSpec::device(4 << 30, MemUsage::DmaRingIo);
    let _ = runtime.allocate(core(2), &spec).err().unwrap();

    let wanted = "2026-Jan-02 03:04:05.678901  4711:4712  ERROR  TDRV:dmem_alloc_internal                     Failed to alloc DEVICE memory: 4294967296
2026-Jan-02 03:04:05.678901  4711:4712  ERROR  TDRV:log_dev_mem                             Failed to allocate 4.000GB (usage: dma rings) on ND 0:NC 2, current utilization:
\t* total: 20.096GB
\t* model code: 96.037MB
\t* model constants: 272.000KB
\t* tensors: 20.000GB
\t* runtime: 1.062KB
\t* dma rings: 1.886MB

";
    assert_eq!(log.take(), [wanted]);
}

#[test]
fn host_memory_that_ran_out_is_one_line() {
    let fake = Fake::new(Arch::V3);
    let (runtime, log) = open(&fake);
    let spec = AllocSpec {
        location: Location::Host,
        ..AllocSpec::device(2 << 30, MemUsage::Tensor)
    };
    let error = runtime.allocate(core(0), &spec).err().unwrap();
    assert_eq!(error.to_string(), "no host memory for 2147483648 bytes");
    let wanted = "2026-Jan-02 03:04:05.678901  4711:4712  ERROR  TDRV:dmem_alloc_internal                     Failed to allocate HOST memory (2147483648 bytes)\n";
    assert_eq!(log.take(), [wanted]);
}

#[test]
fn nobody_listens_and_the_data_is_there_all_the_same() {
    let fake = Fake::new(Arch::V2);
    let transport = Arc::clone(&fake) as Arc<dyn Transport>;
    let runtime = Runtime::open(transport, &[DEVICE], RuntimeConfig::default()).unwrap();
    let spec = AllocSpec::device(17 << 30, MemUsage::Tensor);
    let error = runtime.allocate(core(1), &spec).err().unwrap();
    assert_eq!(
        error.to_string(),
        "no device memory for 18253611008 bytes (alignment 0, usage TENSOR) on nd 0, core 1, channel 1"
    );
}

#[test]
fn a_table_of_the_device_has_all_banks() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let _live = fill(&runtime);
    let text = runtime
        .usage(DEVICE)
        .unwrap()
        .text(ReportProfile::Runtime2_31);
    let labels: Vec<&str> = text
        .lines()
        .skip(2)
        .filter_map(|line| line.split_once('|'))
        .map(|(label, _)| label.trim())
        .collect();
    assert_eq!(
        labels,
        [
            "ND 0 HBM 0",
            "\\_NC 0",
            "\\_NC 1",
            "ND 0 HBM 1",
            "\\_NC 2",
            "\\_NEFF 1001",
            "\\_NC 3",
            "ND 0 HBM 2",
            "\\_NC 4",
            "\\_NC 5",
            "ND 0 HBM 3",
            "\\_NC 6",
            "\\_NC 7",
        ]
    );
}

#[test]
fn a_table_of_the_device_in_the_form_of_sdk_2_24_has_one_row_that_is_overall() {
    let fake = Fake::new(Arch::V3);
    let config = RuntimeConfig {
        profile: ReportProfile::Sdk2_24,
        ..RuntimeConfig::default()
    };
    let (runtime, log) = open_with(&fake, config);
    let _live = fill(&runtime);
    runtime.log_oom_report();
    let writes = log.take();
    let rows = writes[0].lines().skip(4);
    let rows = rows.map_while(|row| row.split_once('|'));
    let rows: Vec<_> = rows
        .map(|(label, cells)| (label.trim_end(), cells.split('|').next().unwrap().trim()))
        .collect();
    let wanted = [
        // 20.658 GB and 7 bytes.
        ("ND 0 Overall", "20.658GB"),
        ("\\_NC 0", "7.000B"),
        ("\\_NC 1", "0.000B"),
        ("\\_NC 2", "20.096GB"),
        ("  \\_NEFF 1001", "2.152MB"),
        ("\\_NC 3", "576.000MB"),
        ("\\_NC 4", "0.000B"),
        ("\\_NC 5", "0.000B"),
        ("\\_NC 6", "0.000B"),
        ("\\_NC 7", "0.000B"),
    ];
    assert_eq!(rows, wanted);
    // Two banks that hold something are in it.
    let more = runtime.allocate(core(7), &AllocSpec::device(1 << 30, MemUsage::Tensor));
    let text = runtime.usage(DEVICE).unwrap();
    let text = text.verbose_text(ReportProfile::Sdk2_24);
    let overall: Vec<_> = text.lines().filter(|row| row.contains("Overall")).collect();
    assert_eq!(overall.len(), 1);
    assert!(
        overall[0].starts_with("ND 0 Overall  | 21.658GB |"),
        "{text}"
    );
    drop(more);
}

/// What a log got without the prefix of its first line.
fn message(write: &str) -> &str {
    &write["2026-Jan-02 03:04:05.678901  4711:4712  ".len()..]
}

#[test]
fn a_log_gets_the_lines_of_the_level_that_is_wanted_and_worse_ones() {
    let messages = |level: &str| {
        let fake = Fake::new(Arch::V3);
        let set = |name: &str| (name == "NEURON_RT_LOG_LEVEL").then(|| level.to_owned());
        let config = RuntimeConfig::from_env(set).unwrap();
        let (runtime, log) = open_with(&fake, config);
        let model = runtime.load_model(core(0), "a.neff").unwrap();
        model.log_usage();
        let variable = ScratchVariable {
            offset_bytes: 0,
            size_bytes: 600 << 20,
        };
        model.reserve_scratchpad(&[variable]).unwrap();
        fake.fail(ioctl::MEM_ALLOC_V2MT64, 0, Errno::ENOMEM);
        let refused = runtime.allocate(core(0), &AllocSpec::device(1, MemUsage::Tensor));
        assert!(refused.err().unwrap().oom().is_some());
        let level = |message: &String| message.split_whitespace().nth(3).unwrap().to_owned();
        log.take().iter().map(level).collect::<Vec<_>>()
    };
    assert_eq!(messages("TRACE"), ["INFO", "WARN", "ERROR"]);
    assert_eq!(messages("info"), ["INFO", "WARN", "ERROR"]);
    assert_eq!(messages("WARN"), ["WARN", "ERROR"]);
    assert_eq!(messages(""), ["ERROR"]);
    assert_eq!(messages("QUIET"), [""; 0]);
}

#[test]
fn a_loaded_model_is_one_message_and_data() {
    let fake = Fake::new(Arch::V3);
    let (runtime, log) = open(&fake);
    let (_live, model) = fill(&runtime);

    model.log_usage();

    let wanted = " INFO  TDRV:dml_log_dev_neff_mem                    
[ND 0:NC 2] Current Usage Total: 20.096GB
\tShared Scratchpad: 0.000B
\tTensors: 20.000GB
Per NEFF memory usage breakdown for [a.neff]:
\tTotal: 2.152MB
\t* model code: 0.000B
\t* model constants: 272.000KB
\t* scratchpad: 0.000B
\t* runtime: 0.000B
\t* dma rings io: 0.000B
\t* dma rings spill: 1.886MB
\t* dma rings collectives: 0.000B
\t* dma rings runtime: 0.000B
\t* collectives: 0.000B
";
    let writes = log.take();
    assert_eq!(writes.len(), 1);
    assert_eq!(message(&writes[0]), wanted);
    let report = model.report();
    assert_eq!(report.total_bytes(), 278_528 + 1_977_615);
    assert_eq!(report.core_present.get(MemUsage::PoolStdio), 1088);
}

#[test]
fn events_are_one_message_with_commas() {
    let fake = Fake::new(Arch::V3);
    let (runtime, log) = open(&fake);
    let spec = AllocSpec {
        hint: Some("kv, \"hot\""),
        ..AllocSpec::device(5000, MemUsage::Tensor)
    };
    let held = runtime.allocate(core(3), &spec).unwrap();
    let host = AllocSpec {
        location: Location::Host,
        ..AllocSpec::device(64, MemUsage::DmaRing)
    };
    let ring = runtime.allocate(core(0), &host).unwrap();
    let (kv, host) = (held.pa().get(), ring.pa().get());
    drop(held);

    runtime.log_events(DEVICE).unwrap();

    let writes = log.take();
    assert_eq!(writes.len(), 1);
    let wanted = format!(
        " INFO  TDRV:dml_dump                                Memory events of nd 0 (0 older ones dropped):
action,mem_loc,mem_usage,tdram_channel,hint,nc_idx,size,pa,align_offset,total_mem_used
ALLOC,DEVICE,TENSOR,1,\"kv, \"\"hot\"\"\",3,5000,{kv:#x},0,5000
ALLOC,HOST,DMA_RING,0,,0,64,{host:#x},0,
FREE,DEVICE,TENSOR,1,\"kv, \"\"hot\"\"\",3,5000,{kv:#x},0,0
"
    );
    assert_eq!(message(&writes[0]), wanted);
}

#[test]
fn a_report_on_demand_has_all_banks_in_one_message() {
    let fake = Fake::new(Arch::V3);
    let (runtime, log) = open(&fake);
    let _live = fill(&runtime);
    runtime.log_oom_report();
    let writes = log.take();
    assert_eq!(writes.len(), 1);
    let head = " INFO  TDRV:log_dev_mem_usage_table                 Displaying Current Memory Utilization:\n\n";
    let table = runtime.usage(DEVICE).unwrap();
    let table = table.text(ReportProfile::Runtime2_31);
    assert_eq!(message(&writes[0]), format!("{head}{table}"));
}

#[test]
fn what_is_called_for_is_logged_at_every_level_but_quiet() {
    let functions = |level: &str| {
        let fake = Fake::new(Arch::V3);
        let set = |name: &str| (name == "NEURON_RT_LOG_LEVEL").then(|| level.to_owned());
        let (runtime, log) = open_with(&fake, RuntimeConfig::from_env(set).unwrap());
        runtime.log_oom_report();
        runtime.log_events(DEVICE).unwrap();
        let function = |write: &String| {
            let mut words = message(write).split_whitespace();
            assert_eq!(words.next(), Some("INFO"));
            words.next().unwrap().to_owned()
        };
        log.take().iter().map(function).collect::<Vec<_>>()
    };
    let both = ["TDRV:log_dev_mem_usage_table", "TDRV:dml_dump"];
    // Nothing set is ERROR.
    for level in ["", "ERROR", "WARN", "INFO"] {
        assert_eq!(functions(level), both, "{level}");
    }
    assert_eq!(functions("QUIET"), [""; 0]);
}

#[test]
fn a_report_on_demand_of_an_older_profile_lists_all_cores() {
    let fake = Fake::new(Arch::V2);
    let config = RuntimeConfig {
        profile: ReportProfile::Sdk2_23,
        ..RuntimeConfig::default()
    };
    let (runtime, log) = open_with(&fake, config);
    let spec = AllocSpec::device(1088, MemUsage::PoolStdio);
    let _live = runtime.allocate(core(0), &spec).unwrap();
    runtime.log_oom_report();
    let wanted =
        " INFO  TDRV:log_dev_mem                             ND 0:NC 0, current utilization:
\t* total: 1.062KB
\t* runtime: 1.062KB

ND 0:NC 1, current utilization:

";
    assert_eq!(message(&log.take()[0]), wanted);
}

#[test]
fn a_runtime_that_is_told_so_reports_each_usage_or_nothing() {
    let failed = |config| {
        let fake = Fake::new(Arch::V3);
        let (runtime, log) = open_with(&fake, config);
        let spec = AllocSpec::device(25 << 30, MemUsage::Tensor);
        let error = runtime.allocate(core(2), &spec).err().unwrap();
        assert!(error.oom().is_some());
        log.take()
    };
    let verbose = failed(RuntimeConfig {
        verbose_tables: true,
        ..RuntimeConfig::default()
    });
    assert!(verbose[0].contains("\n\n(a column for each usage: a form of Glia's own)\n"));
    let silent = failed(RuntimeConfig {
        oom_log: false,
        ..RuntimeConfig::default()
    });
    assert_eq!(silent, [""; 0]);
}

#[test]
fn the_report_names_the_size_of_a_logical_core() {
    let of = |arch, lnc_size| {
        let fake = Fake::new(arch);
        let config = RuntimeConfig {
            lnc_size,
            ..RuntimeConfig::default()
        };
        let (runtime, _) = open_with(&fake, config);
        let spec = AllocSpec::device(25 << 30, MemUsage::Tensor);
        let error = runtime.allocate(core(0), &spec).err().unwrap();
        error.oom().unwrap().lnc_size
    };
    assert_eq!(
        (of(Arch::V3, 2), of(Arch::V3, 0), of(Arch::V2, 2)),
        (2, 1, 1)
    );
}

/// Keeps files, or refuses them.
#[derive(Default)]
struct Files {
    is_full: bool,
    kept: Mutex<Vec<(String, String)>>,
}

impl Dump for Files {
    fn unix_time_s(&self) -> u64 {
        0x651a_7ca9
    }

    fn write(&self, file_name: &str, text: &str) -> io::Result<String> {
        if self.is_full {
            return Err(io::Error::other("the disk is full"));
        }
        let file = (file_name.to_owned(), text.to_owned());
        self.kept.lock().unwrap().push(file);
        Ok(format!("/kept/{file_name}"))
    }
}

/// What is logged and what is kept when device memory and then host memory run out.
fn dumped(files: Files, oom_log: bool) -> (Vec<String>, Vec<(String, String)>, Option<String>) {
    let fake = Fake::new(Arch::V3);
    let files = Arc::new(files);
    let config = RuntimeConfig {
        dump: Some(Arc::clone(&files) as Arc<dyn Dump>),
        oom_log,
        ..RuntimeConfig::default()
    };
    let (runtime, log) = open_with(&fake, config);
    let _held = runtime.allocate(core(2), &AllocSpec::device(5000, MemUsage::Tensor));
    let device = AllocSpec::device(25 << 30, MemUsage::Weight);
    let error = runtime.allocate(core(2), &device).err().unwrap();
    let host = AllocSpec {
        location: Location::Host,
        ..AllocSpec::device(2 << 30, MemUsage::DmaRing)
    };
    assert!(runtime.allocate(core(2), &host).is_err());
    let place = error.oom().unwrap().events_file.clone();
    let kept = std::mem::take(&mut *files.kept.lock().unwrap());
    (log.take(), kept, place)
}

#[test]
fn events_go_to_a_file_that_the_log_names_when_memory_runs_out() {
    const NAME: &str = "nrt_mem_log_device_0_651a7ca9.csv";
    let (writes, kept, place) = dumped(Files::default(), true);

    assert_eq!(writes.len(), 2);
    let line = format!(
        "dml_dump                                Wrote nrt memory alloc debug info to /kept/{NAME}"
    );
    for write in &writes {
        let second = write.lines().nth(1).unwrap();
        assert!(second.ends_with(&line), "{second}");
    }
    assert_eq!(place.unwrap(), format!("/kept/{NAME}"));
    assert_eq!(kept.len(), 2);
    for (name, text) in &kept {
        assert_eq!(name, NAME);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(
            lines[1].starts_with("ALLOC,DEVICE,TENSOR,1,,2,5000,"),
            "{text}"
        );
    }
}

#[test]
fn a_file_that_cannot_be_written_is_a_line_and_no_file_is_wanted_without_the_report() {
    let full = Files {
        is_full: true,
        ..Files::default()
    };
    let (writes, _, place) = dumped(full, true);
    assert_eq!((writes.len(), place), (4, None));
    let line = "Failed to write nrt memory alloc debug info to nrt_mem_log_device_0_651a7ca9.csv: the disk is full\n";
    for pair in writes.chunks(2) {
        assert!(pair[0].ends_with(line), "{}", pair[0]);
        assert!(!pair[1].contains("dml_dump"), "{}", pair[1]);
    }
    assert!(writes[3].ends_with("Failed to allocate HOST memory (2147483648 bytes)\n"));

    let (writes, kept, place) = dumped(Files::default(), false);
    assert_eq!((writes.len(), kept.len(), place), (1, 0, None));
}
