//! `rtad completions` and `rtad man`. `rtad-loader` uses the same code.

use std::ffi::OsStr;
use std::process::Command;

use crate::rtad_process::run;

#[test]
fn shell_completes_commands_and_flags() {
    let bash = run(&["completions", "bash"], &[]);
    assert_eq!(bash.status, Some(0), "{bash:?}");
    let script = bash.stdout;
    // Input of a shell: the words so far, and the index of the word at the cursor.
    let completions = |words: &str, cursor: usize| {
        let ask = format!(
            "{script}\nCOMP_WORDS=({words}); COMP_CWORD={cursor}; COMPREPLY=(); \
             _rtad rtad \"${{COMP_WORDS[{cursor}]}}\" \"${{COMP_WORDS[{cursor}-1]}}\"; printf \
             '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let answered = Command::new("bash").args(["-c", &ask]).output().unwrap();
        assert!(answered.stderr.is_empty(), "{answered:?}");
        String::from_utf8(answered.stdout).unwrap()
    };
    assert_eq!(completions("rtad che", 1), "check-config\n");
    assert!(
        completions("rtad serve --st", 2)
            .lines()
            .any(|word| word == "--store")
    );
    for shell in ["zsh", "fish"] {
        let script = run(&["completions", shell], &[]).stdout;
        assert!(
            script.contains("check-config") && script.contains("admin-listen"),
            "{shell}"
        );
    }
    assert_eq!(run(&["completions", "cmd.exe"], &[]).status, Some(2));
}

#[test]
fn every_command_has_a_man_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("share/man1");
    let man = |directory: &OsStr| run(&[OsStr::new("man"), directory], &[]);
    assert_eq!(man(pages.as_os_str()).status, Some(0));
    for (page, says) in [
        ("rtad.1", "rtad\\-check\\-config(1)"),
        ("rtad-serve.1", "\\-\\-admin\\-listen"),
        ("rtad-check-config.1", "FILE"),
        (
            "rtad-check-config.1",
            ".SH EXAMPLES\n.nf\nrtad check\\-config /etc/rtad/rtad.toml",
        ),
        (
            "rtad-serve.1",
            ".SH \"EXIT STATUS\"\n.TP\n\\fB0\\fR\ndone; of serve and demo",
        ),
    ] {
        let text = std::fs::read_to_string(pages.join(page)).unwrap();
        assert!(
            text.starts_with(".ie") && text.contains(".TH rtad") && text.contains(says),
            "{page}: {text}"
        );
    }
    for page in std::fs::read_dir(&pages).unwrap() {
        let page = page.unwrap();
        let text = std::fs::read_to_string(page.path()).unwrap();
        let is_command = page.file_name() != "rtad.1";
        assert_eq!(text.contains(".SH EXAMPLES\n"), is_command, "{page:?}");
        assert!(text.contains(".SH \"EXIT STATUS\"\n"), "{page:?}");
    }
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let failed = man(file.as_os_str());
    assert_eq!(failed.status, Some(1));
    let stderr = failed.stderr;
    assert!(stderr.contains(file.to_str().unwrap()), "{stderr}");
}
