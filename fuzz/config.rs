//! Properties of the configuration's reader: a text is read, and its printed form is the same
//! configuration, or every mistake is one line that begins with the file.

use std::path::Path;

use rtad::serve::Assembly;

use super::memory::bounded;

/// Compiling the schema of a platform takes memory that does not depend on the config.
const SCHEMA_BYTES: usize = 4 << 20;

/// Checks a configuration beside the project's `proto` folder.
///
/// # Panics
///
/// If a property does not hold.
pub fn check_config(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let mut root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let root = root
        .find(|folder| folder.join("proto").is_dir())
        .expect("the project's root");
    let file = root.join("rtad.toml").display().to_string();
    let read = |text: &str| Assembly::read(Some((&file, text)), |_| None, &Vec::new());
    let bytes = SCHEMA_BYTES + text.len();
    let assembly = match bounded("config", bytes, 2000, || read(text)) {
        Ok(assembly) => assembly,
        Err(error) => {
            assert!(!error.mistakes.is_empty());
            for mistake in error.mistakes {
                let is_located = mistake.starts_with(&format!("{file}:"));
                assert!(
                    is_located && mistake.contains("; accepted: "),
                    "{mistake:?}"
                );
                assert!(!mistake.contains('\n'), "{mistake:?}");
            }
            return;
        }
    };
    let printed = assembly.config.to_toml();
    // A secret is printed as a placeholder, which is no secret.
    let restored = printed.replace("<redacted>", "restored");
    let again = read(&restored).expect("a printed config is readable");
    assert_eq!(again.config.to_toml(), printed);
    let _ = assembly.plan();
}
