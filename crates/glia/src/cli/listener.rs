//! Output to whoever still reads it.

use std::io::{self, Write};

/// Stdout, for as long as somebody reads it. A reader that closes the pipe has seen enough, but the
/// verdict stands on every file, so the work goes on to its end.
pub(super) struct Listener<W> {
    out: W,
    has_left: bool,
}

impl<W> Listener<W> {
    pub(super) fn new(out: W) -> Self {
        Self {
            out,
            has_left: false,
        }
    }

    fn heard<T>(&mut self, result: io::Result<T>, unheard: T) -> io::Result<T> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.has_left = true;
                Ok(unheard)
            }
            result => result,
        }
    }
}

impl<W: Write> Write for Listener<W> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if self.has_left {
            return Ok(text.len());
        }
        let result = self.out.write(text);
        self.heard(result, text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.out.flush();
        self.heard(result, ())
    }
}
