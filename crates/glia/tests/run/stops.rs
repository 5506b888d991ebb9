//! Ctrl-C: the summary comes, and the recording is whole.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use glia::play::{Conditions, play, play_under};
use glia_abi::event::{Event, Ids, Sink};
use glia_abi::sched::Tick;
use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::Value;

#[test]
fn a_run_that_is_stopped_tells_how_far_it_came_and_leaves_a_recording_that_can_be_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace.jsonl");
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("glia"))
        .args(["run", "--json", "--record"])
        .arg(&file)
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let pair = "{\"op\":\"alloc\",\"id\":\"a\",\"size\":4096}\n{\"op\":\"free\",\"id\":\"a\"}\n";
    let written = input.write_all(b"{\"workload\":1}\n");
    written.unwrap();
    // Some blocks of the recording are there: it is running.
    while fs::metadata(&file).map_or(0, |it| it.len()) == 0 {
        input.write_all(pair.repeat(1000).as_bytes()).unwrap();
    }
    let killed = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(killed.unwrap().success());
    // It is stopped between two lines, or the pipe is closed: it never reads to an end.
    while input.write_all(pair.as_bytes()).is_ok() {}
    let mut text = String::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        text.push_str(&line.unwrap());
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let document: Value = serde_json::from_str(&text).unwrap();
    let run = &document["runs"][0];
    let operations = run["operations"]["total"].as_u64().unwrap();
    assert_eq!(run["stopped"], operations + 1);
    let recorded = fs::read_to_string(&file).unwrap();
    assert_eq!(recorded.lines().count() as u64, operations + 1);
    let again = super::run(&["--json", file.to_str().unwrap()], "");
    assert_eq!(again.code, 0, "{}", again.stderr);
}

/// A listener that tells the run to stop at the n-th copy that ends.
struct Stopper {
    stop: AtomicBool,
    copies: AtomicU32,
    nth: u32,
}

impl Sink for Stopper {
    fn event(&self, _: Tick, _: &Ids, event: &Event) {
        let is_copy = matches!(event, Event::Copied { .. });
        if is_copy && self.copies.fetch_add(1, Ordering::Relaxed) + 1 == self.nth {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_large_write_or_read_is_given_up_between_two_pieces_and_its_line_is_not_run() {
    let lines = concat!(
        "{\"workload\":1}\n",
        "{\"op\":\"alloc\",\"id\":\"a\",\"size\":\"32MiB\"}\n",
        "{\"op\":\"write\",\"id\":\"a\",\"seed\":1}\n",
        "{\"op\":\"read\",\"id\":\"a\"}\n",
    );
    // Four pieces each: the second one of the write, and of the read.
    for (nth, done) in [(2, 1), (6, 2)] {
        let stopper = Arc::new(Stopper {
            stop: AtomicBool::new(false),
            copies: AtomicU32::new(0),
            nth,
        });
        let mut recorded = Vec::new();
        let conditions = Conditions {
            stop: Some(&stopper.stop),
            sink: Arc::clone(&stopper) as _,
            record: Some(&mut recorded),
            ..Conditions::default()
        };
        let played = play_under(lines.as_bytes(), conditions).unwrap();
        assert_eq!(stopper.copies.load(Ordering::Relaxed), nth);
        assert_eq!(played.stopped, Some(done + 1));
        assert_eq!(played.counts.operations(), done);
        assert!(played.failure.is_none());
        let counts = played.counts;
        assert_eq!((counts.read_bytes, counts.verified_bytes), (0, 0));
        let recorded = String::from_utf8(recorded).unwrap();
        assert_eq!(recorded.lines().count() as u64, done + 1);
        assert!(play(recorded.as_bytes()).unwrap().failure.is_none());
    }
}

/// A source that is told to stop while it is waited for its next line, or for its end.
struct Told<'a> {
    lines: std::array::IntoIter<&'a str, 3>,
    left: usize,
    stop: &'a AtomicBool,
}

impl std::io::Read for Told<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            self.stop.store(true, Ordering::Relaxed);
        }
        self.left = self.left.saturating_sub(1);
        let line = self.lines.next().unwrap_or_default().as_bytes();
        into[..line.len()].copy_from_slice(line);
        Ok(line.len())
    }
}

#[test]
fn a_line_that_comes_after_the_stop_is_not_run_and_an_end_is_no_end_of_the_workload() {
    let lines = [
        "{\"workload\":1}\n",
        "{\"op\":\"alloc\",\"id\":\"a\",\"size\":4096}\n",
        "{\"op\":\"free\",\"id\":\"a\"}\n",
    ];
    // Told while it reads the second operation; told while it looks for a third.
    for (left, done) in [(2, 1), (3, 2)] {
        let stop = AtomicBool::new(false);
        let source = Told {
            lines: lines.into_iter(),
            left,
            stop: &stop,
        };
        let conditions = Conditions {
            stop: Some(&stop),
            ..Conditions::default()
        };
        let played = play_under(BufReader::new(source), conditions).unwrap();
        assert_eq!(played.stopped, Some(done + 1));
        assert_eq!(played.counts.operations(), done);
    }
}

const PAIR: &str =
    "{\"op\":\"alloc\",\"id\":\"a\",\"size\":4096}\n{\"op\":\"free\",\"id\":\"a\"}\n";

/// `glia run --json` of this workload.
fn start(workload: &Path) -> Child {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("glia"));
    let command = command.args(["run", "--json"]).arg(workload);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::piped()).spawn().unwrap()
}

/// Sends one signal to a run, which then ends with 130; what it has to say of the run.
fn stop(child: Child, signal: &str) -> (Value, String) {
    let pid = child.id().to_string();
    let killed = Command::new("kill").args([signal, &pid]).status();
    assert!(killed.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    (document["runs"][0].clone(), told)
}

/// Whether the run was stopped behind the last operation that it counts.
fn is_told(run: &Value) -> bool {
    let operations = run["operations"]["total"].as_u64().unwrap();
    run["stopped"] == operations + 1 && run["failure"].is_null()
}

fn fifo() -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fifo");
    mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
    (directory, path)
}

#[test]
fn one_signal_ends_the_wait_for_a_fifo() {
    for (signal, behind) in [("-INT", ""), ("-TERM", "{\"op\":\"al")] {
        let (_directory, path) = fifo();
        let child = start(&path);
        // There as soon as the run has opened it, which it does when signals are caught.
        let mut input = File::create(&path).unwrap();
        input.write_all(b"{\"workload\":1}\n").unwrap();
        // More than the FIFO holds: some has been read when all is written.
        input.write_all(PAIR.repeat(2000).as_bytes()).unwrap();
        input.write_all(behind.as_bytes()).unwrap();
        // The end of the FIFO that is written to stays open: nothing but the signal ends the wait.
        let (run, told) = stop(child, signal);
        assert!(is_told(&run), "{run}");
        assert_eq!(told, "");
    }
}

#[test]
fn one_signal_ends_the_wait_for_the_first_line_or_for_who_writes_it() {
    for is_written_to in [false, true] {
        let (_directory, path) = fifo();
        let child = start(&path);
        let input = is_written_to.then(|| File::create(&path).unwrap());
        // The last signal that it comes to catch, by its bit.
        let status = format!("/proc/{}/status", child.id());
        let is_caught = || {
            let status = fs::read_to_string(&status).unwrap();
            let caught = status.split_once("SigCgt:\t").unwrap().1;
            let caught = u64::from_str_radix(&caught[..16], 16).unwrap();
            caught & 1 << 14 != 0
        };
        while !is_caught() {
            std::thread::yield_now();
        }
        let (run, told) = stop(child, "-INT");
        drop(input);
        let error = "stopped before its first line was read";
        assert_eq!(run["error"], error);
        assert_eq!(told, format!("glia: {}: {error}\n", path.display()));
    }
}

#[test]
fn one_signal_ends_lines_that_are_all_empty() {
    let mut child = start(Path::new("-"));
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"{\"workload\":1}\n").unwrap();
    // As above: it reads, so signals are caught.
    input.write_all(&[b'\n'; 1 << 20]).unwrap();
    let writer = std::thread::spawn(move || while input.write_all(&[b'\n'; 4096]).is_ok() {});
    let (run, _) = stop(child, "-INT");
    assert_eq!(run["stopped"], 1);
    writer.join().unwrap();
}
