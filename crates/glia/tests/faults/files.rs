//! Plan files: what they order, and how a wrong one is told.

use std::path::Path;

use glia::faults::{Format, PlanFile};
use glia_abi::arch::Arch;
use glia_abi::fault::{FaultKind, FaultPoint, FaultRule, Faults, InternalAlloc, Matching, Trigger};
use glia_abi::handle::{CoreId, DeviceId, EngineId, Pid};
use glia_abi::ioctl;
use glia_abi::sched::Micros;

fn toml(text: &str) -> PlanFile {
    PlanFile::parse(Format::Toml, text).unwrap()
}

/// The message for a plan of one fault of these lines.
fn refused(lines: &str) -> String {
    let text = format!("[[fault]]\n{lines}\n");
    PlanFile::parse(Format::Toml, &text)
        .unwrap_err()
        .to_string()
}

#[test]
fn every_kind_of_the_documents_examples_is_read() {
    let text = include_str!("../../../../docs/formats/faults.md");
    let mut kinds = std::collections::BTreeSet::new();
    for block in text.split("```toml\n").skip(1) {
        let plan = toml(block.split("```").next().unwrap());
        kinds.extend(plan.rules().map(|rule| rule.kind.name()));
    }
    assert_eq!(kinds.len(), 16, "{kinds:?}");
}

#[test]
fn all_keys_come_into_the_rule() {
    let plan = toml(
        "seed = 7\n[[fault]]\nkind = \"late-marker\"\ndelay_us = 500\ndevice = 1\nengine = 33\n\
         queue = 2\ncore = 1\nprocess = 1000\ncommand = \"MEM_COPY64\"\nafter = 4\nevery = 2\n\
         nth = 3\nprobability = 0.5\ncount = 9\nsticky = true\n",
    );
    let wanted = FaultRule {
        kind: FaultKind::LateMarker { delay: Micros(500) },
        matching: Matching {
            device: Some(DeviceId::new(1)),
            engine: Some(EngineId::new(33)),
            queue: Some(2),
            core: Some(CoreId::new(1)),
            process: Some(Pid::new(1000)),
            command: Some(ioctl::MEM_COPY64),
        },
        trigger: Trigger {
            after: 4,
            every: Some(2),
            nth: Some(3),
            probability: Some(0.5),
            count: Some(9),
            sticky: true,
        },
    };
    assert_eq!(plan.rules().collect::<Vec<_>>(), [&wanted]);
    assert_eq!(plan.seed(), 7);
}

#[test]
fn json_says_the_same_as_toml() {
    let from_toml = toml(
        "seed = 3\n[[fault]]\nkind = \"flipped-bits\"\noffset_bytes = 8\nmask = 0x80\n\
         [[fault]]\nkind = \"failed-internal-alloc\"\nof = \"chunk-record\"\nprobability = 1\n\
         command = \"0x80384e66\"\n",
    );
    let json = r#"{"seed":3,"fault":[
        {"kind":"flipped-bits","offset_bytes":8,"mask":128},
        {"kind":"failed-internal-alloc","of":"chunk-record","probability":1,
         "command":"MEM_ALLOC_V2MT64"}]}"#;
    let from_json = PlanFile::parse(Format::Json, json).unwrap();
    let rules = |plan: &PlanFile| plan.rules().copied().collect::<Vec<_>>();
    assert_eq!(rules(&from_toml), rules(&from_json));
    assert_eq!(from_toml.seed(), from_json.seed());
    let of = FaultKind::FailedInternalAlloc(InternalAlloc::ChunkRecord);
    assert_eq!(rules(&from_json)[1].kind, of);
}

#[test]
fn a_byte_order_mark_before_a_plan_is_passed_over() {
    let plans = [
        ("plan.json", "{\"fault\":[{\"kind\":\"failed-pin\"}]}"),
        ("plan.toml", "[[fault]]\nkind = \"failed-pin\"\n"),
        ("plan", "{\"fault\":[{\"kind\":\"failed-pin\"}]}"),
    ];
    for (name, text) in plans {
        let marked = format!("\u{feff}{text}");
        let format = Format::of(Path::new(name), &marked);
        let plan = PlanFile::parse(format, &marked).unwrap();
        assert_eq!(plan.rules().count(), 1, "{name}");
    }
}

#[test]
fn the_format_is_told_by_the_ending_else_by_the_first_character() {
    let of = |name: &str, text| Format::of(Path::new(name), text);
    assert_eq!(of("a.json", "seed = 1"), Format::Json);
    assert_eq!(of("a.toml", "{}"), Format::Toml);
    assert_eq!(of("plan", "  \n{}"), Format::Json);
    assert_eq!(of("plan.txt", "seed = 1"), Format::Toml);
}

#[test]
fn a_misspelt_key_is_refused_with_the_nearest_right_one() {
    let slips = [
        ("probabilty", "probability"),
        ("Nth", "nth"),
        ("evry", "every"),
        ("affter", "after"),
        ("stiky", "sticky"),
        ("cores", "core"),
        ("devcie", "device"),
        ("proces", "process"),
        ("cmd", "command"),
        ("knid", "kind"),
    ];
    for (slip, right) in slips {
        let told = refused(&format!("kind = \"failed-pin\"\n{slip} = 1"));
        // What is short and far from everything gets the list only.
        let hint = match slip {
            "cmd" => String::new(),
            _ => format!(": did you mean `{right}`?"),
        };
        let begin = format!("line 3: fault 1: unknown key `{slip}`{hint}; allowed are kind, ");
        assert!(told.starts_with(&begin), "{told}");
    }
}

/// A key that this kind does not take is no help to whoever misspelt one.
#[test]
fn of_a_misspelt_key_those_of_its_kind_alone_are_told() {
    const COMMON: &str = "kind, device, core, process, command, nth, every, after, probability, \
                          count, sticky";
    // Wherever the kind stands.
    let told = refused("enigne = 1\nkind = \"stuck-queue\"");
    let hint = ": did you mean `engine`?; allowed are";
    let unknown = "line 2: fault 1: unknown key `enigne`";
    assert_eq!(told, format!("{unknown}{hint} {COMMON}, engine, queue"));
    let told = refused("kind = \"failed-pin\"\nenigne = 1");
    let unknown = "line 3: fault 1: unknown key `enigne`; allowed are";
    assert_eq!(told, format!("{unknown} {COMMON}"));
    let told = refused("kind = \"late-marker\"\ndelay-us = 1");
    let hint = ": did you mean `delay_us`?; allowed are";
    let unknown = "line 3: fault 1: unknown key `delay-us`";
    assert_eq!(
        told,
        format!("{unknown}{hint} {COMMON}, engine, queue, delay_us")
    );
    // Without a kind, every key that there is.
    let told = refused("delay-us = 1");
    assert!(
        told.ends_with(", offset_bytes, size_bytes, mask, of"),
        "{told}"
    );
    assert_eq!(told.matches("delay_us").count(), 2, "{told}");
}

#[test]
fn keys_of_the_document_are_its_own() {
    let told = |text| PlanFile::parse(Format::Toml, text).unwrap_err().to_string();
    assert_eq!(
        told("sed = 7\n"),
        "line 1: unknown key `sed`: did you mean `seed`?; allowed are seed, fault"
    );
    assert_eq!(
        told("seed = 1\n\n[[faults]]\nkind = \"failed-pin\""),
        "line 3: unknown key `faults`: did you mean `fault`?; allowed are seed, fault"
    );
    assert_eq!(
        told("[fault]\nkind = \"failed-pin\""),
        "line 1: `fault` is a table and has to be a list: in TOML, write `[[fault]]`"
    );
    for nothing in ["", "seed = 1", "fault = []"] {
        assert!(
            told(nothing).starts_with("no fault is ordered"),
            "{nothing}"
        );
    }
}

#[test]
fn a_misspelt_kind_command_or_allocation_is_refused_with_the_nearest_right_one() {
    let told = refused("kind = \"late_marker\"");
    assert!(
        told.starts_with(
            "line 2: fault 1: `kind` is \"late_marker\", which does not exist: did you mean \
             `late-marker`?; allowed are reset-hang, stuck-queue, "
        ),
        "{told}"
    );
    let told = refused("kind = \"failed-pin\"\ncommand = \"MEM_ALOC_V2MT64\"");
    let begin = "line 3: fault 1: `command` is \"MEM_ALOC_V2MT64\", which does not exist: did you \
                 mean `MEM_ALLOC_V2MT64`?; allowed are names such as";
    assert!(told.starts_with(begin), "{told}");
    for unknown in ["0x12345678", "\"0x12345678\"", "\"0xzz\"", "4294967296"] {
        let told = refused(&format!("kind = \"failed-pin\"\ncommand = {unknown}"));
        assert!(told.contains("which does not exist"), "{told}");
    }
    let told = refused("kind = \"failed-internal-alloc\"\nof = \"chunk_record\"");
    assert!(told.contains("did you mean `chunk-record`?"), "{told}");
}

#[test]
fn values_of_the_wrong_sort_are_refused() {
    let cases = [
        ("nth = \"3\"", "`nth` is \"3\" and has to be a whole number"),
        ("nth = 1.5", "`nth` is 1.5 and has to be a whole number"),
        ("nth = true", "`nth` is true and has to be a whole number"),
        ("nth = [3]", "`nth` is a list and has to be a whole number"),
        ("sticky = 1", "`sticky` is 1 and has to be true or false"),
        (
            "probability = \"half\"",
            "`probability` is \"half\" and has to be a number from 0 to 1",
        ),
        (
            "command = true",
            "`command` is true and has to be the name of a command, or its word",
        ),
        (
            "process = 2026-01-01",
            "`process` is a date and has to be a whole number",
        ),
    ];
    for (line, wanted) in cases {
        let told = refused(&format!("kind = \"failed-pin\"\n{line}"));
        assert_eq!(told, format!("line 3: fault 1: {wanted}"));
    }
    let told = refused("kind = 3");
    assert_eq!(
        told,
        "line 2: fault 1: `kind` is 3 and has to be a name in quotes"
    );
}

#[test]
fn numbers_out_of_range_are_refused() {
    let cases = [
        ("failed-pin", "nth = 0", "`nth` is 0 and has to be 1 to "),
        ("failed-pin", "nth = -1", "`nth` is -1 and has to be 1 to "),
        ("failed-pin", "every = 0", "`every` is 0 "),
        ("failed-pin", "count = 0", "`count` is 0 "),
        ("failed-pin", "process = 0", "`process` is 0 "),
        (
            "failed-pin",
            "process = 4194305",
            "`process` is 4194305 and has to be 1 to 4194304",
        ),
        ("failed-pin", "core = 4294967296", "`core` is 4294967296 "),
        (
            "late-marker",
            "delay_us = 0",
            "`delay_us` is 0 and has to be 1 to 3600000000",
        ),
        (
            "late-marker",
            "delay_us = 3600000001",
            "`delay_us` is 3600000001 ",
        ),
        ("partial-batch", "pairs = 0", "`pairs` is 0 "),
        (
            "flipped-bits",
            "mask = 256",
            "`mask` is 256 and has to be 1 to 255",
        ),
        ("flipped-bits", "mask = 0", "`mask` is 0 "),
        ("flipped-bits", "size_bytes = 0", "`size_bytes` is 0 "),
        (
            "flipped-bits",
            "offset_bytes = 65536",
            "`offset_bytes` is 65536 and has to be 0 to 65535",
        ),
    ];
    for (kind, line, wanted) in cases {
        let told = refused(&format!("kind = \"{kind}\"\n{line}"));
        assert!(
            told.starts_with(&format!("line 3: fault 1: {wanted}")),
            "{told}"
        );
    }
    for chance in ["1.01", "-0.5", "nan", "inf", "2"] {
        let told = refused(&format!("kind = \"failed-pin\"\nprobability = {chance}"));
        assert!(
            told.starts_with("line 3: fault 1: `probability` is "),
            "{told}"
        );
        assert!(told.contains("has to be a number from 0 to 1"), "{told}");
    }
}

#[test]
fn keys_that_mean_nothing_for_a_kind_are_refused() {
    let told = refused("kind = \"stuck-queue\"\ndelay_us = 5");
    assert!(
        told.starts_with(
            "line 3: fault 1: `delay_us` means nothing for `stuck-queue`; allowed are kind, "
        ),
        "{told}"
    );
    for line in ["engine = 1", "queue = 1", "of = \"pool\""] {
        let told = refused(&format!("kind = \"failed-pin\"\n{line}"));
        assert!(told.contains("means nothing for `failed-pin`"), "{told}");
    }
}

#[test]
fn what_a_kind_needs_must_be_there_and_nothing_twice() {
    assert_eq!(
        refused("nth = 1"),
        "line 1: fault 1: `kind` is missing: a fault needs it"
    );
    for (kind, key) in [
        ("late-marker", "delay_us"),
        ("delayed-retirement", "delay_us"),
        ("partial-batch", "pairs"),
        ("failed-internal-alloc", "of"),
    ] {
        let told = refused(&format!("kind = \"{kind}\""));
        assert_eq!(
            told,
            format!("line 1: fault 1: `{key}` is missing: {kind} needs it")
        );
    }
    let twice = r#"{"fault":[{"kind":"failed-pin","nth":1,"nth":2}]}"#;
    let told = PlanFile::parse(Format::Json, twice).unwrap_err();
    assert_eq!(told.to_string(), "fault 1: `nth` is there twice");
    assert_eq!(
        refused("kind = \"failed-pin\"\nnth = 1\nnth = 2"),
        "line 4: duplicate key `nth`"
    );
    let told = refused("kind = \"failed-pin\"\nnth = 2\nevery = 2");
    assert!(told.contains("is never one of"), "{told}");
}

#[test]
fn text_that_is_neither_format_says_where() {
    let told = |format, text| PlanFile::parse(format, text).unwrap_err().to_string();
    assert!(told(Format::Toml, "seed = 1\nfault = [\n").starts_with("line "));
    assert_eq!(
        told(Format::Json, "{\n\"seed\": }"),
        "line 2: expected value, column 9"
    );
    assert!(told(Format::Json, "[]").starts_with("no fault is ordered"));
    let deep = "[".repeat(100_000);
    assert!(!told(Format::Json, &deep).is_empty());
    assert!(!told(Format::Toml, &format!("a = {deep}")).is_empty());
    let long = refused(&format!("{} = 1", "x".repeat(500_000)));
    assert!(long.len() < 500, "{}", long.len());
}

#[test]
fn what_the_machine_does_not_have_is_refused_for_that_machine() {
    let plan = |line| {
        toml(&format!(
            "[[fault]]\nkind = \"stuck-queue\"\n[[fault]]\nkind = \"dma-abort\"\n{line}"
        ))
    };
    let told = |line, arch| plan(line).lay(arch, 2).unwrap_err().to_string();
    assert_eq!(
        told("core = 2", Arch::V2),
        "line 5: fault 2: `core` is 2 and has to be 0 to 1 on a machine with 2 devices of v2"
    );
    assert!(plan("core = 2").lay(Arch::V3, 1).is_ok());
    let one = plan("core = 8").lay(Arch::V3, 1).unwrap_err().to_string();
    assert!(one.ends_with(" on a machine with 1 device of v3"), "{one}");
    assert!(told("device = 2", Arch::V3).contains("`device` is 2 and has to be 0 to 1"));
    assert!(told("queue = 16", Arch::V3).contains("`queue` is 16 and has to be 0 to 15"));
    assert!(told("engine = 999", Arch::V3).contains("`engine` is 999 "));
}

#[test]
fn each_run_begins_the_plan_anew_and_is_told_apart() {
    let file = toml("[[fault]]\nkind = \"failed-pin\"\nnth = 2\n[[fault]]\nkind = \"dma-abort\"\n");
    for _ in 0..2 {
        let laid = file.lay(Arch::V3, 1).unwrap();
        let struck = [(); 3].map(|()| laid.plan().strikes(FaultPoint::Pin));
        assert_eq!(struck, [false, true, false]);
        let told = laid.told();
        let counts = |index: usize| (told[index].opportunities, told[index].strikes);
        assert_eq!((counts(0), counts(1)), ((3, 1), (0, 0)));
        assert_eq!((told[1].fault, told[1].line), (2, Some(4)));
    }
}
