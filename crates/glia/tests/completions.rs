//! `glia completions` and `glia man`: they know every command that the help knows.
#![expect(
    clippy::unwrap_used,
    reason = "the helpers of a test fail it by panicking, too"
)]

use std::fs;

use assert_cmd::cargo::cargo_bin_cmd;
use tempfile::TempDir;

/// Standard output, of a command that succeeds.
fn output(args: &[&str]) -> String {
    let output = cargo_bin_cmd!("glia").args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{args:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The commands that the help lists.
fn commands() -> Vec<String> {
    let help = output(&["--help"]);
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|&name| name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_shell_completes_every_command() {
    let commands = commands();
    assert!(commands.iter().any(|command| command == "explain"));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = output(&["completions", shell]);
        for command in &commands {
            assert!(script.contains(command.as_str()), "{shell}: {command}");
        }
        assert!(script.contains("workload"), "{shell}");
    }
    cargo_bin_cmd!("glia")
        .args(["completions", "tcsh"])
        .assert()
        .code(2);
}

#[test]
fn every_command_has_its_manual_page() {
    assert!(output(&["man"]).contains(".TH glia 1"));
    let directory = TempDir::new().unwrap();
    let pages = directory.path().join("share/man1");
    output(&["man", "--out", pages.to_str().unwrap()]);
    for command in commands() {
        let page = fs::read_to_string(pages.join(format!("glia-{command}.1"))).unwrap();
        assert!(
            page.starts_with(".ie \\n(.g") || page.contains(&format!(".TH glia-{command} 1")),
            "{page}"
        );
        assert!(page.contains(&format!("glia {command}")), "{page}");
    }
    assert!(pages.join("glia.1").exists());
    // A page that another one refers to is there.
    let files = fs::read_dir(&pages).unwrap();
    let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    let mut referred = 0;
    for file in &files {
        let page = fs::read_to_string(file).unwrap().replace('\\', "");
        let words = page
            .split_whitespace()
            .filter_map(|word| word.split_once("(1)"));
        for name in words
            .map(|(name, _)| name)
            .filter(|name| name.starts_with("glia-"))
        {
            referred += 1;
            assert!(pages.join(format!("{name}.1")).exists(), "{file:?}: {name}");
        }
    }
    // Each but the first is referred to once.
    assert_eq!(referred, files.len() - 1);
    let bench = fs::read_to_string(pages.join("glia-bench-pool.1")).unwrap();
    assert!(bench.contains("glia bench pool"), "{bench}");
    // Examples keep their lines, and what roff would take for a minus is none.
    let run = fs::read_to_string(pages.join("glia-run.1")).unwrap();
    assert!(run.contains(".SH \"EXAMPLES\"\n.nf\nglia run "), "{run}");
    assert!(
        run.contains("\nglia run examples/kv\\-cache\\-trn2.jsonl  "),
        "{run}"
    );
    assert!(
        run.contains(".SH \"EXIT STATUS\"\n0 everything ended"),
        "{run}"
    );
    cargo_bin_cmd!("glia")
        .args(["man", "--out", "/dev/null/x"])
        .assert()
        .code(2);
}
