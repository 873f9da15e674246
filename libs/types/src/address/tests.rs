//! Addresses of both formats: known vectors, and a refusal for each way to be wrong.

use super::*;

/// The address of private key 1, on both networks.
const EVM_1: &str = "0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf";
const TRON_1: &str = "TMVQGm1qAQYVdetCeGRRkTWYYrLXuHK2HC";
const TRON_HEX_1: &str = "417e5f4552091a69125d5dfcb7b8c2659029395bdf";

fn evm(text: &str) -> Result<Address, AddressError> {
    Address::parse(AddressFormat::Evm, text)
}

fn tron(text: &str) -> Result<Address, AddressError> {
    Address::parse(AddressFormat::Tron, text)
}

#[test]
fn evm_addresses_of_one_case_are_read_and_written_with_their_checksum() {
    let upper = format!("0x{}", EVM_1[2..].to_uppercase());
    for text in [EVM_1, &EVM_1.to_lowercase(), &upper] {
        let address = evm(text).unwrap();
        assert_eq!(address.to_string(), EVM_1);
        assert_eq!(address.format(), AddressFormat::Evm);
        assert_eq!(address.as_evm().0.0, address.body());
    }
}

#[test]
fn the_examples_of_eip_55_hold() {
    for text in [
        "0x52908400098527886E0F7030069857D2E4169EE7",
        "0x8617E340B3D01FA5F11F306F4090FD50E238070D",
        "0xde709f2102306220921060314715629080e2fb77",
        "0x27b1fdb04752bbc536007a920d24acb045561c26",
        "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
        "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
        "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
        "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
    ] {
        assert_eq!(evm(text).unwrap().to_string(), text);
    }
}

#[test]
fn each_evm_refusal_says_why() {
    let wrong_case = EVM_1.replace("7E5F", "7e5F");
    assert_eq!(evm(&wrong_case), Err(AddressError::EvmChecksum { expected: EVM_1.to_owned() }));
    assert!(evm(&wrong_case).unwrap_err().to_string().contains(EVM_1));
    assert_eq!(evm(""), Err(AddressError::Empty));
    assert_eq!(evm(&EVM_1[2..]), Err(AddressError::EvmPrefix));
    assert_eq!(evm(&EVM_1.replace("0x", "0X")), Err(AddressError::EvmPrefix));
    assert_eq!(evm(&format!(" {EVM_1}")), Err(AddressError::EvmPrefix));
    assert_eq!(evm("0x"), Err(AddressError::EvmLength { found: 0, expected: 40 }));
    assert_eq!(evm(&EVM_1[..41]), Err(AddressError::EvmLength { found: 39, expected: 40 }));
    assert_eq!(evm(&format!("{EVM_1}00")), Err(AddressError::EvmLength { found: 42, expected: 40 }));
    assert_eq!(evm(&format!("{EVM_1} ")), Err(AddressError::NotHex { character: ' ', at: 42 }));
    assert_eq!(
        evm("0xge5f4552091a69125d5dfcb7b8c2659029395bdf"),
        Err(AddressError::NotHex { character: 'g', at: 2 })
    );
    assert_eq!(evm(TRON_1), Err(AddressError::TronForEvm));
    assert_eq!(evm(TRON_HEX_1), Err(AddressError::EvmPrefix));
}

#[test]
fn tron_addresses_are_read_and_written_as_base58check() {
    let address = tron(TRON_1).unwrap();
    assert_eq!(address.to_string(), TRON_1);
    assert_eq!(address.format(), AddressFormat::Tron);
    assert_eq!(address.tron_hex(), TRON_HEX_1);
    assert_eq!(address.tron_bytes()[0], TRON_PREFIX);
    assert_eq!(address.body(), evm(EVM_1).unwrap().body());
    // Well formed, though policy refuses them as destinations.
    for text in ["T9yD14Nj9j7xAB4dbGeiX9h8unkKHxuWwb", "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t"] {
        assert_eq!(tron(text).unwrap().to_string(), text);
    }
}

#[test]
fn each_tron_refusal_says_why() {
    let long = "1".repeat(10_000);
    for (text, error) in [
        ("", AddressError::Empty),
        // Two neighbouring characters transposed.
        ("TMVQGm1qAQVYdetCeGRRkTWYYrLXuHK2HC", AddressError::TronChecksum),
        // One character too many.
        ("TMVQGm1qAQYVdetCeGRRkTWYYrLXuHK2HC1", AddressError::TronLength { found: 26, expected: 25 }),
        // Bitcoin, with a valid checksum.
        ("1CXCGhe71gRYUUpa3zmiEJpQe4bDgaHwpr", AddressError::TronPrefix { found: 0x00 }),
        // Begins with T and has a valid checksum, yet is no TRON address.
        ("Tkq1FsK7sb1NT62HfgkkEanLBMbUeF7Z8y", AddressError::TronPrefix { found: 0x42 }),
        // Valid checksum over 22 bytes.
        ("31KSMiZGfaWv1NnCzPV4pEp1QFamD3p5D474", AddressError::TronLength { found: 26, expected: 25 }),
        // Checksum made with one round of SHA-256.
        ("TMVQGm1qAQYVdetCeGRRkTWYYrLXsZA8Vt", AddressError::TronChecksum),
        ("TMVQGO1qAQYVdetCeGRRkTWYYrLXuHK2HC", AddressError::NotBase58 { character: 'O', at: 5 }),
        ("TMVQGl1qAQYVdetCeGRRkTWYYrLXuHK2HC", AddressError::NotBase58 { character: 'l', at: 5 }),
        ("tmvqgm1qaqyvdetcegrrktwyyrlxuhk2hc", AddressError::NotBase58 { character: 'l', at: 26 }),
        (" TMVQGm1qAQYVdetCeGRRkTWYYrLXuHK2HC", AddressError::NotBase58 { character: ' ', at: 0 }),
        (
            "TMVQGm1qAQYVdetCeGRRkTWYYrLXuHK2HC\u{200b}",
            AddressError::NotBase58 { character: '\u{200b}', at: 34 },
        ),
        (TRON_HEX_1, AddressError::TronHexForm),
        ("a07e5f4552091a69125d5dfcb7b8c2659029395bdf", AddressError::TronHexForm),
        ("0x7e5f4552091a69125d5dfcb7b8c2659029395bdf", AddressError::EvmForTron),
        (EVM_1, AddressError::EvmForTron),
        ("0x7e5f", AddressError::NotBase58 { character: '0', at: 0 }),
        ("T", AddressError::TronLength { found: 1, expected: 25 }),
        (&long, AddressError::TooLong { found: 10_000 }),
    ] {
        assert_eq!(tron(text), Err(error), "{text:?}");
    }
}

#[test]
fn the_node_api_form_is_read_only_where_asked_for() {
    assert_eq!(Address::parse_tron_hex(TRON_HEX_1), tron(TRON_1));
    assert_eq!(Address::parse_tron_hex(&TRON_HEX_1.to_uppercase()), tron(TRON_1));
    assert_eq!(Address::parse_tron_hex(""), Err(AddressError::Empty));
    assert_eq!(Address::parse_tron_hex(&TRON_HEX_1[2..]), Err(AddressError::TronHexLength { found: 40 }));
    assert_eq!(
        Address::parse_tron_hex(&TRON_HEX_1.replacen("41", "a0", 1)),
        Err(AddressError::TronPrefix { found: 0xa0 })
    );
    assert_eq!(Address::parse_tron_hex(TRON_1), Err(AddressError::NotHex { character: 'T', at: 0 }));
}

#[test]
fn the_zero_address_is_known_in_both_formats() {
    assert!(evm("0x0000000000000000000000000000000000000000").unwrap().is_zero());
    assert!(tron("T9yD14Nj9j7xAB4dbGeiX9h8unkKHxuWwb").unwrap().is_zero());
    assert!(!evm(EVM_1).unwrap().is_zero());
    assert!(!tron(TRON_1).unwrap().is_zero());
}

#[test]
fn the_same_bytes_on_two_networks_are_two_addresses() {
    assert_ne!(evm(EVM_1).unwrap(), tron(TRON_1).unwrap());
}

#[test]
fn json_carries_the_canonical_text() {
    for text in [EVM_1, TRON_1] {
        let address: Address = text.parse().unwrap();
        let json = serde_json::to_string(&address).unwrap();
        assert_eq!(json, format!("\"{text}\""));
        assert_eq!(serde_json::from_str::<Address>(&json).unwrap(), address);
    }
    assert!(serde_json::from_str::<Address>("\"0x7e5F4552091A69125d5DfCb7b8C2659029395Bdf\"").is_err());
}

#[test]
fn a_format_is_read_by_its_name_alone() {
    for format in [AddressFormat::Evm, AddressFormat::Tron] {
        assert_eq!(format.as_str().parse(), Ok(format));
    }
    for refused in ["", "EVM", "tron ", "bsc"] {
        let error = refused.parse::<AddressFormat>().unwrap_err();
        assert_eq!(error.to_string(), format!("{refused:?} is neither evm nor tron"));
    }
}
