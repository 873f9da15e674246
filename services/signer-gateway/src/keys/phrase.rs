//! BIP-39 phrases: parsing what an operator imports, making new ones. Phrases are turned into seeds at once and
//! wiped; they are neither stored nor shown.

use bip39::Mnemonic;
use rand::TryRngCore;
use rand::rngs::OsRng;
use zeroize::{Zeroize, Zeroizing};

use super::Seed;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PhraseError {
    #[error("a phrase has 12, 15, 18, 21 or 24 words")]
    WordCount,
    #[error("a new phrase has 12 or 24 words")]
    NewWordCount,
    #[error("word {0} is not in the BIP-39 English list")]
    UnknownWord(usize),
    #[error("the phrase's checksum does not match")]
    Checksum,
    #[error("the system's random source failed")]
    NoRandomness,
}

pub fn seed_from_phrase(phrase: &str, passphrase: &str) -> Result<Seed, PhraseError> {
    let mut mnemonic = Mnemonic::parse_in(bip39::Language::English, phrase).map_err(|error| match error {
        bip39::Error::UnknownWord(position) => PhraseError::UnknownWord(position + 1),
        bip39::Error::InvalidChecksum => PhraseError::Checksum,
        bip39::Error::BadWordCount(_)
        | bip39::Error::BadEntropyBitCount(_)
        | bip39::Error::AmbiguousLanguages(_) => PhraseError::WordCount,
    })?;
    let seed = Seed::from_bytes(mnemonic.to_seed(passphrase));
    mnemonic.zeroize();
    Ok(seed)
}

/// Makes a new seed from the system's randomness, through a phrase of 12 or 24 words. The phrase is handed back for the
/// caller to show once or to wipe.
pub fn seed_from_random(words: u32) -> Result<(Seed, Zeroizing<String>), PhraseError> {
    let bytes = match words {
        12 => 16,
        24 => 32,
        _ => return Err(PhraseError::NewWordCount),
    };
    let mut entropy = Zeroizing::new([0u8; 32]);
    OsRng.try_fill_bytes(entropy.as_mut()).map_err(|_| PhraseError::NoRandomness)?;
    let mut mnemonic = Mnemonic::from_entropy(&entropy[..bytes]).map_err(|_| PhraseError::WordCount)?;
    let phrase = Zeroizing::new(mnemonic.to_string());
    let seed = Seed::from_bytes(mnemonic.to_seed(""));
    mnemonic.zeroize();
    Ok((seed, phrase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_position_but_never_the_word() {
        let mistyped = "test test test test test test test test test test tset junk";
        assert_eq!(seed_from_phrase(mistyped, "").unwrap_err(), PhraseError::UnknownWord(11));
        let swapped = "test test test test test test test test test test junk test";
        assert_eq!(seed_from_phrase(swapped, "").unwrap_err(), PhraseError::Checksum);
        assert_eq!(seed_from_phrase("test junk", "").unwrap_err(), PhraseError::WordCount);
    }

    #[test]
    fn a_passphrase_makes_another_seed() {
        let phrase = "test test test test test test test test test test test junk";
        let plain = seed_from_phrase(phrase, "").expect("seed");
        let salted = seed_from_phrase(phrase, "TREZOR").expect("seed");
        assert_ne!(plain.expose(), salted.expose());
    }

    #[test]
    fn a_generated_phrase_leads_back_to_its_seed_and_no_two_are_alike() {
        let (first, phrase) = seed_from_random(24).expect("seed");
        let (second, short) = seed_from_random(12).expect("seed");
        assert_ne!(first.expose(), second.expose());
        assert_eq!(seed_from_phrase(&phrase, "").expect("seed").expose(), first.expose());
        assert_eq!((phrase.split(' ').count(), short.split(' ').count()), (24, 12));
        assert_eq!(seed_from_random(13).unwrap_err(), PhraseError::NewWordCount);
    }
}
