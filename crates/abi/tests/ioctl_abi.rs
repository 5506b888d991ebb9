//! The table of commands against a program in C that states the same ABI on its own.
//!
//! **This test needs a C compiler** for a 64-bit Linux: `cc`, or what `CC` names. Where there is
//! none it fails and says so; `GLIA_WITHOUT_CC=1` lets it pass without having compared anything.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::env;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use glia_abi::ioctl::{
    Argument, COMMANDS, DmaEngState, DmaQueueState, Kind, Layout, MemChunkInfo, ZerocopyBatch,
    ZerocopyOp,
};

/// Structs that no command has in its argument: they are behind pointers.
const BEHIND_POINTERS: [&Layout; 5] = [
    &DmaEngState::LAYOUT,
    &DmaQueueState::LAYOUT,
    &MemChunkInfo::LAYOUT,
    &ZerocopyBatch::LAYOUT,
    &ZerocopyOp::LAYOUT,
];

/// Lines that say what the ABI is, each of them whole.
type Facts = BTreeSet<String>;

#[test]
fn every_word_size_and_offset_is_what_a_c_compiler_makes_of_it() {
    let Some(output) = run_the_program_in_c() else {
        return;
    };
    let theirs = facts_of_c(&output);
    let (ours, padding) = facts_of_the_table();

    let only_ours: Vec<_> = ours.difference(&theirs).collect();
    let only_theirs: Vec<_> = theirs
        .difference(&ours)
        .filter(|fact| !padding.contains(*fact))
        .collect();

    let nothing: [&String; 0] = [];
    assert_eq!(only_ours, nothing, "the table says it, C does not");
    assert_eq!(only_theirs, nothing, "C says it, the table does not");
    let words = theirs.iter().filter(|fact| fact.starts_with("word "));
    assert_eq!(words.count(), 106);
    let structs = theirs.iter().filter(|fact| fact.starts_with("struct "));
    assert_eq!(structs.count(), 72);
}

/// What the program prints; `None` if there is no compiler and the environment does not mind.
fn run_the_program_in_c() -> Option<String> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ioctl_abi.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ioctl_abi");
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let compiled = Command::new(&compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(source)
        .output();
    let compiled = match compiled {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let story = format!(
                "no C compiler ({}): nothing was compared",
                compiler.display()
            );
            let minds = env::var_os("GLIA_WITHOUT_CC").is_none_or(|value| value != "1");
            assert!(!minds, "{story}; install one, or set GLIA_WITHOUT_CC=1");
            eprintln!("{story}");
            return None;
        }
        other => other.unwrap(),
    };
    let complaints = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{complaints}");
    let ran = Command::new(&program).output().unwrap();
    assert!(ran.status.success());
    Some(String::from_utf8(ran.stdout).unwrap())
}

fn facts_of_c(output: &str) -> Facts {
    let mut of = "";
    let facts = output.lines().map(|line| {
        let (what, rest) = line.split_once(' ').unwrap();
        match what {
            "word" => line.to_owned(),
            "struct" => {
                of = rest.split_once(' ').unwrap().0;
                line.to_owned()
            }
            "field" | "entry" => format!("{what} {of} {rest}"),
            _ => panic!("{line}"),
        }
    });
    facts.collect()
}

/// What the table says, and the padding that it writes out. C need not have that.
fn facts_of_the_table() -> (Facts, Facts) {
    let (mut facts, mut padding) = (Facts::new(), Facts::new());
    for layout in BEHIND_POINTERS {
        add_struct(layout, &mut facts, &mut padding);
    }
    for command in COMMANDS {
        let argument = match command.argument {
            Argument::Nothing => "-",
            Argument::NotCovered => "?",
            Argument::Struct(layout) => {
                add_struct(layout, &mut facts, &mut padding);
                layout.name
            }
        };
        facts.insert(format!(
            "word {} {:#010x} {argument}",
            command.name, command.word
        ));
    }
    (facts, padding)
}

fn add_struct(layout: &Layout, facts: &mut Facts, padding: &mut Facts) {
    let name = layout.name;
    facts.insert(format!("struct {name} {}", layout.full_size_bytes()));
    for field in layout.fields {
        let fact = format!(
            "field {name} {} {} {}",
            field.name, field.offset, field.size_bytes
        );
        match field.kind {
            Kind::Pad => padding.insert(fact),
            _ => facts.insert(fact),
        };
        if let Kind::Structs(nested) = field.kind {
            add_struct(nested, facts, padding);
        }
    }
    if let Some(tail) = layout.tail {
        let (entry, count) = (tail.entry, tail.capacity.unwrap_or(0));
        let offset = layout.size_bytes;
        facts.insert(format!("entry {name} {} {offset} {count}", entry.name));
        add_struct(entry, facts, padding);
    }
}
