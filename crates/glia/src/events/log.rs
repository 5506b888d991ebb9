//! All events as JSON Lines.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use glia_abi::event::{Detail, Event, Ids, NameId, Sink};
use glia_abi::sched::Tick;
use serde::Serialize;

use super::line::Line;
use super::names::Names;

/// The name of the format, which the first line of a log begins with.
pub const EVENT_FORMAT: &str = "glia-events";
/// Its version. Events and keys may be added without a new one.
pub const EVENT_VERSION: u32 = 1;

/// Writes a header, then a line for each event, and one for each name before the first event that
/// uses it.
///
/// A write that fails ends the log: the first error is kept, later events are heard and dropped. So
/// whoever builds a log asks it in the end how it went, with [`finish`](Self::finish). A writer
/// should be buffered, and must not use the machine.
pub struct EventLog<W> {
    detail: Detail,
    state: Mutex<State<W>>,
}

struct State<W> {
    out: W,
    /// The line that is being written; kept for its room.
    line: Vec<u8>,
    /// Events, without header and names.
    written: u64,
    names: Names,
    error: Option<io::Error>,
}

#[derive(Serialize)]
struct Header<'a> {
    format: &'static str,
    version: u32,
    detail: &'static str,
    run: &'a str,
}

/// Defines a name.
#[derive(Serialize)]
struct Definition<'a> {
    name: u32,
    text: &'a str,
}

impl<W: Write> EventLog<W> {
    /// A log that wants to hear so much. `run` says in its header what it is a log of.
    #[must_use]
    pub fn new(out: W, detail: Detail, run: &str) -> Self {
        let mut state = State {
            out,
            line: Vec::new(),
            written: 0,
            names: Names::default(),
            error: None,
        };
        state.put(&Header {
            format: EVENT_FORMAT,
            version: EVENT_VERSION,
            detail: match detail {
                Detail::Nothing => "nothing",
                Detail::Batches => "batches",
                Detail::Descriptors => "descriptors",
            },
            run,
        });
        Self {
            detail,
            state: Mutex::new(state),
        }
    }

    /// Flushes, and says how many events have been written so far.
    ///
    /// # Errors
    /// The first error of the writer. What is in the log then ends with a line that may be cut.
    pub fn finish(&self) -> io::Result<u64> {
        let mut state = self.state();
        if state.error.is_none() {
            state.error = state.out.flush().err();
        }
        match &state.error {
            // The error stays: it is the same for everybody who asks.
            Some(error) => Err(io::Error::new(error.kind(), error.to_string())),
            None => Ok(state.written),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W: Write + Send> Sink for EventLog<W> {
    fn detail(&self) -> Detail {
        self.detail
    }

    fn name(&self, text: &str) -> Option<NameId> {
        let mut state = self.state();
        let (name, is_new) = state.names.number(text)?;
        if is_new {
            state.put(&Definition {
                name: name.get(),
                text,
            });
        }
        Some(name)
    }

    fn event(&self, at: Tick, ids: &Ids, event: &Event) {
        let mut state = self.state();
        let n = state.written;
        state.put(&Line { n, at, ids, event });
        state.written += 1;
    }
}

impl<W: Write> State<W> {
    fn put(&mut self, line: &impl Serialize) {
        if self.error.is_some() {
            return;
        }
        self.line.clear();
        // First into memory: an error of the writer comes out as it is.
        let result = serde_json::to_writer(&mut self.line, line)
            .map_err(io::Error::from)
            .and_then(|()| {
                self.line.push(b'\n');
                self.out.write_all(&self.line)
            });
        self.error = result.err();
    }
}

#[cfg(test)]
mod tests {
    use glia_abi::conformance::sink::check;

    use super::*;

    /// A disk with room for so many bytes.
    struct Disk(usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.0.min(bytes.len());
            self.0 -= room;
            match room {
                0 => Err(io::ErrorKind::StorageFull.into()),
                _ => Ok(room),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_told_at_the_end_and_disturbs_nobody() {
        for room in [0, 10, 200] {
            let log = EventLog::new(Disk(room), Detail::Descriptors, "x");
            check(&log).unwrap();
            for _ in 0..2 {
                let error = log.finish().unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            }
        }
    }

    #[test]
    fn a_header_and_a_line_for_each_event_and_name_are_all_that_is_written() {
        let log = EventLog::new(Vec::new(), Detail::Batches, "a \"run\"");
        log.event(Tick(7), &Ids::default(), &Event::Opened);
        for text in ["one", "the \"other\"", "one"] {
            let loaded = Event::ModelLoaded {
                model: 1001,
                model_name: log.name(text),
            };
            log.event(Tick(8), &Ids::default(), &loaded);
        }
        assert_eq!(log.finish().unwrap(), 4);
        let text = String::from_utf8(log.state().out.clone()).unwrap();
        assert_eq!(
            text,
            "{\"format\":\"glia-events\",\"version\":1,\"detail\":\"batches\",\"run\":\"a \\\"run\\\"\"}\n\
             {\"n\":0,\"t_ns\":7,\"event\":\"opened\"}\n\
             {\"name\":0,\"text\":\"one\"}\n\
             {\"n\":1,\"t_ns\":8,\"event\":\"model_loaded\",\"model\":1001,\"model_name\":0}\n\
             {\"name\":1,\"text\":\"the \\\"other\\\"\"}\n\
             {\"n\":2,\"t_ns\":8,\"event\":\"model_loaded\",\"model\":1001,\"model_name\":1}\n\
             {\"n\":3,\"t_ns\":8,\"event\":\"model_loaded\",\"model\":1001,\"model_name\":0}\n"
        );
    }
}
