//! The file into which `glia run` writes events.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _};
use std::path::Path;
use std::sync::Arc;

use glia::events::{EVENT_FORMAT, EventLog};
use glia_abi::event::Detail;

use super::printable::{printable, printable_message};

/// An event log that is being written to a file.
pub(super) type FileLog = EventLog<BufWriter<File>>;

/// A file that takes the logs of several runs, one behind the other.
pub(super) struct EventFile {
    name: String,
    file: File,
    detail: Detail,
}

impl EventFile {
    /// Opens the file, empty. One with something else in it, a workload by mistake, is left alone.
    ///
    /// # Errors
    /// A message that names the file.
    pub(super) fn create(path: &Path, detail: Detail) -> anyhow::Result<Self> {
        let name = printable(&path.display().to_string());
        let header = format!("{{\"format\":\"{EVENT_FORMAT}\",");
        let is_free =
            is_free(path, &header).map_err(|error| cannot(&name, "be looked into", &error))?;
        anyhow::ensure!(
            is_free,
            "{name}: holds something else than events and is left as it is"
        );
        let file = File::create(path).map_err(|error| cannot(&name, "be written", &error))?;
        Ok(Self { name, file, detail })
    }

    /// The log of a run.
    ///
    /// # Errors
    /// A message that names the file.
    pub(super) fn log(&self, run: &str) -> anyhow::Result<Arc<FileLog>> {
        let file = self.file.try_clone();
        let file = file.map_err(|error| cannot(&self.name, "be written", &error))?;
        Ok(Arc::new(EventLog::new(
            BufWriter::new(file),
            self.detail,
            run,
        )))
    }

    /// Ends a log.
    ///
    /// # Errors
    /// A message that names the file.
    pub(super) fn finish(&self, log: &FileLog) -> anyhow::Result<()> {
        let finished = log.finish();
        finished.map_err(|error| cannot(&self.name, "be written", &error))?;
        Ok(())
    }
}

pub(super) fn cannot(name: &str, what: &str, error: &io::Error) -> anyhow::Error {
    let error = printable_message(&error.to_string());
    anyhow::anyhow!("{name}: cannot {what}: {error}")
}

/// Whether nothing is lost if this is written over: it is not there, is empty, begins as one that
/// is written here does, or is a pipe or a device.
pub(super) fn is_free(path: &Path, header: &str) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() || metadata.len() == 0 => return Ok(true),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    }
    let mut start = Vec::new();
    File::open(path)?
        .take(header.len() as u64)
        .read_to_end(&mut start)?;
    Ok(start == header.as_bytes())
}
