//! The file into which `glia run` writes what was exercised.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use glia::coverage::{COVERAGE_FORMAT, Coverage};

use super::event_file::{cannot, is_free};
use super::printable::printable;

/// A file that is written when all runs are over.
pub(super) struct CoverageFile {
    name: String,
    file: File,
    coverage: Arc<Coverage>,
}

impl CoverageFile {
    /// Opens the file and leaves it as it is until the end. One with something else in it, a workload
    /// by mistake, is left alone for good.
    ///
    /// # Errors
    /// A message that names the file.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        let name = printable(&path.display().to_string());
        let header = format!("{{\"format\":{COVERAGE_FORMAT},\"commands\":");
        let is_free =
            is_free(path, &header).map_err(|error| cannot(&name, "be looked into", &error))?;
        anyhow::ensure!(
            is_free,
            "{name}: holds something else than coverage and is left as it is"
        );
        let open = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let file = open.map_err(|error| cannot(&name, "be written", &error))?;
        Ok(Self {
            name,
            file,
            coverage: Arc::new(Coverage::new()),
        })
    }

    /// Who counts.
    pub(super) fn coverage(&self) -> Arc<Coverage> {
        Arc::clone(&self.coverage)
    }

    /// Writes what was counted.
    ///
    /// # Errors
    /// A message that names the file.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        let document = serde_json::to_string(&self.coverage.report())? + "\n";
        let written = self.write(document.as_bytes());
        written.map_err(|error| cannot(&self.name, "be written", &error))
    }

    /// Puts the document in the place of what is there.
    fn write(&mut self, document: &[u8]) -> io::Result<()> {
        // A pipe or a device has no length.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(document)
    }
}
