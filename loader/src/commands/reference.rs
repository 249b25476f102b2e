//! CLI reference page, generated from the command definitions: `docs/reference/cli-rtad-loader.md`.

use clap::CommandFactory as _;
use testkit::reference::{assert_current, cli_page};

use super::Cli;

#[test]
fn command_reference_is_current() {
    let page = cli_page(Cli::command(), super::REFERENCE);
    assert_current("rtad-loader", "cli-rtad-loader.md", &page);
}
