//! Ctrl-C: the summary comes, and the recording is whole.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use glia::play::{Conditions, play, play_under};
use glia_abi::event::{Event, Ids, Sink};
use glia_abi::sched::Tick;
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
