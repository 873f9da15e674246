//! Settings as a tree that remembers where each came from, before they are read as types.
//!
//! Owns parsing the file and overriding it with variables. A variable's text stays text until it is read, because only then its
//! type is known.

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
};

use super::mistake::{Mistake, Origin};

/// A setting, or a group of them.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) origin: Origin,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Table(BTreeMap<String, Node>),
    List(Vec<Node>),
    Scalar(toml::Value),
    Text(String),
}

impl Node {
    pub(crate) fn from_toml(value: toml::Value, origin: &Origin) -> Self {
        let kind = match value {
            toml::Value::Table(table) => Kind::Table(
                table.into_iter().map(|(key, value)| (key, Self::from_toml(value, origin))).collect(),
            ),
            toml::Value::Array(items) => {
                Kind::List(items.into_iter().map(|item| Self::from_toml(item, origin)).collect())
            }
            scalar => Kind::Scalar(scalar),
        };
        Self { origin: origin.clone(), kind }
    }

    /// The same node with a variable's text read as an inline list or table, if it is one.
    pub(crate) fn expanded(&self) -> Self {
        let Kind::Text(text) = &self.kind else { return self.clone() };
        inline(text).map_or_else(|| self.clone(), |value| Self::from_toml(value, &self.origin))
    }

    /// Hashes the value, wherever it came from.
    pub(crate) fn fold(&self, hasher: &mut impl Hasher) {
        match &self.kind {
            Kind::Table(table) => {
                for (key, node) in table {
                    key.hash(hasher);
                    node.fold(hasher);
                }
                table.len().hash(hasher);
            }
            Kind::List(items) => {
                items.iter().for_each(|item| item.fold(hasher));
                items.len().hash(hasher);
            }
            Kind::Scalar(value) => value.to_string().hash(hasher),
            Kind::Text(text) => text.hash(hasher),
        }
    }

    /// What it is, for messages.
    pub(crate) fn describe(&self) -> String {
        match &self.kind {
            Kind::Table(_) => "a table".to_owned(),
            Kind::List(_) => "a list".to_owned(),
            Kind::Scalar(value) => format!("the {} {value}", value.type_str()),
            // Not the text itself, which may hold secrets even if it does not parse as a table.
            Kind::Text(_) => "a plain text".to_owned(),
        }
    }
}

/// An inline list or table, as TOML (`[{ name = "x" }]`) or JSON (`[{"name": "x"}]`).
fn inline(text: &str) -> Option<toml::Value> {
    let wrapped: Result<toml::Table, _> = toml::from_str(&format!("value = {text}"));
    let value = match wrapped {
        Ok(mut table) => table.remove("value"),
        Err(_) => serde_json::from_str(text).ok(),
    };
    value.filter(|value| matches!(value, toml::Value::Array(_) | toml::Value::Table(_)))
}

/// Keys are the same whether written `signer-gateway`, `signer_gateway` or `SIGNER_GATEWAY`.
pub(crate) fn same_key(a: &str, b: &str) -> bool {
    let plain = |c: u8| if c == b'-' { b'_' } else { c.to_ascii_lowercase() };
    a.len() == b.len() && a.bytes().zip(b.bytes()).all(|(x, y)| plain(x) == plain(y))
}

pub(crate) fn prefix(service: &str) -> String {
    format!("BURSAR_{}__", service.to_ascii_uppercase().replace('-', "_"))
}

/// Lays one variable over the tree.
pub(crate) fn overlay(root: &mut Node, name: &str, path: &str, text: String) -> Result<(), Mistake> {
    let origin = Origin::Env(name.to_owned());
    let mistake = |text: String| Mistake { key: String::new(), text, origin: Some(origin.clone()) };
    let mut node = root;
    let mut rest = path;
    loop {
        let (segment, more) = match rest.split_once("__") {
            Some((segment, more)) => (segment, Some(more)),
            None => (rest, None),
        };
        if segment.is_empty() {
            return Err(mistake("the variable's name has an empty part".to_owned()));
        }
        let child = child(node, segment, &origin).ok_or_else(|| {
            mistake(format!(
                "the variable's name goes on with `{segment}`, but there are no settings below that"
            ))
        })?;
        match more {
            Some(more) => {
                node = child;
                rest = more;
            }
            None => {
                *child = Node { origin, kind: Kind::Text(text) };
                return Ok(());
            }
        }
    }
}

/// The child to override, made when it is missing. List entries go by number.
fn child<'a>(node: &'a mut Node, segment: &str, origin: &Origin) -> Option<&'a mut Node> {
    match &mut node.kind {
        Kind::Table(table) => {
            let key = table.keys().find(|key| same_key(key, segment)).cloned();
            let key = key.unwrap_or_else(|| segment.to_ascii_lowercase());
            let empty = || Node { origin: origin.clone(), kind: Kind::Table(BTreeMap::new()) };
            Some(table.entry(key).or_insert_with(empty))
        }
        Kind::List(items) => items.get_mut(segment.parse::<usize>().ok()?),
        Kind::Scalar(_) | Kind::Text(_) => None,
    }
}
