//! What a workload is read from, and the signals that end the wait for it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::cli::Outcome;

/// What the first Ctrl-C sets, or the first `SIGTERM`. A second one ends the process.
#[derive(Debug, Clone)]
pub(super) struct Stop {
    flag: Arc<AtomicBool>,
    /// Can be read from once the flag is set. Nobody reads it, so it stays so.
    wake: Arc<UnixStream>,
}

/// A workload's bytes, waited for until the run is told to stop: they end there.
pub(super) struct Source {
    file: File,
    stop: Stop,
}

impl Stop {
    /// One that signals set.
    ///
    /// # Errors
    /// If they cannot be caught.
    pub(super) fn by_signals() -> io::Result<Self> {
        let (stop, waker) = Self::new()?;
        for signal in [SIGINT, SIGTERM] {
            let status = Outcome::Stopped.status().into();
            // In this order: the first signal finds the flag down, and whoever is woken finds it up.
            flag::register_conditional_shutdown(signal, status, Arc::clone(&stop.flag))?;
            flag::register(signal, Arc::clone(&stop.flag))?;
            low_level::pipe::register(signal, waker.try_clone()?)?;
        }
        Ok(stop)
    }

    /// One that nothing sets, and what wakes those who wait.
    fn new() -> io::Result<(Self, UnixStream)> {
        let (wake, waker) = UnixStream::pair()?;
        let stop = Self {
            flag: Arc::default(),
            wake: Arc::new(wake),
        };
        Ok((stop, waker))
    }

    pub(super) fn flag(&self) -> &AtomicBool {
        &self.flag
    }
}

impl Source {
    /// Opens a workload; "-" is standard input.
    ///
    /// # Errors
    /// As the system says it.
    pub(super) fn open(workload: &Path, stop: &Stop) -> io::Result<Self> {
        let file = if workload == Path::new("-") {
            // Not what the library has of it, whose buffer would hide from the wait what is there.
            File::from(io::stdin().as_fd().try_clone_to_owned()?)
        } else {
            // A FIFO is open at once, and its writer is waited for below.
            let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
            let mut options = OpenOptions::new();
            options
                .read(true)
                .custom_flags(nonblocking)
                .open(workload)?
        };
        let stop = stop.clone();
        Ok(Self { file, stop })
    }

    /// Waits until there is something to read, or an end; false if the run is to stop.
    fn wait(&self) -> io::Result<bool> {
        let mut ready = [
            PollFd::new(&*self.stop.wake, PollFlags::IN),
            PollFd::new(&self.file, PollFlags::IN),
        ];
        poll(&mut ready, None)?;
        Ok(ready[0].revents().is_empty())
    }
}

impl Read for Source {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.wait() {
                Ok(true) => {}
                Ok(false) => return Ok(0),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            match self.file.read(into) {
                // Somebody else has it.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn of(file: impl Into<std::os::fd::OwnedFd>, stop: &Stop) -> Source {
        Source {
            file: File::from(file.into()),
            stop: stop.clone(),
        }
    }

    #[test]
    fn what_is_not_there_is_waited_for_until_the_stop_and_is_then_an_end() {
        let (stop, mut waker) = Stop::new().unwrap();
        let (empty, mut writer) = UnixStream::pair().unwrap();
        let mut source = of(empty, &stop);
        writer.write_all(b"one").unwrap();
        let mut room = [0; 8];
        assert_eq!(source.read(&mut room).unwrap(), 3);
        waker.write_all(b"X").unwrap();
        // Its writer is there, and could write more.
        assert_eq!(source.read(&mut room).unwrap(), 0);
        writer.write_all(b"two").unwrap();
        assert_eq!(source.read(&mut room).unwrap(), 0);
    }

    #[test]
    fn an_end_is_an_end() {
        let (stop, _waker) = Stop::new().unwrap();
        let (empty, writer) = UnixStream::pair().unwrap();
        drop(writer);
        assert_eq!(of(empty, &stop).read(&mut [0; 8]).unwrap(), 0);
        let whole = Source::open(Path::new("/dev/null"), &stop).unwrap();
        let mut whole = whole;
        assert_eq!(whole.read(&mut [0; 8]).unwrap(), 0);
    }
}
