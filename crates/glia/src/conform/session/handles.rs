//! Operations on the handle table.

use glia_abi::errno::Errno;
use glia_abi::handle::McHandle;
use glia_driver::handles::Object;
use glia_driver::memory::{DeviceMemory, PublishError};

use super::Session;
use super::chunks::{DEAD_CHUNK, dead};
use crate::conform::answer::Answer;
use crate::conform::op::ChunkId;
use crate::conform::outcome;
use crate::conform::value::{Fields, Value};

impl Session {
    pub(super) fn publish(&self, memory: &DeviceMemory, id: ChunkId) -> Answer {
        self.with_chunk(id, |chunk| match memory.publish(chunk) {
            Ok(handle) => Answer::outcome(outcome::ret(0).with("handle", handle.get())),
            Err(PublishError::Dead(_)) => dead(chunk, DEAD_CHUNK),
            Err(error @ PublishError::Handle(_)) => {
                Answer::outcome(outcome::ret(error.errno().ret()))
            }
        })
    }

    pub(super) fn find(&self, memory: &DeviceMemory, handle: u64) -> Answer {
        let handle = McHandle::from_raw(handle);
        let object = handle.and_then(|handle| Some((handle, memory.object(handle)?)));
        Answer::outcome(match object {
            Some((_, Object::Other(index))) => {
                let token = self.tokens.get(index as usize).copied();
                Fields::new().with("token", token.map_or(Value::Null, Value::from))
            }
            Some((handle, Object::Chunk(_))) => {
                let chunk = memory.resolve(handle).map(|chunk| self.books.id_of(chunk));
                Fields::new().with("id", chunk.unwrap_or(Value::Null))
            }
            None => Fields::new().with("id", Value::Null),
        })
    }

    pub(super) fn handle_alloc(&mut self, memory: &DeviceMemory, token: u64) -> Answer {
        let number = self.number_of(token);
        Answer::outcome(match memory.issue_handle(number) {
            Ok(handle) => outcome::ret(0).with("handle", handle.get()),
            Err(error) => outcome::ret(error.errno().ret()),
        })
    }

    pub(super) fn handle_bulk(&mut self, memory: &DeviceMemory, count: u64, token: u64) -> Answer {
        let number = self.number_of(token);
        let (mut given, mut ends, mut ret) = (0_u64, None, 0);
        while given < count {
            match memory.issue_handle(number) {
                Ok(handle) => {
                    given += 1;
                    let (first, _) = ends.unwrap_or((handle, handle));
                    ends = Some((first, handle));
                }
                Err(error) => {
                    ret = error.errno().ret();
                    break;
                }
            }
        }
        let outcome = outcome::ret(ret).with("ok", given);
        Answer::outcome(match ends {
            Some((first, last)) => outcome.with("first", first.get()).with("last", last.get()),
            None => outcome,
        })
    }

    /// A token has 64 bits and what a handle can name 32, so that is the token's number here.
    fn number_of(&mut self, token: u64) -> u32 {
        let index = self.tokens.len();
        self.tokens.push(token);
        // LIMIT: a trace has at most 1 GiB of text, so far fewer tokens than this.
        u32::try_from(index).unwrap_or(u32::MAX)
    }
}

pub(super) fn handle_free(memory: &DeviceMemory, handle: u64) -> Answer {
    let freed = McHandle::from_raw(handle).map(|handle| memory.free_handle(handle));
    Answer::outcome(outcome::ret(match freed {
        Some(Ok(())) => 0,
        Some(Err(error)) => error.errno().ret(),
        // No table can have such a handle.
        None => Errno::ENOENT.ret(),
    }))
}

pub(super) fn handle_stat(memory: &DeviceMemory) -> Answer {
    let handles = memory.handle_stats();
    let outcome = Fields::new()
        .with("down", handles.is_down)
        .with("next", handles.next.map_or(0, McHandle::get))
        .with("tables", handles.pages);
    Answer::outcome(outcome)
}
