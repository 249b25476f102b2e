use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::values::{SECOND, Time, number, size, time};
use super::*;

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct Root {
    name: Option<Named>,
    #[serde(deserialize_with = "number::<_, _, 1, 9>")]
    count: u16,
    #[serde(deserialize_with = "size::<_, 1>")]
    size: u64,
    list: Vec<u64>,
    item: Vec<Item>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Item {
    id: String,
    #[serde(default, skip_serializing)]
    paths: BTreeMap<String, Paths>,
    #[serde(default, deserialize_with = "time::<_, _, SECOND, { 2 * SECOND }>")]
    time: Option<std::time::Duration>,
}

type Paths = NamedList;

fn read(text: &str) -> Result<Root, Vec<String>> {
    read_as(text).map_err(|error| error.mistakes)
}

fn read_as<T: serde::de::DeserializeOwned + Default>(text: &str) -> Result<T, ConfigError> {
    let mut document = Document::parse("f.toml", text)?;
    let read = document.read();
    document.finish().into_result(read.unwrap_or_default())
}

#[test]
fn times_are_printed_in_the_largest_exact_unit() {
    let printed = |millis| Time(Duration::from_millis(millis)).to_string();
    for (millis, expected) in [
        (86_400_000, "1d"),
        (129_600_000, "36h"),
        (90_000, "90s"),
        (1500, "1500ms"),
        (0, "0s"),
    ] {
        assert_eq!(printed(millis), expected);
    }
}

#[test]
fn every_wrong_unknown_and_missing_key_is_found_in_one_reading() {
    let text = "count = \"2\"\nsize = \"x\"\nlist = [1, \"2\", 3, true]\nnew = 1\n\
                [[item]]\nid = 3\ntime = \"3s\"\n[[item]]\ntime = 1\nmore = 1\n\
                [[item]]\nid = \"i\"\npaths = { a = [\"x\", \"\"], b = 1979-05-27 }";
    let expected = [
        "f.toml:1: count is \"2\"; accepted: a whole number from 1 to 9",
        "f.toml:2: size is \"x\"; accepted: a size, such as 64KiB or 8GiB",
        "f.toml:3: list[1] is \"2\"; accepted: a whole number",
        "f.toml:3: list[3] is true; accepted: a whole number",
        "f.toml:4: new is not known; accepted: name, count, size, list, item",
        "f.toml:6: item[0].id is 3; accepted: a string",
        "f.toml:7: item[0].time is \"3s\"; accepted: a duration from 1s to 2s",
        "f.toml:8: item[1].id is missing; accepted: a string",
        "f.toml:9: item[1].time is 1; accepted: a duration from 1s to 2s",
        "f.toml:10: item[1].more is not known; accepted: id, paths, time",
        "f.toml:13: item[2].paths.a[1] is \"\"; accepted: a string that is not empty",
        "f.toml:13: item[2].paths.b is 1979-05-27; accepted: a string that is not empty, or a \
         list of them",
    ];
    assert_eq!(read(text).unwrap_err(), expected);
}

#[test]
fn missing_key_has_its_accepted_values() {
    let missing = "f.toml:2: item[1].id is missing; accepted: a string";
    let found = read("[[item]]\nid = \"i\"\n[[item]]").unwrap_err();
    assert_eq!(found, [missing.replace(":2", ":3")]);
    let single = read("[item]\nid = \"i\"").unwrap_err();
    assert_eq!(
        single,
        ["f.toml:1: item is a single table, [item]; accepted: [[item]]"]
    );
}

#[test]
fn mistakes_name_their_tables() {
    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Root {
        window: Vec<Window>,
    }
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Window {
        name: String,
        size: u64,
    }
    let text = "[[window]]\nname = \"clicks\"\nsize = \"x\"\nmore = 1\n[[window]]\nname = \"\"\n\
                size = \"y\"\n[[window]]\nname = \"a\\nb\"";
    let expected = [
        "f.toml:3: [[window]] \"clicks\": size is \"x\"; accepted: a whole number",
        "f.toml:4: [[window]] \"clicks\": more is not known; accepted: name, size",
        "f.toml:7: window[1].size is \"y\"; accepted: a whole number",
        "f.toml:8: [[window]] \"a\\nb\": size is missing; accepted: a whole number",
    ];
    assert_eq!(read_as::<Root>(text).unwrap_err().mistakes, expected);

    let root: Root = read_as("[[window]]\nname = \"n\"\nsize = 1").unwrap();
    assert_eq!(
        (root.window[0].name.as_str(), root.window[0].size),
        ("n", 1)
    );
}

#[test]
fn syntax_error_is_the_only_mistake() {
    let mistakes = read("count = 0\nname = x").unwrap_err();
    assert!(
        mistakes.len() == 1 && mistakes[0].starts_with("f.toml:2: syntax "),
        "{mistakes:?}"
    );
}

#[test]
fn values_keep_their_locations() {
    let text = "size = 70_000\n[[item]]\nid = \"i\"\n[item.paths]\na = \"x\"";
    let root = read(text).unwrap();
    let path = &root.item[0].paths["a"].0[0];
    assert_eq!((root.size, path.text.as_str()), (70_000, "x"));

    let mistake = path.mistake("no field", "a field");
    let mut document = Document::parse("f.toml", text).unwrap();
    document.read::<Root>().unwrap();
    let mut mistakes = document.finish();
    mistakes.add(mistake);
    assert_eq!(
        mistakes.into_result(()).unwrap_err().mistakes,
        ["f.toml:5: item[0].paths.a is \"x\": no field; accepted: a field"]
    );
}

#[test]
fn flags_and_variables_replace_values() {
    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Outer {
        root: Root,
    }
    let read = |values: &'static [(&str, &str)]| {
        let mut document = Document::parse("", "root.count = 2").unwrap();
        for (key, value) in values {
            document.put_over(
                &format!("root.{key}"),
                &format!("--{key}"),
                value,
                *key == "count",
            );
        }
        let outer = document.read::<Outer>().unwrap_or_default();
        document.finish().into_result(outer.root)
    };
    let root = read(&[("count", "3"), ("size", "2KiB")]).unwrap();
    assert_eq!((root.count, root.size), (3, 2048));
    let error = read(&[("count", "three")]).unwrap_err();
    assert_eq!(
        error.mistakes,
        ["--count is \"three\"; accepted: a whole number from 1 to 9"]
    );
}
