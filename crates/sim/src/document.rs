//! Tables in documents, replaced by new ones between two comments: the first names the command that makes them, the second ends them.

use std::path::Path;
use std::process::ExitCode;

const END: &str = "<!-- end -->";

/// Prints tables, or puts them into a document, behind the comment `begin`. Fails if the document has no such comments or cannot be written, or if the
/// measurement is not `good`.
pub fn publish(good: bool, tables: &str, document: Option<&Path>, begin: &str) -> ExitCode {
    let Some(path) = document else {
        println!("{tables}");
        return if good { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    };
    let written = std::fs::read_to_string(path).and_then(|text| {
        let text = replace(&text, tables, begin);
        std::fs::write(path, text.ok_or_else(|| std::io::Error::other("it has no comments that mark the tables"))?)
    });
    if let Err(error) = &written {
        eprintln!("{}: {error}", path.display());
    }
    if good && written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the document with new tables between the comment `begin` and the next that ends them. `None` if it has no such comments.
fn replace(document: &str, tables: &str, begin: &str) -> Option<String> {
    let (before, rest) = document.split_once(begin)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{begin}\n{tables}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_replace_what_is_between_the_comments() {
        let begin = "<!-- made by `sim scale` -->";
        let document = format!("above\n{begin}\nold\n{END}\nbelow\n");
        assert_eq!(replace(&document, "new", begin).unwrap(), format!("above\n{begin}\nnew\n{END}\nbelow\n"));
        assert_eq!(replace("nothing", "new", begin), None);
    }
}
