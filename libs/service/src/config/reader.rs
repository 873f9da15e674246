//! Reads settings, one typed value at a time.
//!
//! Owns the record of which settings were read, which exist and which are wrong. A reading function reads everything first and
//! builds its struct last, with `?` on what was required, so that one wrong value does not hide the next.

use std::{
    any::TypeId,
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    ops::RangeInclusive,
    path::{Path, PathBuf},
    rc::Rc,
    str::FromStr,
};

use rpc::Secret;

use super::{
    mistake::{ConfigErrors, Mistake, Origin},
    tree::{self, Kind, Node},
};

/// What a setting can become: anything that is read from text.
pub trait Value: FromStr<Err: Display> + 'static {}

impl<T: FromStr<Err: Display> + 'static> Value for T {}

#[derive(Debug, Default)]
struct Seen {
    present: BTreeMap<String, Origin>,
    read_keys: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct State {
    mistakes: Vec<Mistake>,
    sections: BTreeMap<String, Seen>,
    /// By setting: a hash of the content of the file that it names.
    files: BTreeMap<String, u64>,
}

/// A section of the configuration, or all of it.
#[derive(Debug, Clone)]
pub struct Reader {
    path: String,
    table: Rc<BTreeMap<String, Node>>,
    state: Rc<RefCell<State>>,
    /// Prefix of the variables, for advice in messages.
    prefix: Rc<str>,
    file: Option<Rc<str>>,
}

impl Reader {
    /// Reads a file, if there is one, and lays the service's variables over it.
    ///
    /// # Errors
    /// When the file cannot be read or is not TOML: nothing else can be said about it then.
    pub fn open(
        service: &str,
        file: Option<&Path>,
        env: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigErrors> {
        let text = match file {
            None => String::new(),
            Some(path) => std::fs::read_to_string(path).map_err(|error| single(path.display(), &error))?,
        };
        Self::parse(service, file.map(|path| path.display().to_string()).as_deref(), &text, env)
    }

    /// The same from a text.
    pub fn parse(
        service: &str,
        file: Option<&str>,
        text: &str,
        env: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigErrors> {
        let origin = Origin::File(file.unwrap_or("configuration").to_owned());
        let table: toml::Table = toml::from_str(text).map_err(|error| not_toml(&origin, text, &error))?;
        let mut root = Node::from_toml(toml::Value::Table(table), &origin);
        let prefix = tree::prefix(service);
        let mut mistakes = Vec::new();
        // Shorter names first, because a variable for a whole table must not undo one for a key inside it.
        let mut variables: Vec<(String, String)> =
            env.into_iter().filter(|(name, _)| name.starts_with(&prefix)).collect();
        variables.sort_by_key(|(name, _)| (name.matches("__").count(), name.clone()));
        for (name, text) in variables {
            if let Err(mistake) = tree::overlay(&mut root, &name, &name[prefix.len()..], text) {
                mistakes.push(mistake);
            }
        }
        let state = Rc::new(RefCell::new(State { mistakes, ..State::default() }));
        let Kind::Table(table) = root.kind else { return Err(single(origin, &"is not a table")) };
        Ok(Self::over(String::new(), table, &state, (Rc::from(prefix), file.map(Rc::from))))
    }

    fn over(
        path: String,
        table: BTreeMap<String, Node>,
        state: &Rc<RefCell<State>>,
        (prefix, file): (Rc<str>, Option<Rc<str>>),
    ) -> Self {
        let present = table.iter().map(|(key, node)| (key.clone(), node.origin.clone()));
        state.borrow_mut().sections.entry(path.clone()).or_default().present.extend(present);
        Self { path, table: Rc::new(table), state: Rc::clone(state), prefix, file }
    }

    fn key(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn note(&self, key: String, text: impl Into<String>, origin: Option<Origin>) {
        self.state.borrow_mut().mistakes.push(Mistake { key, text: text.into(), origin });
    }

    fn get(&self, key: &str) -> Option<&Node> {
        if let Some(seen) = self.state.borrow_mut().sections.get_mut(&self.path) {
            seen.read_keys.insert(key.to_owned());
        }
        self.table
            .get(key)
            .or_else(|| self.table.iter().find(|(name, _)| tree::same_key(name, key)).map(|(_, node)| node))
    }

    /// Reports a mistake that only the service can find, such as two settings that do not fit together.
    pub fn wrong(&self, key: &str, text: impl Into<String>) {
        let origin = self.table.get(key).map(|node| node.origin.clone());
        self.note(self.key(key), text, origin);
    }

    /// Whether a setting or section is there at all.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// A setting that must be there. `None` means that the mistake is noted.
    #[must_use]
    pub fn req<T: Value>(&self, key: &str) -> Option<T> {
        match self.get(key) {
            Some(node) => self.typed(key, &node.clone()),
            None => {
                self.missing(key);
                None
            }
        }
    }

    /// A setting that may be missing.
    #[must_use]
    pub fn opt<T: Value>(&self, key: &str) -> Option<T> {
        let node = self.get(key)?.clone();
        self.typed(key, &node)
    }

    /// A setting with a default. A wrong value is noted, and the default returned so that reading can go on.
    #[must_use]
    pub fn or<T: Value>(&self, key: &str, default: T) -> T {
        self.opt(key).unwrap_or(default)
    }

    /// A setting with a default and bounds.
    #[must_use]
    pub fn within<T: Value + PartialOrd + Display>(
        &self,
        key: &str,
        default: T,
        bounds: RangeInclusive<T>,
    ) -> T {
        match self.opt::<T>(key) {
            Some(value) if !bounds.contains(&value) => {
                self.wrong(key, format!("{value} is not between {} and {}", bounds.start(), bounds.end()));
                default
            }
            Some(value) => value,
            None => default,
        }
    }

    /// A list of plain values; empty when missing. A variable may also separate them by commas.
    #[must_use]
    pub fn values<T: Value>(&self, key: &str) -> Vec<T> {
        let Some(node) = self.get(key).map(Node::expanded) else { return Vec::new() };
        let items = match node.kind {
            Kind::List(items) => items,
            Kind::Text(ref text) => text
                .split(',')
                .map(str::trim)
                .filter(|part| !part.is_empty())
                .map(|part| Node { origin: node.origin.clone(), kind: Kind::Text(part.to_owned()) })
                .collect(),
            _ => {
                self.wrong(key, format!("must be a list, not {}", node.describe()));
                return Vec::new();
            }
        };
        items.iter().enumerate().filter_map(|(i, item)| self.typed(&format!("{key}[{i}]"), item)).collect()
    }

    /// A secret that must be there: the setting itself, or `<key>_file` naming a file that holds it.
    pub fn secret(&self, key: &str) -> Option<Secret> {
        if !self.has(key) && !self.has(&format!("{key}_file")) {
            self.missing(key);
            return None;
        }
        self.secret_opt(key)
    }

    /// A secret that may be missing.
    pub fn secret_opt(&self, key: &str) -> Option<Secret> {
        let file_key = format!("{key}_file");
        match (self.has(key), self.opt::<PathBuf>(&file_key)) {
            (true, Some(_)) => {
                self.wrong(key, format!("is set both here and by {file_key}; keep one"));
                None
            }
            (true, None) => {
                let node = self.get(key)?.clone();
                // Without the value, which is a secret even when it is wrong.
                match node.kind {
                    Kind::Text(text) | Kind::Scalar(toml::Value::String(text)) => Some(Secret::new(text)),
                    _ => {
                        self.wrong(key, "must be a text");
                        None
                    }
                }
            }
            (false, Some(path)) => match std::fs::read_to_string(&path) {
                Ok(text) => {
                    self.state.borrow_mut().files.insert(self.key(&file_key), hash_of(&text));
                    // Editors and `echo` end files with a newline that is no part of the secret.
                    Some(Secret::new(text.trim_end_matches(['\n', '\r'])))
                }
                Err(error) => {
                    self.wrong(&file_key, format!("cannot read {}: {error}", path.display()));
                    None
                }
            },
            (false, None) => None,
        }
    }

    /// A section. A missing one is empty, so that its required settings are reported one by one.
    pub fn section(&self, key: &str) -> Self {
        self.section_opt(key).unwrap_or_else(|| self.below(self.key(key), BTreeMap::new()))
    }

    /// A section that may be missing as a whole.
    pub fn section_opt(&self, key: &str) -> Option<Self> {
        let node = self.get(key)?.expanded();
        let Kind::Table(table) = node.kind else {
            self.wrong(key, format!("must be a section, not {}", node.describe()));
            return None;
        };
        Some(self.below(self.key(key), table))
    }

    /// A list of tables (`[[key]]`); entries with mistakes are left out, their mistakes noted.
    #[must_use]
    pub fn list<T>(&self, key: &str, read: impl Fn(&Self) -> Option<T>) -> Vec<T> {
        let Some(node) = self.get(key).map(Node::expanded) else { return Vec::new() };
        let Kind::List(items) = node.kind else {
            self.wrong(key, format!("must be a list of tables, not {}", node.describe()));
            return Vec::new();
        };
        let mut entries = Vec::with_capacity(items.len());
        for (i, item) in items.into_iter().enumerate() {
            let path = format!("{}[{i}]", self.key(key));
            match item.expanded() {
                Node { kind: Kind::Table(table), .. } => entries.extend(read(&self.below(path, table))),
                other => {
                    self.note(path, format!("must be a table, not {}", other.describe()), Some(other.origin))
                }
            }
        }
        entries
    }

    /// Named tables (`[key.name]`), read one by one.
    #[must_use]
    pub fn map<T>(&self, key: &str, read: impl Fn(&str, &Self) -> Option<T>) -> BTreeMap<String, T> {
        let Some(section) = self.section_opt(key) else { return BTreeMap::new() };
        let names: Vec<String> = section.table.keys().cloned().collect();
        let mut entries = BTreeMap::new();
        for name in names {
            if let Some(entry) = section.section_opt(&name).and_then(|reader| read(&name, &reader)) {
                entries.insert(name, entry);
            }
        }
        entries
    }

    fn below(&self, path: String, table: BTreeMap<String, Node>) -> Self {
        Self::over(path, table, &self.state, (Rc::clone(&self.prefix), self.file.clone()))
    }

    fn missing(&self, key: &str) {
        let path = self.key(key);
        // List entries have no variable of their own, so the advice would be wrong there.
        let variable =
            format!("{}{}", self.prefix, path.replace('.', "__").replace('-', "_").to_ascii_uppercase());
        let text = match (&self.file, path.contains('[')) {
            (_, true) => "is missing".to_owned(),
            (Some(file), false) => format!("is missing; set it in {file} or as {variable}"),
            (None, false) => format!("is missing; set it as {variable} or name a file with --config"),
        };
        self.note(path, text, None);
    }

    fn typed<T: Value>(&self, key: &str, node: &Node) -> Option<T> {
        let wanted = wanted::<T>();
        let text = match (&node.kind, wanted) {
            (Kind::Text(text), _) => text.clone(),
            (Kind::Scalar(toml::Value::Integer(n)), Wanted::Integer | Wanted::Number) => n.to_string(),
            (Kind::Scalar(toml::Value::Float(n)), Wanted::Number) => n.to_string(),
            (Kind::Scalar(toml::Value::Boolean(b)), Wanted::Boolean) => b.to_string(),
            (Kind::Scalar(toml::Value::String(text)), Wanted::Text) => text.clone(),
            _ => {
                let text = format!("must be {}, not {}", wanted.name(), node.describe());
                self.note(self.key(key), text, Some(node.origin.clone()));
                return None;
            }
        };
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                let text = format!("`{text}` cannot be used: {error}");
                self.note(self.key(key), text, Some(node.origin.clone()));
                None
            }
        }
    }

    /// A hash of each section, including secrets and the files that hold them, so that two readings can be compared.
    pub(crate) fn prints(&self) -> BTreeMap<String, u64> {
        let state = self.state.borrow();
        let print = |(section, node): (&String, &Node)| {
            let mut hasher = DefaultHasher::new();
            node.fold(&mut hasher);
            let below = format!("{section}.");
            state
                .files
                .iter()
                .filter(|(key, _)| key.starts_with(&below))
                .for_each(|file| file.hash(&mut hasher));
            (section.clone(), hasher.finish())
        };
        self.table.iter().map(print).collect()
    }

    /// Ends the reading: the value when there is no mistake, else all mistakes, unknown keys among them.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, ConfigErrors> {
        let state = std::mem::take(&mut *self.state.borrow_mut());
        let mut mistakes = state.mistakes;
        for (section, seen) in &state.sections {
            for (key, origin) in &seen.present {
                if !seen.read_keys.iter().any(|known| tree::same_key(known, key)) {
                    let path = if section.is_empty() { key.clone() } else { format!("{section}.{key}") };
                    let text = format!("is not a known setting{}", suggestion(key, &seen.read_keys));
                    mistakes.push(Mistake { key: path, text, origin: Some(origin.clone()) });
                }
            }
        }
        mistakes.sort_by(|a, b| a.key.cmp(&b.key));
        mistakes.dedup();
        match value {
            Some(value) if mistakes.is_empty() => Ok(value),
            None if mistakes.is_empty() => {
                Err(single("configuration", &"reading stopped without naming a mistake"))
            }
            _ => Err(ConfigErrors { mistakes }),
        }
    }
}

fn hash_of(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn single(origin: impl Display, error: &dyn Display) -> ConfigErrors {
    let text = format!("{origin}: {}", error.to_string().trim_end());
    ConfigErrors { mistakes: vec![Mistake { key: String::new(), text, origin: None }] }
}

/// Where the text stops being TOML, without the line itself: it may hold a secret.
fn not_toml(origin: &Origin, text: &str, error: &toml::de::Error) -> ConfigErrors {
    let place = error.span().and_then(|span| text.get(..span.start)).map_or_else(String::new, |before| {
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        format!("line {}, column {column}: ", before.matches('\n').count() + 1)
    });
    single(origin, &format!("{place}{}", error.message()))
}

fn suggestion(key: &str, known: &BTreeSet<String>) -> String {
    let near = known.iter().map(|other| (strsim::damerau_levenshtein(key, other), other));
    match near.min().filter(|(distance, _)| *distance <= 3 && *distance < key.len()) {
        Some((_, other)) => format!("; did you mean `{other}`?"),
        None => String::new(),
    }
}

/// Which TOML type a Rust type is written as.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    Integer,
    Number,
    Boolean,
    Text,
}

impl Wanted {
    fn name(self) -> &'static str {
        match self {
            Self::Integer => "a whole number",
            Self::Number => "a number",
            Self::Boolean => "true or false",
            Self::Text => "a text",
        }
    }
}

fn wanted<T: 'static>() -> Wanted {
    let id = TypeId::of::<T>();
    let integers = [
        TypeId::of::<u8>(),
        TypeId::of::<u16>(),
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
        TypeId::of::<i16>(),
        TypeId::of::<i32>(),
        TypeId::of::<i64>(),
        TypeId::of::<std::num::NonZeroU32>(),
        TypeId::of::<std::num::NonZeroU64>(),
        TypeId::of::<std::num::NonZeroUsize>(),
    ];
    if integers.contains(&id) {
        Wanted::Integer
    } else if id == TypeId::of::<f64>() {
        Wanted::Number
    } else if id == TypeId::of::<bool>() {
        Wanted::Boolean
    } else {
        Wanted::Text
    }
}
