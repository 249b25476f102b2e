//! `docs/reference/cli-rtad.md`: generated from the commands' definitions.

use clap::CommandFactory as _;
use testkit::reference::{assert_current, cli_page, page};

use super::Cli;

#[test]
fn command_reference_is_current() {
    let page = cli_page(Cli::command(), super::REFERENCE);
    assert_current("rtad", "cli-rtad.md", &page);
}

#[test]
fn configuration_reference_lists_every_flag_of_serve() {
    let reference = page("configuration.md");
    let program = Cli::command();
    let serve = program.find_subcommand("serve").expect("a command");
    for flag in serve
        .get_arguments()
        .filter_map(|argument| argument.get_long())
    {
        let is_listed = flag == "config" || reference.contains(&format!("**flag:** `--{flag}`"));
        assert!(
            is_listed,
            "--{flag}: a line of FLAGS in src/config/reference.rs"
        );
    }
}
