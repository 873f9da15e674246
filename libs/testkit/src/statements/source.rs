//! Finds the SQL in a source text. It reads text, not syntax: enough for the way that repositories are written here.

/// The functions of sqlx that take SQL as their first argument. Longer names come first, because the first match counts.
const FUNCTIONS: [&str; 7] =
    ["query_as_with", "query_scalar_with", "query_with", "query_scalar", "query_as", "raw_sql", "query"];

/// The first argument of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Text {
    /// One or more statements.
    Sql(Vec<String>),
    /// `include_str!`
    Included,
    /// Put together at run time, or too much for this reader.
    Dynamic,
}

/// The calls in a source text, with their lines.
pub(super) fn queries(text: &str) -> Vec<(usize, Text)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("query").chain(text.match_indices("raw_sql")) {
        let Some(function) = FUNCTIONS.into_iter().find(|name| text[at..].starts_with(name)) else {
            continue;
        };
        let line_start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let is_comment = text[line_start..at].trim_start().starts_with("//");
        let Some(argument) = argument(&text[at + function.len()..]) else { continue };
        if is_comment || !is_of_sqlx(text, at, function) {
            continue;
        }
        let line = text[..at].matches('\n').count() + 1;
        found.push((line, argument_text(text, at, argument, function == "raw_sql")));
    }
    found.sort_by_key(|(line, _)| *line);
    found
}

/// What follows the opening bracket of a call, after the types that may be named before it (`::<_, i64>`).
fn argument(after_name: &str) -> Option<&str> {
    let Some(types) = after_name.strip_prefix("::<") else {
        return after_name.strip_prefix('(').map(str::trim_start);
    };
    let mut depth = 1;
    let end = types.find(|character| {
        depth += i32::from(character == '<') - i32::from(character == '>');
        depth == 0
    })?;
    types[end + 1..].strip_prefix('(').map(str::trim_start)
}

/// Whether the name at this place is sqlx's: written with its prefix, or imported and neither a method nor a definition.
fn is_of_sqlx(text: &str, at: usize, function: &str) -> bool {
    let before = &text[..at];
    if before.ends_with("sqlx::") {
        return true;
    }
    let is_free = !before
        .ends_with(|last: char| last == '_' || last == '.' || last == ':' || last.is_alphanumeric())
        && !before.ends_with("fn ");
    let imports = text.split("use sqlx::").skip(1).filter_map(|import| import.split(';').next());
    is_free && imports.into_iter().any(|import| words(import).any(|word| word == function))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| character != '_' && !character.is_alphanumeric())
}

fn argument_text(text: &str, at: usize, argument: &str, may_be_many: bool) -> Text {
    let argument = argument.trim_start_matches('&');
    if argument.starts_with("include_str!") {
        return Text::Included;
    }
    let name = words(argument).next().unwrap_or_default();
    let ends_there = argument[name.len()..].trim_start().starts_with([')', ',']);
    let value = match literal(argument) {
        Some(sql) => Some(sql),
        None if ends_there && !name.is_empty() => match value_of(text, at, name) {
            Some(value) if value.starts_with("include_str!") => return Text::Included,
            Some(value) => literal(value),
            None => None,
        },
        None => None,
    };
    match value {
        Some(sql) if may_be_many => split(&sql).map_or(Text::Dynamic, Text::Sql),
        Some(sql) => Text::Sql(vec![sql]),
        None => Text::Dynamic,
    }
}

/// What a constant of this file, or the nearest variable before this place, is set to.
fn value_of<'a>(text: &'a str, at: usize, name: &str) -> Option<&'a str> {
    let constant = text.find(&format!("const {name}: "));
    let start = constant.or_else(|| text[..at].rfind(&format!("let {name} = ")))?;
    text[start..].split_once('=').map(|(_, value)| value.trim_start())
}

/// The string literal at the start of a source text.
fn literal(text: &str) -> Option<String> {
    if let Some(raw) = text.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let body = raw[hashes..].strip_prefix('"')?;
        return body.split_once(&format!("\"{}", "#".repeat(hashes))).map(|(sql, _)| sql.to_owned());
    }
    let mut characters = text.strip_prefix('"')?.chars().peekable();
    let mut sql = String::new();
    while let Some(character) = characters.next() {
        match character {
            '"' => return Some(sql),
            '\\' => match characters.next()? {
                'n' => sql.push('\n'),
                't' => sql.push('\t'),
                // A line that goes on: the spaces at the start of the next one do not count.
                '\n' => while characters.next_if(|next| next.is_whitespace()).is_some() {},
                other => sql.push(other),
            },
            other => sql.push(other),
        }
    }
    None
}

/// The statements of a text that may hold several. None if it quotes with dollars, whose content this reader does not follow.
fn split(sql: &str) -> Option<Vec<String>> {
    if sql.contains("$$") {
        return None;
    }
    let mut quote = None;
    let parts = sql.split(|character: char| {
        match (quote, character) {
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            _ => {}
        }
        quote.is_none() && character == ';'
    });
    Some(parts.map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect())
}
