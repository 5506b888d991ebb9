//! Files that may be packed with gzip, whatever their names say.
//!
//! The first two bytes tell. A file may be several packed ones behind each other, as logs that were
//! rotated are. It is unpacked as it is read, so however much there is of it, memory stays flat; how
//! long a line may be is the affair of whoever reads lines.

use std::io::{self, Chain, Cursor, Read};

use flate2::read::MultiGzDecoder;

/// What a packed file begins with.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// What has been read of a file to see what it is, and the rest.
type Whole<R> = Chain<Cursor<Vec<u8>>, R>;

/// A file, unpacked.
pub struct Unpacked<R: Read>(Form<R>);

enum Form<R: Read> {
    Plain(Whole<R>),
    Gzip(Box<MultiGzDecoder<Whole<R>>>),
}

/// The bytes of a file, plain or gzip.
///
/// # Errors
/// As its first bytes are read.
pub fn unpacked<R: Read>(file: R) -> io::Result<Unpacked<R>> {
    let mut file = file;
    let mut magic = Vec::with_capacity(GZIP_MAGIC.len());
    file.by_ref()
        .take(GZIP_MAGIC.len() as u64)
        .read_to_end(&mut magic)?;
    let is_packed = begins_packed(&magic);
    let whole = Cursor::new(magic).chain(file);
    Ok(Unpacked(match is_packed {
        true => Form::Gzip(Box::new(MultiGzDecoder::new(whole))),
        false => Form::Plain(whole),
    }))
}

/// Whether these first bytes are those of a packed file.
pub(crate) fn begins_packed(bytes: &[u8]) -> bool {
    bytes.starts_with(&GZIP_MAGIC)
}

impl<R: Read> Unpacked<R> {
    /// Whether the file is packed.
    #[must_use]
    pub fn is_packed(&self) -> bool {
        matches!(self.0, Form::Gzip(_))
    }
}

impl<R: Read> Read for Unpacked<R> {
    /// # Errors
    /// As the file is read; also, in words that name gzip, if its packing is cut or damaged.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Form::Plain(file) => file.read(into),
            Form::Gzip(file) => file.read(into).map_err(told),
        }
    }
}

/// What the unpacker says, with what it is about. The system's own errors stay as they are.
fn told(error: io::Error) -> io::Error {
    let kind = error.kind();
    match kind {
        _ if error.raw_os_error().is_some() => error,
        io::ErrorKind::UnexpectedEof => {
            io::Error::new(kind, "its gzip data is cut: it ends before its end")
        }
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            io::Error::new(kind, format!("its gzip data is damaged: {error}"))
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(text).unwrap();
        gzip.finish().unwrap()
    }

    fn read(file: &[u8]) -> (Vec<u8>, Option<String>) {
        let mut all = Vec::new();
        let read = unpacked(file).unwrap().read_to_end(&mut all);
        (all, read.err().map(|error| error.to_string()))
    }

    #[test]
    fn plain_and_packed_files_are_told_apart_by_what_they_begin_with() {
        for plain in [&b""[..], b"\x1f", b"\x1fx", b"{\"workload\":1}"] {
            assert_eq!(read(plain), (plain.to_vec(), None));
        }
        assert_eq!(read(&packed(b"")), (Vec::new(), None));
        let two = [packed(b"one\n"), packed(b"two\n")].concat();
        assert_eq!(read(&two), (b"one\ntwo\n".to_vec(), None));
    }

    #[test]
    fn what_is_wrong_with_a_packed_file_is_said_of_gzip() {
        let whole = packed(b"all of this");
        let (cut, error) = read(&whole[..whole.len() - 4]);
        let is_cut = "its gzip data is cut: it ends before its end";
        assert_eq!(
            (&cut[..], error.as_deref()),
            (&b"all of this"[..], Some(is_cut))
        );
        let (_, error) = read(&whole[..2]);
        assert_eq!(error.as_deref(), Some(is_cut));

        let mut wrong = whole.clone();
        wrong[whole.len() - 8] ^= 1;
        let (_, error) = read(&wrong);
        let damaged = |error: Option<String>| {
            let error = error.unwrap();
            error.starts_with("its gzip data is damaged: ")
        };
        assert!(damaged(error), "a wrong sum");
        let (_, error) = read(&[&whole[..], b"something else"].concat());
        assert!(damaged(error), "something behind it");
    }

    #[test]
    fn the_systems_errors_are_its_own() {
        struct Failing;
        impl Read for Failing {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::from_raw_os_error(5))
            }
        }
        let mut file = unpacked((&GZIP_MAGIC[..]).chain(Failing)).unwrap();
        let error = file.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(5));
    }
}
