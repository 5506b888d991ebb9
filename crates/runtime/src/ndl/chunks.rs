//! The chunks of an HBM, of all processes, as the driver lists them.

use glia_abi::addr::BusAddr;
use glia_abi::errno::Errno;
use glia_abi::handle::Channel;
use glia_abi::ioctl::{self, DumpMemChunks, MemChunkInfo};
use glia_abi::transport::{Lent, user_addr};
use glia_abi::usage::Category;
use zerocopy::IntoBytes;

use super::{Device, NdlError};

/// A chunk of an HBM. The driver does not say whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HbmChunk {
    /// Its first byte.
    pub pa: BusAddr,
    /// Bytes, in whole pages.
    pub size_bytes: u64,
    /// What for.
    pub category: Category,
}

/// Room for so many more chunks than there were a moment ago.
const MORE: u32 = 64;
/// Chunks that come meanwhile, and are too many again, are waited for so often.
const ASKED_MAX: u32 = 4;

impl Device {
    /// The chunks of an HBM by rising address, those of other processes and of the driver with them
    /// (`DUMP_MEM_CHUNKS`). A channel that the device does not have has none.
    ///
    /// # Errors
    /// [`NdlError::Call`], with `EINVAL` from a driver that does not know the question, and with
    /// `EAGAIN` where chunks come faster than they are listed.
    pub fn hbm_chunks(&self, channel: Channel) -> Result<Vec<HbmChunk>, NdlError> {
        let mut room = MORE;
        let mut asked = 1;
        loop {
            let mut entries = vec![MemChunkInfo::default(); room as usize];
            let mut arg = DumpMemChunks {
                hbm_index: channel.get(),
                num_entries_in: room,
                data: user_addr(entries.as_bytes()).get(),
                ..DumpMemChunks::default()
            };
            let lent = &mut [Lent::Out(entries.as_mut_bytes())];
            let listed = self.call(&self.work, ioctl::DUMP_MEM_CHUNKS, &mut arg, lent);
            match listed {
                Ok(()) => {
                    let entries = entries.iter().take(arg.num_entries_out as usize);
                    return Ok(entries.map(HbmChunk::from).collect());
                }
                Err(error) if error.errno() == Some(Errno::EAGAIN) && asked < ASKED_MAX => {
                    room = arg.num_entries_out.saturating_add(MORE);
                    asked += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl From<&MemChunkInfo> for HbmChunk {
    fn from(entry: &MemChunkInfo) -> Self {
        Self {
            pa: BusAddr::new(entry.pa),
            size_bytes: entry.size,
            category: Category(entry.mem_type),
        }
    }
}
