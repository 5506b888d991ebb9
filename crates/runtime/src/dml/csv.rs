//! The ring of events and the chunks of an HBM as files with commas (RFC 4180), which the reference
//! writes to `/tmp` when an allocation fails. The names of their columns are not public: these are
//! those of the ring's fields, and of the driver's.

use std::fmt::Write as _;

use glia_abi::mem::Location;

use super::events::{Action, Event};
use crate::ndl::HbmChunk;

const HEAD: &str =
    "action,mem_loc,mem_usage,tdram_channel,hint,nc_idx,size,pa,align_offset,total_mem_used\n";

/// Events as lines under a heading. `size` is the size asked for; `total_mem_used` is empty for host
/// memory.
#[must_use]
pub fn events_csv(events: &[Event]) -> String {
    let mut text = HEAD.to_owned();
    for event in events {
        let facts = &event.allocation;
        let action = match event.action {
            Action::Alloc => "ALLOC",
            Action::Free => "FREE",
        };
        let location = match facts.location {
            Location::Host => "HOST",
            Location::Device => "DEVICE",
        };
        let total = event.channel_bytes;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{action},{location},{},{},{},{},{},{:#x},{},{}",
            facts.usage,
            facts.channel.get(),
            quoted(facts.hint.as_deref().unwrap_or_default()),
            facts.core.get(),
            facts.size_bytes,
            facts.pa.get(),
            facts.align_offset_bytes,
            total.map_or_else(String::new, |bytes| bytes.to_string()),
        );
    }
    text
}

/// Chunks of an HBM as lines under a heading. `mem_type` is the number of the driver's category.
#[must_use]
pub fn chunks_csv(chunks: &[HbmChunk]) -> String {
    let mut text = "pa,size,mem_type\n".to_owned();
    for chunk in chunks {
        let (pa, size_bytes, category) = (chunk.pa.get(), chunk.size_bytes, chunk.category.0);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{pa:#x},{size_bytes},{category}");
    }
    text
}

/// A field, in quotes if it needs them.
fn quoted(field: &str) -> String {
    match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_that_need_it_are_quoted() {
        let cases = [
            ("", ""),
            ("a b", "a b"),
            ("a,b", "\"a,b\""),
            ("say \"a\"", "\"say \"\"a\"\"\""),
            ("a\nb", "\"a\nb\""),
        ];
        for (field, wanted) in cases {
            assert_eq!(quoted(field), wanted);
        }
    }
}
