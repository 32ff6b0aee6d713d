//! The syntax of DiskSim's public parameter files, as they are: `.parv`, `.diskspecs`, `.model`, and tables of seek times.
//!
//! A file is a sequence of blocks `kind name { key = value, ... }`. A value is a number, a word, a list `[ ... ]`, a block, or `source FILE`, which stands
//! for the block in that file. `#` begins a comment. Statements that instantiate and connect components (`instantiate`, `topology`) say nothing of a drive
//! and are skipped.

use std::fmt;
use std::path::{Path, PathBuf};

/// Maximum depth of blocks in blocks and of files in files.
const DEEPEST: usize = 24;
/// Maximum bytes of a parameter file.
const LARGEST: u64 = 64 << 20;

/// Error in a parameter file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1 on; 0 if it is about the file as a whole.
    pub line: usize,
    /// Description of the error, and of the right value.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file.display(), self.what),
            line => write!(f, "{}:{line}: {}", self.file.display(), self.what),
        }
    }
}

impl std::error::Error for Problem {}

/// A value, with its type.
#[derive(Clone, Debug)]
pub enum Value {
    /// A number.
    Number(f64),
    /// A word.
    Word(String),
    /// A list.
    List(Vec<Value>),
    /// A block.
    Block(Block),
}

/// A block `kind name { key = value, ... }`.
#[derive(Clone, Debug)]
pub struct Block {
    /// Type of the block, such as `disksim_disk`.
    pub kind: String,
    /// Its name; empty if it has none.
    pub name: String,
    /// The file that it is in.
    pub file: PathBuf,
    /// The line at which it begins.
    pub line: usize,
    entries: Vec<(String, usize, Value)>,
}

impl Block {
    /// Makes an error about one of its values, or about the block if it has no such key.
    pub fn problem(&self, key: &str, what: impl fmt::Display) -> Problem {
        let line = self.entries.iter().find(|entry| entry.0 == key).map_or(self.line, |entry| entry.1);
        Problem { file: self.file.clone(), line, what: format!("'{key}' {what}") }
    }

    /// Returns the value of a key, if it is present.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.iter().find(|entry| entry.0 == key).map(|entry| &entry.2)
    }

    /// Returns the value of a key. Fails if it is missing.
    pub fn value(&self, key: &str) -> Result<&Value, Problem> {
        self.get(key).ok_or_else(|| self.problem(key, format!("is missing in the block {} {}", self.kind, self.name)))
    }

    /// Returns a number within bounds, or the default if the key is missing.
    pub fn number_or(&self, key: &str, bounds: (f64, f64), default: f64) -> Result<f64, Problem> {
        if self.get(key).is_none() { Ok(default) } else { self.number(key, bounds) }
    }

    /// Returns a number. Fails if it is missing, no number or out of bounds.
    pub fn number(&self, key: &str, (least, most): (f64, f64)) -> Result<f64, Problem> {
        match self.value(key)? {
            Value::Number(number) if (least..=most).contains(number) => Ok(*number),
            _ => Err(self.problem(key, format!("must be a number from {least} to {most}"))),
        }
    }

    /// Returns a whole number within bounds, or the default if the key is missing.
    pub fn whole_or(&self, key: &str, bounds: (u64, u64), default: u64) -> Result<u64, Problem> {
        if self.get(key).is_none() { Ok(default) } else { self.whole(key, bounds) }
    }

    /// Returns a whole number. Fails if it is missing, not whole or out of bounds.
    pub fn whole(&self, key: &str, (least, most): (u64, u64)) -> Result<u64, Problem> {
        match self.value(key)? {
            Value::Number(number) if number.fract() == 0.0 && (least as f64..=most as f64).contains(number) => {
                Ok(*number as u64)
            }
            _ => Err(self.problem(key, format!("must be a whole number from {least} to {most}"))),
        }
    }

    /// Returns 0 or 1 as a bool, or the default if the key is missing.
    pub fn flag_or(&self, key: &str, default: bool) -> Result<bool, Problem> {
        Ok(self.whole_or(key, (0, 1), u64::from(default))? == 1)
    }

    /// Returns a word. Fails if the value is missing or of another type.
    pub fn word(&self, key: &str) -> Result<&str, Problem> {
        match self.value(key)? {
            Value::Word(word) => Ok(word),
            _ => Err(self.problem(key, "must be a word")),
        }
    }

    /// Returns a list. Fails if the value is missing or of another type.
    pub fn list(&self, key: &str) -> Result<&[Value], Problem> {
        match self.value(key)? {
            Value::List(values) => Ok(values),
            _ => Err(self.problem(key, "must be a list in [ ]")),
        }
    }

    /// Returns a block of type `kind`. Fails if the value is missing or of another type.
    pub fn block(&self, key: &str, kind: &str) -> Result<&Block, Problem> {
        match self.value(key)? {
            Value::Block(block) if block.kind == kind => Ok(block),
            _ => Err(self.problem(key, format!("must be a block {kind} {{ ... }}"))),
        }
    }
}

/// Reads the blocks of a file, and of the files that it includes by `source` at its outermost level.
pub fn read(file: &Path) -> Result<Vec<Block>, Problem> {
    read_at(file, 0)
}

fn read_at(file: &Path, depth: usize) -> Result<Vec<Block>, Problem> {
    let text = text(file)?;
    let mut parser = Parser { file, tokens: tokens(&text), at: 0 };
    let mut blocks = Vec::new();
    while let Some(words) = parser.words()? {
        match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["source", name] => blocks.extend(parser.source(name, depth)?),
            ["instantiate" | "topology", ..] => parser.pass_over()?,
            [kind, ref rest @ ..] if rest.len() < 2 && parser.peek() == Some('{') => {
                let name = rest.first().copied().unwrap_or_default();
                blocks.push(parser.block(kind, name, depth)?);
            }
            _ => return Err(parser.problem("expected a block 'kind name { ... }'")),
        }
    }
    Ok(blocks)
}

/// Reads a file as text. Fails if it cannot be read, or has more than 64 MiB.
pub fn text(file: &Path) -> Result<String, Problem> {
    let problem = |what: String| Problem { file: file.to_owned(), line: 0, what };
    let size = std::fs::metadata(file).map_err(|error| problem(format!("cannot be read: {error}")))?.len();
    if size > LARGEST {
        return Err(problem(format!("has {size} bytes; parameter files and traces have at most {LARGEST}")));
    }
    std::fs::read_to_string(file).map_err(|error| problem(format!("cannot be read: {error}")))
}

/// Reads a table of seek times: cylinders and milliseconds, ascending, at least one.
pub fn seek_table(file: &Path) -> Result<Vec<(u64, f64)>, Problem> {
    let mut table: Vec<(u64, f64)> = Vec::new();
    for (number, line) in text(file)?.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with("Seek distances measured") {
            continue;
        }
        let problem = |what: &str| Problem { file: file.to_owned(), line: number + 1, what: what.to_owned() };
        let (distance, time) = line.split_once(',').ok_or_else(|| problem("expected 'cylinders, milliseconds'"))?;
        let distance = distance.trim().parse().map_err(|_| problem("the distance must be a whole number"))?;
        let time: f64 = time.trim().parse().map_err(|_| problem("the time must be a number of milliseconds"))?;
        if !(0.0..=1000.0).contains(&time) {
            return Err(problem("a seek takes from 0 to 1000 milliseconds"));
        }
        if table.last().is_some_and(|last| last.0 >= distance) {
            return Err(problem("distances must ascend"));
        }
        table.push((distance, time));
    }
    if table.is_empty() {
        let what = "has no seek times: one line 'cylinders, milliseconds' for each distance".to_owned();
        return Err(Problem { file: file.to_owned(), line: 0, what });
    }
    Ok(table)
}

#[derive(Clone, Debug)]
enum Token {
    Word(String),
    Sign(char),
}

fn tokens(text: &str) -> Vec<(usize, Token)> {
    let mut tokens = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        for piece in line.split_inclusive(|c: char| c.is_whitespace() || "{}[]=,".contains(c)) {
            let (word, sign) = match piece.chars().next_back() {
                Some(last) if last.is_whitespace() => (piece.trim_end(), None),
                Some(last) if "{}[]=,".contains(last) => (&piece[..piece.len() - 1], Some(last)),
                _ => (piece, None),
            };
            if !word.is_empty() {
                tokens.push((number + 1, Token::Word(word.to_owned())));
            }
            tokens.extend(sign.map(|sign| (number + 1, Token::Sign(sign))));
        }
    }
    tokens
}

struct Parser<'a> {
    file: &'a Path,
    tokens: Vec<(usize, Token)>,
    at: usize,
}

impl Parser<'_> {
    fn problem(&self, what: impl fmt::Display) -> Problem {
        let line = self.tokens.get(self.at).or(self.tokens.last()).map_or(0, |token| token.0);
        let found = match self.tokens.get(self.at) {
            Some((_, Token::Word(word))) => format!("'{word}'"),
            Some((_, Token::Sign(sign))) => format!("'{sign}'"),
            None => "the end of the file".to_owned(),
        };
        Problem { file: self.file.to_owned(), line, what: format!("{what}, found {found}") }
    }

    fn peek(&self) -> Option<char> {
        match self.tokens.get(self.at) {
            Some((_, Token::Sign(sign))) => Some(*sign),
            _ => None,
        }
    }

    fn take(&mut self, sign: char) -> bool {
        let found = self.peek() == Some(sign);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, sign: char) -> Result<(), Problem> {
        if self.take(sign) { Ok(()) } else { Err(self.problem(format!("expected '{sign}'"))) }
    }

    fn word(&mut self) -> Option<String> {
        let Some((_, Token::Word(word))) = self.tokens.get(self.at) else { return None };
        self.at += 1;
        Some(word.clone())
    }

    /// Takes the words at the outermost level up to a sign; the two of a 'source FILE' are taken alone.
    fn words(&mut self) -> Result<Option<Vec<String>>, Problem> {
        if self.at == self.tokens.len() {
            return Ok(None);
        }
        let mut words = Vec::new();
        while let Some(word) = self.word() {
            words.push(word);
            if matches!(&words[..], [first, _] if first == "source") || words.len() == 1 && words[0] == "instantiate" {
                break;
            }
        }
        if words.is_empty() { Err(self.problem("expected a block 'kind name { ... }'")) } else { Ok(Some(words)) }
    }

    /// Skips a bracketed list with its contents, and 'as NAME' after it.
    fn pass_over(&mut self) -> Result<(), Problem> {
        self.expect('[')?;
        let mut open = 1;
        while open > 0 {
            match self.tokens.get(self.at) {
                Some((_, Token::Sign('['))) => open += 1,
                Some((_, Token::Sign(']'))) => open -= 1,
                Some(_) => {}
                None => return Err(self.problem("expected ']'")),
            }
            self.at += 1;
        }
        if matches!(self.tokens.get(self.at), Some((_, Token::Word(word))) if word == "as") {
            self.at += 1;
            self.word().ok_or_else(|| self.problem("expected a name"))?;
        }
        Ok(())
    }

    fn source(&self, name: &str, depth: usize) -> Result<Vec<Block>, Problem> {
        if depth == DEEPEST {
            return Err(self.problem(format!("'source {name}' is more than {DEEPEST} files or blocks deep")));
        }
        read_at(&self.file.with_file_name(name), depth + 1)
    }

    fn block(&mut self, kind: &str, name: &str, depth: usize) -> Result<Block, Problem> {
        let line = self.tokens.get(self.at).map_or(0, |token| token.0);
        if depth == DEEPEST {
            return Err(self.problem(format!("blocks are at most {DEEPEST} deep")));
        }
        self.expect('{')?;
        let mut entries = Vec::new();
        while !self.take('}') {
            let line = self.tokens.get(self.at).map_or(0, |token| token.0);
            let mut key = self.word().ok_or_else(|| self.problem("expected 'key = value' or '}'"))?;
            while let Some(word) = self.word() {
                key.push(' ');
                key.push_str(&word);
            }
            self.expect('=')?;
            entries.push((key, line, self.value(depth + 1)?));
            self.take(',');
        }
        Ok(Block { kind: kind.to_owned(), name: name.to_owned(), file: self.file.to_owned(), line, entries })
    }

    fn value(&mut self, depth: usize) -> Result<Value, Problem> {
        if self.take('[') {
            let mut values = Vec::new();
            if depth == DEEPEST {
                return Err(self.problem(format!("lists are at most {DEEPEST} deep")));
            }
            while !self.take(']') {
                values.push(self.value(depth + 1)?);
                self.take(',');
            }
            return Ok(Value::List(values));
        }
        let word = self.word().ok_or_else(|| self.problem("expected a value"))?;
        if word == "source" {
            let name = self.word().ok_or_else(|| self.problem("expected the name of a file"))?;
            let block = self.source(&name, depth)?.into_iter().next();
            let problem = || self.problem(format!("'{name}' has no block"));
            return block.map(Value::Block).ok_or_else(problem);
        }
        if self.peek() == Some('{') {
            return self.block(&word, "", depth).map(Value::Block);
        }
        // A block with a name: two words before the brace. Otherwise the second word begins the next key.
        if let (Some((_, Token::Word(name))), Some((_, Token::Sign('{')))) =
            (self.tokens.get(self.at).cloned(), self.tokens.get(self.at + 1))
        {
            self.at += 1;
            return self.block(&word, &name, depth).map(Value::Block);
        }
        Ok(word.parse().ok().filter(|number: &f64| number.is_finite()).map_or(Value::Word(word), Value::Number))
    }
}

#[cfg(test)]
#[path = "parameters_tests.rs"]
mod tests;
