//! Blocks of code in the pages of `docs/`.

use std::path::Path;

/// The TOML under a heading of the examples of mapped platforms, and the path of a config beside
/// the files that it names. Secrets are `replace-me`.
pub fn platform_example(heading: &str) -> String {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(repository.join("docs/guides/platform-examples.md"));
    let page = page.unwrap();

    let (_, section) = page
        .split_once(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("the page has no {heading}"));
    let (_, block) = section.split_once("```toml\n").unwrap();
    let (block, _) = block.split_once("```\n").unwrap();

    let proto = repository.join("docs/examples/kuaishou.proto");
    block
        .replace(
            "\"kuaishou.proto\"",
            &format!("{:?}", proto.display().to_string()),
        )
        .replace(
            &format!("value_file = \"{}.secret\"", heading.to_lowercase()),
            "value = \"replace-me\"",
        )
}
