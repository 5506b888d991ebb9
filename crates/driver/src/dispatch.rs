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
use glia_abi::ioctl as word;
use glia_abi::transport::OpenMode;

use crate::ioctl::{Call, alloc, copy, info, reset, scrub};

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
    HbmScrubStart,
    HbmScrubWait,
}

/// Which files reach a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// Those that attach their process.
    Main,
    /// All.
    Misc,
}

/// Answers a command.
pub(crate) fn answer(call: &Call<'_>, mode: OpenMode) -> Result<i32, Errno> {
    if !mode.is_free_access()
        && is_gated(call.word)
        && call.device.memory.open_count(call.caller.pid) == 0
    {
        return Err(Errno::EACCES);
    }
    let command = Command::of(call.word).ok_or(Errno::EINVAL)?;
    if !command.lane().is_reached_by(mode) {
        return Err(Errno::EINVAL);
    }
    command.run(call)?;
    Ok(0)
}

/// How a command word is taken, for the trace.
pub(crate) fn class(word: u32, mode: OpenMode) -> CommandClass {
    let command = Command::of(word);
    let lane = match command {
        Some(command) => command.lane(),
        None if word::name(word).is_none() => return CommandClass::Unknown,
        None if is_misc(word) => Lane::Misc,
        None => Lane::Main,
    };
    if !lane.is_reached_by(mode) {
        CommandClass::WrongLane
    } else if command.is_some() {
        CommandClass::Built
    } else {
        CommandClass::Unimplemented
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
            word::HBM_SCRUB_START => Self::HbmScrubStart,
            word::HBM_SCRUB_WAIT => Self::HbmScrubWait,
            // This one is known by its number alone: it is meant to grow.
            _ if word::number(word) == word::number(word::DRIVER_INFO_GET) => Self::DriverInfo,
            _ => return None,
        })
    }

    fn lane(self) -> Lane {
        match self {
            Self::CompatibleVersion | Self::DeviceBasicInfo | Self::DriverInfo => Lane::Misc,
            Self::DeviceInit
            | Self::DeviceRelease
            | Self::DeviceReset
            | Self::DeviceReady
            | Self::DeviceResetStatus
            | Self::NcReset
            | Self::NcResetReady
            | Self::MemAllocV2Mt64
            | Self::MemGetPa
            | Self::MemGetInfo
            | Self::MemFree
            | Self::MemCopy64
            | Self::MemBufCopy64
            | Self::MemCopyAsync64
            | Self::MemCopyAsyncWait
            | Self::HbmScrubStart
            | Self::HbmScrubWait => Lane::Main,
        }
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
            Self::HbmScrubStart => scrub::hbm_scrub_start(call),
            Self::HbmScrubWait => scrub::hbm_scrub_wait(call),
        }
    }
}

impl Lane {
    fn is_reached_by(self, mode: OpenMode) -> bool {
        match self {
            Self::Main => !mode.is_free_access(),
            Self::Misc => true,
        }
    }
}

/// Whether the caller must be attached, by the exact word (driver 2.27).
fn is_gated(word: u32) -> bool {
    matches!(
        word,
        word::DMA_ENG_INIT
            | word::DMA_ENG_SET_STATE
            | word::DMA_QUEUE_INIT
            | word::DMA_ACK_COMPLETED
            | word::DMA_QUEUE_RELEASE
            | word::DMA_COPY_DESCRIPTORS
            | word::MEM_ALLOC
            | word::MEM_FREE
            | word::MEM_COPY
            | word::MEM_GET_PA
            | word::MEM_COPY_ASYNC
            | word::MEM_COPY_ASYNC_WAIT
            | word::MEM_GET_INFO
            | word::BAR_WRITE
            | word::POST_METRIC
            | word::NOTIFICATIONS_INIT_V1
            | word::NOTIFICATIONS_INIT_V2
            | word::NOTIFICATIONS_INIT_WITH_REALLOC_V2
            | word::DRIVER_INFO_SET
    )
}

/// Whether a command that is not built is of the misc lane in the reference.
fn is_misc(word: u32) -> bool {
    matches!(
        word,
        word::CRWL_NC_RANGE_MARK
            | word::CRWL_NC_RANGE_MARK_EXT0
            | word::CRWL_NC_RANGE_UNMARK
            | word::CRWL_NC_RANGE_UNMARK_EXT0
            | word::DEVICE_BDF_EXT
            | word::DMABUF_FD
            | word::PRINTK
            | word::HOST_DEVICE_ID_TO_RID_MAP
            | word::NC_PID_STATE_DUMP
            | word::GET_LOGICAL_TO_PHYSICAL_NC_MAP
            | word::POD_INFO
            | word::POD_STATUS
            | word::POD_STATUS_V2
            | word::POD_CTRL
            | word::POD_CTRL_V2
            | word::GET_VA_PLACEMENT
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_reference_has_a_class_in_both_lanes() {
        let count = |mode, wanted| {
            let classes = word::COMMANDS.iter().map(|&(_, word)| class(word, mode));
            classes.filter(|&class| class == wanted).count()
        };
        let all = word::COMMANDS.len();
        let (misc_built, main_built, misc_missing) = (4, 17, 16);
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
        let gated = word::COMMANDS.iter().filter(|&&(_, word)| is_gated(word));
        assert_eq!(gated.count(), 19);
    }
}
