//! System calls that a process of a software machine answers, and that are written down.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use glia::machine::{Machine, Model, Process};
use glia::node::{Call, DeviceNode, Sys};
use glia_abi::errno::Errno;
use glia_abi::handle::{DeviceId, Fd, Pid};
use glia_abi::transport::{Lent, Mapping, OpenMode, Transport, UserBuffer, user_addr};

pub(crate) const DEVICE: DeviceId = DeviceId::new(0);

/// Clones are the same.
#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) machine: Machine,
    process: Arc<Process>,
    pub(crate) log: Arc<Mutex<Log>>,
}

#[derive(Default)]
pub(crate) struct Log {
    pub(crate) opened: Vec<(PathBuf, OpenMode)>,
    pub(crate) closed: Vec<Fd>,
    /// The last command: its struct, and the addresses of what was lent.
    pub(crate) sent: Vec<u8>,
    pub(crate) lent: Vec<u64>,
    pub(crate) commands: usize,
    pub(crate) buffers: usize,
    /// What the next open answers.
    pub(crate) refusal: Option<Errno>,
    /// How much less mappings have than was asked for.
    pub(crate) missing_bytes: u64,
    /// Called in the midst of the next command.
    pub(crate) meanwhile: Option<Box<dyn FnOnce() + Send>>,
}

pub(crate) struct FakeFile {
    fd: Fd,
    fake: Fake,
}

/// Something that is shorter than it was to be.
struct Short(Arc<dyn Mapping>, u64);

impl Fake {
    pub(crate) fn new(model: Model) -> Self {
        let machine = match model {
            Model::Trn1 => Machine::trn1(),
            Model::Trn2 | Model::Trn3 => Machine::trn2(),
        };
        let machine = machine.unwrap();
        Self {
            process: machine.process(Pid::new(77)),
            machine,
            log: Arc::default(),
        }
    }

    pub(crate) fn node(&self) -> Arc<DeviceNode<Self>> {
        Arc::new(DeviceNode::over(self.clone(), "/dev/neuron").unwrap())
    }

    /// Bytes that are taken of the device and of host memory.
    pub(crate) fn taken_bytes(&self) -> (u64, u64) {
        let pools = self.machine.driver().insight(DEVICE).unwrap();
        let free = |hbm: &glia_abi::insight::ChannelSnapshot| -> u64 {
            hbm.free.iter().map(|hole| hole.size_bytes()).sum()
        };
        let free: u64 = pools.channels.iter().map(free).sum();
        (free, pools.host_bytes)
    }
}

impl Sys for Fake {
    type File = FakeFile;

    fn open(&self, path: &Path, mode: OpenMode) -> Result<FakeFile, Errno> {
        let mut log = self.log.lock().unwrap();
        log.opened.push((path.to_path_buf(), mode));
        if let Some(refusal) = log.refusal.take() {
            return Err(refusal);
        }
        let number = path.to_str().unwrap().strip_prefix("/dev/neuron").unwrap();
        let device = DeviceId::new(number.parse().unwrap());
        Ok(FakeFile {
            fd: self.process.open(device, mode)?,
            fake: self.clone(),
        })
    }

    fn dup(&self, file: &FakeFile) -> Result<FakeFile, Errno> {
        Ok(FakeFile {
            fd: self.process.dup(file.fd)?,
            fake: self.clone(),
        })
    }

    fn ioctl(&self, file: &FakeFile, call: Call<'_, '_, Self>) -> Result<i32, Errno> {
        let (word, arg, lent) = call.into_parts();
        let meanwhile = {
            let mut log = self.log.lock().unwrap();
            log.commands += 1;
            log.sent = arg.to_vec();
            let address = |lent: &Lent<'_>| match lent {
                Lent::In(bytes) => user_addr(bytes).get(),
                Lent::Out(bytes) => user_addr(bytes).get(),
            };
            log.lent = lent.iter().map(address).collect();
            log.meanwhile.take()
        };
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        self.process.ioctl(file.fd, word, arg, lent)
    }

    fn mmap(
        &self,
        file: &FakeFile,
        offset: u64,
        size_bytes: u64,
    ) -> Result<Arc<dyn Mapping>, Errno> {
        let mapping = self.process.mmap(file.fd, offset, size_bytes)?;
        match self.log.lock().unwrap().missing_bytes {
            0 => Ok(mapping),
            missing => Ok(Arc::new(Short(mapping, size_bytes - missing))),
        }
    }

    fn buffer(&self, size_bytes: u64) -> Result<Arc<dyn UserBuffer>, Errno> {
        self.log.lock().unwrap().buffers += 1;
        self.process.buffer(size_bytes)
    }
}

impl Drop for FakeFile {
    fn drop(&mut self) {
        self.fake.log.lock().unwrap().closed.push(self.fd);
        self.fake.process.close(self.fd).unwrap();
    }
}

impl Mapping for Short {
    fn size_bytes(&self) -> u64 {
        self.1
    }

    fn is_writable(&self) -> bool {
        self.0.is_writable()
    }

    fn read(
        &self,
        offset_bytes: u64,
        into: &mut [u8],
    ) -> Result<(), glia_abi::transport::MappingError> {
        self.0.read(offset_bytes, into)
    }

    fn write(
        &self,
        offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<(), glia_abi::transport::MappingError> {
        self.0.write(offset_bytes, bytes)
    }

    fn words(
        &self,
        offset_bytes: u64,
        size_bytes: u64,
    ) -> Result<&[glia_abi::sync::AtomicU32], glia_abi::transport::MappingError> {
        self.0.words(offset_bytes, size_bytes)
    }
}
