//! Generated files of a package: manual pages and shell completions, made from the program itself. So they cannot differ from the command line.

mod examples;
#[cfg(test)]
mod reference;

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::commands::cli::Cli;
use crate::print::print;
use crate::store::replace::Replaceable;

use examples::{PAGES, Page};

/// Kind of file that a manual page may replace: one with the first bytes that every generated page has.
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
    let mut cli = Cli::command().disable_help_subcommand(true);
    cli.build();
    let mut pages = Vec::new();
    render(cli, "", &mut pages).with_context(context)?;
    for (name, text) in pages {
        PAGE.replace(&folder.join(name), |file| Ok(file.write_all(&text)?)).with_context(context)?;
    }
    Ok(())
}

/// Renders the pages of a command and of those below it; `path` is its name behind `onefold`.
fn render(command: Command, path: &str, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()).cloned() {
        let path = format!("{path} {}", below.get_name());
        render(below, path.trim(), pages)?;
    }
    let page = Man::new(command);
    let mut text = Vec::new();
    page.render(&mut text)?;
    if let Some(own) = PAGES.iter().find(|own| own.command == path) {
        write_own(own, &mut text)?;
    }
    pages.push((page.get_filename(), text));
    Ok(())
}

/// Writes the sections EXAMPLES and SEE ALSO, in the macros of man(7).
fn write_own(page: &Page, text: &mut Vec<u8>) -> io::Result<()> {
    writeln!(text, ".SH EXAMPLES")?;
    for (what, line) in page.examples {
        writeln!(text, ".PP\n{}:\n.PP\n.RS 4\n.nf\nonefold {}\n.fi\n.RE", plain(what), plain(line))?;
    }
    let parent = page.command.rsplit_once(' ').map_or("", |(parent, _)| parent);
    let pages = [parent].into_iter().filter(|_| !page.command.is_empty()).map(|parent| parent.replace(' ', "-"));
    let mut pages: Vec<String> = pages.chain(page.see.iter().map(|&other| other.to_owned())).collect();
    pages.dedup();
    let named = pages
        .iter()
        .map(|page| format!("\\fBonefold{}{}\\fR(1)", if page.is_empty() { "" } else { "\\-" }, plain(page)));
    writeln!(text, ".SH SEE ALSO\n{}", named.collect::<Vec<_>>().join(",\n"))
}

/// Escapes text so that no macro and no escape is read in it.
fn plain(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_ends_with_examples_and_other_pages() {
        let (mut pages, mut cli) = (Vec::new(), Cli::command().disable_help_subcommand(true));
        cli.build();
        render(cli, "", &mut pages).unwrap();
        assert_eq!(pages.len(), PAGES.len());
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for (name, text) in &pages {
            assert!(text.starts_with(PAGE.begins), "{name}");
            let text = std::str::from_utf8(text).unwrap();
            let (_, own) = text.split_once("\n.SH EXAMPLES\n").unwrap_or_else(|| panic!("{name}"));
            let (examples, see) = own.split_once("\n.SH SEE ALSO\n").unwrap_or_else(|| panic!("{name}"));
            assert!(examples.contains("\nonefold "), "{name}");
            for other in see.replace("\\-", "-").replace("\\fB", "").replace("\\fR(1)", "").split(',') {
                assert!(names.contains(&format!("{}.1", other.trim()).as_str()), "{name}: {other}");
            }
        }
    }
}
