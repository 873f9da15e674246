//! Texts of nodes, made fit for tables and logs.
//!
//! Any text of a node may end in a row, a message or a log, so every one passes here when it enters. PostgreSQL refuses a text that
//! contains a NUL, so that one such character in an answer would keep its outcome from ever being written. Texts of nodes contain the
//! revert reasons of contracts, which strangers choose.

use std::borrow::Cow;

/// Replaces each control character by a space.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if text.contains(char::is_control) { text.replace(char::is_control, " ").into() } else { text.into() }
}

/// Keeps the beginning only, because nodes quote calldata in errors.
pub(crate) fn shorten(text: &str) -> String {
    const MAX_CHARS: usize = 300;
    let text = clean(text);
    match text.char_indices().nth(MAX_CHARS) {
        None => text.into_owned(),
        Some((end, _)) => format!("{}..", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_is_left_and_the_words_are_the_same() {
        assert_eq!(clean("nonce too low"), "nonce too low");
        assert_eq!(clean("nonce\0too\nlow\u{85}"), "nonce too low ");
        assert_eq!(shorten("\0"), " ");
        let long = shorten(&"\0".repeat(400));
        assert!(!long.contains('\0') && long.chars().count() == 302);
    }
}
