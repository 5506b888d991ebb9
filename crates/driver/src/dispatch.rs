//! From a command word to the function that answers it.
//!
//! The order is the reference's: a write-only file reaches the **misc lane** alone; for any other
//! the **attach gate** comes first, which asks some commands, by their exact word, for an attached
//! process (`EACCES`); then all commands of both lanes. What is left is `EINVAL`, from which a
//! runtime concludes that it has to try an older form.
//!
//! The gate is as uneven as the reference's: the newer forms of a gated command are not gated. It
//! also stands before commands that are not built.

use glia_abi::errno::Errno;
use glia_abi::event::CommandClass;
use glia_abi::ioctl::{self as word, Gate, Lane};
use glia_abi::transport::OpenMode;

use crate::ioctl::{Call, alloc, copy, info, reset, scrub, zerocopy};

/// A command that is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    CompatibleVersion,
    DeviceBasicInfo,
    DriverInfo,
    DeviceInit,
    DeviceRelease,
    DeviceReset,
    DeviceReady,
    DeviceResetStatus,
    NcReset,
    NcResetReady,
    MemAllocV2Mt64,
    MemGetPa,
    MemGetInfo,
    MemFree,
    MemCopy64,
    MemBufCopy64,
    MemCopyAsync64,
    MemCopyAsyncWait,
    MemBufZerocopy64,
    MemBufZerocopy64Batches,
    GetAsyncH2tDmaComplQueues,
    HbmScrubStart,
    HbmScrubWait,
}

/// Answers a command.
pub(crate) fn answer(call: &Call<'_>, mode: OpenMode) -> Result<i32, Errno> {
    let known = entry(call.word).ok_or(Errno::EINVAL)?;
    if !mode.is_free_access()
        && known.gate == Gate::Attached
        && call.device.memory.open_count(call.caller.pid) == 0
    {
        return Err(Errno::EACCES);
    }
    if !is_reached_by(known.lane, mode) {
        return Err(Errno::EINVAL);
    }
    let command = Command::of(call.word).ok_or(Errno::EINVAL)?;
    command.run(call)?;
    Ok(0)
}

/// How a command word is taken, for the trace.
pub(crate) fn class(word: u32, mode: OpenMode) -> CommandClass {
    match entry(word) {
        None => CommandClass::Unknown,
        Some(known) if !is_reached_by(known.lane, mode) => CommandClass::WrongLane,
        Some(_) if Command::of(word).is_some() => CommandClass::Built,
        Some(_) => CommandClass::Unimplemented,
    }
}

/// What the table says of a word; of a form of `DRIVER_INFO_GET` that it does not have, what it
/// says of that.
fn entry(word: u32) -> Option<&'static word::Command> {
    word::command(word).or_else(|| {
        let known_form = is_driver_info(word).then_some(word::DRIVER_INFO_GET);
        word::command(known_form?)
    })
}

/// This command is known by its number alone: it is meant to grow (driver 2.27).
fn is_driver_info(word: u32) -> bool {
    word::number(word) == word::number(word::DRIVER_INFO_GET)
}

fn is_reached_by(lane: Lane, mode: OpenMode) -> bool {
    match lane {
        Lane::Main => !mode.is_free_access(),
        Lane::Misc => true,
    }
}

impl Command {
    fn of(word: u32) -> Option<Self> {
        Some(match word {
            word::COMPATIBLE_VERSION => Self::CompatibleVersion,
            word::DEVICE_BASIC_INFO => Self::DeviceBasicInfo,
            word::DEVICE_INIT => Self::DeviceInit,
            word::DEVICE_RELEASE => Self::DeviceRelease,
            word::DEVICE_RESET => Self::DeviceReset,
            word::DEVICE_READY => Self::DeviceReady,
            word::DEVICE_RESET_STATUS => Self::DeviceResetStatus,
            word::NC_RESET => Self::NcReset,
            word::NC_RESET_READY => Self::NcResetReady,
            word::MEM_ALLOC_V2MT64 => Self::MemAllocV2Mt64,
            word::MEM_GET_PA => Self::MemGetPa,
            word::MEM_GET_INFO => Self::MemGetInfo,
            word::MEM_FREE => Self::MemFree,
            word::MEM_COPY64 => Self::MemCopy64,
            word::MEM_BUF_COPY64 => Self::MemBufCopy64,
            word::MEM_COPY_ASYNC64 => Self::MemCopyAsync64,
            word::MEM_COPY_ASYNC_WAIT => Self::MemCopyAsyncWait,
            word::MEM_BUF_ZEROCOPY64 => Self::MemBufZerocopy64,
            word::MEM_BUF_ZEROCOPY64_BATCHES => Self::MemBufZerocopy64Batches,
            word::GET_ASYNC_H2T_DMA_COMPL_QUEUES => Self::GetAsyncH2tDmaComplQueues,
            word::HBM_SCRUB_START => Self::HbmScrubStart,
            word::HBM_SCRUB_WAIT => Self::HbmScrubWait,
            _ if is_driver_info(word) => Self::DriverInfo,
            _ => return None,
        })
    }

    fn run(self, call: &Call<'_>) -> Result<(), Errno> {
        match self {
            Self::CompatibleVersion => info::compatible_version(call),
            Self::DeviceBasicInfo => info::device_basic_info(call),
            Self::DriverInfo => info::driver_info(call),
            // Opening the device is what attaches (driver 2.27): both do nothing.
            Self::DeviceInit | Self::DeviceRelease => Ok(()),
            Self::DeviceReset => reset::device_reset(call),
            Self::DeviceReady => reset::device_ready(call),
            Self::DeviceResetStatus => reset::device_reset_status(call),
            Self::NcReset => reset::nc_reset(call),
            Self::NcResetReady => reset::nc_reset_ready(call),
            Self::MemAllocV2Mt64 => alloc::mem_alloc_v2mt64(call),
            Self::MemGetPa => alloc::mem_get_pa(call),
            Self::MemGetInfo => alloc::mem_get_info(call),
            Self::MemFree => alloc::mem_free(call),
            Self::MemCopy64 => copy::mem_copy64(call),
            Self::MemBufCopy64 => copy::mem_buf_copy64(call),
            Self::MemCopyAsync64 => copy::mem_copy_async64(call),
            Self::MemCopyAsyncWait => copy::mem_copy_async_wait(call),
            Self::MemBufZerocopy64 => zerocopy::mem_buf_zerocopy64(call),
            Self::MemBufZerocopy64Batches => zerocopy::mem_buf_zerocopy64_batches(call),
            Self::GetAsyncH2tDmaComplQueues => zerocopy::get_async_h2t_dma_compl_queues(call),
            Self::HbmScrubStart => scrub::hbm_scrub_start(call),
            Self::HbmScrubWait => scrub::hbm_scrub_wait(call),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_reference_has_a_class_in_both_lanes() {
        let count = |mode, wanted| {
            let classes = word::COMMANDS.iter().map(|known| class(known.word, mode));
            classes.filter(|&class| class == wanted).count()
        };
        let all = word::COMMANDS.len();
        let (misc_built, main_built, misc_missing) = (4, 20, 16);
        let built = misc_built + main_built;
        assert_eq!(count(OpenMode::ReadWrite, CommandClass::Built), built);
        let missing = count(OpenMode::ReadWrite, CommandClass::Unimplemented);
        assert_eq!(missing, all - built);
        assert_eq!(count(OpenMode::WriteOnly, CommandClass::Built), misc_built);
        let missing = count(OpenMode::WriteOnly, CommandClass::Unimplemented);
        assert_eq!(missing, misc_missing);
        let wrong = count(OpenMode::WriteOnly, CommandClass::WrongLane);
        assert_eq!(wrong, all - misc_built - misc_missing);
    }

    #[test]
    fn a_word_of_nobody_is_unknown() {
        for word in [0, u32::MAX, 0x8039_4e66, 0x8038_4f66] {
            assert_eq!(class(word, OpenMode::ReadWrite), CommandClass::Unknown);
            assert_eq!(class(word, OpenMode::WriteOnly), CommandClass::Unknown);
        }
    }

    #[test]
    fn only_words_of_the_table_are_gated() {
        let gated = word::COMMANDS
            .iter()
            .filter(|known| known.gate == Gate::Attached);
        assert_eq!(gated.count(), 19);
    }
}
