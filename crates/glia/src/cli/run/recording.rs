//! The file into which `glia run` records.
//!
//! ```text
//!   run ── blocks of lines ──► two at most wait ──► a thread of its own ──► file
//!       ◄── empty blocks ──────────────────────────┘
//! ```
//!
//! The run waits for the file only if that is slower than the run. No lock is shared; the first
//! error ends the thread, and is told in the end.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

use glia::workload::RECORDING_STARTS;

use crate::cli::event_file::{cannot, is_free};
use crate::cli::printable::printable;

/// Blocks that wait for the file.
const BLOCKS_MAX: usize = 2;

/// A recording that is being written.
pub(super) struct Recording {
    name: String,
    full: Option<SyncSender<Vec<u8>>>,
    empty: Receiver<Vec<u8>>,
    writer: Option<JoinHandle<io::Result<()>>>,
}

impl Recording {
    /// Opens the file, empty. One with something else in it, a workload by mistake, is left alone.
    ///
    /// # Errors
    /// A message that names the file.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        let name = printable(&path.display().to_string());
        let is_free = is_free(path, RECORDING_STARTS);
        let is_free = is_free.map_err(|error| cannot(&name, "be looked into", &error))?;
        anyhow::ensure!(
            is_free,
            "{name}: holds something else than a recording and is left as it is"
        );
        let file = File::create(path).map_err(|error| cannot(&name, "be written", &error))?;
        let (full, blocks) = sync_channel(BLOCKS_MAX);
        let (written, empty) = channel();
        let writer = thread::Builder::new().name("recording".to_owned());
        let writer = writer.spawn(move || write(file, &blocks, &written));
        let writer = writer.map_err(|error| cannot(&name, "be written", &error))?;
        Ok(Self {
            name,
            full: Some(full),
            empty,
            writer: Some(writer),
        })
    }

    /// Waits until all is written.
    ///
    /// # Errors
    /// A message that names the file.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        let written = self.end();
        written.map_err(|error| cannot(&self.name, "be written", &error))
    }

    fn end(&mut self) -> io::Result<()> {
        // Behind its last block, the thread ends.
        self.full = None;
        let panicked = |_| Err(io::Error::other("its thread panicked"));
        match self.writer.take() {
            Some(writer) => writer.join().unwrap_or_else(panicked),
            None => Ok(()),
        }
    }
}

/// Writes blocks and gives them back until there are no more.
fn write(mut file: File, blocks: &Receiver<Vec<u8>>, written: &Sender<Vec<u8>>) -> io::Result<()> {
    for mut block in blocks {
        file.write_all(&block)?;
        block.clear();
        // At the end nobody takes it.
        let _ = written.send(block);
    }
    Ok(())
}

impl Write for Recording {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut block = self.empty.try_recv().unwrap_or_default();
        block.extend_from_slice(bytes);
        let sent = self.full.as_ref().map(|full| full.send(block));
        match sent {
            Some(Ok(())) => Ok(bytes.len()),
            // The thread has ended; it says why.
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // A run that cannot be told leaves a recording all the same.
        let _ = self.end();
    }
}
