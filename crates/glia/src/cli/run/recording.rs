//! The file into which `glia run` records.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use glia::workload::RECORDING_STARTS;

use crate::cli::event_file::{cannot, is_free};
use crate::cli::printable::printable;

/// A recording that is being written. The first error is kept for the end.
pub(super) struct Recording {
    name: String,
    file: File,
    error: Option<io::Error>,
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
        Ok(Self {
            name,
            file,
            error: None,
        })
    }

    /// Whether all is written.
    ///
    /// # Errors
    /// A message that names the file.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        match self.error {
            None => Ok(()),
            Some(error) => Err(cannot(&self.name, "be written", &error)),
        }
    }

    fn heard<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            let kind = error.kind();
            self.error.get_or_insert(error);
            kind.into()
        })
    }
}

impl Write for Recording {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.file.write(bytes);
        self.heard(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.file.flush();
        self.heard(result)
    }
}
