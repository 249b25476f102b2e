//! Nested member names: `device.idfa` is the member `idfa` of the member `device`. An escaped dot
//! is part of a name: `device\.idfa` is one name.

/// The names of the path to a member, from the outermost.
pub fn path(column: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut characters = column.chars().peekable();
    while let Some(character) = characters.next() {
        let last = names.last_mut().expect("there is one from the start");
        match character {
            '\\' if characters.peek() == Some(&'.') => last.extend(characters.next()),
            '.' => names.push(String::new()),
            character => last.push(character),
        }
    }
    names
}

/// The path to a member as a column names it.
pub fn written(names: &[String]) -> String {
    let mut column = String::new();
    for (index, name) in names.iter().enumerate() {
        if index > 0 {
            column.push('.');
        }
        column.push_str(&name.replace('.', r"\."));
    }
    column
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unescaped_dots_separate_names() {
        for (column, names) in [
            ("idfa", &["idfa"][..]),
            ("device.ids.idfa", &["device", "ids", "idfa"]),
            (r"device\.idfa", &["device.idfa"]),
            (r"a\.b.c\d", &["a.b", r"c\d"]),
            ("", &[""]),
            ("a.", &["a", ""]),
        ] {
            assert_eq!(path(column), names, "{column}");
            assert_eq!(written(&path(column)), column);
        }
    }
}
