use crate::config::{Config, ConfigError, ConfigUse, Vocabulary};

const A: &str = include_str!("../../../tests/minisign/a.pub");
const B: &str = include_str!("../../../tests/minisign/b.pub");
const SECRET: &str = include_str!("../../../tests/minisign/a.key");

fn key(file: &str) -> &str {
    file.lines().nth(1).unwrap()
}

fn config(path: &str, text: &str) -> Result<Config, ConfigError> {
    let vocabulary = Vocabulary {
        kinds: &[],
        reserved_names: &[],
        failures: &[],
    };
    let (config, mistakes) = Config::read(
        Some((path, text)),
        |_| None,
        &Vec::new(),
        &vocabulary,
        ConfigUse::All,
    )?;
    mistakes.into_result(config)
}

fn read_at(path: &str, store: &str) -> Result<Vec<String>, ConfigError> {
    let text = format!("[store]\nurl = \"/data\"\n{store}");
    let config = config(path, &text)?;
    Ok(config
        .store
        .public_keys
        .iter()
        .map(ToString::to_string)
        .collect())
}

fn read(store: &str) -> Result<Vec<String>, ConfigError> {
    read_at("rtad.toml", store)
}

#[test]
fn keys_are_read_from_config_and_file() {
    let (a, b) = (key(A), key(B));
    assert_eq!(read("").unwrap(), [""; 0]);
    assert_eq!(read("public_keys = []").unwrap(), [""; 0]);
    assert_eq!(
        read(&format!("public_keys = [{a:?}, {b:?}, {a:?}]")).unwrap(),
        [a, b]
    );

    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("keys"), format!("{A}{B}")).unwrap();
    let path = folder.path().join("rtad.toml");
    let path = path.to_str().unwrap();
    assert_eq!(
        read_at(path, "public_keys_file = \"keys\"").unwrap(),
        [a, b]
    );
    let both = format!("public_keys = [{b:?}]\npublic_keys_file = \"keys\"");
    assert_eq!(read_at(path, &both).unwrap(), [b, a]);
}

#[test]
fn invalid_key_is_a_mistake_and_is_not_shown() {
    let accepted = "accepted: a minisign public key: 56 characters that begin with RW, the second \
                    line of its .pub file";
    let (a, secret) = (key(A), key(SECRET));
    for (index, list) in [
        (1, format!("[{a:?}, {secret:?}]")),
        (0, format!("[{:?}]", &a[..20])),
        (0, "[\"\"]".to_owned()),
        (0, "[[]]".to_owned()),
    ] {
        let mistakes = read(&format!("public_keys = {list}")).unwrap_err().mistakes;
        let key = format!("store.public_keys[{index}]");
        assert_eq!(
            mistakes,
            [format!(
                "rtad.toml:3: {key} has a value that is not one; {accepted}"
            )]
        );
    }
    let mistakes = read(&format!("public_keys = {a:?}")).unwrap_err().mistakes;
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    assert!(mistakes[0].ends_with("; accepted: a list"), "{mistakes:?}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rtad.toml");
    let path = path.to_str().unwrap();
    for (text, found) in [
        (None, "No such file or directory (os error 2)"),
        (Some(""), "has no key, or a line that is not a key"),
        (Some(SECRET), "has no key, or a line that is not a key"),
    ] {
        let keys = folder.path().join("keys");
        if let Some(text) = text {
            std::fs::write(&keys, text).unwrap();
        }
        let mistakes = read_at(path, "public_keys_file = \"keys\"")
            .unwrap_err()
            .mistakes;
        let expected = format!(
            "{path}:3: store.public_keys_file is {:?}: {found}; accepted: ",
            keys.display().to_string()
        );
        assert!(
            mistakes.len() == 1 && mistakes[0].starts_with(&expected),
            "{mistakes:?}"
        );
    }
}

#[test]
fn printed_keys_read_back_and_changes_need_a_restart() {
    let text = |key: &str| format!("[store]\nurl = \"/data\"\npublic_keys = [{key:?}]");
    let read = |text: &str| config("rtad.toml", text).unwrap();
    let config = read(&text(key(A)));
    assert_eq!(read(&config.to_toml()).store, config.store);
    assert_eq!(
        read(&text(key(B))).needs_restart(&config),
        ["store.public_keys"]
    );
    assert!(config.needs_restart(&config).is_empty());
}
