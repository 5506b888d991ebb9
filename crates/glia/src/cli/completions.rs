//! `glia completions` and `glia man`: what a shell and `man` are told, made from the definition of the
//! command line, so neither can fall behind it.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man as Page;

use super::printable::printable;
use super::{Cli, Outcome};

const NAME: &str = "glia";

/// Print what completes commands and options in a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  source <(glia completions bash)                                in this shell
  glia completions bash > ~/.local/share/bash-completion/completions/glia
  glia completions zsh > ~/.zfunc/_glia                          with fpath+=~/.zfunc in ~/.zshrc
  glia completions fish > ~/.config/fish/completions/glia.fish")]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self) -> anyhow::Result<Outcome> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), NAME, &mut script);
        io::stdout().lock().write_all(&script)?;
        Ok(Outcome::AsHoped)
    }
}

/// Print the manual page, or write it and one for each command
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  glia man | man -l -                         read it
  glia man --out ~/.local/share/man/man1      then: man glia, man glia-run, ...")]
pub(crate) struct Man {
    /// Write glia.1, and glia-COMMAND.1 for each command and those below it, into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(&self) -> anyhow::Result<Outcome> {
        let command = Cli::command();
        match &self.out {
            None => {
                let first = page(command.disable_help_subcommand(true))?;
                io::stdout().lock().write_all(&first)?;
            }
            Some(directory) => {
                fs::create_dir_all(directory).with_context(|| named(directory))?;
                for (name, command) in pages(NAME.to_owned(), NAME.to_owned(), &command) {
                    let file = directory.join(format!("{name}.1"));
                    fs::write(&file, page(command)?).with_context(|| named(&file))?;
                }
            }
        }
        Ok(Outcome::AsHoped)
    }
}

/// A command and all below it, each with the name of its page, which those above it refer to. The `help`
/// that every command with others below it has is none of its own.
fn pages(name: String, spoken: String, command: &clap::Command) -> Vec<(String, clap::Command)> {
    let below = command.get_subcommands().flat_map(|sub| {
        let last = sub.get_name();
        pages(format!("{name}-{last}"), format!("{spoken} {last}"), sub)
    });
    let below: Vec<_> = below.collect();
    let command = command.clone().display_name(&name).bin_name(spoken);
    let first = (name, command.disable_help_subcommand(true));
    [first].into_iter().chain(below).collect()
}

/// A manual page, in roff. What stands behind the options of a help text has sections of its own, and
/// examples keep their lines.
fn page(command: clap::Command) -> io::Result<Vec<u8>> {
    let behind = command.get_after_help().map(ToString::to_string);
    let has_commands = command.has_subcommands();
    let has_version = command.get_version().is_some();
    let page = Page::new(command);
    let mut roff = Vec::new();
    page.render_title(&mut roff)?;
    page.render_name_section(&mut roff)?;
    page.render_synopsis_section(&mut roff)?;
    page.render_description_section(&mut roff)?;
    page.render_options_section(&mut roff)?;
    if has_commands {
        page.render_subcommands_section(&mut roff)?;
    }
    roff.extend(sections(&behind.unwrap_or_default()).bytes());
    if has_version {
        page.render_version_section(&mut roff)?;
    }
    Ok(roff)
}

/// Paragraphs of a help text as sections of a manual page.
fn sections(text: &str) -> String {
    let mut roff = String::new();
    for paragraph in text.split("\n\n").filter(|it| !it.trim().is_empty()) {
        let (heading, text) = match paragraph.split_once(':') {
            Some(("Examples", lines)) => ("EXAMPLES", lines),
            Some(("Exit status", text)) => ("EXIT STATUS", text),
            _ => ("NOTES", paragraph),
        };
        let is_example = heading == "EXAMPLES";
        roff += &format!(".SH {heading:?}\n");
        roff += if is_example { ".nf\n" } else { "" };
        for line in text.trim_matches('\n').lines() {
            let line = match is_example {
                // What says of it stands below it, further in.
                true => line.strip_prefix("  ").unwrap_or(line),
                false => line.trim(),
            };
            roff += &format!("{}\n", plain(line));
        }
        roff += if is_example { ".fi\n" } else { "" };
    }
    roff
}

/// A line of which roff takes nothing for an order of its own.
fn plain(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}"),
        false => line,
    }
}

fn named(path: &Path) -> String {
    printable(&path.display().to_string())
}
