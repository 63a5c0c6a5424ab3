//! `kauri man` and `kauri completions`: what a system is told about this program.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::Trouble;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kauri completions bash > ~/.local/share/bash-completion/completions/kauri
  kauri completions zsh > ~/.zfunc/_kauri
  kauri completions fish > ~/.config/fish/completions/kauri.fish")]
pub(crate) struct CompletionsArgs {
    /// For which shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kauri man > kauri.1
  kauri man store scan > kauri-store-scan.1
  kauri man --dir ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// The command that the page is about; all of them together if nothing is said
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    command: Vec<String>,
    /// Write the pages of all commands into this folder
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// What an exit code means, whatever the command.
const EXIT_CODES: &[(&str, &str)] = &[
    ("0", "as asked"),
    (
        "1",
        "the answer is no: a check found something, a row or a run is missing, a total is wrong; the doctor: warnings",
    ),
    ("2", "wrong arguments or input, or something cannot be read or written; the doctor: failures"),
];

const ENVIRONMENT: &[(&str, &str)] = &[
    ("KAURI_HOME", "the home that is meant where --home names none"),
    ("KAURI_CONFIG", "the configuration of kauri up, submit and config show where --config names none"),
    (
        "KAURI_DRAIN, KAURI_SWEEP, KAURI_OUTBOX, KAURI_LOG, KAURI_LOG_FORMAT",
        "as up.drain, up.sweep, up.outbox, up.log and up.log_format of the configuration, and before them",
    ),
    ("NO_COLOR", "no colours, if it is set and not empty"),
    ("TZ", "the time zone of the moments that people see; --utc says otherwise"),
];

pub(crate) fn completions(args: &CompletionsArgs, out: &mut impl Write) -> Result<(), Trouble> {
    // Into memory first: what makes it knows no reader that has seen enough.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::command(), "kauri", &mut script);
    Ok(out.write_all(&script)?)
}

pub(crate) fn man(args: &ManArgs, out: &mut impl Write) -> Result<(), Trouble> {
    let mut all = super::command();
    all.build();
    if let Some(folder) = &args.dir {
        return write_all(&all, folder, out);
    }
    let mut command = &all;
    for name in &args.command {
        let found = command.find_subcommand(name).filter(|command| !command.is_hide_set());
        let of = || args.command.join(" ");
        command = found
            .ok_or_else(|| Trouble::Wrong(format!("expected a command, found {:?} (see `kauri --help`)", of())))?;
    }
    Ok(out.write_all(&page(command)?)?)
}

/// The page of a command, with what holds for all of them.
fn page(command: &clap::Command) -> std::io::Result<Vec<u8>> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let man = Man::new(command.clone()).title(name).manual("Kauri");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if command.get_after_help().is_some() {
        man.render_extra_section(&mut page)?;
    }
    list("EXIT STATUS", EXIT_CODES, &mut page)?;
    list("ENVIRONMENT", ENVIRONMENT, &mut page)?;
    if command.get_version().is_some() {
        man.render_version_section(&mut page)?;
    }
    Ok(page)
}

fn list(title: &str, rows: &[(&str, &str)], page: &mut Vec<u8>) -> std::io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    for (name, what) in rows {
        roff.control("TP", []).text([bold(*name)]).text([roman(*what)]);
    }
    roff.to_writer(page)
}

fn write_all(command: &clap::Command, folder: &Path, out: &mut impl Write) -> Result<(), Trouble> {
    let wrong = |path: &Path, error: std::io::Error| Trouble::Wrong(format!("{}: {error}", path.display()));
    std::fs::create_dir_all(folder).map_err(|error| wrong(folder, error))?;
    let (mut open, mut count) = (vec![command], 0_usize);
    while let Some(command) = open.pop() {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name());
        let path = folder.join(format!("{name}.1"));
        std::fs::write(&path, page(command)?).map_err(|error| wrong(&path, error))?;
        count += 1;
        open.extend(command.get_subcommands().filter(|command| command.get_name() != "help"));
    }
    Ok(writeln!(out, "{count} pages in {}", folder.display())?)
}
