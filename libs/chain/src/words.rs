//! Words of nodes, made fit for tables and logs.
//!
//! Whatever a node says may end in a row, a message or a log. Every text of a node passes here where it enters: PostgreSQL
//! refuses a text with a NUL in it, so that one such word in an answer would keep an outcome from ever being written. What a
//! contract gives as its reason is in a node's words too, and so is chosen by strangers.

use std::borrow::Cow;

/// Without control characters: each becomes a space.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if text.contains(char::is_control) { text.replace(char::is_control, " ").into() } else { text.into() }
}

/// Nodes quote calldata in errors; tables and logs keep the beginning.
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
