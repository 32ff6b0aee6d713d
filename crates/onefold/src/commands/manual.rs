//! What a package brings beside the program, made from the program itself: manual pages and completions for shells.
//! So they cannot differ from what the program takes.

use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::commands::cli::Cli;
use crate::print::print;

/// Prints the completions for `shell` to the standard output.
pub fn completions(shell: Shell) {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "onefold", &mut text);
    print(format_args!("{}", String::from_utf8_lossy(&text)));
}

/// Writes `onefold.1` and a page for each command, `onefold-serve.1` and so on, into `folder`.
pub fn pages(folder: &Path) -> anyhow::Result<()> {
    let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    written.with_context(|| format!("the manual pages cannot be written to {}", folder.display()))
}
