use std::num::NonZeroU64;

use glia_abi::params::ModuleParams;
use glia_device::{EngineOrder, EngineTiming, HostConfig, PinLayout};

use super::super::SchedMode;
use super::tables::Timing;
use super::*;

fn refused(text: &str) -> String {
    match MachineConfig::from_toml(text) {
        Ok(_) => panic!("a machine: {text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_file_can_say_everything() {
    let config = MachineConfig::from_toml(
        r#"
        machine = "trn3"
        devices = 2
        region_size = "256MiB"
        hbm_fill = 0xA5
        [params]
        mempool_min_alloc_size = "64KiB"
        mempool_host_memory_size = "1MiB"
        mempool_small_pool_size = 16777216
        mempool_small_alloc_max = 4096
        no_reset = true
        zerocopy_trn1_override = true
        [host]
        arena_size = "1GiB"
        pinned_max = "8MiB"
        scatter_seed = 3
        [engines]
        run = "virtual"
        seed = 7
        timing = { latency_ns = 90, bytes_per_us = 1000 }
        "#,
    )
    .unwrap();

    assert_eq!(config.arch, Model::Trn3.arch());
    assert_eq!((config.devices, config.hbm_fill), (2, 0xA5));
    assert_eq!(
        config.scale,
        Scale::RegionSize {
            size_bytes: 256 << 20
        }
    );
    assert_eq!(
        config.params,
        ModuleParams {
            mempool_min_alloc_size: 65_536,
            mempool_host_memory_size: 1 << 20,
            mempool_small_pool_size: 16 << 20,
            mempool_small_alloc_max: 4096,
            no_reset: true,
            zerocopy_trn1_override: true,
        }
    );
    assert_eq!(
        config.host,
        HostConfig {
            arena_size_bytes: 1 << 30,
            pin_layout: PinLayout::Scattered { seed: 3 },
            pinned_bytes_max: 8 << 20,
        }
    );
    assert_eq!(config.mode, SchedMode::Virtual { seed: 7 });
    assert_eq!(config.order, EngineOrder::Weak { seed: 7 });
    assert_eq!(
        config.timing,
        Some(EngineTiming {
            latency_ns: 90,
            bytes_per_us: 1000
        })
    );
}

#[test]
fn the_example_is_a_machine() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/machine.toml");
    let config = MachineConfig::read(&path).unwrap();
    assert_eq!((config.devices, config.hbm_fill), (2, 0xA5));
    let document = include_str!("../../../../../docs/formats/machine.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_comment, body) = text.split_once('\n').unwrap();
    assert!(document.contains(body), "the document shows another one");
    crate::machine::Machine::new(config).unwrap();
}

#[test]
fn files_that_cannot_be_read_or_are_too_long_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let read = |path: &Path| MachineConfig::read(path).err().unwrap().to_string();
    assert_eq!(read(directory.path()), "the file cannot be read");
    let long = directory.path().join("long.toml");
    std::fs::write(&long, "#".repeat(65_537)).unwrap();
    assert_eq!(read(&long), "the file has more than 65536 bytes");
    // A character that the limit cuts is not what is wrong.
    std::fs::write(&long, "ä".repeat(65_537)).unwrap();
    assert_eq!(read(&long), "the file has more than 65536 bytes");
    std::fs::write(&long, b"machine = \"\xff\"").unwrap();
    assert_eq!(read(&long), "the file cannot be read");
    std::fs::write(&long, "\u{feff}machine = \"trn2\"\r\n").unwrap();
    assert!(MachineConfig::read(&long).is_ok(), "a byte order mark");
}

#[test]
fn what_is_written_is_read_again_as_json_or_toml() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/machine.toml");
    let file = MachineFile::read(&path).unwrap();
    assert_eq!(file.path(), Some(&*path));
    let text = serde_json::to_string(&file).unwrap();
    let again = MachineFile::parse(Format::Json, &text).unwrap();
    assert_eq!(again.path(), None);
    let same = MachineFile {
        path: None,
        ..file.clone()
    };
    assert_eq!(again, same);
    assert_eq!(
        MachineFile::from_json(serde_json::json!(file)).unwrap(),
        same
    );
    let plain = MachineFile::plain(Model::Trn2, 1, Engine::Inline);
    assert_eq!(
        serde_json::to_string(&plain).unwrap(),
        r#"{"machine":"trn2","devices":1,"engines":{"run":"inline"}}"#
    );
}

#[test]
fn another_way_to_run_engines_keeps_what_is_said_of_them_or_is_refused() {
    let with = |engines: &str, engine| {
        let text = format!("machine = \"trn2\"\nengines = {engines}");
        let mut file = MachineFile::parse(Format::Toml, &text).unwrap();
        file.set_engine(engine).map(|()| file.engines)
    };
    let timed = "timing = { latency_ns = 1, bytes_per_us = 2 }";
    let timing = Some(Timing {
        latency_ns: 1,
        bytes_per_us: NonZeroU64::new(2).unwrap(),
    });
    let virtually = format!("{{ run = \"virtual\", seed = 7, {timed} }}");
    let inline = format!("{{ run = \"inline\", {timed} }}");
    let order_seed = None;
    assert_eq!(
        with(&virtually, Engine::Inline),
        Ok(Engines::Inline { timing, order_seed })
    );
    let seed = None;
    assert_eq!(
        with(&inline, Engine::Virtual),
        Ok(Engines::Virtual { seed, timing })
    );
    let seed = Some(7);
    assert_eq!(
        with(&virtually, Engine::Virtual),
        Ok(Engines::Virtual { seed, timing })
    );
    assert_eq!(
        with("{ run = \"threaded\", threads = 9 }", Engine::Inline),
        Ok(Engines::plain(Engine::Inline))
    );
    let error = |engines: &str, engine| with(engines, engine).unwrap_err().to_string();
    assert_eq!(
        error(&virtually, Engine::Threaded),
        "engine \"threaded\" cannot go with engines.timing { latency_ns = 1, bytes_per_us = 2 } of \
         the machine, which is of inline and virtual engines only"
    );
    assert_eq!(
        error("{ run = \"inline\", order_seed = 5 }", Engine::Virtual),
        "engine \"virtual\" cannot go with engines.order_seed 5 of the machine, which is of inline \
         engines only"
    );
}

#[test]
fn a_seed_is_of_virtual_engines_and_one_that_is_said_stays() {
    let mut file = MachineFile::plain(Model::Trn2, 1, Engine::Virtual);
    let settled = |file: &MachineFile, by| {
        let mut file = file.clone();
        file.settle(by);
        file.config().mode
    };
    assert_eq!(settled(&file, 3), SchedMode::Virtual { seed: 3 });
    assert!(!file.is_plain(3), "it does not say so");
    file.set_seed(7);
    assert_eq!(settled(&file, 3), SchedMode::Virtual { seed: 7 });
    assert!(file.is_plain(7) && !file.is_plain(3));
    let mut inline = MachineFile::plain(Model::Trn2, 1, Engine::Inline);
    inline.set_seed(7);
    assert!(inline.is_plain(3));
}

#[test]
fn what_a_file_leaves_out_is_as_in_code() {
    let config = MachineConfig::from_toml("machine = \"inf2\"").unwrap();
    let usual = MachineConfig::new(Model::Trn1);
    assert_eq!(config.arch, usual.arch);
    assert_eq!(config.scale, usual.scale);
    assert_eq!(config.devices, usual.devices);
    assert_eq!(config.params, usual.params);
    assert_eq!(config.host, usual.host);
    assert_eq!(config.mode, usual.mode);
    assert_eq!((config.timing, config.order), (usual.timing, usual.order));
}

#[test]
fn each_way_to_run_engines_has_its_own_keys() {
    let mode = |engines: &str| {
        let text = format!("machine = \"trn2\"\n[engines]\n{engines}");
        let config = MachineConfig::from_toml(&text).unwrap();
        (config.mode, config.timing, config.order)
    };
    let v3 = EngineTiming::of(Model::Trn2.arch());
    let (strict, weak) = (EngineOrder::Strict, EngineOrder::Weak { seed: 5 });
    assert_eq!(
        mode("run = \"inline\"\norder_seed = 5"),
        (SchedMode::Inline, None, weak)
    );
    assert_eq!(
        mode("run = \"threaded\""),
        (SchedMode::THREADED, None, strict)
    );
    assert_eq!(
        mode("run = \"threaded\"\nthreads = 9"),
        (SchedMode::Threaded { threads: 9 }, None, strict)
    );
    assert_eq!(
        mode("run = \"virtual\"\nseed = 5"),
        (SchedMode::Virtual { seed: 5 }, Some(v3), weak)
    );
}

#[test]
fn what_is_no_machine_is_refused_with_its_line_and_what_is_allowed() {
    let cases: [(&str, &[&str]); 23] = [
        ("", &["line 1", "missing field `machine`"]),
        ("devices = 1", &["machine"]),
        ("machine = \"trn9\"", &["line 1", "trn9", "trn2"]),
        (
            "machine = \"trn2\"\nmachine = \"trn1\"",
            &["line 2: duplicate key `machine`"],
        ),
        (
            "machine = \"trn2\"\ndevice = 2",
            &["line 2", "device", "devices"],
        ),
        (
            "machine = \"trn2\"\ndevices = 17",
            &["line 2: devices is 17: 1 to 16"],
        ),
        (
            "machine = \"trn2\"\ndevices = \"2\"",
            &["line 2: invalid type: string \"2\", expected a whole number, 1 to 16"],
        ),
        ("machine = \"trn2\"\ndevices = 0", &["0", "1 to 16"]),
        (
            "machine = \"trn2\"\ndevices = -1",
            &["line 2: devices is -1: 1 to 16 are allowed"],
        ),
        (
            "machine = \"trn2\"\ndevices = 99999999999999999999",
            &["line 2", "99999999999999999999", "1 to 16"],
        ),
        (
            "machine = \"trn2\"\nhbm_fill = 256",
            &["line 2", "256", "0 to 255"],
        ),
        (
            "machine = \"trn2\"\nregion_size = \"1 parsec\"",
            &["line 2", "parsec"],
        ),
        (
            "machine = \"trn2\"\nregion_size = \"16777216TiB\"",
            &["line 2", "16777216TiB", "below 2^64"],
        ),
        (
            "machine = \"trn2\"\n[engines]\nrun = \"threaded\"\nseed = 1",
            &[
                "line 2: engines.seed means nothing with run = \"threaded\": allowed are run, threads",
            ],
        ),
        (
            "machine = \"trn2\"\n[engines]\nthreads = 3\nrun = \"inline\"",
            &[
                "line 2: engines.threads means nothing with run = \"inline\": allowed are run, timing, order_seed",
            ],
        ),
        (
            "machine = \"trn2\"\n[engines]\nrun = \"threaded\"\n\nthreads = 257",
            &["line 5: threads is 257: 1 to 256 are allowed"],
        ),
        (
            "machine = \"trn2\"\n[engines]\nrun = \"virtual\"\n\nseed = \"x\"",
            &["line 5", "expected a whole number, 0 to 2^64 - 1"],
        ),
        (
            "machine = \"trn2\"\n[engines]\nrun = \"threaded\"\nthreads = 0",
            &["line 4: threads is 0: 1 to 256 are allowed"],
        ),
        (
            "machine = \"trn2\"\n[engines]\nseed = 1",
            &["line 2", "missing field `run`"],
        ),
        (
            "machine = \"trn2\"\n[engines]\nrun = 1",
            &["line 3", "`1`", "`inline`, `threaded` or `virtual`"],
        ),
        (
            "machine = \"trn2\"\nparams = [4096]",
            &["line 2", "sequence", "object"],
        ),
        (
            "machine = \"trn2\"\n[engines]\nrun = \"virtual\"\ntiming = [1, 2]",
            &["line", "sequence", "object"],
        ),
        ("machine = ", &["line 1"]),
    ];
    for (text, parts) in cases {
        let message = refused(text);
        assert!(!message.contains('\n'), "{message}");
        for part in parts {
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
