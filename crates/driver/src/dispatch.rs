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

use crate::ioctl::{
    Call, alloc, claim, copy, datastore, describe, descriptor, h2t, identity, info, program, queue,
    reset, scrub, zerocopy,
};

/// What answers a command.
type Handler = fn(&Call<'_>) -> Result<(), Errno>;

/// Answers a command.
pub(crate) fn answer(call: &Call<'_>, mode: OpenMode) -> Result<i32, Errno> {
    let known = command_of(call.word).ok_or(Errno::EINVAL)?;
    if !mode.is_free_access()
        && known.gate == Gate::Attached
        && !call.device.memory.is_attached_by(call.caller.pid)
    {
        return Err(Errno::EACCES);
    }
    if !is_reached_by(known.lane, mode) {
        return Err(Errno::EINVAL);
    }
    let answer = handler(known.word).ok_or(Errno::EINVAL)?;
    answer(call)?;
    Ok(0)
}

/// How a command word is taken, for the trace.
pub(crate) fn class(word: u32, mode: OpenMode) -> CommandClass {
    match command_of(word) {
        None => CommandClass::Unknown,
        Some(known) if !is_reached_by(known.lane, mode) => CommandClass::WrongLane,
        Some(known) if handler(known.word).is_some() => CommandClass::Built,
        Some(_) => CommandClass::Unimplemented,
    }
}

/// The command that the driver takes a word for; `None` if it knows none.
///
/// Some commands are known by number and size alone, whatever direction and type the word has, and
/// two by their number, since they look at the size themselves (driver 2.27): of these, what the table says of the
/// form that it has.
#[must_use]
pub fn command_of(word: u32) -> Option<&'static word::Command> {
    word::command(word).or_else(|| {
        let by_size = [
            word::MEM_MC_GET_INFO,
            word::MEM_MC_GET_INFO_V2,
            word::MEM_BUF_ZEROCOPY64,
        ];
        let by_number = [word::DRIVER_INFO_GET, word::HOST_DEVICE_ID_TO_RID_MAP];
        let is_form = |known: &u32| {
            word::number(*known) == word::number(word)
                && word::size_field(*known) == word::size_field(word)
        };
        let form = match by_size.into_iter().find(is_form) {
            None => by_number
                .into_iter()
                .find(|known| word::number(*known) == word::number(word))?,
            Some(form) => form,
        };
        word::command(form)
    })
}

fn is_reached_by(lane: Lane, mode: OpenMode) -> bool {
    match lane {
        Lane::Main => !mode.is_free_access(),
        Lane::Misc => true,
    }
}

/// What answers a command of the table; `None` if it is not built.
fn handler(word: u32) -> Option<Handler> {
    let handler: Handler = match word {
        word::COMPATIBLE_VERSION => info::compatible_version,
        word::DEVICE_BASIC_INFO => info::device_basic_info,
        word::DRIVER_INFO_GET | word::DRIVER_INFO_SET => info::driver_info,
        word::DEVICE_INFO => identity::device_info,
        word::DEVICE_BDF => identity::device_bdf,
        word::DEVICE_BDF_EXT => identity::device_bdf_ext,
        word::HOST_DEVICE_ID => identity::host_device_id,
        word::HOST_DEVICE_ID_TO_RID_MAP => identity::host_device_id_to_rid_map,
        word::DEVICE_APP_PID => identity::device_app_pid,
        word::DEVICE_GET_ALL_APPS_INFO => identity::device_get_all_apps_info,
        word::PRINTK => identity::printk,
        // Opening the device is what attaches (driver 2.27): both do nothing.
        word::DEVICE_INIT | word::DEVICE_RELEASE => |_| Ok(()),
        word::DEVICE_RESET => reset::device_reset,
        word::DEVICE_READY => reset::device_ready,
        word::DEVICE_RESET_STATUS => reset::device_reset_status,
        word::NC_RESET => reset::nc_reset,
        word::NC_RESET_READY => reset::nc_reset_ready,
        word::CRWL_NC_RANGE_MARK => claim::nc_range_mark,
        word::CRWL_NC_RANGE_MARK_EXT0 => claim::nc_range_mark_ext0,
        word::CRWL_NC_RANGE_UNMARK => claim::nc_range_unmark,
        word::CRWL_NC_RANGE_UNMARK_EXT0 => claim::nc_range_unmark_ext0,
        word::CRWL_READER_ENTER => claim::reader_enter,
        word::CRWL_READER_EXIT => claim::reader_exit,
        word::CRWL_WRITER_ENTER => claim::writer_enter,
        word::CRWL_WRITER_DOWNGRADE => claim::writer_downgrade,
        word::CINIT_SET_STATE => claim::cinit_set_state,
        word::MEM_ALLOC => alloc::mem_alloc,
        word::MEM_ALLOC_V2 => alloc::mem_alloc_v2,
        word::MEM_ALLOC_V2MT => alloc::mem_alloc_v2mt,
        word::MEM_ALLOC_V2MT64 => alloc::mem_alloc_v2mt64,
        word::MEM_FREE => alloc::mem_free,
        word::MEM_GET_PA => describe::mem_get_pa,
        word::MEM_GET_INFO => describe::mem_get_info,
        word::MEM_GET_EXTENDED_INFO => describe::mem_get_extended_info,
        word::MEM_MC_GET_INFO => describe::mem_mc_get_info,
        word::MEM_MC_GET_INFO_V2 => describe::mem_mc_get_info_v2,
        word::DUMP_MEM_CHUNKS => describe::dump_mem_chunks,
        word::RESOURCE_MMAP_INFO => describe::resource_mmap_info,
        word::MEM_COPY => copy::mem_copy,
        word::MEM_COPY64 => copy::mem_copy64,
        word::MEM_COPY_ASYNC => copy::mem_copy_async,
        word::MEM_COPY_ASYNC64 => copy::mem_copy_async64,
        word::MEM_COPY_ASYNC_WAIT => copy::mem_copy_async_wait,
        word::MEMSET => copy::memset,
        word::MEMSET64 => copy::memset64,
        word::MEM_BUF_COPY => copy::mem_buf_copy,
        word::MEM_BUF_COPY64 => copy::mem_buf_copy64,
        word::MEM_BUF_ZEROCOPY64 => zerocopy::mem_buf_zerocopy64,
        word::MEM_BUF_ZEROCOPY64_BATCHES => zerocopy::mem_buf_zerocopy64_batches,
        word::GET_ASYNC_H2T_DMA_COMPL_QUEUES => zerocopy::get_async_h2t_dma_compl_queues,
        word::PROGRAM_ENGINE => program::program_engine,
        word::PROGRAM_ENGINE_NC => program::program_engine_nc,
        word::PROGRAM_ENGINE_NC64 => program::program_engine_nc64,
        word::ACQUIRE_NEURON_DS => datastore::acquire_neuron_ds,
        word::RELEASE_NEURON_DS => datastore::release_neuron_ds,
        // Programmed at the bring-up (driver 2.27): nothing is left to do.
        word::DMA_ENG_INIT => |_| Ok(()),
        word::DMA_ENG_SET_STATE => queue::dma_eng_set_state,
        word::DMA_ENG_GET_STATE => queue::dma_eng_get_state,
        word::DMA_QUEUE_INIT => queue::dma_queue_init,
        word::DMA_QUEUE_INIT_BATCH => queue::dma_queue_init_batch,
        // A queue is its process's until that goes (driver 2.27).
        word::DMA_QUEUE_RELEASE => |_| Ok(()),
        word::DMA_QUEUE_COPY_START => queue::dma_queue_copy_start,
        word::DMA_ACK_COMPLETED => queue::dma_ack_completed,
        word::DMA_QUEUE_GET_STATE => queue::dma_queue_get_state,
        word::DMA_COPY_DESCRIPTORS => descriptor::dma_copy_descriptors,
        word::DMA_COPY_DESCRIPTORS64 => descriptor::dma_copy_descriptors64,
        word::DMA_DESCRIPTOR_COPYOUT => descriptor::dma_descriptor_copyout,
        // Removed; the kernel says so by a number of its own (driver 2.27: 515).
        word::DMA_QUIESCE_QUEUES => |_| Err(Errno::ENOTTY),
        word::H2T_DMA_ALLOC_QUEUES => h2t::h2t_dma_alloc_queues,
        word::H2T_DMA_FREE_QUEUES => h2t::h2t_dma_free_queues,
        word::HBM_SCRUB_START => scrub::hbm_scrub_start,
        word::HBM_SCRUB_WAIT => scrub::hbm_scrub_wait,
        _ => return None,
    };
    Some(handler)
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
        let (misc_built, main_built, misc_missing) = (11, 63, 9);
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
    fn commands_that_are_known_by_their_size_take_any_direction_and_no_other_size() {
        let known = [
            word::MEM_MC_GET_INFO,
            word::MEM_MC_GET_INFO_V2,
            word::MEM_BUF_ZEROCOPY64,
        ];
        for known in known {
            for other in [known ^ 1 << 31, known ^ 1 << 30, known ^ 0x100] {
                assert_eq!(command_of(other).unwrap().word, known, "{other:#x}");
            }
            assert!(command_of(known ^ 4 << 16).is_none());
        }
        assert!(command_of(word::MEM_COPY64 ^ 1 << 30).is_none());
    }

    #[test]
    fn only_words_of_the_table_are_gated() {
        let gated = word::COMMANDS
            .iter()
            .filter(|known| known.gate == Gate::Attached);
        assert_eq!(gated.count(), 19);
    }
}
