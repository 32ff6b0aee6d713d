//! What a package brings beside the program, made from the program itself: manual pages and completions for shells.
//! So they cannot differ from what the program takes.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::commands::cli::Cli;
use crate::print::print;
use crate::store::replace::Replaceable;
use crate::transfer::tool::Folder;

/// A page replaces a page, and nothing else.
const PAGE: Replaceable = Replaceable { begins: b".ie \\n(.g", what: "manual page" };

/// Prints the completions for `shell` to the standard output.
pub fn completions(shell: Shell) {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "onefold", &mut text);
    print(format_args!("{}", String::from_utf8_lossy(&text)));
}

/// Writes `onefold.1` and a page for each command, `onefold-serve.1` and so on, into `folder`.
pub fn pages(folder: &Path) -> anyhow::Result<()> {
    let context = || format!("the manual pages cannot be written to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(context)?;
    let made = Folder::new()?;
    clap_mangen::generate_to(Cli::command(), made.path()).with_context(context)?;
    for page in std::fs::read_dir(made.path()).with_context(context)? {
        let page = page.with_context(context)?;
        let text = std::fs::read(page.path()).with_context(context)?;
        PAGE.replace(&folder.join(page.file_name()), |file| Ok(file.write_all(&text)?)).with_context(context)?;
    }
    Ok(())
}
