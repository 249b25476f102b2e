use super::*;

fn mistakes(text: &str) -> String {
    Config::parse(text, "loader.toml").unwrap_err().to_string()
}

#[test]
fn valid_file_is_read() {
    let config = Config::parse(
        "state_dir = \"/s\"\n\
         [[window]]\nname = \"clicks\"\nlength = \"day\"\ntime_zone = \"Asia/Shanghai\"\n\
         capacity = 1_000_000\ncount = 3\ndurability = \"fsync\"\n\
         checkpoint_interval = \"30s\"\n\
         [[window]]\nname = \"dedup\"\nlength = \"10m\"\ncapacity = 1000\n\
         [[audience]]\nname = \"out\"\nfrom_window = \"clicks\"\nmin_count = 3\n",
        "loader.toml",
    );
    let config = config.unwrap();
    assert_eq!(config.lease, DEFAULT_LEASE);
    let lease = Config::parse("lease = \"1500ms\"", "loader.toml").unwrap().lease;
    assert_eq!(lease, Duration::from_millis(1500));
    assert_eq!(config.windows[0].length.clock(), "day in Asia/Shanghai");
    assert!(config.windows[0].spec.whole_keys && !config.windows[1].spec.whole_keys);
    assert_eq!(config.windows[0].spec.lifetime, 1);
    assert_eq!(config.windows[1].spec.lifetime, 129);
    assert_eq!(config.windows[1].durability, Durability::Interval(DEFAULT_INTERVAL));
    let intervals = [0, 1].map(|index| config.windows[index].checkpoint_interval.as_secs());
    assert_eq!(intervals, [30, 600]);
    assert_eq!(config.audiences[0].min_count, 3);
}

#[test]
fn every_mistake_is_named_at_once() {
    let text = mistakes(
        "lease = \"500ms\"\n\
         [[window]]\nname = \"a\"\nlength = \"soon\"\ncapacity = 1\n\
         [[window]]\nname = \"a\"\nlength = \"10m\"\ntime_zone = \"UTC\"\ncapacity = 0\n\
         [[window]]\nname = \"B\"\nlength = \"day\"\ntime_zone = \"Mars\"\ncapacity = 1\n\
         [[window]]\nname = \"c\"\nlength = \"10m\"\ncapacity = 1\ndurability = \"yes\"\n\
         [[window]]\nname = \"d\"\nlength = \"10m\"\ncapacity = 1\n\
         [[window]]\nname = \"e\"\nlength = \"10m\"\ncapacity = 1\n\
         checkpoint_interval = \"1s\"\n\
         [[window]]\nname = \"f\"\nlength = \"10m\"\ncapacity = 1\ndurability = \"none\"\n\
         checkpoint_interval = \"1m\"\n\
         [[window]]\nname = \"r\"\nlength = \"10m\"\ncapacity = 1\ncount = 2\n\
         backend = \"http://redis\"\n\
         [[audience]]\nname = \"x\"\nfrom_window = \"nowhere\"\n\
         [[audience]]\nname = \"y\"\nfrom_window = \"d\"\nmin_count = 2\n",
    );
    for expected in [
        "lease: expected a time of 1s to 1day, found \"500ms\"",
        "window \"a\": length: expected a time of 1s to 28days, or \"day\", \
         found \"soon\"",
        "window \"a\": name: expected a name that no other window has",
        "window \"a\": time_zone: expected length = \"day\" with it",
        "window \"r\": capacity: expected none with backend: the server decides, found a value",
        "window \"r\": count: expected 1 with backend",
        "window \"r\": backend:",
        "window \"a\": capacity: expected 1 to 20000000000, found 0",
        "window \"B\": name: expected 1 to 64",
        "window \"B\": time_zone: unknown time zone \"Mars\"",
        "window \"c\": durability: expected \"fsync\", \"interval\" or \"none\", found \"yes\"",
        "audience \"x\": from_window: expected the name of a [[window]], found nowhere",
        "audience \"y\": min_count: expected 1 to the window's count, 1, found 2",
        "window \"e\": checkpoint_interval: expected a time of 10s to 1day, found \"1s\"",
        "window \"f\": checkpoint_interval: expected a durability with checkpoints",
        "state_dir: expected a directory",
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    assert!(mistakes("[[window]]\nnmae = 1").contains("line 2: unknown field `nmae`"));
}

#[test]
fn text_of_the_file_is_not_shown() {
    let url = "redis://:secret@h";
    for line in [
        format!("backedn = {url:?}"),
        format!("backend = {url}"),
        format!("backend = {url:?} x"),
        format!("backend = [{url:?}]"),
        format!("backend = \"{url}"),
        format!("capacity = {url:?}"),
        format!("when_full = {url:?}"),
        format!("count = \"{url}, expected secret\""),
        format!("backend = {url:?}\nbackend = {url:?}"),
    ] {
        let text = mistakes(&format!("[[window]]\nname = \"a\"\nlength = \"1h\"\n{line}\n"));
        assert!(!text.contains("secret") && text.contains(": line "), "{line}: {text}");
    }
}

#[test]
fn count_of_a_window_with_an_audience_has_room_for_one_more() {
    let config = |count: u16, audience: &str| {
        let text = format!(
            "state_dir = \"/s\"\n[[window]]\nname = \"a\"\nlength = \"1h\"\ncapacity = 1\n\
             count = {count}\n{audience}"
        );
        Config::parse(&text, "loader.toml")
    };
    let audience = "[[audience]]\nname = \"x\"\nfrom_window = \"a\"\n";
    config(10_000, "").unwrap();
    config(9_999, audience).unwrap();
    let text = config(10_000, audience).unwrap_err().to_string();
    let expected = "count: expected less than 10000 for a window with an [[audience]]";
    assert!(text.contains(expected), "{text}");
}
