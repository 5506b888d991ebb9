//! The files of events and of chunks that are written when an allocation fails: where they go.
//!
//! The reference writes them to `/tmp` for each failed allocation, named by device and time. Here
//! whoever opens the runtime says whether there are files, and where ([`RuntimeConfig::dump`]). A
//! file that cannot be written is a line in the log and nothing more.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use glia_abi::handle::{Channel, DeviceId};

#[cfg(doc)]
use crate::config::RuntimeConfig;

/// Where the runtime's files go.
///
/// It is called by the thread whose allocation has failed, with no lock of the runtime held.
pub trait Dump: Send + Sync {
    /// Seconds since 1970, by which files are named.
    fn unix_time_s(&self) -> u64;

    /// Keeps a file; where it is, as the log is to say.
    ///
    /// # Errors
    /// Whatever keeps it from being written.
    fn write(&self, file_name: &str, text: &str) -> io::Result<String>;
}

/// Files in a directory, named by the time of this computer. `/tmp` is the reference's.
///
/// A file of the same name, which is of the same second, gives way to the newer one. What stands
/// there in its place, as a link, is not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpDir(PathBuf);

impl DumpDir {
    /// Files in this directory, which must be there.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self(directory.into())
    }
}

impl Dump for DumpDir {
    fn unix_time_s(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    }

    fn write(&self, file_name: &str, text: &str) -> io::Result<String> {
        let path = self.0.join(file_name);
        create(&path)?.write_all(text.as_bytes())?;
        Ok(path.display().to_string())
    }
}

fn create(path: &Path) -> io::Result<File> {
    match File::create_new(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            File::create_new(path)
        }
        created => created,
    }
}

/// The reference's name of a file of events. It ends in the time, hexadecimal.
pub(crate) fn events_file_name(device: DeviceId, unix_time_s: u64) -> String {
    format!("nrt_mem_log_device_{}_{unix_time_s:x}.csv", device.get())
}

/// The reference's name of a file of the chunks of an HBM.
pub(crate) fn chunks_file_name(device: DeviceId, channel: Channel, unix_time_s: u64) -> String {
    let (device, channel) = (device.get(), channel.get());
    format!("neuron_mem_log_device_{device}_hbm_{channel}_{unix_time_s:x}.csv")
}

/// The message that names a file of chunks (uncertain: the reference's words).
pub(crate) fn dumped_chunks(place: &str) -> String {
    format!("Wrote driver memory chunk info to {place}")
}

/// The message that names a file of events.
pub(crate) fn dumped(place: &str) -> String {
    format!("Wrote nrt memory alloc debug info to {place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file of a public log of 2023-10-02 08:17:45 UTC.
    #[test]
    fn a_file_is_named_by_device_and_time() {
        let name = events_file_name(DeviceId::new(0), 1_696_234_665);
        assert_eq!(name, "nrt_mem_log_device_0_651a7ca9.csv");
        assert_eq!(
            events_file_name(DeviceId::new(14), 0xa),
            "nrt_mem_log_device_14_a.csv"
        );
        assert_eq!(
            chunks_file_name(DeviceId::new(14), Channel::new(3), 0xa),
            "neuron_mem_log_device_14_hbm_3_a.csv"
        );
    }

    #[test]
    fn a_newer_file_takes_the_place_of_an_older_one_and_of_a_link() {
        let directory = std::env::temp_dir().join(format!("glia-dump-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let dump = DumpDir::new(&directory);
        assert!(dump.unix_time_s() > 1_696_234_665);

        let place = dump.write("a.csv", "old and long\n").unwrap();
        assert_eq!(dump.write("a.csv", "new\n").unwrap(), place);
        assert_eq!(fs::read_to_string(&place).unwrap(), "new\n");
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(&place, directory.join("b.csv")).unwrap();
            dump.write("b.csv", "other\n").unwrap();
            assert_eq!(fs::read_to_string(&place).unwrap(), "new\n");
        }

        fs::remove_dir_all(&directory).unwrap();
        assert!(dump.write("a.csv", "").is_err());
    }
}
