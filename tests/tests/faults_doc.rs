//! `docs/faults.md` names the test behind every claim. Here the claims are held to the sources.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

const FAULTS: u32 = 44;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A line of evidence is "- `test`, `test` in `file`".
fn evidence(line: &str) -> Result<Option<(Vec<&str>, &str)>> {
    let Some(line) = line.strip_prefix("- `") else { return Ok(None) };
    let (tests, file) = line.rsplit_once(" in `").with_context(|| format!("no file: {line}"))?;
    let tests = tests.split(", ").map(|name| name.trim_matches('`')).collect();
    Ok(Some((tests, file.trim_end_matches('`'))))
}

fn is_test(source: &str, name: &str) -> bool {
    let Some(at) = source.find(&format!("fn {name}(")) else { return false };
    let before = &source[..at];
    // Attributes stand right above their function, below a blank line or the opening of its module.
    let above = &before[before.rfind("\n\n").unwrap_or_default()..];
    above.contains("#[test]") || above.contains("#[tokio::test")
}

#[test]
fn every_test_that_the_page_of_faults_names_is_there() -> Result<()> {
    let page = std::fs::read_to_string(root().join("docs/faults.md"))?;
    let mut wrong = Vec::new();
    for line in page.lines() {
        let Some((tests, file)) = evidence(line)? else { continue };
        let source = std::fs::read_to_string(root().join(file)).with_context(|| file.to_owned())?;
        wrong.extend(
            tests.into_iter().filter(|name| !is_test(&source, name)).map(|name| format!("{name} in {file}")),
        );
    }
    ensure!(wrong.is_empty(), "docs/faults.md names tests that do not exist:\n{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn every_fault_has_its_place_and_at_least_one_test() -> Result<()> {
    let page = std::fs::read_to_string(root().join("docs/faults.md"))?;
    let mut numbers = BTreeSet::new();
    for section in page.split("\n### ").skip(1) {
        let (number, _) = section.split_once(". ").context("a fault has a number")?;
        ensure!(numbers.insert(number.parse::<u32>()?), "fault {number} is listed twice");
        ensure!(section.lines().any(|line| line.starts_with("- `")), "fault {number} has no test");
    }
    ensure!(numbers == (1..=FAULTS).collect(), "these faults are listed: {numbers:?}");
    Ok(())
}

#[test]
fn every_test_of_whole_stacks_stands_for_a_fault() -> Result<()> {
    let page = std::fs::read_to_string(root().join("docs/faults.md"))?;
    let mut untold = Vec::new();
    let folder = |name: &str| std::fs::read_dir(root().join("tests/tests").join(name));
    for entry in folder("survive")?.chain(folder("tron")?) {
        let source = std::fs::read_to_string(entry?.path())?;
        for test in source.split("#[tokio::test").skip(1) {
            let name = test.split("async fn ").nth(1).and_then(|rest| rest.split('(').next());
            let name = name.context("a test is a function")?;
            if !page.contains(&format!("`{name}`")) {
                untold.push(name.to_owned());
            }
        }
    }
    ensure!(untold.is_empty(), "docs/faults.md does not tell of {untold:?}");
    Ok(())
}
