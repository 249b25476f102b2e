//! Blocks of code and tables in the pages of `docs/`.

use std::path::Path;

/// Forms of ids that only the tests need.
const MORE_ID_FORMS: &str = include_str!("id_forms.md");

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

/// A row of the table of forms of ids: a text, and what it is as each kind.
#[derive(Debug)]
pub struct IdForm {
    /// The text.
    pub text: String,
    /// Names of kinds, of which it is an id.
    pub id: Vec<String>,
    /// Of which it is one too, but looks like something else.
    pub lookalike: Vec<String>,
    /// Of which it is malformed.
    pub malformed: Vec<String>,
    /// Of which it stands for "no id".
    pub blank: Vec<String>,
}

impl IdForm {
    /// The kinds, and the result of each: `usable`, `malformed` or `blank`.
    pub fn results(&self) -> Vec<(&str, &'static str)> {
        let mut results = Vec::new();
        for (kinds, result) in [
            (&self.id, "usable"),
            (&self.lookalike, "usable"),
            (&self.malformed, "malformed"),
            (&self.blank, "blank"),
        ] {
            for kind in kinds {
                results.push((kind.as_str(), result));
            }
        }
        results
    }
}

/// The table of forms of ids in `docs/reference/inputs.md`, and further rows. A blank text is so as
/// all these kinds.
pub fn id_forms(all: &[&str]) -> Vec<IdForm> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/inputs.md");
    let page = std::fs::read_to_string(page).unwrap();

    let kinds_of = |cell: &str| -> Vec<String> {
        let kinds = cell.split(", ").filter(|kind| !kind.is_empty());
        kinds.map(str::to_owned).collect()
    };
    let mut forms = Vec::new();
    for row in id_form_rows(&page).chain(id_form_rows(MORE_ID_FORMS)) {
        let row = row.replace("\\|", "\0");
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [text, id, lookalike, unusable] = cells[..] else {
            panic!("{} cells", cells.len());
        };
        let (malformed, blank) = match unusable.strip_suffix("blank") {
            None => (kinds_of(unusable), Vec::new()),
            Some("") => (Vec::new(), kinds_of(&all.join(", "))),
            Some(kinds) => (Vec::new(), kinds_of(kinds.trim())),
        };
        forms.push(IdForm {
            text: text.trim_matches('`').replace('\0', "|"),
            id: kinds_of(id),
            lookalike: kinds_of(lookalike),
            malformed,
            blank,
        });
    }
    assert!(forms.len() > 40, "the tables have more rows");
    forms
}

/// The rows of a table of forms of ids.
fn id_form_rows(page: &str) -> impl Iterator<Item = &str> {
    let heading = "| text | id | lookalike | unusable |\n|---|---|---|---|\n";
    let (_, table) = page.split_once(heading).unwrap();
    table.lines().take_while(|line| line.starts_with('|'))
}
