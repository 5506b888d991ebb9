//! What is said of an HBM that had no room.

use glia_abi::PAGE_SIZE_BYTES;
use glia_abi::addr::BusAddr;
use glia_abi::handle::CoreId;

use super::super::PoolPart;
use super::super::bank::{BankExplanation, BankRoom, Holder, Opening};
use super::super::blocks::{Block, Owner};
use super::super::cause::Cause;
use super::{
    HOLDERS_SHOWN_MAX, Lines, NAME_CHARS_MAX, blocks_of, blocks_of_u64, owner, percent, quoted,
};
use crate::dml::printed;

const BLOCKS_SHOWN_MAX: usize = 5;
const OWN_BLOCKS_SHOWN_MAX: usize = 3;
const MODELS_SHOWN_MAX: usize = 3;

impl BankExplanation {
    pub(super) fn lines(&self) -> Lines {
        let mut lines = Lines::why(self.why());
        lines.say("asked:", &self.asked());
        self.say_what_to_free(&mut lines);
        self.say_what_fits(&mut lines);
        lines.say("free here:", &self.free_here());
        self.say_holders(&mut lines);
        self.say_other_banks(&mut lines);
        if self.rounded_bytes > self.charged_bytes {
            let words = format!(
                "this process asked for {} on this HBM, and the pools took {}: {} more, since blocks are whole pages",
                printed(self.charged_bytes),
                printed(self.rounded_bytes),
                printed(self.rounded_bytes - self.charged_bytes),
            );
            lines.say("rounding:", &words);
        }
        lines
    }

    fn here(&self) -> String {
        let request = &self.request;
        format!("nd {} HBM {}", request.device.get(), request.channel.get())
    }

    fn why(&self) -> String {
        let here = self.here();
        let needed = printed(self.needed_bytes);
        let usable = printed(self.usable_bytes);
        match self.cause {
            Cause::Capacity if self.is_never => {
                format!("{here} is too small for this. {}.", self.too_small())
            }
            Cause::WrongBank if self.is_never => format!(
                "{here} is too small for this, but {} would have room. {}.",
                self.roomy_banks(),
                self.too_small()
            ),
            Cause::Capacity => format!("{here} has too little free. {}.", self.too_few()),
            Cause::WrongBank => format!(
                "{here} has too little free, but {} would have room. {}.",
                self.roomy_banks(),
                self.too_few()
            ),
            Cause::WrongPool => {
                let pool = |part| self.pools.iter().find(|pool| pool.part == part);
                let free = |part| pool(part).map_or(0, |pool| pool.free_bytes);
                let (main, small) = (free(PoolPart::Main), free(PoolPart::Small));
                let [needed, main, small] = told_apart([self.needed_bytes, main, small]);
                format!(
                    "the free bytes of {here} are in two pools, and no block can be in both. {needed} are needed; {main} are free in the main pool, {small} in the small one.",
                )
            }
            Cause::Fragmentation if self.is_of_several() => {
                let sizes = [self.usable_bytes, self.largest_hole_bytes, self.whole_bytes];
                let [usable, largest, needed] = told_apart(sizes);
                format!(
                    "{here} is fragmented. {usable} are free, in {}, and the largest has {largest}; {needed} in {} are needed.",
                    holes_of(self.holes()),
                    blocks_of_u64(self.whole_blocks),
                )
            }
            Cause::Fragmentation => {
                let sizes = [
                    self.usable_bytes,
                    self.largest_hole_bytes,
                    self.needed_bytes,
                ];
                let [usable, largest, needed] = told_apart(sizes);
                format!(
                    "{here} is fragmented. {usable} are free, in {}, and the largest has {largest}; {needed} are needed in one piece.",
                    holes_of(self.holes()),
                )
            }
            Cause::Alignment if self.is_of_several() => format!(
                "{here} has too few aligned holes. {usable} are free, in {}; from aligned addresses on they have no room for {}.",
                holes_of(self.holes()),
                self.all_needed(),
            ),
            Cause::Alignment => match self.largest_fit_bytes {
                Some(_) if self.is_never => format!(
                    "{here} has no place for this at a multiple of {}. {}.",
                    printed(self.request.driver_align_bytes),
                    self.too_small()
                ),
                Some(fit_bytes) => {
                    let sizes = [self.largest_hole_bytes, fit_bytes, self.needed_bytes];
                    let [largest, fit, needed] = told_apart(sizes);
                    format!(
                        "{here} has no aligned hole. The largest hole has {largest}, but from a multiple of {} on no hole has more than {fit}; {needed} are needed.",
                        printed(self.request.driver_align_bytes),
                    )
                }
                None => format!(
                    "{here} has a hole of {}, but the alignment of {} bytes is no power of two, and the driver finds no place for it. Ask for a power of two.",
                    printed(self.largest_hole_bytes),
                    self.request.driver_align_bytes,
                ),
            },
            Cause::ScratchpadPlace => format!(
                "the next {needed} of the contiguous scratchpad of {here} have one place only{}, and something else is there.",
                self.page_at
                    .map_or_else(String::new, |at| format!(", {at}")),
            ),
            Cause::ScratchpadOrder => format!(
                "pages of the contiguous scratchpad of {here} were freed out of order. The next {needed} have to go where a page still lives{}.",
                self.page_at
                    .map_or_else(String::new, |at| format!(", at {at}")),
            ),
            Cause::ZeroSize => {
                "0 bytes were asked for, and the driver has no block of 0 bytes.".to_owned()
            }
            Cause::Passing | Cause::HostMemory | Cause::ProcessSlots | Cause::HandleTable => {
                format!(
                    "{here} has room for this now. Memory has come free since the refusal, or it was not for want of memory. Try again."
                )
            }
        }
    }

    /// How far what is free is from what is needed: in pieces, to have less missing does not help.
    fn too_few(&self) -> String {
        let largest_bytes = self.largest_hole_bytes;
        let sizes = [self.whole_bytes, self.usable_bytes, largest_bytes];
        let [needed, usable, largest] = told_apart(sizes);
        let missing = printed(self.whole_bytes.saturating_sub(self.usable_bytes));
        if self.is_of_several() {
            let blocks = blocks_of_u64(self.whole_blocks);
            return format!(
                "{needed} in {blocks} are needed, {usable} are free here: {missing} too few"
            );
        }
        match largest_bytes < self.usable_bytes {
            true => format!(
                "{needed} are needed in one piece; {usable} are free here, at most {largest} of it in one piece"
            ),
            false => format!("{needed} are needed, {usable} are free here: {missing} too few"),
        }
    }

    /// How far what could ever be had is from what is needed.
    fn too_small(&self) -> String {
        let request = &self.request;
        if let Some(most_blocks) = self.most_blocks {
            let whole = printed(self.whole_bytes);
            return format!(
                "{whole} in {} are needed; even with everything freed that can be, only {most_blocks} of them have room",
                blocks_of_u64(self.whole_blocks)
            );
        }
        let is_padded = self.needs_padding();
        let wanted_bytes = match is_padded {
            true => request.asked_bytes,
            false => self.needed_bytes,
        };
        let [most, wanted] = told_apart([self.most_bytes.unwrap_or(0), wanted_bytes]);
        match request.align_bytes {
            _ if request.is_scratchpad_page => format!(
                "{wanted} of contiguous scratchpad are needed; even with everything freed that can be, there is room for {most}"
            ),
            0 => format!(
                "{wanted} are needed; even with everything freed that can be, no block of more than {most} has room"
            ),
            align_bytes => format!(
                "{wanted} are needed; even with everything freed that can be, no block of more than {most} has room at an alignment of {}",
                printed(align_bytes)
            ),
        }
    }

    /// Whether the runtime has to align by itself.
    fn needs_padding(&self) -> bool {
        self.request.driver_bytes != self.request.asked_bytes
    }

    /// Whether several blocks have to be had together.
    fn is_of_several(&self) -> bool {
        self.whole_blocks > 1
    }

    /// All that has to be had together.
    fn all_needed(&self) -> String {
        let blocks = blocks_of_u64(self.whole_blocks);
        format!("{} in {blocks}", printed(self.whole_bytes))
    }

    fn holes(&self) -> u64 {
        self.pools.iter().map(|pool| pool.holes).sum()
    }

    fn asked(&self) -> String {
        let request = &self.request;
        let name = request.hint.as_deref().map(quoted);
        let alignment = match request.align_bytes {
            0 => "no alignment".to_owned(),
            bytes => format!("alignment {}", printed(bytes)),
        };
        let [asked, needed] = match self.needs_padding() {
            true => told_apart([request.asked_bytes, self.needed_bytes]),
            false => [request.asked_bytes, self.needed_bytes].map(printed),
        };
        let mut words = format!(
            "{asked} for {}{} on NC {}, {alignment}",
            request.usage.aggregate().name(),
            name.map_or_else(String::new, |name| format!(" {name}")),
            request.core.get(),
        );
        if self.needs_padding() {
            words += &format!("; the runtime has to align by itself, and so needs {needed}");
        }
        if self.is_of_several() {
            let blocks = blocks_of_u64(self.whole_blocks);
            words += &format!(
                "; one of {blocks} that the reservation lacks, {} in all",
                printed(self.whole_bytes)
            );
        }
        words
    }

    fn say_what_to_free(&self, lines: &mut Lines) {
        let Some(opening) = &self.opening else {
            match self.cause {
                Cause::Passing | Cause::ZeroSize => {}
                _ if self.is_never => {
                    let words = match self.is_of_several() || self.request.is_scratchpad_page {
                        true => "freeing does not help; reserve less",
                        false => "freeing does not help; ask for less at once",
                    };
                    lines.say("to make room:", words);
                }
                _ => lines.say("to make room:", "no set of blocks is known that would help"),
            }
            return;
        };
        let pages = opening.blocks.iter().filter(Block::is_contiguous_page);
        let is_at_place = Some(opening.at) == self.page_at;
        let order = match self.cause {
            Cause::ScratchpadOrder if pages.count() as u64 == self.scratchpad_pages => {
                ", all pages of the scratchpad"
            }
            Cause::ScratchpadPlace if is_at_place => ", which is what lies at that place",
            _ if opening.is_least => ", the least that helps",
            _ => ", which is enough",
        };
        let words = format!("{}{order}:", what_to_do(opening));
        lines.say("to make room:", &words);
        let shown = opening.blocks.largest(BLOCKS_SHOWN_MAX);
        for block in &shown {
            lines.item(&self.block(block));
        }
        let rest = opening.blocks.len() - shown.len();
        if rest > 0 {
            let shown_bytes: u64 = shown.iter().map(|block| block.span.size_bytes()).sum();
            let bytes = opening.freed_bytes.saturating_sub(shown_bytes);
            lines.item(&format!("and {}, {}", blocks_of(rest), printed(bytes)));
        }
        if let Some(own) = &self.own_opening {
            let shown = own.blocks.largest(OWN_BLOCKS_SHOWN_MAX);
            let mut shown: Vec<String> = shown.iter().map(brief).collect();
            if own.blocks.len() > shown.len() {
                shown.push("…".to_owned());
            }
            let words = format!(
                "this process alone: {}: {}",
                what_to_do(own),
                shown.join(", ")
            );
            lines.say("or:", &words);
        } else if !opening.blocks.are_own() {
            lines.say("", "what this process holds does not suffice");
        }
    }

    fn block(&self, block: &Block) -> String {
        let whose = owner(block.owner, self.process);
        let mut words = format!(
            "{} at {}, {whose}, NC {}: ",
            printed(block.span.size_bytes()),
            block.span.start(),
            block.core.get()
        );
        match &block.allocation {
            Some(allocation) => {
                words += allocation.usage.aggregate().name();
                match allocation.hint.as_deref() {
                    Some(hint) => words += &format!(" {}", quoted(hint)),
                    None => words += ", without a name",
                }
                if let Some(model) = allocation.model {
                    words += &format!(", of NEFF {model}");
                }
            }
            None => {
                let category = block.category.name();
                let category = category.unwrap_or_else(|| format!("category {}", block.category.0));
                words += &format!("{category}, usage and name not known here");
            }
        }
        if let Owner::Other(pid) = block.owner
            && block.goes_with_models
        {
            words += &format!(", goes back as pid {} unloads models", pid.get());
        }
        if let Some(site) = &block.site {
            words += &format!(", from {}", quoted_end(site));
        }
        words
            + &match block.allocations_since {
                1 => "; 1 newer allocation".to_owned(),
                newer => format!("; {newer} newer allocations"),
            }
    }

    fn say_what_fits(&self, lines: &mut Lines) {
        let wanted_bytes = match self.needs_padding() {
            true => self.request.asked_bytes,
            false => self.needed_bytes,
        };
        let is_fewer = |bytes: &u64| *bytes > 0 && *bytes < wanted_bytes;
        if let Some(bytes) = self.largest_fit_bytes.filter(is_fewer) {
            let [bytes, _] = told_apart([bytes, wanted_bytes]);
            let mut words = format!("up to {bytes} without freeing anything");
            if self.request.align_bytes > PAGE_SIZE_BYTES {
                words += " at this alignment";
            }
            lines.say("fits here:", &words);
        }
        let others = self.others();
        let roomy: Vec<&BankRoom> = others.filter(|bank| bank.has_room).collect();
        if !roomy.is_empty() {
            let roomy: Vec<String> = roomy.into_iter().map(bank_with_cores).collect();
            lines.say("fits on:", &roomy.join(", "));
        }
    }

    fn free_here(&self) -> String {
        let pools = self.pools.iter().map(|pool| {
            format!(
                "{} in the {} pool ({}, largest {})",
                printed(pool.free_bytes),
                pool.part.name(),
                holes_of(pool.holes),
                printed(pool.largest_hole_bytes)
            )
        });
        let pools: Vec<String> = pools.collect();
        format!(
            "{}; on the device {}",
            pools.join(", "),
            printed(self.device_free_bytes)
        )
    }

    fn say_holders(&self, lines: &mut Lines) {
        let size_bytes = self.bank().map_or(0, |bank| bank.size_bytes);
        let share = |holder: &Holder| {
            let whose = owner(holder.owner, self.process);
            let core = match holder.owner {
                Owner::Driver => String::new(),
                Owner::This | Owner::Other(_) => format!("NC {} ", holder.core.get()),
            };
            let bytes = printed(holder.bytes);
            format!("{core}{bytes} ({whose}, {})", blocks_of_u64(holder.blocks))
        };
        let shown = self.holders.iter().take(HOLDERS_SHOWN_MAX);
        let mut shown: Vec<String> = shown.map(share).collect();
        if let Some(rest) = self
            .holders
            .get(HOLDERS_SHOWN_MAX..)
            .filter(|rest| !rest.is_empty())
        {
            let bytes = rest.iter().map(|holder| holder.bytes).sum();
            shown.push(format!("{} others {}", rest.len(), printed(bytes)));
        }
        lines.say("held here:", &shown.join(", "));
        let neighbour_bytes = self.neighbour_bytes();
        if neighbour_bytes > 0 {
            let own = self.request.logical_core();
            let own: Vec<String> = own.map(|core| format!("NC {core}")).collect();
            let words = format!(
                "other cores than {} hold {} of this HBM, {}",
                own.join(" and "),
                printed(neighbour_bytes),
                percent(neighbour_bytes, size_bytes),
            );
            lines.say("neighbours:", &words);
        }
    }

    fn say_other_banks(&self, lines: &mut Lines) {
        let fill = |bank: &BankRoom| {
            let used_bytes = bank.size_bytes.saturating_sub(bank.free_bytes);
            format!(
                "HBM {} {} full, {} free",
                bank.channel.get(),
                percent(used_bytes, bank.size_bytes),
                printed(bank.free_bytes)
            )
        };
        let others: Vec<String> = self.others().map(fill).collect();
        if !others.is_empty() {
            lines.say("other HBMs:", &others.join("; "));
        }
    }

    fn others(&self) -> impl Iterator<Item = &BankRoom> {
        let banks = self.banks.iter();
        banks.filter(|bank| bank.channel != self.request.channel)
    }

    fn roomy_banks(&self) -> String {
        let roomy = self.others().filter(|bank| bank.has_room);
        let names: Vec<String> = roomy
            .map(|bank| format!("HBM {}", bank.channel.get()))
            .collect();
        names.join(" and ")
    }
}

/// What to free: models to unload, and blocks to free by themselves.
fn what_to_do(opening: &Opening) -> String {
    let all = opening.blocks.len() as u64;
    let blocks = blocks_of_u64(all);
    let amount = format!("{} in {blocks}", printed(opening.freed_bytes));
    let shown = opening.unloads.iter().take(MODELS_SHOWN_MAX);
    let mut models: Vec<String> = shown
        .map(|unload| format!("NEFF {} {}", unload.model, quoted_end(&unload.name)))
        .collect();
    if opening.unloads.len() > models.len() {
        models.push(format!("{} more", opening.unloads.len() - models.len()));
    }
    let models = models.join(", ");
    match all.saturating_sub(opening.unloaded_blocks) {
        _ if models.is_empty() => format!("free {amount}"),
        0 => format!("unload {models}: {amount}"),
        more => format!(
            "unload {models}, and free {} more: {amount}",
            blocks_of_u64(more)
        ),
    }
}

fn holes_of(count: u64) -> String {
    match count {
        1 => "1 hole".to_owned(),
        count => format!("{count} holes"),
    }
}

/// A block by its name, or where it lies.
fn brief(block: &Block) -> String {
    let place = |at: BusAddr| at.to_string();
    let name = block.name().map(quoted);
    let name = name.unwrap_or_else(|| place(block.span.start()));
    format!("{name} {}", printed(block.span.size_bytes()))
}

fn bank_with_cores(bank: &BankRoom) -> String {
    let cores: Vec<String> = bank.cores.iter().map(core_name).collect();
    match cores.is_empty() {
        true => format!("HBM {}", bank.channel.get()),
        false => format!("HBM {} ({})", bank.channel.get(), cores.join(", ")),
    }
}

/// Sizes that are held against each other, as they are printed; with its bytes each that prints like
/// another and is not.
fn told_apart<const N: usize>(sizes: [u64; N]) -> [String; N] {
    sizes.map(|bytes| {
        let short = printed(bytes);
        let is_like = |other: &u64| *other != bytes && printed(*other) == short;
        match sizes.iter().any(is_like) {
            true => format!("{short} ({bytes} bytes)"),
            false => short,
        }
    })
}

fn core_name(core: &CoreId) -> String {
    format!("NC {}", core.get())
}

/// The same for a place in a program, of which the end says most.
fn quoted_end(site: &str) -> String {
    let escaped: Vec<char> = site.escape_debug().collect();
    match escaped.len().checked_sub(NAME_CHARS_MAX) {
        None | Some(0) => format!("\"{}\"", escaped.into_iter().collect::<String>()),
        Some(over) => format!("\"…{}\"", escaped[over..].iter().collect::<String>()),
    }
}
