//! An explanation in words: for an engineer whose job has died in the night.
//!
//! The first line says why; the next ones what can be done about it; then come the numbers, each line
//! with a label. Sizes are printed as in the report, twenty lines at the most.

mod bank;

use glia_abi::handle::Pid;

use super::Explanation;
use super::blocks::Owner;
use super::tables::{HandleExplanation, HostExplanation, Share, SlotExplanation};
use crate::dml::{Level, LogContext, printed};

const HOLDERS_SHOWN_MAX: usize = 5;
const SLOTS_SHOWN_MAX: usize = 16;
const NAME_CHARS_MAX: usize = 60;

impl Explanation {
    /// The message that goes into the log behind the report.
    #[must_use]
    pub fn text(&self, context: &LogContext) -> String {
        let words = self.words();
        context.line(Level::Error, "explain_dev_mem", words.trim_end())
    }

    /// The lines, without the log's prefix. The first says why.
    #[must_use]
    pub fn words(&self) -> String {
        let lines = match self {
            Self::Bank(bank) => bank.lines(),
            Self::Host(host) => host.lines(),
            Self::Handles(handles) => handles.lines(),
            Self::Slots(slots) => slots.lines(),
        };
        let mut text = String::new();
        for line in lines.0 {
            text += &line;
            text.push('\n');
        }
        text
    }
}

/// Lines as they are put together.
struct Lines(Vec<String>);

impl Lines {
    fn why(words: String) -> Self {
        Self(vec![format!("Why: {words}")])
    }

    fn say(&mut self, label: &str, words: &str) {
        self.0.push(format!("  {label:<14}{words}"));
    }

    fn item(&mut self, words: &str) {
        self.say("", words);
    }
}

impl HostExplanation {
    fn lines(&self) -> Lines {
        let why = format!(
            "the host has no {} in one piece that nd {} could reach. This is host memory; {} of HBM are free and do not help.",
            printed(self.asked_bytes),
            self.device.get(),
            printed(self.hbm_free_bytes),
        );
        let mut lines = Lines::why(why);
        let free_bytes = self.reserves.iter().map(|one| one.free_bytes).sum();
        let words = format!(
            "{} free, in pages; the largest request that it could serve now: {}",
            printed(free_bytes),
            printed(self.reserve_largest_bytes())
        );
        lines.say("reserve:", &words);
        let words = format!(
            "{} for this device: {}",
            printed(self.held_bytes),
            shares(&self.holders, self.process)
        );
        lines.say("held:", &words);
        lines.say(
            "what helps:",
            "ask for less at once, free host memory, or put the tensor in HBM",
        );
        lines
    }
}

impl HandleExplanation {
    fn lines(&self) -> Lines {
        let device = self.device.get();
        let why = match self.is_down {
            true => format!(
                "the handle table of nd {device} is down. It was full, or could not grow, and does not come back before the driver is loaded again. This is not want of memory.",
            ),
            false => format!("nd {device} gave no handle. This is not want of memory."),
        };
        let mut lines = Lines::why(why);
        let most = format!("{} handles at the same time", self.handles_max);
        lines.say("at most:", &most);
        lines.say("held:", &shares(&self.holders, self.process));
        lines
    }
}

impl SlotExplanation {
    fn lines(&self) -> Lines {
        let device = self.device.get();
        let taken = self.holders.len();
        let why = match u32::try_from(taken).is_ok_and(|taken| taken < self.slots) {
            true => format!(
                "nd {device} could not be opened, though only {taken} of its {} attach slots are taken now. Try again.",
                self.slots
            ),
            false => format!(
                "all {} attach slots of nd {device} are taken: so many processes have it open. This is not want of memory; one of them must end.",
                self.slots
            ),
        };
        let mut lines = Lines::why(why);
        for holder in self.holders.iter().take(SLOTS_SHOWN_MAX) {
            let words = format!(
                "has it open {}, holds {} of HBM and {} of host memory",
                match holder.process.opens {
                    1 => "once".to_owned(),
                    opens => format!("{opens} times"),
                },
                printed(holder.device_bytes),
                printed(holder.host_bytes)
            );
            lines.say(&format!("pid {}", holder.process.pid.get()), &words);
        }
        lines
    }
}

fn owner(owner: Owner, process: Option<Pid>) -> String {
    match (owner, process) {
        (Owner::This, Some(pid)) => format!("this process, pid {}", pid.get()),
        (Owner::This, None) => "this process".to_owned(),
        (Owner::Other(pid), _) => format!("pid {}", pid.get()),
        (Owner::Driver, _) => "driver".to_owned(),
    }
}

fn shares(holders: &[Share], process: Option<Pid>) -> String {
    let shown = holders.iter().take(HOLDERS_SHOWN_MAX);
    let shown = shown.map(|share| {
        let whose = owner(share.owner, process);
        let bytes = printed(share.bytes);
        format!("{bytes} ({whose}, {})", blocks_of_u64(share.blocks))
    });
    let mut shown: Vec<String> = shown.collect();
    if let Some(rest) = holders
        .get(HOLDERS_SHOWN_MAX..)
        .filter(|rest| !rest.is_empty())
    {
        let bytes = rest.iter().map(|share| share.bytes).sum();
        shown.push(format!("{} others {}", rest.len(), printed(bytes)));
    }
    match shown.is_empty() {
        true => "nothing".to_owned(),
        false => shown.join(", "),
    }
}

fn blocks_of(count: usize) -> String {
    blocks_of_u64(count as u64)
}

fn blocks_of_u64(count: u64) -> String {
    match count {
        1 => "1 block".to_owned(),
        count => format!("{count} blocks"),
    }
}

/// A name in quotes, cut to a readable length; what would break the line is escaped.
fn quoted(name: &str) -> String {
    let escaped: String = name.escape_debug().take(NAME_CHARS_MAX + 1).collect();
    match escaped.chars().count() > NAME_CHARS_MAX {
        true => {
            let cut: String = escaped.chars().take(NAME_CHARS_MAX).collect();
            format!("\"{cut}…\"")
        }
        false => format!("\"{escaped}\""),
    }
}

/// A part of a whole, with one decimal, to the nearest; but what is not full is not 100 %.
fn percent(part: u64, whole: u64) -> String {
    let (part, whole) = (u128::from(part), u128::from(whole));
    let thousandths = match whole {
        0 => 0,
        _ if part >= whole => part * 1000 / whole,
        _ => ((part * 1000 + whole / 2) / whole).min(999),
    };
    format!("{}.{}%", thousandths / 10, thousandths % 10)
}
