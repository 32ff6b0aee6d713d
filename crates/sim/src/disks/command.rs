//! The subcommand `repro disk`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::validate::{table, validate};

/// Models of disks.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Replays the requests that were measured on a drive (DIR/NAME.trace) on the model with its parameters (DIR/NAME.parv or
    /// .diskspecs), and says how far the times are apart.
    Validate {
        /// The directory of the drive's files.
        directory: PathBuf,
        /// The name that these files have in common.
        name: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Executes the command. Fails if a file has a problem.
pub fn run(arguments: Arguments) -> ExitCode {
    match arguments.command {
        Command::Validate { directory, name, json } => match validate(&directory, &name) {
            Ok(comparisons) => {
                let text = match json {
                    true => serde_json::to_string_pretty(&comparisons).unwrap_or_default() + "\n",
                    false => table(&comparisons),
                };
                // The reader of the output may have closed it.
                _ = std::io::stdout().write_all(text.as_bytes());
                ExitCode::SUCCESS
            }
            Err(problem) => {
                eprintln!("{problem}");
                ExitCode::FAILURE
            }
        },
    }
}
