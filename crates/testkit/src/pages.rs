//! Blocks of code and tables in the pages of `docs/`.

use std::path::Path;

/// Forms of ids that only the tests need.
const MORE_ID_FORMS: &str = include_str!("id_forms.md");

/// The example of a mapped platform, with the path of its `.proto`. Secrets are `replace-me`.
pub fn platform_example(name: &str) -> String {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples");
    let file = examples.join(format!("platforms/{name}.toml"));
    let text = std::fs::read_to_string(file).unwrap();

    let proto = examples.join("kuaishou.proto");
    text.replace(
        "\"kuaishou.proto\"",
        &format!("{:?}", proto.display().to_string()),
    )
    .replace(
        &format!("value_file = \"{name}.secret\""),
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
