//! From arguments to text: which files there are, and what they say, packed or plain.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::unpack::unpacked;

// LIMIT: a trace of a million records is some 150 MB; a packed file must not fill the machine.
const TEXT_BYTES_MAX: u64 = 1 << 30;

/// A file or directory that cannot be read as traces.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The system refused it.
    #[error("cannot be read: {0}")]
    Unreadable(#[source] io::Error),
    /// The packed text ends early or is damaged.
    #[error("line {line}: {source}")]
    Packed {
        /// The line in which the text that could be unpacked ends.
        line: u64,
        /// What the unpacker found.
        source: io::Error,
    },
    /// Bytes that are no text.
    #[error("line {line}: not UTF-8")]
    NotText {
        /// The line with the first such byte.
        line: u64,
    },
    /// More text than is looked at.
    #[error("larger than {TEXT_BYTES_MAX} bytes, which is the most that is read")]
    TooLarge,
    /// A directory without traces.
    #[error("no file *.jsonl or *.jsonl.gz in this directory")]
    NoTraces,
}

/// The traces that a path names: itself, or, of a directory, all `*.jsonl` and `*.jsonl.gz` in it
/// by name.
///
/// # Errors
/// [`SourceError`] if the path is a directory that cannot be listed or has no traces. Whether a
/// file exists is seen when it is read.
pub fn traces(path: &Path) -> Result<Vec<PathBuf>, SourceError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(SourceError::Unreadable)? {
        let file = entry.map_err(SourceError::Unreadable)?.path();
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let is_trace = name.ends_with(".jsonl") || name.ends_with(".jsonl.gz");
        // A pipe or a device of such a name would be waited for.
        if is_trace && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(SourceError::NoTraces);
    }
    Ok(files)
}

/// The whole text of a file, unpacked if it is packed.
///
/// # Errors
/// [`SourceError`] if it cannot be read or unpacked to its end, or is no text.
pub fn read_text(path: &Path) -> Result<String, SourceError> {
    let file = File::open(path).map_err(SourceError::Unreadable)?;
    let file = unpacked(file).map_err(SourceError::Unreadable)?;
    let is_packed = file.is_packed();
    let mut bytes = Vec::new();
    file.take(TEXT_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| match is_packed {
            true => SourceError::Packed {
                line: line_at_end(&bytes),
                source,
            },
            false => SourceError::Unreadable(source),
        })?;
    if bytes.len() as u64 > TEXT_BYTES_MAX {
        return Err(SourceError::TooLarge);
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        SourceError::NotText {
            line: line_at_end(&error.as_bytes()[..valid]),
        }
    })
}

/// The number of the line in which a text ends, from 1.
fn line_at_end(text: &[u8]) -> u64 {
    1 + text.iter().filter(|&&byte| byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const TEXT: &str = "one\ntwo\nthree\n";

    fn packed(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    /// Writes a file of this content and reads it.
    fn read(name: &str, content: &[u8]) -> Result<String, SourceError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        read_text(&path)
    }

    #[test]
    fn packed_files_are_known_by_their_bytes_and_not_their_name() {
        assert_eq!(read("a.jsonl", &packed(TEXT)).unwrap(), TEXT);
        assert_eq!(read("a.jsonl.gz", TEXT.as_bytes()).unwrap(), TEXT);
    }

    #[test]
    fn packed_parts_may_follow_each_other() {
        let parts = [packed("one\n"), packed("two\nthree\n")].concat();
        assert_eq!(read("a.gz", &parts).unwrap(), TEXT);
    }

    #[test]
    fn packed_text_that_is_cut_short_names_the_line() {
        let whole = packed(&"a line that is here many times\n".repeat(10_000));
        let error = read("a.gz", &whole[..whole.len() / 2]).unwrap_err();
        assert!(
            matches!(error, SourceError::Packed { line: 2.., .. }),
            "{error}"
        );
    }

    #[test]
    fn bytes_that_are_no_text_name_the_line() {
        let error = read("a.jsonl", b"one\ntwo \xff\n").unwrap_err();
        assert_eq!(error.to_string(), "line 2: not UTF-8");
    }

    #[test]
    fn a_directory_is_its_traces_by_name() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.jsonl", "a.jsonl.gz", "README.md", "c.json"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let names: Vec<_> = traces(dir.path())
            .unwrap()
            .iter()
            .map(|path| path.file_name().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["a.jsonl.gz", "b.jsonl"]);
    }

    #[test]
    fn a_directory_without_traces_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(traces(dir.path()), Err(SourceError::NoTraces)));
    }
}
