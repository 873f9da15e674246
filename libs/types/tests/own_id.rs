//! A crate that has a noun of its own declares its id with the same macro, without naming serde or uuid itself.

types::typed_id!(
    /// An id this crate alone knows.
    SourceId,
    "source id"
);

#[test]
fn an_id_declared_elsewhere_behaves_like_the_built_in_ones() {
    let id = SourceId::new();
    assert_eq!(id.to_string().parse(), Ok(id));
    assert_eq!(SourceId::from(id.as_uuid()), id);
    assert_eq!("x".parse::<SourceId>().unwrap_err().kind, "source id");
}
