//! CLI reference page, generated from the command definitions: `docs/reference/cli-rtad-writer.md`.

use testkit::reference::{assert_current, cli_page};

use super::{REFERENCE, program};

#[test]
fn command_reference_is_current() {
    let page = cli_page(program(), REFERENCE);
    assert_current("rtad-writer", "cli-rtad-writer.md", &page);
}
