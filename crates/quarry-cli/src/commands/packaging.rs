//! `quarry completions` and `quarry man`: what a package installs beside the command.
//!
//! Both texts follow from the definition of the arguments, so they cannot fall behind the command.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap_complete::Shell;

use crate::output;

/// Arguments of `quarry completions`.
#[derive(clap::Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell that reads the completions.
    shell: Shell,
}

const COMPLETIONS_EXAMPLES: &str = "\
Exit codes: 0 done; 1 failed; 2 wrong usage.

Examples:
  quarry completions bash > /etc/bash_completion.d/quarry
  quarry completions zsh > ~/.zfunc/_quarry
  quarry completions fish > ~/.config/fish/completions/quarry.fish";

/// Arguments of `quarry man`.
#[derive(clap::Args)]
#[command(after_help = MAN_EXAMPLES)]
pub(crate) struct ManArgs {
    /// Folder for the pages; made if it does not exist.
    folder: PathBuf,
    #[command(flatten)]
    force: output::Force,
}

const MAN_EXAMPLES: &str = "\
Writes quarry.1 and a page for each command, quarry-replay.1 and so on.

Exit codes: 0 done; 1 failed; 2 wrong usage.

Examples:
  quarry man man1 && man -l man1/quarry-replay.1
  quarry man /usr/local/share/man/man1";

/// Prints the completions for a shell.
pub(crate) fn completions(
    args: &CompletionsArgs,
    mut command: clap::Command,
) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "quarry", &mut text);
    io::stdout()
        .lock()
        .write_all(&text)
        .context("cannot write the completions")
}

/// Writes the man pages of the command and of its subcommands.
pub(crate) fn man(args: &ManArgs, command: clap::Command) -> anyhow::Result<()> {
    let folder = &args.folder;
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let failed = || format!("cannot write man pages into {}", folder.display());
    let made = tempfile::tempdir().with_context(failed)?;
    clap_mangen::generate_to(command.disable_help_subcommand(true), made.path())
        .with_context(failed)?;
    let mut pages = Vec::new();
    for page in fs::read_dir(made.path()).with_context(failed)? {
        let page = page.with_context(failed)?;
        let path = folder.join(page.file_name());
        output::check_writable(&path, args.force)?;
        pages.push((path, fs::read_to_string(page.path()).with_context(failed)?));
    }
    let mut pages = pages.iter();
    pages.try_for_each(|(path, text)| output::write_to(path, text, args.force))
}
